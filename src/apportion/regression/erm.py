"""Convex losses for many tasks by weighted noisy gradient descent under user-level differential privacy.

Algorithm 2 of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023). At every step the
gradient of each (user, task) pair is clipped to Γ, then weighted, then added; one release carries the sums of all
tasks. The paper's line 5 clips the sum, which bounds nothing about one user (docs/proofs/multi_task.md).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation import Adaptive
from apportion.allocation.policies import Allocation
from apportion.data.users import UserParts
from apportion.engines import Engine, add_up_one
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.losses import Loss, loss_of
from apportion.privacy import Purpose, Session, Share
from apportion.privacy.contributions import TaskMoments
from apportion.regression.multi_task import MultiTaskRegression, Start, into_ball, not_negative, positive
from apportion.regression.observations import Observed
from apportion.regression.step_rules import Problem, check_rule, number_of_steps, step_sizes
from apportion.regression.task_floor import TaskConstant, TaskFloor
from apportion.regression.user_sides import CodedLabels, Design, Directions, Slopes

Floats = NDArray[np.float64]

# shares for the constant that the model must beat, and for the comparison
_CONSTANT_SHARE, _COMPARISON_SHARE = 0.13, 0.2
_LEAST_EXPOSURE = 1e-3  # least exposure relative to the mean, so that step sizes stay finite


@with_constructor
class MultiTaskERM(MultiTaskRegression):
    """Empirical risk minimisation for every task by noisy gradient descent, under user-level differential privacy.

    Minimises Σ_i Σ_j ℓ(θ_i · x_ij, y_ij) + λ ‖θ_i‖² over ‖θ_i‖ ≤ r by full-batch steps.

    Args:
        loss: "squared", "logistic", "huber", or an object with `value` and `derivative` (see `apportion.losses.Loss`).
        gradient_bound: Γ, the norm to which the gradient of each (user, task) pair is clipped; None for the largest
            gradient of the loss within the domain, which clips nothing if labels are within feature_norm ·
            domain_radius.
        domain_radius: r; parameters are projected onto this ball after every step.
        ridge: λ, a penalty for every observation. Its gradient is added after the release, λ times a released
            total weight.
        rule: "convex" or "strongly convex", for the step sizes and numbers of steps of Theorem 3.12 (a) and (b).
        strong_convexity: λ of the second rule, of one observation's loss with its penalty; None for 2 · ridge.
        steps: number of steps; None for the rule's own.
        max_steps: upper limit of the rule's own number.
        step_size: a factor on the rule's step sizes.
        average: whether to return the mean of the iterates, later ones weighing more, instead of the last.
        floor: whether the model must be shown to beat one private constant for all tasks. This takes a third of the
            budget. If it does not, the constant is published (`regression.task_floor`).

    Attributes:
        coef_: coefficients, one row per task.
        task_ids_: the tasks, in the order of the rows.
        intercept_: a number that is added to every score: the remaining part of the constant, 0 if the whole model is
            published.
        model_part_: how far the published model lies on the way from the constant to the fitted model: 1 is the fitted
            model, 0 the constant.
        n_steps_: the number of steps taken.
        statement_: the privacy statement.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for `coef_` and `n_steps_`. The list of tasks,
    if given, and the bounds are public. With an allocation for a public graph it is for replacing one user's values
    and features.
    """

    loss: str | Loss = "squared"
    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    gradient_bound: float | None = None
    domain_radius: float = 1.0
    ridge: float = 0.0
    rule: str = "convex"
    strong_convexity: float | None = None
    steps: int | None = None
    max_steps: int = 100
    step_size: float = 1.0
    average: bool = True
    floor: bool = True
    allocation: Allocation = Adaptive(0.25)

    intercept_: float = field(init=False)
    model_part_: float = field(init=False)
    n_steps_: int = field(init=False)

    def predict(self, X: ArrayLike, *, tasks: ArrayLike | None = None) -> Floats:  # noqa: N803
        """Return the loss's prediction: θ_i · x or, for the logistic loss, 1 if that is positive and 0 otherwise."""
        scores = self.decision_function(X, tasks=tasks)
        prediction = getattr(loss_of(self.loss), "prediction", None)
        return scores if prediction is None else np.asarray(prediction(scores), np.float64)

    def decision_function(self, X: ArrayLike, *, tasks: ArrayLike | None = None) -> Floats:  # noqa: N803
        """Return θ_i · x for every row x and its task i, plus the remaining part of the constant."""
        return super().predict(X, tasks=tasks) + self.intercept_

    @property
    def _predicts_classes(self) -> bool:
        return hasattr(loss_of(self.loss), "prediction")

    def _check(self) -> None:
        super()._check()
        positive("domain_radius", self.domain_radius)
        positive("step_size", self.step_size)
        not_negative("ridge", self.ridge)
        check_rule(self.rule, self._convexity())
        for name, value in (("steps", self.steps), ("max_steps", self.max_steps)):
            if value is not None and value < 1:
                raise InputError(f"Expected {name} of at least 1, got {value}.", argument=name)
        positive("gradient_bound", self._clip_norm())

    def _convexity(self) -> float:
        return 2 * self.ridge if self.strong_convexity is None else self.strong_convexity

    def _clip_norm(self) -> float:
        """Return Γ: as given, or the length of the longest gradient within the domain."""
        if self.gradient_bound is not None:
            return self.gradient_bound
        steepest = getattr(loss_of(self.loss), "steepest", None)
        if steepest is None:
            raise InputError(
                f"Expected a gradient_bound for a loss without `steepest`, got None for {self.loss!r}.",
                argument="gradient_bound",
            )
        return self.feature_norm * float(steepest(self.feature_norm * self.domain_radius))

    def _assumed_public(self) -> list[str]:
        bound = f"the norm {self._clip_norm():g} to which each gradient of a user for a task is clipped"
        return [*super()._assumed_public(), bound]

    def _learn(self, observations: Observed, session: Session, engine: Engine) -> Floats:
        loss = loss_of(self.loss)
        users = observations.users.mapped(CodedLabels(loss))
        design = Design(self.feature_norm, loss)
        shares = {"constant": _CONSTANT_SHARE, "comparison": _COMPARISON_SHARE} if self.floor else {}
        plan = self._plan(session, {"gradients": 1.0 - sum(shares.values()), **shares})
        start = self._start(observations, session, engine, plan)
        self.intercept_, self.model_part_, self.n_steps_ = 0.0, 1.0, 0
        if not self.floor:
            return self._descended(users, observations.dimension, design, start, session, engine, plan.one("gradients"))
        floor = TaskFloor(users, design, self.feature_norm * self.domain_radius, self._neighbours, session, engine)
        constant = floor.constant(plan.one("constant"))
        if not floor.can_tell(constant, plan.one("comparison")):
            self.intercept_, self.model_part_ = floor.constant(plan.one("gradients"), constant).score, 0.0
            return np.zeros((observations.data.n_tasks, observations.dimension))
        theta = self._descended(users, observations.dimension, design, start, session, engine, plan.one("gradients"))
        return self._floored(theta, floor, constant, plan.one("comparison"))

    def _descended(
        self,
        users: UserParts,
        dimension: int,
        design: Design,
        start: Start,
        session: Session,
        engine: Engine,
        share: Share,
    ) -> Floats:
        """Return one θ for each task, by weighted noisy gradient descent."""
        directions = Directions(design)
        problem = self._problem(start, dimension, share.mu / start.weights.moved(1.0))
        n_steps = self.steps or number_of_steps(self.rule, problem, self.max_steps)
        shares = share.split(**{f"{step}": 1 / n_steps for step in range(1, n_steps + 1)})
        theta = mean = np.zeros((users.n_tasks, dimension))
        for step in range(1, n_steps + 1):
            slopes = Slopes(design, theta, problem.gradient_bound, by_task=True)
            sums = add_up_one(engine, users, TaskMoments(start.weights, directions, slopes))
            gradient = session.release(Purpose.GRADIENT.at(step=step), sums, shares[f"{step}"])
            gradient = gradient + 2 * self.ridge * start.exposure[:, None] * theta
            sizes = self.step_size * step_sizes(self.rule, problem, step, n_steps)
            theta = into_ball(theta - sizes[:, None] * gradient, self.domain_radius)
            mean = mean + 2 / (step + 1) * (theta - mean)  # iterate k gets a weight proportional to k
        self.n_steps_ = n_steps
        return mean if self.average else theta

    def _floored(self, theta: Floats, floor: TaskFloor, constant: TaskConstant, share: Share) -> Floats:
        """Return the model, as far as it is shown to beat one constant for all tasks."""
        steepest = getattr(floor.design.loss, "steepest", None)
        slope = self._clip_norm() / self.feature_norm if steepest is None else float(steepest(floor.reach))
        reach = slope * (self.feature_norm * float(np.linalg.norm(theta, axis=1).max()) + abs(constant.score))
        self.model_part_ = floor.chosen(constant, theta, reach, share)
        self.intercept_ = (1 - self.model_part_) * constant.score
        return self.model_part_ * theta

    def _problem(self, start: Start, dimension: int, mu: float) -> Problem:
        """Return the input of the step rules: released and public values."""
        least = max(start.exposure_stddev, _LEAST_EXPOSURE * float(start.exposure.mean()), 1e-9)
        return Problem(
            exposure=np.maximum(start.exposure, least),
            typical_weight=start.typical_weight,
            dimension=dimension,
            mu=mu,
            gradient_bound=self._clip_norm(),
            radius=self.domain_radius,
            strong_convexity=self._convexity(),
        )

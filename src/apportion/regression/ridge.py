"""Ridge regression for many tasks from weighted sufficient statistics under user-level differential privacy.

Algorithm 1 of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023), for the objective

    Σ_i Σ_j (θ_i · x_ij − y_ij)² + λ ‖θ_i‖²                                                               (eq. 4)

The Gram matrices Σ_j w_ij x x' and the moments Σ_j w_ij y x of all tasks are released once each. The ridge is added
after the release, λ times a released total weight: inside the sum, as the paper prints it, it would add to the
sensitivity (docs/proofs/multi_task.md).
"""

from __future__ import annotations

from dataclasses import KW_ONLY

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Adaptive
from apportion.allocation.policies import Allocation
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.privacy import Purpose, Session
from apportion.privacy.contributions import TaskGrams, TaskMoments
from apportion.regression.multi_task import MultiTaskRegression, into_ball, not_negative, positive
from apportion.regression.observations import Observed
from apportion.regression.solves import Statistics, solve_psd, solve_shrunk
from apportion.regression.user_sides import ClippedFeatures, ClippedLabels

Floats = NDArray[np.float64]

SOLVES = {"shrunk": solve_shrunk, "psd": solve_psd}
_GRAM_SHARE_WHEN_SHRUNK = 0.2


@with_constructor
class MultiTaskRidge(MultiTaskRegression):
    """Ridge regression for every task, under user-level differential privacy.

    Args:
        feature_norm: Γ_x, the norm to which rows of X are clipped; public.
        label_bound: Γ_y, the bound to which labels are clipped; public.
        ridge: λ of eq. 4, a penalty on ‖θ‖² for every observation.
        coefficient_bound: radius of the ball onto which coefficients are projected; None for no projection.
        solve: "shrunk" for a solution that uses the known noise and what tasks have in common; "psd" for the paper's,
            the pseudo-inverse of the nearest positive semidefinite matrix.
        gram_share: fraction of the statistics' share for Gram matrices; the rest is for moments. None for
            `default_gram_share`.

    Attributes:
        coef_: coefficients, one row per task.
        task_ids_: the tasks, in the order of the rows.
        statement_: the privacy statement.

    Privacy: (ε, δ)-DP for adding or removing one user with all rows, for `coef_`. The list of tasks, if given, and
    the bounds are public. With an allocation for a public graph it is for replacing one user's values and features.
    There is no `score`: it would be computed from raw data, which ε does not cover.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, tasks = np.repeat(np.arange(2000), 2), np.tile([0, 1], 2000)
        >>> x = rng.uniform(-0.7, 0.7, (4000, 2))
        >>> y = x[:, 0] * np.where(tasks == 0, 0.5, -0.5)
        >>> model = MultiTaskRidge(epsilon=5.0, label_bound=0.5).fit(x, y, tasks=tasks, users=users, task_ids=[0, 1])
        >>> model.coef_.shape
        (2, 2)
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    feature_norm: float = 1.0
    label_bound: float = 1.0
    ridge: float = 1e-3
    coefficient_bound: float | None = None
    solve: str = "shrunk"
    gram_share: float | None = None
    allocation: Allocation = Adaptive(0.5)

    def _check(self) -> None:
        super()._check()
        positive("label_bound", self.label_bound)
        not_negative("ridge", self.ridge)
        if self.coefficient_bound is not None:
            positive("coefficient_bound", self.coefficient_bound)
        if self.solve not in SOLVES:
            raise InputError(
                f"Expected solve to be one of {', '.join(map(repr, SOLVES))}, got {self.solve!r}.", argument="solve"
            )
        if self.gram_share is not None and not 0 < self.gram_share < 1:
            raise InputError(
                f"Expected gram_share strictly between 0 and 1, got {self.gram_share}.", argument="gram_share"
            )

    def _assumed_public(self) -> list[str]:
        return [*super()._assumed_public(), f"the bound {self.label_bound:g} to which labels are clipped"]

    def _learn(self, observations: Observed, session: Session, engine: Engine) -> Floats:
        gram_share = self.gram_share or default_gram_share(self.solve, observations.dimension)
        plan = self._plan(session, {"grams": gram_share, "moments": 1 - gram_share})
        start = self._start(observations, session, engine, plan)
        weights, rows, labels = start.weights, ClippedFeatures(self.feature_norm), ClippedLabels(self.label_bound)
        contributions = [TaskGrams(weights, rows), TaskMoments(weights, rows, labels)]
        gram_sums, moment_sums = engine.add_up(observations.users, contributions)
        grams = session.release(Purpose.TASK_MATRICES, gram_sums, plan.one("grams"))
        moments = session.release(Purpose.TASK_MOMENTS, moment_sums, plan.one("moments"))
        released = Statistics(
            grams,
            weights.moved_gram(self.feature_norm**2) / plan.one("grams").mu,
            moments,
            weights.moved(self.feature_norm * self.label_bound) / plan.one("moments").mu,
            start.exposure,
            start.exposure_stddev,
        )
        return into_ball(SOLVES[self.solve](released, self.ridge), self.coefficient_bound)


def default_gram_share(solve: str, dimension: int) -> float:
    """Return the part of the statistics' share for Gram matrices.

    The error of A⁻¹b is A⁻¹(e − Eθ) to first order. With ‖θ‖ at the bound Γ_y/Γ_x of the paper, noise e of Γ_x
    Γ_y/(μ√f_b) per entry, and symmetric noise E of Γ_x²/(μ√f_A) on the diagonal and 1/√2 of that off it, E‖Eθ‖² = (Γ_x
    Γ_y/μ)² (d + 1)/(2 f_A) and E‖e‖² = (Γ_x Γ_y/μ)² d/f_b. Their sum is least at f_A : f_b = √((d + 1)/2) : √d. A
    shrunk solve takes most of the Gram matrices from what tasks have in common and needs less of them; a fifth was
    found to serve budgets from ε = 0.5 to 5 on synthetic tasks.
    """
    if solve == "shrunk":
        return _GRAM_SHARE_WHEN_SHRUNK
    gram, moment = np.sqrt((dimension + 1) / 2), np.sqrt(dimension)
    return float(gram / (gram + moment))

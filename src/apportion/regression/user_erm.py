"""Empirical risk minimisation by noisy gradient descent, where one user may own many rows.

Section 4 of Epasto et al., "Smoothly Bounding User Contributions in Differential Privacy" (2020): minimise the weighted
risk Σ_i c_i ℓ(θ · x_i, y_i), where no user's weights add up to much. Every step uses all rows. The gradient of every
row is clipped, then weighted, then added, so that one user moves the sum by no more than its weight allows.

Steps. T releases that share μ have noise of standard deviation ν√T each, ν = sensitivity/μ: their mean has ν, whatever
T is. Descent with Nesterov's momentum at step size η goes as far in T steps as plain descent in a time of τ = ηT²/4.
In flat directions of the risk, noise then moves parameters by about ντ in every coordinate, and in curved ones by less.
So τ determines how much noise, and how much signal, is let in. By default τ is chosen so that √d ντ is half the radius
of the domain, and η = 1/β for a risk whose curvature is at most β, which gives T = √(4τβ), limited to 20 to 200. These
choices were made on generated problems.

Weights. Squared gradients average well below L², and noise does most harm in flat directions, where gradients vary
least. On the same problems the excess risk was least if the variance of sampling was taken as L²/8 to L²/16 times Σ c².
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.users import ContributionPolicy, Smooth
from apportion.data.grouping import group_rows
from apportion.data.numbers import finite_column, finite_matrix
from apportion.data.users import UserParts, Users, in_memory
from apportion.engines import add_up_one
from apportion.errors import InputError
from apportion.estimators.constructors import with_constructor
from apportion.estimators.contributions import ContributionsEstimator, Sizes
from apportion.estimators.frames import is_elsewhere, rows_of_frame
from apportion.losses import Loss, loss_of
from apportion.postprocessing.intervals import student_half_width
from apportion.privacy import BoxedValues, PublicRowWeights, Purpose, Session, Share
from apportion.privacy.budget import Plan
from apportion.privacy.contributions import RowTotal
from apportion.privacy.statement import STATISTICS_DEFAULTS
from apportion.regression.descent import Descent, Risk, steps_for
from apportion.regression.floor import WAYS, Ends, LossDifferences, stands_out, why_no_intervals
from apportion.regression.multi_task import not_negative, positive
from apportion.regression.private_constant import PrivateConstant
from apportion.regression.user_regression import Progress, UserRegression
from apportion.regression.user_sides import CodedLabels, Design, coded_labels

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_FEWEST_STEPS, _MOST_STEPS = 20, 200
_NOISE_REACH = 0.5  # relative to the domain's radius
_SQUARED_GRADIENT = 1 / 8  # squared gradient of a typical row, in units of L²
_TOTAL_SHARE = 0.02  # share for the total weight, if sizes are private
# shares for a rough constant, and for the evidence that a model is worth trying
_CONSTANT_SHARE, _EVIDENCE_SHARE = 0.2, 0.1
_COMPARISON = 0.25  # part of the rest for the comparison of the model with the constant
_MOST_CONSTANT_STEPS = 40
_PARTS_SEED = 0  # a public seed


@with_constructor
class UserERM(ContributionsEstimator, UserRegression):
    """A linear model by noisy gradient descent on a convex loss, under user-level differential privacy.

    Minimises Σ_i c_i ℓ(θ · x_i, y_i) + λ ‖θ‖² over ‖θ‖ ≤ r; weights c sum to 1. With an intercept, rows are
    (x, feature_norm), of norm up to √2 feature_norm, and `intercept_`/feature_norm is one more entry of θ.

    Args:
        loss: "logistic", "squared", "huber", "smoothed-hinge", or an object with `value` and `derivative` (see
            `apportion.losses.Loss`).
        delta: δ of the whole fit, above 0; keep it far below one over the number of users.
        feature_norm: the norm to which rows of X are clipped; public.
        gradient_bound: L, the norm to which the gradient of every row is clipped; None for the largest that the loss
            has within the domain. For squared errors that is large: give the value for a typical error.
        domain_radius: r; θ is projected onto this ball after every step. The default suits scores of classes; it also
            determines how much noise is accepted (see `steps`).
        ridge: λ. Its gradient is added after the release.
        fit_intercept: whether to add a constant to every row.
        trade_off: A, in (max_l Σ_{S_l} c)² + A Σ c², which the weights minimise. None balances the effects of noise and
            sampling on a gradient: d (2L max_l Σ c/μ)² against L²/8 Σ c². So A = μ²/(32d), or μ²/(8d) if users are
            added or removed, divided by `interval_parts` if there are any.
        bounding: how each user's contribution is bounded: Smooth(), SampleLimit() or Unbounded().
        floor: whether the model must be shown to beat a private constant (`regression.floor`). This takes less than
            half of the budget. If it does not, the constant is published. Without an intercept the constant is 0.
        sizes: "private" protects how many rows each user has, and who takes part; "public" if everybody may know both.
        sizes_share: share of the budget for a histogram of sizes, from which the threshold is chosen, if they are
            private.
        max_size: a public bound on the threshold, if sizes are private.
        steps: T; None for a number from the noise (above).
        step_size: η; None for one from the noise and the loss's `curvature`.
        average: whether to return the mean of the iterates, later ones weighing more, instead of the last.
        interval_parts: K > 1 divides users into K parts, by a public rule, and runs K descents on them side by side;
            the model is the mean of the K and intervals are those of Student's t. This costs a factor of about √K in
            noise, and needs public sizes. Intervals do not account for descents that stop early, so they are refused if
            noise stopped a descent: if `n_steps_` is at its minimum of 20, or if the whole model did not beat the
            constant. 0 for no intervals.
        level: coverage of the intervals.

    Attributes:
        coef_: coefficients.
        intercept_: the constant, 0 without one.
        coef_intervals_: (low, high) for each coefficient; None without interval parts, or if they are refused.
        intercept_interval_: (low, high) of the intercept, or None, in the same way.
        about_intervals_: why there are no intervals, in one sentence; empty if there are some.
        model_part_: how far the published model lies on the way from the constant to the fitted model: 1 is the fitted
            model, 0 the constant.
        threshold_: h, above which a user's further rows add no weight.
        n_steps_: the number of steps taken.
        statement_: the privacy statement.

    Privacy: (ε, δ)-DP. With public sizes, it is for replacing features and labels of all rows of one user, who moves a
    step's gradient by at most 2 L max_l Σ_{S_l} c. With private sizes, it is for adding or removing one user, whose
    weight is at most h and who moves it by at most L h; the total weight is released as well.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> users, x = rng.integers(0, 2000, 8000), rng.uniform(-1, 1, (8000, 1))
        >>> model = UserERM("logistic", epsilon=5.0).fit(x, x[:, 0] > 0, users=users)
        >>> model.predict([[0.9], [-0.9]])
        array([1., 0.])
    """

    loss: str | Loss = "logistic"
    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    feature_norm: float = 1.0
    gradient_bound: float | None = None
    domain_radius: float = 10.0
    ridge: float = 0.0
    fit_intercept: bool = True
    trade_off: float | None = None
    bounding: ContributionPolicy = Smooth()
    floor: bool = True
    sizes: Sizes = "private"
    sizes_share: float = 0.05
    max_size: int = 1 << 20
    steps: int | None = None
    step_size: float | None = None
    average: bool = True
    interval_parts: int = 0
    level: float = 0.95

    coef_: Floats = field(init=False)
    intercept_: float = field(init=False)
    coef_intervals_: Floats | None = field(init=False)
    intercept_interval_: Floats | None = field(init=False)
    about_intervals_: str = field(init=False)
    model_part_: float = field(init=False)
    threshold_: float = field(init=False)
    n_steps_: int = field(init=False)

    def _fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        users: ArrayLike,
        session: Session | None,
        progress: Progress | None,
    ) -> Self:
        if is_elsewhere(X):
            with rows_of_frame(self.engine, X, users, y) as (on_cluster, width):
                owners = on_cluster.mapped(CodedLabels(loss_of(self.loss)))
                return self._found(owners, width, None, session, progress)
        features = finite_matrix(X, "X")
        labels = coded_labels(loss_of(self.loss), finite_column(y, "y", len(features)))
        grouping = group_rows(users, len(features), single_user=self._sizes_are_private)
        parts = self._parts(len(grouping.sizes))
        held = grouping.users(None if parts is None else {"part": parts}, features=features, labels=labels)
        return self._found(held, features.shape[1], parts, session, progress)

    def _found(
        self, owners: UserParts, width: int, parts: Integers | None, session: Session | None, progress: Progress | None
    ) -> Self:
        opened = self._session(session, self._assumed_public())
        if opened.budget.pure:
            problem = f"Expected a delta above 0, because noise on many gradients needs one, got {opened.budget.delta}."
            raise InputError(problem, argument="delta")
        plan = self._plan(opened)
        dimension = width + bool(self._constant)
        risk = self._risk(owners, dimension, parts, opened, plan)
        found, self.model_part_ = self._fitted(dimension, risk, opened, plan, progress)
        self._publish(found)
        self.threshold_ = risk.bounded.threshold
        self.statement_ = opened.statement()
        return self

    def decision_function(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return θ · x for every row."""
        x = finite_matrix(X, "X")
        if x.shape[1] != len(self.coef_):
            raise InputError(
                f"Expected X with {len(self.coef_)} columns, as in the fit, got {x.shape[1]}.", argument="X"
            )
        return np.asarray(x @ self.coef_ + self.intercept_)

    def predict(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return the loss's prediction: the score or, for losses of classes, 1 if it is positive and 0 otherwise.

        This is 0 and not -1 also if labels were -1 and 1, because it is private which of the two forms they had.
        """
        scores = self.decision_function(X)
        prediction = getattr(loss_of(self.loss), "prediction", None)
        return scores if prediction is None else np.asarray(prediction(scores), np.float64)

    def predict_proba(self, X: ArrayLike) -> Floats:  # noqa: N803
        """Return the probabilities of "no" and "yes" for every row, if the loss has them, as the logistic loss does."""
        probability = getattr(loss_of(self.loss), "probability", None)
        if probability is None:
            raise InputError(
                f"Expected a loss with probabilities, such as 'logistic', got {self.loss!r}.", argument="loss"
            )
        yes = np.asarray(probability(self.decision_function(X)), np.float64)
        return np.stack([1 - yes, yes], axis=1)

    @property
    def classes_(self) -> Floats:
        """What `predict` returns, 0 and 1, for scikit-learn's scorers. A loss of numbers has none."""
        if self._predicts != "classes":
            raise AttributeError(f"The loss {self.loss!r} has no classes.")
        return np.array([0.0, 1.0])

    @property
    def _predicts(self) -> Literal["classes", "numbers"]:
        return "classes" if hasattr(loss_of(self.loss), "prediction") else "numbers"

    # -- arguments --

    def _words_on_defaults(self) -> str:
        return STATISTICS_DEFAULTS

    def _check(self) -> None:
        """Refuse invalid arguments, before anything is spent."""
        for name in ("feature_norm", "domain_radius"):
            positive(name, getattr(self, name))
        not_negative("ridge", self.ridge)
        for name in ("trade_off", "step_size"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.steps is not None and self.steps < 1:
            raise InputError(f"Expected steps of at least 1, got {self.steps}.", argument="steps")
        if self.interval_parts and self.interval_parts < 2:
            raise InputError(
                f"Expected interval_parts of 0, or at least 2, got {self.interval_parts}.", argument="interval_parts"
            )
        if self.interval_parts and self._sizes_are_private:
            problem = "Expected public sizes for intervals, got private: a user's part depends on all users."
            raise InputError(problem, argument="sizes")
        if not 0 < self.level < 1:
            raise InputError(f"Expected a level strictly between 0 and 1, got {self.level}.", argument="level")
        positive("gradient_bound", self._clip_norm())

    @property
    def _constant(self) -> float:
        """The entry of every row for the intercept."""
        return self.feature_norm if self.fit_intercept else 0.0

    @property
    def _design(self) -> Design:
        return Design(self.feature_norm, loss_of(self.loss), self._constant)

    @property
    def _row_norm(self) -> float:
        return math.hypot(self.feature_norm, self._constant)

    def _clip_norm(self) -> float:
        """Return L: as given, or the length of the longest gradient within the domain."""
        if self.gradient_bound is not None:
            return self.gradient_bound
        return self._row_norm * self._of_loss("steepest", "gradient_bound")

    def _steepest(self) -> float:
        """The assumed largest slope of the loss: the loss's own bound, or the norm to which gradients are clipped."""
        own = getattr(loss_of(self.loss), "steepest", None)
        return self._clip_norm() / self._row_norm if own is None else float(own(self._row_norm * self.domain_radius))

    def _smoothness(self, row_norm: float) -> float:
        """Return β, the largest curvature that the risk may have, for rows of this norm."""
        return self._of_loss("curvature", "step_size") * row_norm**2 + 2 * self.ridge

    def _of_loss(self, name: str, instead: str) -> float:
        bound = getattr(loss_of(self.loss), name, None)
        if bound is None:
            raise InputError(
                f"Expected a {instead} for a loss without `{name}`, got None for {self.loss!r}.", argument=instead
            )
        return float(bound(self._row_norm * self.domain_radius))

    def _assumed_public(self) -> list[str]:
        assumed = [
            f"the norm {self.feature_norm:g} to which features are clipped",
            f"the norm {self._clip_norm():g} to which the gradient of every row is clipped",
        ]
        if self.interval_parts:
            assumed.append(f"which of {self.interval_parts} parts each user is in, by a public seed")
        return assumed

    def _parts(self, n_users: int) -> Integers | None:
        """Return the part of each user. It is drawn with a public seed and depends only on the number of users."""
        if not self.interval_parts:
            return None
        if n_users < self.interval_parts:
            raise InputError(f"Expected at least {self.interval_parts} users, one for each part.", argument=None)
        return np.random.default_rng(_PARTS_SEED).permutation(n_users) % self.interval_parts

    # -- releases --

    def _plan(self, session: Session) -> Plan:
        before = {**self._sizes_fractions(), **({"total": _TOTAL_SHARE} if self._sizes_are_private else {})}
        rest = 1 - sum(before.values())
        if rest <= 0:
            problem = f"Expected sizes_share below {1 - _TOTAL_SHARE:g}, got {self.sizes_share}."
            raise InputError(problem, argument="sizes_share")
        floor = {"constant": _CONSTANT_SHARE if self.fit_intercept else 0.0, "evidence": _EVIDENCE_SHARE}
        parts = {name: rest * share for name, share in floor.items() if share and self.floor}
        return session.plan(**before, **parts, gradients=rest - sum(parts.values()))

    def _risk(self, users: UserParts, dimension: int, parts: Integers | None, session: Session, plan: Plan) -> Risk:
        """Return the weights of all rows, and the total weight of each part, public or released."""
        share = plan.one("gradients")
        trade_off = self.trade_off or self._default_trade_off(dimension, share.mu)
        found = self._bounded(users, trade_off, session, plan.one("sizes") if "sizes" in plan else None)
        weights = found.weights
        if isinstance(weights, PublicRowWeights):
            totals = np.ones(1) if parts is None else self._part_totals(in_memory(users, "K parts"), parts, trade_off)
        else:
            total = add_up_one(self._adder, users, RowTotal(_halves, 1, weights))
            released = session.release(Purpose.TOTAL_WEIGHT, total, plan.one("total"))
            totals = np.maximum(2 * np.asarray(released, np.float64), found.threshold)
        return Risk(found, parts, totals, self._adder)

    def _part_totals(self, users: Users, parts: Integers, trade_off: float) -> Floats:
        rows = self.bounding.row_weights(users.indptr, trade_off).rows
        return np.asarray(np.bincount(np.repeat(parts, users.sizes), rows), np.float64)

    def _default_trade_off(self, dimension: int, mu: float) -> float:
        moved = 1.0 if self._sizes_are_private else 4.0 * max(self.interval_parts, 1)
        return _SQUARED_GRADIENT * mu**2 / (dimension * moved)

    def _fitted(
        self, dimension: int, risk: Risk, session: Session, plan: Plan, progress: Progress | None
    ) -> tuple[Floats, float]:
        """Return one θ for each part, and how far it lies on the way from the constant to the model."""
        start = np.zeros((len(risk.totals), dimension))
        self.n_steps_ = 0
        if not self.floor:
            return self._descended(start, risk, session, plan.one("gradients"), progress), 1.0
        intercept = PrivateConstant(loss_of(self.loss), self._constant, self.domain_radius, risk, session)
        if self.fit_intercept:
            start[:, -1] = intercept.found(1, plan.one("constant"), self._descent_on_constant)
        left = plan.one("gradients")
        if not intercept.serves:  # in this case nothing is spent on evidence
            left = Share(left.fraction + plan.one("evidence").fraction, left.of)
        if not (intercept.serves and self._worth_trying(start, risk, session, plan.one("evidence"))):
            again = start.copy()  # arrays that were passed to the engine must keep their values
            if self.fit_intercept:
                again[:, -1] = intercept.found(2, left, self._descent_on_constant)
            return again, 0.0
        shares = plan.one("gradients").split(descent=1 - _COMPARISON, comparison=_COMPARISON)
        found = self._descended(start, risk, session, shares["descent"], progress)
        part = self._compared(start, found, risk, session, shares["comparison"])
        return start + part * (found - start), part

    def _worth_trying(self, start: Floats, risk: Risk, session: Session, share: Share) -> bool:
        """Whether the gradient at the constant has a part along the features that stands out of the noise."""
        gradient = risk.gradient(self._design, start, self._clip_norm())
        noisy = self._release(session, Purpose.EVIDENCE, risk.bounded.users, gradient, share)
        along = np.reshape(noisy.values, start.shape).sum(axis=0)[: start.shape[1] - self.fit_intercept]
        return stands_out(along, noisy.stddev * math.sqrt(len(risk.totals)))

    def _descended(
        self, start: Floats, risk: Risk, session: Session, share: Share, progress: Progress | None
    ) -> Floats:
        clip = self._clip_norm()
        self.n_steps_, size = self._schedule(self._time(risk, clip, share, start.shape[1]))
        settings = self.n_steps_, size, self.ridge, self.domain_radius, self.average
        return Descent(self._design, clip, *settings, Purpose.GRADIENT).run(start, risk, session, share, progress)

    def _descent_on_constant(self, risk: Risk, share: Share, purpose: Purpose) -> Descent:
        """Return a descent on the intercept alone, for losses whose best constant is not given by the mean label."""
        clip = min(self._clip_norm(), self._constant * self._steepest())
        size = self.step_size if self.step_size is not None else 1 / self._smoothness(self._constant)
        n_steps = int(np.clip(steps_for(self._time(risk, clip, share, 1), size), 1, _MOST_CONSTANT_STEPS))
        design = Design(0.0, loss_of(self.loss), self._constant)
        return Descent(design, clip, n_steps, size, self.ridge, self.domain_radius, True, purpose)

    def _time(self, risk: Risk, clip: float, share: Share, dimension: int) -> float:
        """Return τ: how far a descent goes before noise moves parameters by too much; see the top of this module."""
        noise = risk.bounded.weights.moved(clip) / share.mu / float(risk.totals.min())
        return _NOISE_REACH * self.domain_radius / (math.sqrt(dimension) * noise)

    def _schedule(self, time: float) -> tuple[int, float]:
        """Return T and η: as given, or from public and released numbers."""
        longest = 1 / self._smoothness(self._row_norm) if self.step_size is None else self.step_size
        n_steps = self.steps or int(np.clip(steps_for(time, longest), _FEWEST_STEPS, _MOST_STEPS))
        return n_steps, longest if self.step_size is not None else min(longest, 4 * time / n_steps**2)

    def _compared(self, start: Floats, found: Floats, risk: Risk, session: Session, share: Share) -> float:
        """Return how far to go from the constant to the model, by a paid comparison."""
        longest = float(np.linalg.norm(found - start, axis=1).max())
        ends = Ends.of(loss_of(self.loss), self._row_norm * self._steepest() * longest)
        values = LossDifferences(self._design, start, found, ends)
        differences = RowTotal(values, len(WAYS), risk.bounded.weights)
        noisy = self._release(session, Purpose.COMPARISON, risk.bounded.users, differences, share)
        return ends.chosen(noisy, float(risk.totals.sum()))

    def _publish(self, found: Floats) -> None:
        scaled = found.copy()
        if self.fit_intercept:
            scaled[:, -1] *= self._constant
        else:
            scaled = np.column_stack([scaled, np.zeros(len(scaled))])
        middle = scaled.mean(axis=0)
        self.coef_, self.intercept_ = middle[:-1], float(middle[-1])
        self.coef_intervals_ = self.intercept_interval_ = None
        stopped = self.steps is None and self.n_steps_ <= _FEWEST_STEPS
        self.about_intervals_ = why_no_intervals(self.interval_parts > 0, self.model_part_, stopped)
        if not self.about_intervals_:
            widths = student_half_width(self.level, len(scaled) - 1) * scaled.std(axis=0, ddof=1)
            ends = middle[:, None] + np.array([-1.0, 1.0]) * (widths / math.sqrt(len(scaled)))[:, None]
            self.coef_intervals_, self.intercept_interval_ = ends[:-1], ends[-1]


def _halves(users: Users) -> BoxedValues:
    """Return 1/2 in every row, so that the sum is half the total weight."""
    return BoxedValues(np.full((users.n_rows, 1), 0.5))

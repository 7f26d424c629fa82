"""The estimator for multi-task learning in which no task's data or model leaks to the others.

Each task belongs to a party. In every round, each party sends one bounded part, a model or a matrix. The curator
releases the sum with noise and sends back one matrix and what the models have in common, from which each party learns
with its own rows. The final model belongs to its party; everybody else sees only what was released. This follows the
model-protection paper, with its mechanism replaced by one that has a proof (docs/proofs/parties.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.allocation.rounds import RoundSchedule, Uniform, recommended
from apportion.data.grouping import one_of
from apportion.data.numbers import finite_matrix
from apportion.data.vocabulary import Vocabulary, as_array
from apportion.errors import InputError
from apportion.estimators.base import defaults_of
from apportion.estimators.constructors import with_constructor
from apportion.estimators.private import PrivateEstimator
from apportion.estimators.scores import score_of, unnamed
from apportion.parties.common import moment_weights
from apportion.parties.curator import Curator, Released
from apportion.parties.instance import InstanceGuarantee, party_noise
from apportion.parties.parties import Parties, Party
from apportion.parties.release import GaussianRelease, MatrixRelease
from apportion.parties.side import PartySide
from apportion.parties.structure import structure_of
from apportion.parties.tasks import TaskRows, rows_by_party, rows_of_lists
from apportion.privacy import Budget, Neighbours, Session
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK
from apportion.privacy.task_sums import MomentWeights

Floats = NDArray[np.float64]
Progress = Callable[[str, int, int], None]

_PENALTIES = {"em": 1.0, "low-rank": 0.1, "low-rank+sparse": 0.1, "group-sparse": 0.1, "relations": 0.3}
_ROUNDS = {"em": 1}
_PROXIMAL_ROUNDS = 10
_SETTINGS = (
    "structure", "rounds", "schedule", "clip_norm", "pooled", "share_mean", "contribution", "penalty", "sparse_penalty",
    "accelerated", "condition", "release",
)  # fmt: skip
_ABOUT_DEFAULTS = (
    "library defaults: constants and functions of public and released quantities, developed "
    "on generated tasks and on the School, Exam, ScotsSec and egsingle data; nothing was chosen by looking at "
    "these data, unless they are among them"
)


_GAUSSIAN = GaussianRelease()


def default_delta(n_tasks: int) -> float:
    """Return 1/m², but at most 1/1000."""
    return min(1 / n_tasks**2, 1e-3)


@with_constructor
class ProtectedMultiTask(PrivateEstimator):
    """Linear models of many tasks, learned together under joint differential privacy for whole tasks.

    Args:
        delta: δ of the whole fit; None for 1/m² (at most 1/1000), which needs a public number of tasks m: declared by
            `n_tasks`, or that of the data if neighbours replace a task.
        structure: "em" for private EM (w ~ N(m, Ω)), or what tasks are assumed to share in a proximal method:
            "low-rank" (Algorithm 2), "group-sparse" (3), "low-rank+sparse" (4), "relations".
        loss: "squared", or "logistic" for labels of two classes (1, and 0 or -1).
        fit_intercept: whether every party subtracts its own means and adds them back. This costs nothing. It is only
            for the squared loss. Without it, labels should be about 0 where features are 0.
        neighbours: REPLACE_TASK or ADD_REMOVE_TASK.
        n_tasks: the number of tasks, declared public; None if it must not be used.
        rounds: number of releases; None for 1 with "em" and 10 otherwise. On generated tasks, more rounds of EM made
            results worse at ε = 1 and 3 and no better at 10, because means that were shrunk towards some directions
            confirm these directions.
        schedule: how the budget is divided over rounds: Uniform(), Power(α), Geometric(Q); None for the recommended
            one.
        clip_norm: K, the public norm to which a model is clipped before it is sent. None scales every model to norm 1,
            which needs no K and does not reveal a party's scale.
        pooled: whether a round uses the mean of all releases so far, weighted by their shares; otherwise it uses only
            the last one, as in the paper. The mean has the noise of one release with all these shares.
        share_mean: whether parties also share the mean of their models' directions, and their mean size, in the same
            release. It needs a public number of tasks, and is left out with `instance_epsilon`, with
            `contribution="posterior"` and with a release of other noise.
        contribution: for EM, "mean" for the posterior mean's outer product or "posterior" for the whole second moment.
        penalty: λ of a proximal method, relative (see `structure`); None for a default.
        sparse_penalty: λ₂ of "low-rank+sparse", in units of the root mean square of a party's own model.
        release: how the curator draws a round's matrix: with Gaussian noise or by another `MatrixRelease`.
        accelerated: whether proximal steps have momentum.
        condition: a public bound on the condition number of the parties' losses, to use their strong convexity.
        feature_mask: which features each task has, [tasks, features]; public. Its model is 0 in the others.
        instance_epsilon: ε with which every party also protects its single rows against the curator (Algorithm 5);
            None for no such protection.
        noise: `"secure"` (default, from the operating system), `"exact"` (exact arithmetic as well, not with Wishart
            noise), or a source.

    Attributes:
        coef_: models, one row per task; row i belongs only to party i.
        intercept_: the intercept of every party, 0 without one; belongs only to that party.
        single_task_: what every party would have learned alone (with the squared loss, under a prior that lets a few
            features stand out); belongs only to that party.
        single_task_intercept_: the intercept of that model.
        own_weight_: the weight, in each party's model, of what it learned alone; belongs only to that party.
        task_ids_: the tasks' ids, in the order of the rows.
        released_: what may be shared: one `Released` for each round.
        instance_guarantee_: the guarantee of parties for their single rows, if there is one.
        statement_: the privacy statement of what was released.

    Privacy: joint (ε, δ)-DP. All others see only what was released. Without a shared mean, task i moves each round's
    sum by at most K² (add or remove) or √2 K² (replace). With one, of weights a² and c² (`MomentWeights`), it is √(1 +
    a² + c²) K² (add or remove) or √(2 + 2a² + a⁴/2 + c²) K² (replace); with `clip_norm`, the latter is at least √(1 +
    4a² + c²) K². Party i's own model is a function of its own rows and of releases.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> common = rng.standard_normal((1, 4))  # one direction that all parties' models lie along
        >>> x = [rng.standard_normal((10, 4)) for _ in range(60)]
        >>> y = [rows @ (rng.standard_normal(1) @ common) for rows in x]
        >>> model = ProtectedMultiTask(epsilon=3.0).fit(x, y)
        >>> model.coef_.shape  # row i belongs to party i and to nobody else
        (60, 4)
        >>> len(model.released_)  # may be shared
        1
    """

    epsilon: float = 1.0
    delta: float | None = None
    _: KW_ONLY
    structure: str = "em"
    loss: str = "squared"
    fit_intercept: bool = False
    neighbours: Neighbours = REPLACE_TASK
    n_tasks: int | None = None
    rounds: int | None = None
    schedule: RoundSchedule | None = None
    clip_norm: float | None = None
    pooled: bool = True
    share_mean: bool = True
    contribution: str = "mean"
    penalty: float | None = None
    sparse_penalty: float = 0.5
    release: MatrixRelease = _GAUSSIAN
    accelerated: bool = True
    condition: float | None = None
    feature_mask: ArrayLike | None = None
    instance_epsilon: float | None = None

    coef_: Floats = field(init=False)
    intercept_: Floats = field(init=False)
    single_task_: Floats = field(init=False)
    single_task_intercept_: Floats = field(init=False)
    own_weight_: Floats = field(init=False)
    task_ids_: Vocabulary = field(init=False)
    released_: tuple[Released, ...] = field(init=False)
    instance_guarantee_: InstanceGuarantee | None = field(init=False)

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        parties: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        session: Session | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Spend the budget on the data. Afterwards only `released_` and `statement_` may be shared.

        Args:
            X: features, one row per observation; without `parties`, one such matrix per task.
            y: labels, one per row; without `parties`, one column per task.
            parties: the party of each row, integers or text.
            groups: the same as `parties`, for scikit-learn tools that use this name; give at most one of the two.
            session: a session with its own budget, noise and window, which replace those of the estimator.
            progress: called with the kind of step, the number done and the total.
        """
        owners = parties if groups is None else one_of(parties, groups, "parties")
        data = rows_of_lists(X, y) if owners is None else rows_by_party(X, y, owners)
        mask = self._mask(data)
        data = data if mask is None else data.masked(mask)
        self.check()
        feature_means, label_means = np.zeros((data.n_tasks, data.dimension)), np.zeros(data.n_tasks)
        if self.fit_intercept:
            data, feature_means, label_means = data.centred()
        number = self._public_number(data.n_tasks)
        opened = self.opened(session, data.dimension, number)
        curator = self.curator(opened, data.dimension, number)
        members = self._parties(data, opened, curator.form.weights)
        for number in range(1, self._rounds + 1):
            members.receive(curator.answer(members.send()))
            if progress is not None:
                progress("round", number, self._rounds)
        self._keep(members, data, mask)
        self.intercept_ = label_means - np.einsum("md,md->m", feature_means, self.coef_)
        self.single_task_intercept_ = label_means - np.einsum("md,md->m", feature_means, self.single_task_)
        self.released_ = tuple(curator.rounds)
        self.statement_ = opened.statement()
        return self

    def predict(self, X: Any, parties: ArrayLike | None = None) -> Any:  # noqa: N803
        """Predict every row with the model of its own task; classes 0 and 1 for the logistic loss."""
        scores = self.decision_function(X, parties)
        if self.loss != "logistic":
            return scores
        return [(s > 0).astype(np.float64) for s in scores] if parties is None else (scores > 0).astype(np.float64)

    def score(self, X: Any, y: Any, parties: ArrayLike | None = None) -> float:  # noqa: N803
        """Return R² of the predictions, or for classes the fraction that is right, over all rows of all parties.

        It is computed from the parties' raw data.
        """
        predicted = self.predict(X, parties)
        if isinstance(predicted, list):
            predicted, y = np.concatenate(predicted), np.concatenate([np.asarray(column) for column in y])
        return score_of(predicted, y, classes=self.loss == "logistic")

    def decision_function(self, X: Any, parties: ArrayLike | None = None) -> Any:  # noqa: N803
        """Return scores by the model of each row's task. Without `parties`, X has one matrix per task."""
        if parties is None and getattr(X, "ndim", 3) == 2:
            raise unnamed("parties", "party")
        if parties is None:
            if len(X) != len(self.coef_):
                raise InputError(
                    f"Expected one matrix for each of {len(self.coef_)} tasks, got {len(X)}.", argument="X"
                )
            return [self._rows(x) @ w + c for x, w, c in zip(X, self.coef_, self.intercept_, strict=True)]
        rows = self._rows(X)
        given = as_array(parties)
        if given.shape != (len(rows),):
            raise InputError(
                f"Expected parties to have {len(rows)} rows, one per row of X, got {given.shape}.", argument="parties"
            )
        at = self.task_ids_.codes_of(given)
        return np.einsum("nd,nd->n", rows, self.coef_[at]) + self.intercept_[at]

    def party(self, task: int | str) -> Party:
        """Return what one party has for itself."""
        at = self.task_ids_.code_of(task)
        return Party(
            task,
            self.coef_[at].copy(),
            float(self.intercept_[at]),
            self.single_task_[at].copy(),
            float(self.single_task_intercept_[at]),
            float(self.own_weight_[at]),
        )

    # -- settings --

    @property
    def _rounds(self) -> int:
        return _ROUNDS.get(self.structure, _PROXIMAL_ROUNDS) if self.rounds is None else self.rounds

    def check(self) -> None:
        """Refuse settings that do not go together, before anything is spent."""
        if self._rounds < 1:
            raise InputError(f"Expected at least 1 round, got {self.rounds}.", argument="rounds")
        if self.neighbours not in (ADD_REMOVE_TASK, REPLACE_TASK):
            raise InputError(
                f"Expected neighbours that differ in one task, got: {self.neighbours.relation}.", argument="neighbours"
            )
        if self.clip_norm is not None and not 0 < self.clip_norm < 1e50:
            raise InputError(f"Expected a finite clip_norm above 0, got {self.clip_norm}.", argument="clip_norm")
        if not isinstance(self.release, MatrixRelease):
            raise InputError(f"Expected the release to be a MatrixRelease, got {self.release!r}.", argument="release")
        whole = self.structure != "group-sparse" and self.contribution == "mean"
        self.release.check(self.neighbours, self.schedule, outer_products=whole)
        if self.contribution not in ("mean", "posterior"):
            raise InputError(
                f"Expected contribution='mean' or 'posterior', got {self.contribution!r}.", argument="contribution"
            )
        if self.contribution == "posterior" and (self.structure, self.loss) != ("em", "squared"):
            raise InputError(
                "Expected contribution='posterior' only with structure='em' and loss='squared'.",
                argument="contribution",
            )
        if self.contribution == "posterior" and self.instance_epsilon is not None:
            raise InputError(
                "Expected contribution='mean' if parties protect single rows, got 'posterior'.", argument="contribution"
            )
        for name in ("penalty", "sparse_penalty"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < np.inf:
                raise InputError(f"Expected a {name} of at least 0, got {value}.", argument=name)
        if self.condition is not None and not self.condition > 1:
            raise InputError(f"Expected a condition number above 1, got {self.condition}.", argument="condition")
        if self.fit_intercept and self.loss != "squared":
            raise InputError(
                f"Expected fit_intercept=False for the loss {self.loss!r}; add a constant feature instead.",
                argument="fit_intercept",
            )
        if self.n_tasks is not None and self.n_tasks < 1:
            problem = f"Expected a declared number of tasks of at least 1, got {self.n_tasks}."
            raise InputError(problem, argument="n_tasks")

    def _public_number(self, of_data: int) -> int | None:
        """Return the number of tasks that is public, if one is; where neighbours replace a task, that of the data."""
        if self.neighbours != REPLACE_TASK:
            return self.n_tasks
        if self.n_tasks not in (None, of_data):
            raise InputError(
                f"Expected the number of tasks of the data, {of_data}, which is public if neighbours replace a task, "
                f"got {self.n_tasks}.",
                argument="n_tasks",
            )
        return of_data

    def _budget(self, number: int | None) -> Budget:
        if self.delta is not None:
            return Budget(self.epsilon, self.delta)
        if number is None:
            raise InputError("Expected a delta, or n_tasks for a delta of 1/n_tasks², got neither.", argument="delta")
        return Budget(self.epsilon, default_delta(number))

    def opened(self, given: Session | None, dimension: int, number: int | None) -> Session:
        """Return the session of a fit, with what is assumed public.

        Args:
            given: a session with its own budget; None to open one.
            dimension: number of features.
            number: the number of tasks, if it is public.
        """
        budget = given.budget if given is not None else self._budget(number)
        assumed = [] if number is None else [f"the number of tasks, {number}"]
        assumed.append(f"the list of {dimension} feature{'s' if dimension != 1 else ''}")
        if self.clip_norm is not None:
            assumed.append(f"the norm {self.clip_norm:g} to which models are clipped before they are sent")
        if self.feature_mask is not None and self.neighbours == REPLACE_TASK:  # would otherwise reveal who takes part
            assumed.append("which features each task has")
        return self._open(given, budget, self.neighbours, assumed)

    def _words_on_defaults(self) -> str:
        return _ABOUT_DEFAULTS

    def _given_by_hand(self) -> bool:
        """Whether any setting that could depend on data differs from the constructor's default."""
        defaults = defaults_of(self)
        return any(getattr(self, name) != defaults[name] for name in _SETTINGS)

    def _mask(self, data: TaskRows) -> NDArray[np.bool_] | None:
        if self.feature_mask is None:
            return None
        mask = np.asarray(self.feature_mask, bool)
        if mask.shape != (data.n_tasks, data.dimension):
            raise InputError(
                f"Expected a feature_mask of {data.n_tasks} tasks x {data.dimension} features, got shape {mask.shape}.",
                argument="feature_mask",
            )
        return mask

    # -- the two sides --

    def _parties(self, data: TaskRows, session: Session, weights: MomentWeights | None) -> Parties:
        disturb, self.instance_guarantee_ = None, None
        if self.instance_epsilon is not None:
            self.instance_guarantee_ = InstanceGuarantee.over(self.instance_epsilon, self._rounds)
            disturb = party_noise(self.instance_guarantee_, data.ids, session.noise)
        return self.side(weights).members(data, disturb)

    def side(self, weights: MomentWeights | None = None) -> PartySide:
        """Return how every party learns and what it sends. `weights` are for what is sent beside outer products."""
        return PartySide(
            loss=self.loss,
            structure=self.structure,
            clip_norm=self.clip_norm,
            weights=weights,
            fit_intercept=self.fit_intercept,
            accelerated=self.accelerated,
            condition=self.condition,
            sparse_penalty=self.sparse_penalty if self.structure == "low-rank+sparse" else None,
            whole_posterior=self.contribution == "posterior",
        )

    def curator(self, session: Session, dimension: int, number: int | None) -> Curator:
        """Return the curator's side, with a plan for all rounds; the arguments are those of `opened`."""
        penalty = _PENALTIES.get(self.structure, 1.0) if self.penalty is None else self.penalty
        structure = structure_of(self.structure, penalty)
        default = recommended(accelerated=self.accelerated, condition=self.condition)
        schedule = self.schedule or (Uniform() if self.structure == "em" else default)
        shares = self.release.plan(session, self._rounds, schedule)
        form = self.side(self._weights(session, dimension, number)).form(dimension, self.neighbours)
        return Curator(session, self.release, shares, structure, number, form, pooled=self.pooled)

    def _weights(self, session: Session, dimension: int, number: int | None) -> MomentWeights | None:
        """Return how the mean model is released beside the second moment; None if it is not released."""
        possible = self.release.carries_mean and self.contribution == "mean" and self.instance_epsilon is None
        if number is None or not (self.share_mean and possible):
            return None
        return moment_weights(dimension, 1 / session.budget.mu, number)

    def _keep(self, parties: Parties, data: TaskRows, mask: NDArray[np.bool_] | None) -> None:
        self.coef_, self.single_task_ = parties.models(), parties.alone().copy()
        if mask is not None:
            self.coef_, self.single_task_ = self.coef_ * mask, self.single_task_ * mask
        self.own_weight_ = parties.own_weight()
        self.task_ids_ = data.ids

    def _rows(self, X: Any) -> Floats:  # noqa: N803
        rows = finite_matrix(X, "X")
        if rows.shape[1] != self.coef_.shape[1]:
            raise InputError(f"Expected {self.coef_.shape[1]} features, got {rows.shape[1]}.", argument="X")
        return rows

"""How well the top of a ranking predicts what users did next: Recall@k and NDCG@k, overall and by slice.

For a user with n targets, ranked among all tasks outside the user's history, ::

    Recall@k = (targets in the top k) / min(k, n)
    NDCG@k   = Σ_{targets at rank r ≤ k} 1/log2(r+1)  /  Σ_{r ≤ min(k, n)} 1/log2(r+1)

averaged over users. In a slice, only the targets of the slice count (and n is their number), the ranking is still over
all tasks, and users without targets there are left out. Equal scores are ranked by code.

Recall is naturally lower on rare tasks. `recall_at_by_slice` therefore gives each slice its own cut-off, larger for
rarer slices. Overall, a target then counts as found if its rank is within the cut-off of its slice, out of
Σ_slices min(k of the slice, targets in it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.evaluation.results import Evaluation, MetricValue, slice_means
from apportion.evaluation.slices import PopularitySlices
from apportion.linalg.fixed_order import top_columns
from apportion.recommend.histories import check_same_ids

RECALL_AT_BY_SLICE: Final = (100, 80, 60, 40, 20)
"""Cut-offs for five slices, rarest first: 20 for the most popular one and 20 more for each that is rarer."""
_CELLS_AT_ONCE = 1 << 22


class RankingModel(Protocol):
    """What an evaluation of rankings needs from a model."""

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return a score for every task, one row per user code in `users`, from the users' histories."""
        ...


def recall_at_k(
    model: RankingModel,
    history: Interactions,
    targets: Interactions,
    k: int = 20,
    *,
    slices: PopularitySlices | None = None,
) -> MetricValue:
    """Return Recall@k of a model on held-out users."""
    return evaluate_rankings(model, history, targets, recall_at=(k,), ndcg_at=(), slices=slices)[f"recall@{k}"]


def ndcg_at_k(
    model: RankingModel,
    history: Interactions,
    targets: Interactions,
    k: int = 100,
    *,
    slices: PopularitySlices | None = None,
) -> MetricValue:
    """Return NDCG@k of a model on held-out users."""
    return evaluate_rankings(model, history, targets, recall_at=(), ndcg_at=(k,), slices=slices)[f"ndcg@{k}"]


def evaluate_rankings(
    model: RankingModel,
    history: Interactions,
    targets: Interactions,
    *,
    recall_at: Sequence[int] = (20,),
    ndcg_at: Sequence[int] = (100,),
    recall_at_by_slice: Sequence[int] = (),
    slices: PopularitySlices | None = None,
) -> Evaluation:
    """Return Recall and NDCG at several cut-offs from one pass of scoring, in blocks of users.

    Args:
        model: scores tasks.
        history: the rows that the model sees; these tasks are never recommended.
        targets: the rows to predict; every user with a target is evaluated.
        recall_at: cut-offs of Recall.
        ndcg_at: cut-offs of NDCG.
        recall_at_by_slice: one cut-off per slice, rarest first, for one more metric, such as `RECALL_AT_BY_SLICE`.
        slices: popularity slices to report as well.
    """
    check_targets(history, targets, [*recall_at, *ndcg_at, *recall_at_by_slice], slices)
    _check_cutoffs_by_slice(recall_at_by_slice, slices)
    cut = slices if slices is not None else PopularitySlices.whole(targets.n_tasks)
    metrics: list[_Metric] = [*map(_Recall, recall_at), *map(_Ndcg, ndcg_at)]
    if recall_at_by_slice:
        metrics.append(_RecallBySlice(tuple(recall_at_by_slice)))
    tallies = [Tally.empty(cut.n_slices) for _ in metrics]
    depth = min(max(metric.k for metric in metrics), targets.n_tasks)
    for users in user_blocks(targets):
        block = _Block.of(users, top_columns(scores_to_rank(model, history, users), depth), targets, cut)
        for metric, tally in zip(metrics, tallies, strict=True):
            tally.add(metric.gain(block), metric.ideal(block.n_targets), metric.ideal_overall(block.n_targets))
    labels = slices.labels if slices is not None else ()
    return Evaluation(
        {metric.name: tally.value(n_slices=len(labels)) for metric, tally in zip(metrics, tallies, strict=True)},
        labels,
    )


@dataclass(frozen=True)
class _Block:
    """A block of users: which targets were found at which rank, and how many each user has in each slice."""

    is_hit: NDArray[np.bool_]  # users x depth
    slice_at_rank: NDArray[np.int64]  # users x depth
    n_targets: NDArray[np.int64]  # users x slices

    @classmethod
    def of(
        cls, users: NDArray[np.int64], top: NDArray[np.int64], targets: Interactions, slices: PopularitySlices
    ) -> _Block:
        """Match the top of each user's ranking with the user's targets; -1 fills up rankings that end early."""
        start, stop = targets.by_user.indptr[users[0]], targets.by_user.indptr[users[-1] + 1]
        row = np.searchsorted(users, targets.users[start:stop])
        target_keys = row * targets.n_tasks + targets.tasks[start:stop]  # sorted, as targets are
        keys = np.arange(len(users))[:, None] * targets.n_tasks + top
        position = np.minimum(np.searchsorted(target_keys, keys), len(target_keys) - 1)
        cell = row * slices.n_slices + slices.of_task[targets.tasks[start:stop]]
        counts = np.bincount(cell, minlength=len(users) * slices.n_slices)
        return cls(
            is_hit=(target_keys[position] == keys) & (top >= 0),
            slice_at_rank=slices.of_task[top],
            n_targets=counts.reshape(len(users), slices.n_slices),
        )

    def gained(
        self, gain_at_rank: NDArray[np.float64], cutoffs: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Add up the gains of hits (of each slice up to its cut-off) by user and slice; users x slices."""
        n_users, n_slices = self.n_targets.shape
        user, rank = np.nonzero(self.is_hit[:, : len(gain_at_rank)])
        if cutoffs is not None:
            within = rank < cutoffs[self.slice_at_rank[user, rank]]
            user, rank = user[within], rank[within]
        cell = user * n_slices + self.slice_at_rank[user, rank]
        gains = np.bincount(cell, weights=gain_at_rank[rank], minlength=n_users * n_slices)
        return gains.astype(np.float64).reshape(n_users, n_slices)  # without a hit NumPy returns integers


class _Metric(Protocol):
    """The gain of a hit, and the largest possible gain; tables are users x slices."""

    @property
    def name(self) -> str: ...

    @property
    def k(self) -> int: ...

    def gain(self, block: _Block) -> NDArray[np.float64]: ...

    def ideal(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]: ...

    def ideal_overall(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class _Recall:
    """Every hit in the top k counts the same."""

    k: int

    @property
    def name(self) -> str:
        return f"recall@{self.k}"

    def gain(self, block: _Block) -> NDArray[np.float64]:
        return block.gained(np.ones(self.k))

    def ideal(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.minimum(n_targets, self.k).astype(np.float64)

    def ideal_overall(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.ideal(n_targets.sum(axis=1))


@dataclass(frozen=True)
class _RecallBySlice:
    """Every hit counts the same if its rank is within the cut-off of its slice."""

    cutoffs: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"recall@{'/'.join(map(str, self.cutoffs))}"

    @property
    def k(self) -> int:
        return max(self.cutoffs)

    def gain(self, block: _Block) -> NDArray[np.float64]:
        return block.gained(np.ones(self.k), np.array(self.cutoffs))

    def ideal(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.minimum(n_targets, self.cutoffs).astype(np.float64)

    def ideal_overall(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]:
        totals: NDArray[np.float64] = self.ideal(n_targets).sum(axis=1)
        return totals


@dataclass(frozen=True)
class _Ndcg:
    """A hit at rank r counts 1/log2(r+1)."""

    k: int

    @property
    def name(self) -> str:
        return f"ndcg@{self.k}"

    @property
    def _discounts(self) -> NDArray[np.float64]:
        return 1.0 / np.log2(np.arange(2, self.k + 2))

    def gain(self, block: _Block) -> NDArray[np.float64]:
        return block.gained(self._discounts)

    def ideal(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]:
        cumulative = np.concatenate([[0.0], np.cumsum(self._discounts)])
        return cumulative[np.minimum(n_targets, self.k)]

    def ideal_overall(self, n_targets: NDArray[np.int64]) -> NDArray[np.float64]:
        return self.ideal(n_targets.sum(axis=1))


@dataclass
class Tally:
    """Sums over users of gain / ideal, and the number of users, overall and by slice."""

    total: float
    n: int
    by_slice: NDArray[np.float64]
    n_by_slice: NDArray[np.int64]

    @classmethod
    def empty(cls, n_slices: int) -> Tally:
        """Return an empty tally."""
        return cls(0.0, 0, np.zeros(n_slices), np.zeros(n_slices, np.int64))

    def add(self, gain: NDArray[np.float64], ideal: NDArray[np.float64], ideal_overall: NDArray[np.float64]) -> None:
        """Add a block of users; the first two are users x slices."""
        self.total += float((gain.sum(axis=1) / ideal_overall).sum())
        self.n += len(gain)
        self.by_slice += np.divide(gain, ideal, out=np.zeros_like(gain), where=ideal > 0).sum(axis=0)
        self.n_by_slice += (ideal > 0).sum(axis=0)

    def value(self, *, n_slices: int) -> MetricValue:
        """Return means over the users added so far."""
        by_slice = slice_means(self.by_slice[:n_slices], self.n_by_slice[:n_slices])
        return MetricValue(self.total / self.n, self.n, by_slice, tuple(self.n_by_slice[:n_slices].tolist()))


def check_targets(
    history: Interactions, targets: Interactions, cutoffs: Sequence[int], slices: PopularitySlices | None
) -> None:
    """Refuse data that cannot be ranked or judged."""
    if not cutoffs or min(cutoffs) < 1:
        raise InputError(f"Expected cut-offs k >= 1, got {list(cutoffs)}.", argument=None)
    if targets.n_observations == 0:
        raise InputError("Expected at least one target to evaluate on, got 0.", argument="targets")
    if (history.n_users, history.n_tasks) != (targets.n_users, targets.n_tasks):
        raise InputError(
            "Expected history and targets of the same users and tasks, "
            f"got {history.n_users} x {history.n_tasks} and {targets.n_users} x {targets.n_tasks}.",
            argument=None,
        )
    check_same_ids(history, targets)
    if slices is not None and len(slices.of_task) != targets.n_tasks:
        raise InputError(f"Expected slices of {targets.n_tasks} tasks, got {len(slices.of_task)}.", argument="slices")
    _refuse_shown_targets(history, targets)


def _check_cutoffs_by_slice(cutoffs: Sequence[int], slices: PopularitySlices | None) -> None:
    n_slices = 0 if slices is None else slices.n_slices
    if cutoffs and len(cutoffs) != n_slices:
        raise InputError(
            f"Expected one cut-off for each of {n_slices} slices, rarest first, got {list(cutoffs)}.",
            argument="recall_at_by_slice",
        )


def _refuse_shown_targets(history: Interactions, targets: Interactions) -> None:
    """Refuse a target that is in the history: it is masked and could never be found."""
    shown = history.users.astype(np.int64) * history.n_tasks + history.tasks
    keys = targets.users.astype(np.int64) * targets.n_tasks + targets.tasks
    position = np.searchsorted(shown, keys)
    repeated = np.flatnonzero(np.append(shown, -1)[position] == keys)
    if len(repeated):
        user, task = (int(codes[repeated[0]]) for codes in (targets.users, targets.tasks))
        raise InputError(
            f"Task {targets.task_ids.id_of(task)!r} of user {targets.user_ids.id_of(user)!r} is both "
            "in the history and among the targets; expected it in only one of them.",
            argument="targets",
        )


def user_blocks(targets: Interactions) -> Iterator[NDArray[np.int64]]:
    """Yield users with targets, ascending, in blocks whose scores stay within `_CELLS_AT_ONCE`."""
    users = np.flatnonzero(targets.by_user.counts)
    size = max(1, _CELLS_AT_ONCE // targets.n_tasks)
    for start in range(0, len(users), size):
        yield users[start : start + size]


def scores_to_rank(model: RankingModel, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
    """Return the model's scores of all tasks, users x tasks, with -inf for a user's history."""
    scores = np.array(model.score(history, users), copy=True)  # a copy that may be masked
    if scores.dtype.kind != "f":
        scores = scores.astype(np.float64)
    if scores.shape != (len(users), history.n_tasks):
        raise InputError(
            f"Expected scores of shape {(len(users), history.n_tasks)}, got {scores.shape}.", argument="model"
        )
    if np.isnan(scores).any():
        row = int(np.argmax(np.isnan(scores).any(axis=1)))
        raise InputError(f"The model's scores for user code {users[row]} hold NaN; expected numbers.", argument="model")
    shown = history.select_users(users)
    scores[np.searchsorted(users, shown.users), shown.tasks] = -np.inf
    return scores

"""What an engine must do: form sums over users and hand them out sealed.

Every method returns a `BoundedSum`, whose sensitivity follows from the bounds its arguments carry, but for two:
`total_of_users` and `solve_users` are the local half of alternating minimisation. Their row j depends on user j's
data and on released values only, and the result stays on the user's side until it is clipped into `Rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, ObservationRows, Rows, Weights
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours


@dataclass(frozen=True)
class UserChunk:
    """A run of consecutive users with all of their observations, small enough to work on at once.

    Attributes:
        users: codes of the users, as a slice.
        observations: their observations, as a slice of the user-major arrays.
        indptr: where each of these users' observations begin, counted within the chunk.
        owner: for each observation, the position of its user within the chunk.
        tasks: task codes.
        values: values.
        weights: weights of these observations, where the sum uses any.
    """

    users: slice
    observations: slice
    indptr: NDArray[np.int64]
    owner: NDArray[np.int64]
    tasks: NDArray[np.int32]
    values: NDArray[np.float32]
    weights: NDArray[np.floating[Any]] | None

    @property
    def taking_part(self) -> NDArray[np.bool_]:
        """Which users have an observation whose weight is not 0; where there are no weights, an observation."""
        counted = None if self.weights is None else self.weights != 0
        return np.bincount(self.owner, counted, minlength=len(self.indptr) - 1) > 0


Floats = NDArray[np.floating[Any]]
Part = Callable[[UserChunk], tuple[Floats, Floats]]
"""What some users contribute: a row per observation and a row per user, each from that user's data alone.

Rows per user may be of all users or of those that are taking part; the others add nothing then.
"""


def _taking_part_before(data: Interactions, weights: Floats | None) -> NDArray[np.int64]:
    """How many users with weights other than 0 there are before each user, and in all."""
    counted = None if weights is None else np.asarray(weights) != 0
    taking_part = np.bincount(data.users, counted, minlength=data.n_users) > 0
    return np.concatenate([[0], np.cumsum(taking_part)])


def user_chunks(
    data: Interactions, observations: int, weights: Floats | None = None, users: int | None = None
) -> Iterator[UserChunk]:
    """Cut the data into runs of users of about this many observations each.

    Where a number of users is given there are at most so many in a run that have weights other than 0.
    """
    indptr = data.by_user.indptr
    taking_part = None if users is None else _taking_part_before(data, weights)
    first = 0
    while first < data.n_users:
        reach = int(np.searchsorted(indptr, indptr[first] + observations, side="right")) - 1
        if taking_part is not None and users is not None:
            enough = int(np.searchsorted(taking_part, taking_part[first] + users, side="right")) - 1
            reach = min(reach, enough)
        last = min(max(reach, first + 1), data.n_users)
        rows = slice(int(indptr[first]), int(indptr[last]))
        local = indptr[first : last + 1] - indptr[first]
        owner = np.repeat(np.arange(last - first), np.diff(local))
        own = None if weights is None else weights[rows]
        yield UserChunk(slice(first, last), rows, local, owner, data.tasks[rows], data.values[rows], own)
        first = last


def check_layout(
    data: Interactions, weights: Weights | None = None, rows: Rows | None = None, labels: Labels | None = None
) -> None:
    """Refuse bounded arrays that were made for other data: their bounds say nothing about this one's users."""
    if weights is not None and not weights.belong_to(data.by_user.indptr):
        raise InputError("Expected weights that were made for this data set; their layout is another one's.")
    if isinstance(rows, ObservationRows):
        if len(rows) != data.n_observations:
            raise InputError(f"Expected one row for each of {data.n_observations} observations, got {len(rows)}.")
    elif rows is not None and len(rows) != data.n_users:
        raise InputError(f"Expected one row for each of {data.n_users} users, got {len(rows)}.")
    if labels is not None and len(labels) != data.n_observations:
        raise InputError(f"Expected one label for each of {data.n_observations} observations, got {len(labels)}.")


def rows_by_task(data: Interactions, rows: Rows) -> NDArray[np.int32]:
    """For every observation, in task-major order, which row is its features: its user's, or its own."""
    by_task = data.by_task
    if not isinstance(rows, ObservationRows):
        return by_task.indices
    assert by_task.order is not None
    return by_task.order.astype(np.int32, copy=False)


def refuse_observation_rows(rows: Rows) -> None:
    """A sum over users has one row per user: one per observation would add up to more than its bound."""
    if isinstance(rows, ObservationRows):
        raise InputError("Expected one row per user, got rows of observations.")


class Engine(Protocol):
    """Sums over users; arrays are NumPy's or the engine's own device's.

    A sum states its sensitivity for the neighbours of its weights, or for those that it is asked for.

    The features x of an observation are its user's row, or its own where `rows` are `ObservationRows`.
    """

    def counts(self, data: Interactions, weights: Weights) -> BoundedSum:
        """Σ_j w_ij for every task i."""

    def moments(self, data: Interactions, weights: Weights, rows: Rows, labels: Labels | None = None) -> BoundedSum:
        """Σ_j w_ij y_ij x_j for every task i; labels of 1 if none are given."""

    def grams(self, data: Interactions, weights: Weights, rows: Rows) -> BoundedSum:
        """Σ_j w_ij x_j x_jᵀ for every task i, packed lower triangles."""

    def user_total(self, data: Interactions, rows: Rows) -> BoundedSum:
        """Σ_j x_j over the users who have data."""

    def user_gram(self, data: Interactions, rows: Rows, neighbours: Neighbours = ADD_REMOVE) -> BoundedSum:
        """Σ_j x_j x_jᵀ over the users who have data, packed."""

    def user_sum(
        self,
        data: Interactions,
        part: Callable[[UserChunk], Floats],
        width: int,
        clip_norm: float,
        what: str,
        neighbours: Neighbours = ADD_REMOVE,
    ) -> BoundedSum:
        """Σ_j of one row per user who has data, each clipped to `clip_norm`."""

    def part_sums(
        self,
        data: Interactions,
        weights: Weights,
        part: Part,
        widths: tuple[int, int],
        clip_norms: tuple[float, float],
        what: str,
    ) -> tuple[BoundedSum, BoundedSum]:
        """Two sums from one pass: rows per observation added up by task, and rows per user added up.

        Each user's rows over all observations are clipped together to the first norm, its own row to the second.
        """

    def total_of_users(self, data: Interactions, features: Any) -> Any:
        """Σ_i v_i over the tasks of every user j, in the privacy of that user."""

    def solve_users(
        self,
        data: Interactions,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> Any:
        """(base + Σ_i w v_i v_iᵀ)⁻¹ (base_rhs + Σ_i w y_ij v_i) for every user j, in the privacy of that user.

        Zero where that has no solution. No user's solution depends on who else is there.
        """

    def asarray(self, values: Any) -> Any:
        """Bring released values to where this engine computes, in its precision."""

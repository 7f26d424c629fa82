"""What one user adds to a sum, as a value: a contribution.

A contribution holds public and released numbers only, so it can be sent anywhere. An engine evaluates it on runs of
users, adds what comes out, and seals the total as `BoundedSum`s. Bounds are enforced here: the classes of this package
clip, or take arrays of types that cannot break their bound (`privacy.bounds`), and seal with the sensitivity that
follows. Code elsewhere makes new contributions of these classes; it cannot seal a sum of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import RatingRound, TaskWeights
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, Offsets, Rows, Weights
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, moved_by_user
from apportion.privacy.sampling import Keys

Floats = NDArray[np.floating[Any]]
Sums = tuple[NDArray[Any], ...]
"""One array per sum: int64, whole numbers of a step; or float64, on a single machine where nothing is on a lattice."""


class TaskOrder(Protocol):
    """The rows of a run grouped by task."""

    @property
    def indptr(self) -> Offsets:
        """Where the rows of each task begin."""

    @property
    def indices(self) -> NDArray[np.int32]:
        """Position of each row's user."""

    @property
    def order(self) -> Any:
        """Position of each row in user-major order."""


class UserRun(Protocol):
    """Users with all of their rows: see `apportion.data.Users`."""

    indptr: Offsets
    n_tasks: int

    @property
    def n_users(self) -> int:
        """Number of users."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def sizes(self) -> Offsets:
        """Rows of each user."""

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which users have rows."""

    @property
    def owner(self) -> NDArray[np.int32]:
        """Position of each row's user."""

    @property
    def by_task(self) -> TaskOrder:
        """The rows grouped by task."""

    @property
    def keys(self) -> Keys:
        """Two numbers for each user, from its id alone."""

    def column(self, name: str) -> NDArray[Any]:
        """One entry per row."""

    def of_user(self, name: str) -> NDArray[Any]:
        """One entry per user."""

    def runs(self, rows: int, users: int | None = None, counted: NDArray[np.bool_] | None = None) -> Iterator[Any]:
        """The same users, some at a time."""

    def with_rows(self, chosen: NDArray[np.bool_]) -> Any:
        """The same users with some of their rows alone."""

    def remembered(self, value: object, make: Callable[[Any], Any]) -> Any:
        """What `make` makes of this run, kept where the run is in memory."""


class Kernels(Protocol):
    """What an engine computes with: segment sums on its device, and the local regressions of users.

    Sums come with the step of their lattice, or None where they are floats.
    """

    rows_at_once: int

    def moments(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, coefficients: Floats, bound: float
    ) -> tuple[NDArray[Any], float | None]:
        """Σ c x for every task, x the row that `indices` names; no product c x is longer than the bound."""

    def grams(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, weights: Floats, norm: float
    ) -> tuple[NDArray[Any], float | None]:
        """Σ w x xᵀ for every task, packed; no row is longer than the norm, no weight above 1."""

    def total(self, rows: Any, norm: float) -> tuple[NDArray[Any], float | None]:
        """Σ x over rows."""

    def gram(self, rows: Any, norm: float) -> tuple[NDArray[Any], float | None]:
        """Σ x xᵀ over rows, packed."""

    def total_of_users(self, users: UserRun, features: Any) -> Any:
        """Σ_i v_i over the tasks of every user, in the privacy of that user."""

    def solve_users(
        self,
        users: UserRun,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> Any:
        """(base + Σ_i w v_i v_iᵀ)⁻¹ (base_rhs + Σ_i w y_i v_i) for every user, in the privacy of that user.

        Zero where that has no solution. No user's solution depends on who else is there.
        """

    def rating_round(
        self,
        users: UserRun,
        weights: Floats | TaskWeights,
        about: RatingRound,
        by_task: NDArray[np.int64],
        total: NDArray[np.int64],
    ) -> None:
        """Add every user's clipped part of a round on ratings, in whole steps; see `linalg.rating_round`."""


class Weighting(ABC):
    """How every user divides its unit of sensitivity over its tasks; a value of public and released numbers.

    Attributes:
        description: how weights are made, for the statement.
        neighbours: the relation that sums formed with them are bounded for.
        signed: whether a weight may be negative.
        used_once: whether they serve one pass, so that nobody is to remember them.
    """

    description: str
    neighbours: Neighbours = ADD_REMOVE
    signed: bool = False
    used_once: ClassVar[bool] = False

    @abstractmethod
    def form(self, users: Any) -> Weights:
        """The weights of these users, each from that user's own rows."""

    def of_tasks(self, n_tasks: int) -> TaskWeights | None:
        """The weights as numbers of tasks that a kernel brings to each user's bound; None where they are not such."""
        return None

    def of(self, users: Any) -> Weights:
        """The weights of these users, checked; remembered where users stay in memory and every round asks again."""
        weights: Weights = self.formed(users) if self.used_once else users.remembered(self, self.formed)
        return weights

    def formed(self, users: Any) -> Weights:
        """The same, made afresh; refuses weights of other users, or of another kind than it says."""
        weights = self.form(users)
        if not weights.belong_to(users.indptr):
            raise InputError("Expected weights that were made for these users; their layout is that of others.")
        if weights.neighbours != self.neighbours or (weights.signed and not self.signed):
            raise TypeError(
                f"{type(self).__name__} made weights for other neighbours, or of another sign, than it says."
            )
        return weights

    def moved(self, reach: float) -> float:
        """How far one user moves a sum that weighs rows of at most this norm."""
        return reach * moved_by_user(self.neighbours)

    def moved_gram(self, reach: float) -> float:
        """The same where rows are positive semidefinite matrices, which signed weights do not leave so."""
        return reach * moved_by_user(self.neighbours, semidefinite=not self.signed)


class RowsOf(Protocol):
    """Rows of users, or of their observations, that are at most `norm` long: from own rows and released values."""

    @property
    def norm(self) -> float:
        """The bound on every row."""

    def __call__(self, users: Any, kernels: Kernels) -> Rows:
        """The rows of these users."""


class LabelsOf(Protocol):
    """One number per row, at most `bound` in size: from own rows and released values."""

    @property
    def bound(self) -> float:
        """The bound on every number."""

    def __call__(self, users: Any, kernels: Kernels) -> Labels:
        """The numbers of these users."""


class Contribution(ABC):
    """What one user adds to one or more sums."""

    @abstractmethod
    def partial(self, users: Any, kernels: Kernels) -> Sums:
        """The sums over these users, each user's part within its bound."""

    @abstractmethod
    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """The sums over all users, hidden, with the sensitivity that the bounds give them."""

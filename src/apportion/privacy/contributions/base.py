"""A contribution: what one user adds to a sum, as a value.

A contribution holds only public and released numbers, so it can be sent anywhere. An engine evaluates it on runs of
users, adds up the results, and seals the total as `BoundedSum`s. Bounds are enforced here. The classes of this package
clip, or take arrays of types that cannot break their bound (`privacy.bounds`), and seal with the sensitivity that
follows. Other code builds new contributions from these classes; it cannot seal a sum of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import RatingRound, TaskWeights
from apportion.linalg.places import Place
from apportion.linalg.ranks import Ranked
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import Labels, Offsets, Rows, Weights
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, moved_by_user
from apportion.privacy.sampling import Keys

Floats = NDArray[np.floating[Any]]
Sums = tuple[NDArray[Any], ...]
"""One array per sum: int64 for whole numbers of a step, or float64 on a single machine where no lattice is used."""


class TaskOrder(Protocol):
    """The rows of a run grouped by task."""

    @property
    def indptr(self) -> Offsets:
        """Offsets of the tasks' rows."""

    @property
    def indices(self) -> NDArray[np.int32]:
        """Position of each row's user."""

    @property
    def order(self) -> Any:
        """Position of each row in user-major order."""


class UserRun(Protocol):
    """Some users with all of their rows; see `apportion.data.Users`."""

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
        """Number of rows of each user."""

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
        """Two numbers for each user, derived from its id alone."""

    def column(self, name: str) -> NDArray[Any]:
        """Return a column with one entry per row."""

    def of_user(self, name: str) -> NDArray[Any]:
        """Return a column with one entry per user."""

    def runs(self, rows: int, users: int | None = None, counted: NDArray[np.bool_] | None = None) -> Iterator[Any]:
        """Yield the same users in smaller runs."""

    def with_rows(self, chosen: NDArray[np.bool_]) -> Any:
        """Return the same users with only the chosen rows."""

    def with_users(self, chosen: NDArray[np.bool_]) -> Any:
        """Return the chosen users, with all of their rows."""

    def remembered(self, value: object, make: Callable[[Any], Any]) -> Any:
        """Return what `make` makes of this run, and keep it if the run is in memory."""

    def recalled(self, value: object) -> Any:
        """Return what is kept of this run by `value`; None if nothing is."""


class Kernels(Protocol):
    """What an engine computes with: segment sums on its device, and the local regressions of users.

    Each sum comes with the step of its lattice, or None if it holds floats.
    """

    rows_at_once: int

    @property
    def rows_travel(self) -> bool:
        """Whether rows are copied to a device and stay there from pass to pass."""

    @property
    def place(self) -> Place:
        """Where to compute from released values."""

    @property
    def on_processors(self) -> Kernels:
        """Return kernels whose results are the same on every machine, to the last bit."""

    def ranks(self, asked: Ranked) -> NDArray[np.int64]:
        """Return, for each pair, how many columns have a larger product with its row; see `linalg.ranks`."""

    def side_by_side(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
        """Yield what `work` returns for each piece, in order. Several pieces may be processed at the same time."""

    def by_task(self, users: UserRun) -> TaskOrder:
        """Return the rows of these users grouped by task, on the kernels' device."""

    def arranged(self, values: Any, order: Any) -> Any:
        """Return one number per row in another order, in float64, on the kernels' device."""

    def moments(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, coefficients: Floats, bound: float
    ) -> tuple[NDArray[Any], float | None]:
        """Return Σ c x for every task, where `indices` names each row x. No product c x exceeds the bound."""

    def grams(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, weights: Floats, norm: float
    ) -> tuple[NDArray[Any], float | None]:
        """Return Σ w x xᵀ for every task, packed. No row exceeds the norm, and no weight exceeds 1."""

    def total(self, rows: Any, norm: float) -> tuple[NDArray[Any], float | None]:
        """Return Σ x over rows."""

    def gram(self, rows: Any, norm: float) -> tuple[NDArray[Any], float | None]:
        """Return Σ x xᵀ over rows, packed."""

    def total_of_users(self, users: UserRun, features: Any) -> Any:
        """Return Σ_i v_i over the tasks of each user. The result is private to that user."""

    def solve_users(
        self,
        users: UserRun,
        features: Any,
        labels: Any,
        base: Any,
        base_rhs: Any | None = None,
        weights: Any | None = None,
    ) -> Any:
        """Return (base + Σ_i w v_i v_iᵀ)⁻¹ (base_rhs + Σ_i w y_i v_i) for each user. It is private to that user.

        The result is zero if there is no solution. A user's solution does not depend on other users.
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
    """A rule by which each user divides one unit of sensitivity over its tasks. It uses public and released numbers.

    Attributes:
        description: how weights are made, for the statement.
        neighbours: the neighbour relation of sums formed with the weights.
        signed: whether a weight may be negative.
        used_once: whether the weights serve a single pass, so that keeping them is pointless.
    """

    description: str
    neighbours: Neighbours = ADD_REMOVE
    signed: bool = False
    used_once: ClassVar[bool] = False

    @abstractmethod
    def form(self, users: Any) -> Weights:
        """Make the weights of these users, each from that user's own rows."""

    def of_tasks(self, n_tasks: int) -> TaskWeights | None:
        """Return one number per task from which a kernel computes the weights; None if the weights have no such form.

        The kernel scales the numbers of a user's tasks to the user's bound.
        """
        return None

    def of(self, users: Any) -> Weights:
        """Return the checked weights.

        They are kept if the users stay in memory, because every round needs them again.
        """
        weights: Weights = self.formed(users) if self.used_once else users.remembered(self, self.formed)
        return weights

    def formed(self, users: Any) -> Weights:
        """Make and check the weights. Refuse weights of other users or of another kind than declared."""
        weights = self.form(users)
        if not weights.belong_to(users.indptr):
            raise InputError(
                "Expected weights that were made for these users; the layout is that of other users.", argument=None
            )
        if weights.neighbours != self.neighbours or (weights.signed and not self.signed):
            raise TypeError(
                f"{type(self).__name__} made weights for other neighbours, or of another sign, than it declares."
            )
        return weights

    def moved(self, reach: float) -> float:
        """Return how far one user moves a weighted sum of rows with at most this norm."""
        return reach * moved_by_user(self.neighbours)

    def moved_gram(self, reach: float) -> float:
        """Return the same for positive semidefinite rows. Signed weights do not keep the rows semidefinite."""
        return reach * moved_by_user(self.neighbours, semidefinite=not self.signed)


class RowsOf(Protocol):
    """Makes rows of users or observations with norm at most `norm`, from their own rows and released values."""

    @property
    def norm(self) -> float:
        """The bound on every row."""

    def __call__(self, users: Any, kernels: Kernels) -> Rows:
        """Return the rows of these users."""


class LabelsOf(Protocol):
    """Makes one number per row, at most `bound` in size, from the user's own rows and released values."""

    @property
    def bound(self) -> float:
        """The bound on every number."""

    def __call__(self, users: Any, kernels: Kernels) -> Labels:
        """Return the numbers of these users."""


class Contribution(ABC):
    """What one user adds to one or more sums."""

    @abstractmethod
    def partial(self, users: Any, kernels: Kernels) -> Sums:
        """Return the sums over these users, each user's part within its bound."""

    @abstractmethod
    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Return the sums over all users, hidden, with the sensitivity that the bounds give them."""

"""Per-user arrays that carry the bound they were clipped to.

In this library a sensitivity is never an argument: it is derived from these types. Each type copies, write-protects and
checks its values when it is made, so it cannot claim a bound that its values break. None shows its values when printed
or lets them be pickled. The values are private; only engines read them, to form sums.

Norms are computed in float64. The bounds hold with a relative margin `MARGIN`, which covers rounding to float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.fixed_order import dot_rows
from apportion.linalg.orders import copied
from apportion.linalg.threads import side_by_side
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, moved_by_user

MARGIN = 1e-6
_AT_A_TIME = 500_000  # observations squared at a time
_ROWS_AT_A_TIME = 4096  # a block that stays in cache
_LARGEST = 1e100  # limit of a factor, so that its square is finite
_SHORTEST = 1e-18  # shorter rows have no reliable direction and become zero

FloatArray = NDArray[np.floating[Any]]
Offsets = NDArray[np.int64]


class Hidden:
    """Mixin for holders of private values: they cannot be printed, pickled or silently turned into an array."""

    __slots__ = ()

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} holds private values and cannot be {what}; release it.")

    def __reduce__(self) -> NoReturn:
        self._refuse("pickled or copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self._refuse("pickled or copied")

    def __getstate__(self) -> NoReturn:
        self._refuse("pickled or copied")

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        self._refuse("turned into an array")

    def __iter__(self) -> NoReturn:
        self._refuse("iterated")

    def __float__(self) -> NoReturn:
        self._refuse("turned into a number")


class Rows(Hidden):
    """Rows, one per user, each with L2 norm at most `norm`: the features of user j in every task.

    The bound is a public constant. The rows may be a NumPy array or a torch tensor on any device.
    """

    __slots__ = ("_norm", "_values")

    def __init__(self, values: Any, norm: float) -> None:
        _refuse_extreme(norm)
        held = _held(values)
        if not (len(held) == 0 or float(_lengths(held).max()) <= norm):  # also refuses NaN
            raise InputError(
                f"Expected every row's norm to be at most {norm}; at least one row is longer or not a number.",
                argument="values",
            )
        self._values = held
        self._norm = float(norm)

    @property
    def norm(self) -> float:
        """The bound on every row's norm."""
        return self._norm

    @classmethod
    def clipped(cls, values: Any, norm: float) -> Self:
        """Scale down the rows that are longer than `norm`."""
        inner = norm * (1 - MARGIN)
        return cls(_stretched(values, inner / _lengths(values).clip(inner)), norm)

    @classmethod
    def scaled(cls, values: Any, norm: float) -> Self:
        """Scale every row to length `norm`; a row too short to have a direction becomes zero."""
        lengths = _lengths(values)
        factors = (norm * (1 - MARGIN)) / lengths.clip(_SHORTEST) * (lengths > _SHORTEST)
        return cls(_stretched(values, factors), norm)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values.shape[1]} columns, norm <= {self.norm:g}, values hidden)"


class ObservationRows(Rows):
    """One row per observation, in user-major order, each of L2 norm at most `norm`: features of (user, task) pairs."""

    __slots__ = ()


class Labels(Hidden):
    """One value per observation, in user-major order, whose absolute value is at most `bound`."""

    __slots__ = ("_bound", "_values")

    def __init__(self, values: Any, bound: float) -> None:
        held = _held(values)
        if not (len(held) == 0 or float(abs(held).max()) <= bound):
            raise InputError(
                f"Expected every label to be at most {bound} in absolute value; at least one is not.", argument="values"
            )
        self._values = held
        self._bound = float(bound)

    @property
    def bound(self) -> float:
        """The bound on every label's absolute value."""
        return self._bound

    @classmethod
    def clipped(cls, values: Any, bound: float) -> Labels:
        """Clip every value to [-bound, bound]."""
        inner = bound * (1 - MARGIN)
        return cls(values.clip(-inner, inner), bound)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Labels(|label| <= {self.bound:g}, values hidden)"


class Weights(Hidden):
    """One weight per observation, in user-major order, with Σ w² ≤ 1 over the tasks of each user.

    A user's weights may depend only on that user's own rows and on released values, and on the graph if all neighbours
    share it. They belong to the data whose `indptr` they were made with; engines refuse them for any other data.

    Args:
        values: the weights.
        indptr: offsets of users.
        description: how they were made, for the statement.
        neighbours: the neighbour relation of sums formed with these weights.
        signed: whether a weight may be negative.
    """

    __slots__ = ("_description", "_indptr", "_neighbours", "_rearranged", "_signed", "_values")

    def __init__(
        self,
        values: FloatArray,
        indptr: Offsets,
        description: str,
        neighbours: Neighbours = ADD_REMOVE,
        *,
        signed: bool = False,
    ) -> None:
        held = _held(values)
        if neighbours != ADD_REMOVE and not signed and bool((held < 0).any()):
            raise InputError(
                "Expected weights of at least 0 where values are replaced; at least one is negative.", argument="values"
            )
        if not float(_sum_of_squares(held, indptr).max(initial=0.0)) <= 1.0:
            raise InputError(
                "Expected every user's squared weights to sum to at most 1; at least one user's do not.",
                argument="values",
            )
        self._values = held
        self._describe(indptr, description, neighbours, signed)

    def _describe(self, indptr: Offsets, description: str, neighbours: Neighbours, signed: bool) -> None:
        self._indptr: Offsets = _held(indptr)
        self._description = description
        self._neighbours = neighbours
        self._signed = signed
        self._rearranged: tuple[Any, Any] | None = None

    @property
    def description(self) -> str:
        """How the weights were made, for the statement."""
        return self._description

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation of sums formed with these weights."""
        return self._neighbours

    @property
    def signed(self) -> bool:
        """Whether a weight may be negative."""
        return self._signed

    def moved(self, reach: float) -> float:
        """Return how far one user moves a weighted sum of rows with at most this norm."""
        return reach * moved_by_user(self._neighbours)

    def moved_gram(self, reach: float) -> float:
        """Return the same for positive semidefinite rows. Signed weights do not keep the rows semidefinite."""
        return reach * moved_by_user(self._neighbours, semidefinite=not self._signed)

    @classmethod
    def normalised(
        cls, raw: FloatArray, indptr: Offsets, description: str, neighbours: Neighbours = ADD_REMOVE
    ) -> Weights:
        """Scale each user's weights so that their squares sum to 1."""
        return cls(_fitted(raw, indptr, _SHORTEST), indptr, description, neighbours)

    @classmethod
    def clipped(
        cls, raw: FloatArray, indptr: Offsets, description: str, neighbours: Neighbours = ADD_REMOVE
    ) -> Weights:
        """Scale down the weights of users whose squares sum to more than 1 (eq. 12 of the paper)."""
        return cls(_fitted(raw, indptr, 1.0), indptr, description, neighbours)

    def of_users(self, chosen: NDArray[np.bool_]) -> Weights:
        """Return the weights of the chosen users, with the weights of all other users set to 0."""
        kept = np.repeat(chosen, np.diff(self._indptr))
        return self._like(np.where(kept, self._values, 0).astype(self._values.dtype), self._description)

    def on_rows(self, chosen: NDArray[np.bool_], description: str) -> Weights:
        """Move each user's weight onto the chosen rows.

        The other rows get 0, and each user's sum of squares stays the same.
        """
        before = np.asarray(self._values, np.float64)
        raw = np.where(chosen, before, 0.0)
        whole, left = _sum_of_squares(before, self._indptr), _sum_of_squares(raw, self._indptr)
        factors = np.sqrt(np.divide(whole, left, out=np.zeros_like(whole), where=left > 1e-200))
        scaled = raw * np.repeat(factors, np.diff(self._indptr))
        return self._like(_fitted(scaled, self._indptr, 1.0), description)

    def times(self, factors: FloatArray, clip: float) -> Weights:
        """Multiply each weight by its observation's factor over `clip`, then clip each user's weights to norm 1.

        A user's factors may depend only on that user's own rows and on released values. Multiply a release made with
        the result by `clip` to get the units of the factors.
        """
        scaled = np.nan_to_num(np.asarray(factors, np.float64) / clip, nan=0.0).clip(-_LARGEST, _LARGEST)
        products = (
            np.asarray(self._values, np.float64) * scaled
        )  # one user's extreme factors must not make the whole call fail
        text = f"{self.description}, times residuals clipped to {clip:g}"
        return Weights(_fitted(products, self._indptr, 1.0), self._indptr, text, self._neighbours, signed=True)

    def _like(self, values: FloatArray, description: str) -> Weights:
        return Weights(values, self._indptr, description, self._neighbours, signed=self._signed)

    def _in_order(self, order: Any, arranged: Callable[[Any, Any], Any]) -> Any:
        """Return the weights in the order of the tasks, in float64, as `arranged` brings them into it.

        The last result is kept, because every round asks for it again.
        """
        kept = self._rearranged
        if kept is None or kept[0] is not order:
            kept = (order, self._arranged(order, arranged))
            self._rearranged = kept
        return kept[1]

    def _arranged(self, order: Any, arranged: Callable[[Any, Any], Any]) -> Any:
        return arranged(self._values, order.order)

    def belong_to(self, indptr: Offsets) -> bool:
        """Whether the weights were made for data with this layout."""
        return bool(np.array_equal(self._indptr, indptr))

    def __repr__(self) -> str:
        return f"Weights({self.description}; squares sum to <= 1 per user, values hidden)"


class EqualWeights(Weights):
    """The same weight for all rows of a user, so that their squares sum to 1. It is held once for each user.

    Args:
        indptr: offsets of users.
        description: as for `Weights`, and so are the neighbours.
        neighbours: see `description`.
    """

    __slots__ = ("_of_users",)  # what rows have is made of it when it is asked for

    def __init__(self, indptr: Offsets, description: str, neighbours: Neighbours = ADD_REMOVE) -> None:
        sizes = np.diff(indptr)
        own = ((1 - MARGIN) / np.sqrt(np.maximum(sizes, 1))).astype(np.float32)
        squares = sizes * np.square(own, dtype=np.float64)
        if indptr[0] != 0 or not bool(((squares >= 0) & (squares <= 1.0)).all()):
            raise InputError(
                "Expected offsets from 0 on that give every user squared weights with a sum of at most 1.",
                argument="indptr",
            )
        self._of_users = _held(own)
        self._describe(indptr, description, neighbours, signed=False)

    def __getattr__(self, name: str) -> Any:
        """Make the weights of rows, of which the slot is empty until they are needed."""
        if name != "_values":
            raise AttributeError(name)
        self._values = _held(np.repeat(self._of_users, np.diff(self._indptr)))
        return self._values

    def _arranged(self, order: Any, arranged: Callable[[Any, Any], Any]) -> Any:
        return arranged(self._of_users, order.indices)


class Parts(Hidden):
    """Whole contributions of some users: one row per observation, and a norm of at most `norm` per user.

    The rows of user j lie between indptr[j] and indptr[j + 1]. A contribution that is not spread over observations
    has one row per user.
    """

    __slots__ = ("_norm", "_values")

    def __init__(self, values: FloatArray, indptr: Offsets, norm: float) -> None:
        _refuse_extreme(norm)
        held = _held(values)
        if not float(np.sqrt(_sum_of_squares(held, indptr).max(initial=0.0))) <= norm:
            raise InputError(
                f"Expected every user's part to have norm at most {norm}; at least one user's is longer.",
                argument="values",
            )
        self._values = held
        self._norm = float(norm)

    @property
    def norm(self) -> float:
        """The bound on the norm of one user's whole part."""
        return self._norm

    @classmethod
    def clipped(cls, values: FloatArray, indptr: Offsets, norm: float) -> Parts:
        """Scale down each user whose rows together exceed `norm`."""
        lengths = np.sqrt(_sum_of_squares(values, indptr))
        if not np.isfinite(lengths).all():
            raise InputError("Expected finite contributions, got NaN or infinity.", argument="values")
        inner = norm * (1 - MARGIN)
        factors = inner / np.maximum(lengths, inner)
        return cls(values * np.repeat(factors, np.diff(indptr))[:, None], indptr, norm)

    def __repr__(self) -> str:
        return f"Parts(norm of a user's part <= {self.norm:g}, values hidden)"


def _fitted(raw: FloatArray, indptr: Offsets, least_norm: float) -> Any:
    """Divide each user's weights by their norm, or by `least_norm` if that is larger."""
    norms = np.sqrt(_sum_of_squares(raw, indptr))
    if not np.isfinite(norms).all():
        raise InputError("Expected finite weights, got NaN or infinity.", argument="raw")
    factors = (1 - MARGIN) / np.maximum(norms, least_norm)
    return _stretched(raw, np.repeat(factors, np.diff(indptr)))


def _refuse_extreme(norm: float) -> None:
    """Refuse a norm whose square overflows or underflows: nothing could be checked against it."""
    if not 1 / _LARGEST <= norm <= _LARGEST:
        raise InputError(f"Expected a norm from {1 / _LARGEST:g} to {_LARGEST:g}, got {norm}.", argument="norm")


def _held(values: Any) -> Any:
    """Return a private copy, write-protected where the library supports it."""
    if isinstance(values, np.ndarray):
        held = copied(values)
        held.flags.writeable = False
        return held
    return values.clone()


def _lengths(values: Any) -> Any:
    """Return the norms of rows in float64, whatever the precision of the values.

    For NumPy arrays, the squares are added in the order of the columns.
    """
    if isinstance(values, np.ndarray):
        lengths = np.empty(len(values))
        for first in range(0, len(values), _ROWS_AT_A_TIME):
            block = values[first : first + _ROWS_AT_A_TIME].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses or clips values that are not finite
                lengths[first : first + _ROWS_AT_A_TIME] = np.sqrt(dot_rows(block, block))
        return lengths
    return (values.double() ** 2).sum(-1).sqrt()


def _stretched(values: Any, factors: Any) -> Any:
    """Multiply rows or numbers by factors. Compute in float64 and return the precision of the rows."""
    if isinstance(values, np.ndarray):
        across = factors if values.ndim == 1 else factors[:, None]
        return np.multiply(values, across, out=np.empty_like(values), casting="same_kind")
    return (values.double() * factors[:, None]).to(values.dtype)


def _sum_of_squares(values: FloatArray, indptr: Offsets) -> NDArray[np.float64]:
    """Return the sum of squares per user in float64, in batches of users; users without rows get 0."""
    if indptr[0] != 0 or indptr[-1] != len(values) or (np.diff(indptr) < 0).any():
        raise InputError(
            f"Expected offsets from 0 to {len(values)}, one run per user; these do not fit the values.",
            argument="indptr",
        )
    sums = np.zeros(len(indptr) - 1)
    cuts = np.searchsorted(indptr, np.arange(0, len(values), _AT_A_TIME))
    pieces = list(itertools.pairwise(np.unique([*cuts, len(sums)]).tolist()))

    def fill(piece: tuple[int, int]) -> None:
        first, last = piece
        filled = first + np.flatnonzero(np.diff(indptr[first : last + 1]))
        if len(filled):
            squares = np.square(values[indptr[first] : indptr[last]], dtype=np.float64)
            per_row = squares.sum(axis=1) if squares.ndim == 2 else squares
            sums[filled] = np.add.reduceat(per_row, indptr[filled] - indptr[first])

    for _ in side_by_side(fill, pieces) if len(pieces) > 1 else map(fill, pieces):
        pass
    return sums

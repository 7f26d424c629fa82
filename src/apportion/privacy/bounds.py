"""Per-user arrays that carry the bound they were clipped to.

A sensitivity in this library is never an argument: it is derived from these types. Each one is checked when it
is made, so it cannot claim a bound that its values break, and none of them shows its values when printed or
lets them be pickled. Their values are private; only engines read them, to form sums.

The bounds hold in real arithmetic with a margin `MARGIN`, which covers rounding to float32.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

MARGIN = 1e-6

FloatArray = NDArray[np.floating[Any]]


class Hidden:
    """Mixin for holders of private values: no printing, no pickling, no silent conversion to an array."""

    __slots__ = ()

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} holds private values and cannot be {what}; release it.")

    def __reduce__(self) -> NoReturn:
        self._refuse("pickled or copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        self._refuse("pickled or copied")

    def __array__(self, *_args: object, **_kwargs: object) -> NoReturn:
        self._refuse("turned into an array")

    def __iter__(self) -> NoReturn:
        self._refuse("iterated")

    def __float__(self) -> NoReturn:
        self._refuse("turned into a number")


class Rows(Hidden):
    """One row per user whose L2 norm is at most `norm`: user j's features in every task.

    `norm` is the bound, a public constant. Rows may live in NumPy or on a torch device.
    """

    __slots__ = ("_values", "norm")

    def __init__(self, values: Any, norm: float) -> None:
        largest = float(abs((values * values).sum(-1)).max()) ** 0.5 if len(values) else 0.0
        if not largest <= norm:  # also refuses NaN
            raise InputError(f"Expected every row's norm to be at most {norm}, got {largest}.")
        self._values = values
        self.norm = float(norm)

    @classmethod
    def clipped(cls, values: Any, norm: float) -> Rows:
        """Scale down the rows that are longer than `norm`."""
        return cls(_rescaled(values, norm, only_down=True), norm)

    @classmethod
    def scaled(cls, values: Any, norm: float) -> Rows:
        """Scale every row to length `norm`; a zero row stays zero."""
        return cls(_rescaled(values, norm, only_down=False), norm)

    def __repr__(self) -> str:
        return f"Rows({self._values.shape[1]} columns, norm <= {self.norm:g}, values hidden)"


class Labels(Hidden):
    """One value per observation, in user-major order, whose absolute value is at most `bound`."""

    __slots__ = ("_values", "bound")

    def __init__(self, values: Any, bound: float) -> None:
        largest = float(abs(values).max()) if len(values) else 0.0
        if not largest <= bound:
            raise InputError(f"Expected every label to be at most {bound} in absolute value, got {largest}.")
        self._values = values
        self.bound = float(bound)

    @classmethod
    def clipped(cls, values: Any, bound: float) -> Labels:
        """Clip every value to [-bound, bound]."""
        inner = bound * (1 - MARGIN)
        return cls(values.clip(-inner, inner), bound)

    def __repr__(self) -> str:
        return f"Labels(|label| <= {self.bound:g}, values hidden)"


class Weights(Hidden):
    """One weight per observation, in user-major order, with Σ w² ≤ 1 over the tasks of each user.

    A user's weights may depend on that user's own rows and on released values, on nothing else.
    """

    __slots__ = ("_indptr", "_values", "description")

    def __init__(self, values: FloatArray, indptr: NDArray[np.int64], description: str) -> None:
        squares = _sum_of_squares(values, indptr)
        largest = float(squares.max(initial=0.0))
        if not largest <= 1.0:
            raise InputError(f"Expected every user's squared weights to sum to at most 1, got {largest}.")
        self._values = values
        self._indptr = indptr
        self.description = description

    @classmethod
    def normalised(cls, raw: FloatArray, indptr: NDArray[np.int64], description: str) -> Weights:
        """Scale each user's weights so that their squares sum to 1."""
        return cls._fitted(raw, indptr, description, only_down=False)

    @classmethod
    def clipped(cls, raw: FloatArray, indptr: NDArray[np.int64], description: str) -> Weights:
        """Scale down the weights of users whose squares sum to more than 1 (eq. 12)."""
        return cls._fitted(raw, indptr, description, only_down=True)

    @classmethod
    def _fitted(cls, raw: FloatArray, indptr: NDArray[np.int64], description: str, *, only_down: bool) -> Weights:
        norms = np.sqrt(_sum_of_squares(raw, indptr)).astype(raw.dtype)
        if not np.isfinite(norms).all():
            raise InputError("Expected finite weights, got NaN or infinity.")
        floor = 1.0 if only_down else np.finfo(raw.dtype).tiny
        factors = ((1 - MARGIN) / np.maximum(norms, floor)).astype(raw.dtype)
        return cls(raw * np.repeat(factors, np.diff(indptr)), indptr, description)

    def __repr__(self) -> str:
        return f"Weights({self.description}; squares sum to <= 1 per user, values hidden)"


class Parts(Hidden):
    """Whole contributions of some users: one row per observation, all rows of a user together at most `norm` long.

    The rows of user j lie between indptr[j] and indptr[j + 1]. A contribution that is not spread over observations
    has one row per user.
    """

    __slots__ = ("_indptr", "_values", "norm")

    def __init__(self, values: FloatArray, indptr: NDArray[np.int64], norm: float) -> None:
        largest = float(np.sqrt(_sum_of_squares(values, indptr).max(initial=0.0)))
        if not largest <= norm:
            raise InputError(f"Expected every user's part to have norm at most {norm}, got {largest}.")
        self._values = values
        self._indptr = indptr
        self.norm = float(norm)

    @classmethod
    def clipped(cls, values: FloatArray, indptr: NDArray[np.int64], norm: float) -> Parts:
        """Scale down each user whose rows together are longer than `norm`."""
        lengths = np.sqrt(_sum_of_squares(values, indptr))
        if not np.isfinite(lengths).all():
            raise InputError("Expected finite contributions, got NaN or infinity.")
        factors = np.minimum(1.0, norm * (1 - MARGIN) / np.maximum(lengths, norm * 1e-9))
        return cls(values * np.repeat(factors, np.diff(indptr))[:, None], indptr, norm)

    def __repr__(self) -> str:
        return f"Parts(norm of a user's part <= {self.norm:g}, values hidden)"


def _sum_of_squares(values: FloatArray, indptr: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of squares per user; users without rows get 0."""
    if not len(values):
        return np.zeros(len(indptr) - 1)
    squares = np.square(values, dtype=np.float64)
    if squares.ndim == 2:
        squares = squares.sum(axis=1)
    filled = np.flatnonzero(np.diff(indptr))
    sums = np.zeros(len(indptr) - 1)
    sums[filled] = np.add.reduceat(squares, indptr[filled])
    return sums


def _rescaled(values: Any, norm: float, *, only_down: bool) -> Any:
    inner = norm * (1 - MARGIN)
    lengths = (values * values).sum(-1) ** 0.5
    floor = inner if only_down else 1e-30
    return values * (inner / lengths.clip(floor))[:, None]

"""Sums of products of units' rows, fused: squared lengths of Σ_t b_t a_tᵀ, and their weighted sum over units.

A gradient of a linear map is such a sum, over a unit's positions. The rows are float32, so products of two numbers are
exact in float64. All sums are float64, in an order that depends on nothing but the rows themselves.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.kernel import address
from apportion.linalg.threads import thread_count

Narrow = NDArray[np.float32]
Floats = NDArray[np.float64]

_SMALL = 1 << 24  # products up to this are not worth a second thread
_ADDRESSES = ("offsets", "incoming", "outgoing", "factors", "squares", "total", "of_ones", "ones_total")


class _Arguments(ctypes.Structure):
    """`ProductArguments` of `_users.cpp`."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("n_units", "rows", "columns")]
        + [(name, ctypes.c_void_p) for name in _ADDRESSES]
        + [("rounding", ctypes.c_double)]
        + [("looked_up", ctypes.c_void_p)]
        + [("inner", ctypes.c_double)]
    )


class UnitProducts:
    """Rows of two factors by unit.

    Args:
        offsets: int64[units + 1]: unit u has the positions from offsets[u] to offsets[u + 1]; starts with 0.
        outgoing: float32 [positions, rows], contiguous.
        incoming: float32 [positions, columns], contiguous; None for a column of ones.

    >>> one = np.ones((3, 2), np.float32)
    >>> products = UnitProducts(np.array([0, 1, 3]), one, one)
    >>> products.squares(0.0)  # of a matrix of ones, and of one of twos
    array([ 4., 16.])
    >>> total = np.zeros((2, 2))
    >>> products.add_to(total, np.array([1.0, 10.0]))
    >>> total
    array([[21., 21.],
           [21., 21.]])
    """

    def __init__(self, offsets: NDArray[np.int64], outgoing: Narrow, incoming: Narrow | None) -> None:
        positions = int(offsets[-1])
        if not (_are_rows(outgoing, positions) and (incoming is None or _are_rows(incoming, positions))):
            raise InputError("Expected contiguous float32 rows, one for each position.", argument=None)
        if offsets.dtype != np.int64 or offsets[0] or not offsets.flags.c_contiguous:
            raise InputError("Expected contiguous int64 offsets that start with 0.", argument="offsets")
        self._held = (offsets, outgoing, incoming)
        self._shape = (outgoing.shape[1], 1 if incoming is None else incoming.shape[1])
        self._arguments = _Arguments(
            len(offsets) - 1, *self._shape, address(offsets), None if incoming is None else address(incoming),
            address(outgoing),
        )  # fmt: skip
        self._threads = 1 if outgoing.size * self._shape[1] < _SMALL else thread_count()

    def squares(self, rounding: float) -> Floats:
        """Return ‖Σ_t b_t a_tᵀ‖² + (rounding · Σ_t ‖a_t‖ ‖b_t‖)² for every unit."""
        return self.squares_of_both(rounding)[0]

    def squares_of_both(self, rounding: float) -> tuple[Floats, Floats]:
        """Return the same, and what it would be with a column of ones for the incoming rows."""
        result = np.empty((2, self._arguments.n_units))
        squares = address(result)
        self._arguments.squares, self._arguments.of_ones = squares, squares + result.strides[0]
        self._arguments.rounding = rounding
        kernel.unit_products(self._arguments, "squares", threads=self._threads)
        return result[0], result[1]

    def add_to(self, total: Floats, factors: Floats, ones: Floats | None = None) -> None:
        """Add every unit's sum, times its factor, to float64 numbers of shape [rows, columns], contiguous.

        Args:
            total: the numbers.
            factors: one for each unit.
            ones: float64 [rows], contiguous, to which the sums with a column of ones are added; None for nothing.
        """
        if not _fits(total, self._shape) or not (ones is None or _fits(ones, self._shape[:1])):
            raise InputError("Expected contiguous float64 totals of the shape of the sums.", argument="total")
        if factors.shape != (self._arguments.n_units,) or factors.dtype != np.float64:
            raise InputError("Expected a float64 factor for each unit beside the total.", argument="factors")
        weights = np.ascontiguousarray(factors)
        self._arguments.total, self._arguments.factors = address(total), address(weights)
        self._arguments.ones_total = None if ones is None else address(ones)
        kernel.unit_products(self._arguments, "sums", threads=self._threads)

    def add_clipped(self, total: Floats, inner: float, rounding: float, ones: Floats | None) -> bool:
        """Add every unit's sum, clipped to a length; or add nothing and return False if a length is not finite.

        Args:
            total: float64 numbers, as for `add_to`.
            inner: the length. It is that of a unit's sums with the incoming rows, and with a column of ones if given.
            rounding: as for `squares`.
            ones: as for `add_to`.
        """
        if not _fits(total, self._shape) or not (ones is None or _fits(ones, self._shape[:1])):
            raise InputError("Expected contiguous float64 totals of the shape of the sums.", argument="total")
        held = self._arguments
        working = np.empty((3, held.n_units))
        squares, step = address(working), working.strides[0]
        held.squares, held.factors, held.rounding, held.inner = squares, squares + step, rounding, inner
        held.total = address(total)
        held.of_ones, held.ones_total = (None, None) if ones is None else (squares + 2 * step, address(ones))
        return kernel.unit_products(held, "clipped", threads=self._threads) is None


def squares_of_look_ups(outgoing: Narrow, rows: NDArray[np.int64], rounding: float) -> Floats:
    """Return ‖Σ_t b_t e_rᵀ‖² + (rounding · Σ_t ‖b_t‖)² for every unit, where position t looked up row r.

    Args:
        outgoing: float32 [units, positions, width], contiguous.
        rows: int64 [units, positions], contiguous; negative for no row, which counts nothing.
        rounding: as for `UnitProducts.squares`.

    >>> squares_of_look_ups(np.ones((1, 3, 2), np.float32), np.array([[4, 4, 7]]), 0.0)
    array([10.])
    """
    n_units, positions, width = outgoing.shape
    for each, kind in ((outgoing, np.float32), (rows, np.int64)):
        if each.dtype != kind or not each.flags.c_contiguous or each.shape[:2] != (n_units, positions):
            raise InputError(
                "Expected contiguous float32 numbers and int64 rows, one for each position.", argument=None
            )
    result, offsets = np.empty(n_units), np.arange(n_units + 1) * positions
    arguments = _Arguments(n_units, width, 1, address(offsets), None, address(outgoing), None, address(result))
    arguments.rounding, arguments.looked_up = rounding, address(rows)
    threads = 1 if outgoing.size * positions < _SMALL else thread_count()
    kernel.unit_products(arguments, "squares", threads=threads)
    return result


def _are_rows(held: Narrow, positions: int) -> bool:
    one_each = held.ndim == 2 and len(held) == positions
    return one_each and held.dtype == np.float32 and held.flags.c_contiguous


def _fits(total: Floats, shape: tuple[int, ...]) -> bool:
    return total.shape == shape and total.dtype == np.float64 and total.flags.c_contiguous


def available() -> bool:
    """Whether the kernel is here and in use; NumPy would not be faster than what it stands for."""
    return active_backend() == "compiled"

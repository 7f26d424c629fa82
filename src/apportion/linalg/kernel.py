"""Loads the compiled kernel (`_kernel.cpp`) and calls it; arguments have been checked before.

The library is optional. `library()` is None if it was not built, and everything runs on NumPy. The environment variable
APPORTION_INSTRUCTIONS (baseline, avx2 or avx512) limits the instructions that it uses.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.errors import InputError
from apportion.linalg.mostly_zero import MostlyZero
from apportion.linalg.packed import FloatArray
from apportion.linalg.threads import thread_count

GRAM, MOMENT, SOLUTION = range(3)
INSTRUCTION_SETS = ("baseline", "avx2", "avx512")
BLOCKS_AT_A_TIME = 16
_FEW = 1 << 14  # normal numbers that are not worth a second thread
_SUCCESS = -1
_OUT_OF_MEMORY = -2


def _widest() -> int:
    name = os.environ.get("APPORTION_INSTRUCTIONS") or INSTRUCTION_SETS[-1]
    if name not in INSTRUCTION_SETS:
        raise InputError(
            f"Expected APPORTION_INSTRUCTIONS to be one of {INSTRUCTION_SETS}, got {name!r}.", argument=None
        )
    return INSTRUCTION_SETS.index(name)


_WIDEST = _widest()
_level: ContextVar[int] = ContextVar("apportion_linalg_level", default=_WIDEST)


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the loaded kernel, or None if it was not built or cannot be loaded."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_kernel{suffix}")
        if path.exists():
            try:
                return _declare(ctypes.CDLL(os.fspath(path)))
            except (OSError, AttributeError):  # built for another system or by another version
                continue
    return None


def _declare(loaded: ctypes.CDLL) -> ctypes.CDLL:
    number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
    reals = {"float32": ctypes.c_float, "float64": ctypes.c_double}
    for name, of in (("float32", "float32"), ("float64", "float64"), ("float64", "float32")):
        real, segments = reals[name], getattr(loaded, f"kernel_segments_{name}_of_{of}")
        segments.restype = size
        segments.argtypes = [number, number, number, size, pointer, pointer, pointer, size, size]
        segments.argtypes += [pointer, pointer, number, pointer, pointer, real, pointer, pointer]
    for name in reals:
        packed = getattr(loaded, f"kernel_solve_packed_{name}")
        packed.restype = size
        packed.argtypes = [number, number, size, size, *[pointer] * 5]
        normals = getattr(loaded, f"kernel_normals_{name}")
        normals.restype = None
        normals.argtypes = [number, number, ctypes.c_char_p, ctypes.c_uint64, size, pointer]
        noisy = getattr(loaded, f"kernel_add_normals_{name}")
        noisy.restype = None
        noisy.argtypes = [number, number, ctypes.c_char_p, size, size, pointer, pointer, pointer]
        noisy.argtypes += [ctypes.c_double, ctypes.c_double, pointer]
    for of in reals:
        lattice = getattr(loaded, f"kernel_lattice_of_{of}")
        lattice.restype = size
        lattice.argtypes = [number, number, number, size, pointer, pointer, pointer, size, size]
        lattice.argtypes += [pointer, number, ctypes.c_double, pointer]
    rounded = loaded.kernel_rounded_normals
    rounded.restype = None
    rounded.argtypes = [number, number, ctypes.c_char_p, ctypes.c_uint64, size, pointer, number]
    rounded.argtypes += [pointer, size, pointer, pointer]
    loaded.kernel_keyed_words.restype = None
    loaded.kernel_keyed_words.argtypes = [number, number, ctypes.c_char_p, size, pointer, pointer]
    loaded.kernel_chacha20.restype = None
    loaded.kernel_chacha20.argtypes = [number, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, pointer]
    loaded.users_rating_round.restype = size
    loaded.users_rating_round.argtypes = [number, number, pointer]
    loaded.users_ranking.restype = size
    loaded.users_ranking.argtypes = [number, number, number, pointer]
    loaded.users_task_counts.restype = size
    loaded.users_task_counts.argtypes = [number, number, pointer]
    loaded.users_information.restype = size
    loaded.users_information.argtypes = [number, number, pointer]
    loaded.users_solutions.restype = size
    loaded.users_solutions.argtypes = [number, number, pointer]
    for products in (loaded.users_unit_squares, loaded.users_unit_sums, loaded.users_unit_clipped):
        products.restype, products.argtypes = size, [number, number, pointer]
    loaded.reading_order.restype = size
    loaded.reading_order.argtypes = [number, size, size, pointer, pointer, pointer]
    loaded.reading_texts.restype = pointer
    loaded.reading_texts.argtypes = []
    loaded.reading_forget.restype = None
    loaded.reading_forget.argtypes = [pointer]
    loaded.reading_chosen.restype = None
    loaded.reading_chosen.argtypes = [number, size, number, pointer, pointer, pointer]
    loaded.reading_without.restype = None
    loaded.reading_without.argtypes = [number, size, number, size, pointer, pointer, pointer]
    loaded.kernel_held_out.restype = size
    loaded.kernel_held_out.argtypes = [number, number, ctypes.c_char_p, pointer]
    loaded.users_out_of_order.restype = size
    loaded.users_out_of_order.argtypes = [number, pointer]
    loaded.reading_codes.restype = size
    loaded.reading_codes.argtypes = [pointer, size, number, *[pointer] * 4]
    loaded.kernel_best_level.restype = number
    loaded.kernel_best_level.argtypes = []
    return loaded


def _loaded() -> ctypes.CDLL:
    found = library()
    if found is None:
        raise InputError("The compiled kernel was not built on this machine; use the 'numpy' backend.", argument=None)
    return found


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that this processor has and may use, slowest first; empty without the kernel."""
    found = library()
    return () if found is None else INSTRUCTION_SETS[: min(found.kernel_best_level(), _WIDEST) + 1]


@contextmanager
def use_instruction_set(name: str) -> Iterator[None]:
    """Limit the kernel to `name` inside the block, for tests and measurements."""
    if name not in instruction_sets():
        raise InputError(f"Expected one of the instruction sets {instruction_sets()}, got {name!r}.", argument="name")
    token = _level.set(INSTRUCTION_SETS.index(name))
    try:
        yield
    finally:
        _level.reset(token)


def address(array: NDArray[Any]) -> int:
    """Return where the numbers of a contiguous array are."""
    try:
        quickly = ctypes.c_char.from_buffer(array)  # type: ignore[arg-type]  # in a third of the time of other ways
        return ctypes.addressof(quickly)
    except (BufferError, TypeError, ValueError):  # read-only, or empty
        found: int = array.__array_interface__["data"][0]
        return found


def _address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else address(array)


def segments(
    want: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    features: FloatArray,
    out: FloatArray,
    *,
    threads: int,
    weights: FloatArray | None = None,
    labels: FloatArray | None = None,
    base: FloatArray | None = None,
    base_rhs: FloatArray | None = None,
    ridge: float = 0.0,
    back: FloatArray | None = None,
) -> int | None:
    """Fill `out`. Return the first segment whose result is not finite, or None if all are finite.

    Args:
        want: GRAM, MOMENT or SOLUTION.
        indptr: segment boundaries.
        indices: rows of `features`, one per observation.
        features: [n, d]; float32, or of the dtype of `out`.
        out: the result, [s, d(d+1)/2] or [s, d]; its dtype is that of the sums and of all other real arrays.
        threads: number of threads.
        weights: per observation, or None for ones.
        labels: per observation, for MOMENT and SOLUTION.
        base: [d, d], for SOLUTION; None is zero.
        base_rhs: [d], for SOLUTION; None is zero.
        ridge: r > 0 if base is r I and no weight is negative, which allows the dual form for short segments.
        back: [d, d], for SOLUTION: return back' x for the solution x; None for x.
    """
    signed = weights is not None and weights.size > 0 and float(weights.min()) < 0
    call = getattr(_loaded(), f"kernel_segments_{out.dtype.name}_of_{features.dtype.name}")
    failed: int = call(
        _level.get(), threads, want, indptr.size - 1, _address(indptr), _address(indices), _address(features),
        *features.shape,
        _address(weights), _address(labels), signed, _address(base), _address(base_rhs), ridge, _address(back),
        _address(out),
    )  # fmt: skip
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return None if failed == _SUCCESS else failed


def lattice(
    want: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    features: FloatArray,
    weights: FloatArray,
    step: float,
    counts: NDArray[np.int64],
    *,
    threads: int | None = None,
) -> None:
    """Fill `counts` with sums in whole steps; see `apportion.linalg.lattice`."""
    signed = weights.size > 0 and float(weights.min()) < 0
    failed: int = getattr(_loaded(), f"kernel_lattice_of_{features.dtype.name}")(
        _level.get(), thread_count(threads), want, indptr.size - 1, _address(indptr), _address(indices),
        _address(features), *features.shape, _address(weights), signed, 1 / step, _address(counts),
    )  # fmt: skip
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")


def task_counts(arguments: ctypes.Structure, *, threads: int | None = None) -> int | None:
    """Add up weights by task. Return the first user whose tasks are out of order, or None. See `task_counts`."""
    failed: int = _loaded().users_task_counts(_level.get(), thread_count(threads), ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return None if failed == _SUCCESS else failed


def unit_products(arguments: ctypes.Structure, what: str, *, threads: int) -> int | None:
    """Fill squared lengths, add to a sum, or both. Return a unit whose length is not finite. See `unit_products`."""
    call = getattr(_loaded(), f"users_unit_{what}")
    failed: int = call(_level.get(), threads, ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return None if failed == _SUCCESS else failed


def rating_round(arguments: ctypes.Structure, *, threads: int | None = None) -> int | None:
    """Add up a round on ratings. Return the first user whose tasks are out of order, or None. See `user_rounds`."""
    failed: int = _loaded().users_rating_round(_level.get(), thread_count(threads), ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return None if failed == _SUCCESS else failed


def ranking(arguments: ctypes.Structure, *, doubles: bool, threads: int | None = None) -> None:
    """Fill products of rows with rows, all or the largest; see `apportion.linalg.fixed_order`."""
    failed: int = _loaded().users_ranking(_level.get(), thread_count(threads), doubles, ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")


def information(arguments: ctypes.Structure, *, threads: int | None = None) -> None:
    """Fill in the information of statistics about tasks; see `apportion.linalg.information`."""
    failed: int = _loaded().users_information(_level.get(), thread_count(threads), ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")


def solutions(arguments: ctypes.Structure, *, threads: int | None = None) -> None:
    """Fill in the users' solutions; see `apportion.linalg.user_moments`."""
    failed: int = _loaded().users_solutions(_level.get(), thread_count(threads), ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")


def order(
    codes: NDArray[np.int32], n_codes: int, seconds: NDArray[np.int32] | None, *, threads: int | None = None
) -> NDArray[np.int64] | None:
    """Return the stable order by code and second code, or None if a code is out of range; see `linalg.orders`."""
    found = np.empty(codes.size, np.int64)
    addresses = [_address(array) for array in (codes, seconds, found)]
    failed: int = _loaded().reading_order(thread_count(threads), codes.size, n_codes, *addresses)
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return found if failed == _SUCCESS else None


def chosen(values: NDArray[Any], mask: NDArray[np.bool_], out: NDArray[Any], *, threads: int | None = None) -> None:
    """Fill `out` with the values where the mask is true; see `linalg.orders`."""
    addresses = [_address(array) for array in (mask, values, out)]
    _loaded().reading_chosen(thread_count(threads), values.size, values.itemsize, *addresses)


def without(
    values: NDArray[Any], positions: NDArray[np.int64], out: NDArray[Any], *, threads: int | None = None
) -> None:
    """Fill `out` with the values that are not at the positions; see `linalg.orders`."""
    addresses = [_address(array) for array in (positions, values, out)]
    _loaded().reading_without(thread_count(threads), values.size, values.itemsize, positions.size, *addresses)


def held_out(key: bytes, arguments: ctypes.Structure, *, threads: int | None = None) -> None:
    """Mark the rows that users hold out; see `linalg.held_out`."""
    failed: int = _loaded().kernel_held_out(_level.get(), thread_count(threads), key, ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")


def out_of_order(arguments: ctypes.Structure, *, threads: int | None = None) -> int | None:
    """Return the first user whose tasks are out of order, or None; see `task_counts`."""
    failed: int = _loaded().users_out_of_order(thread_count(threads), ctypes.byref(arguments))
    if failed == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return None if failed == _SUCCESS else failed


def new_texts() -> tuple[int, Callable[[int], None]]:
    """Return an empty list of texts, and the function that frees it; see `linalg.texts`."""
    texts: int | None = _loaded().reading_texts()
    if texts is None:
        raise MemoryError("No memory left for a list of texts.")
    return texts, _loaded().reading_forget


def codes_of_texts(
    texts: int, offsets: NDArray[Any], letters: NDArray[np.uint8], codes: NDArray[np.int32], firsts: NDArray[np.int64]
) -> int:
    """Fill `codes`, and `firsts` with the positions of new texts. Return how many are new."""
    wide = offsets.dtype == np.int64
    addresses = [_address(array) for array in (offsets, letters, codes, firsts)]
    n_new: int = _loaded().reading_codes(texts, codes.size, wide, *addresses)
    if n_new == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for a list of texts.")
    return n_new


def rounded_normals(
    sums: NDArray[np.int64],
    shift: int,
    scales: NDArray[np.float64],
    key: bytes,
    out: NDArray[np.int64],
    doubtful: NDArray[np.uint8],
    *,
    threads: int | None = None,
) -> None:
    """Fill `out` with sums / 2^shift + scale · normal, rounded to the nearest. Mark entries where that is in doubt."""
    _loaded().kernel_rounded_normals(
        _level.get(), thread_count(threads), key, 0, sums.size, _address(sums), shift, _address(scales), scales.size,
        _address(out), _address(doubtful),
    )  # fmt: skip


def solve_packed(
    packed: FloatArray, rhs: FloatArray, base: FloatArray | None, *, threads: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Batched Cholesky solves; see `apportion.linalg.solve_packed`."""
    solution = np.empty_like(rhs)
    failed = np.zeros(rhs.shape[0], dtype=np.bool_)
    call = getattr(_loaded(), f"kernel_solve_packed_{packed.dtype.name}")
    addresses = [_address(array) for array in (packed, rhs, base, solution, failed)]
    if call(_level.get(), threads, *rhs.shape, *addresses) == _OUT_OF_MEMORY:
        raise MemoryError("No memory left for the working space of the kernel.")
    return solution, failed


def fill_normals(out: FloatArray, key: bytes, counter: int = 0, *, threads: int | None = None) -> None:
    """Fill the contiguous array `out` from the stream of `key`, starting at block `counter`."""
    call = getattr(_loaded(), f"kernel_normals_{out.dtype.name}")
    call(_level.get(), thread_count(threads), key, counter, out.size, _address(out))


def add_normals(
    values: NDArray[np.float64] | MostlyZero,
    scale: float,
    step: float,
    key: bytes,
    dtype: DTypeLike = np.float64,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Return contiguous values + scale · normal, to multiples of step; see `apportion.linalg.add_normals`."""
    out, loaded = np.empty(values.shape, dtype) if out is None else out, _loaded()
    call = loaded.kernel_add_normals_float32 if out.itemsize == 4 else loaded.kernel_add_normals_float64
    runs = (0, None, None, _address(values)) if isinstance(values, np.ndarray) else _addresses_of(values)
    several = thread_count(threads) if out.size > _FEW else 1
    call(_level.get(), several, key, out.size, *runs, scale, step, _address(out))
    return out


def _addresses_of(values: MostlyZero) -> tuple[int | None, ...]:
    return len(values.ends), *map(_address, (values.ends, values.offsets, values.numbers))


def keyed_words(key: bytes, points: NDArray[np.uint64], out: NDArray[np.uint64], *, threads: int | None = None) -> None:
    """Fill `out`; see `apportion.linalg.keyed_words`."""
    _loaded().kernel_keyed_words(
        _level.get(), thread_count(threads), key, len(points), _address(points), _address(out)
    )  # fmt: skip


def chacha20_words(key: bytes, counter: int, nonce: int = 0) -> NDArray[np.uint32]:
    """Return words [16 blocks, 16] of the stream, for checks against published test vectors."""
    words = np.empty((16, BLOCKS_AT_A_TIME), dtype=np.uint32)
    _loaded().kernel_chacha20(_level.get(), key, counter, nonce, _address(words))
    return np.ascontiguousarray(words.T)

"""A running sum of gradients on any torch device. It clips each unit's whole gradient before adding it.

A unit is a user with all rows, or one row if the guarantee is for rows. The object that clips also states the
sensitivity. A unit's gradient comes in blocks, one for each parameter. A block knows the lengths of its units' parts
and their weighted sum, so no per-unit gradient need ever be stored. With relative scales s, the length is that of
g / s and noise is relative to s: clipping happens where the noise is isotropic (docs/proofs/optimizers.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import MostlyZero, device_copies
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Hidden
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours

LEAST_NORM, LARGEST_NORM = 1e-100, 1e100  # within them, squares of lengths that matter neither vanish nor overflow
_FEW = 8  # rows of a table are few up to one in so many
_INNER = 1 - 1e-5  # relative to the clip norm; covers the rounding of float32 gradients


class Block(Protocol):
    """The parts of several units' gradients for one parameter."""

    def squared_norms(self, scales: Any | None) -> Any:
        """Return the squared length of each unit's part, divided by scales of the parameter's shape if given."""

    def zeros(self, size: int) -> Any:
        """Return float64 zeros on the device of the parts."""

    def add_to(self, total: Any, factors: Any) -> None:
        """Add the units' parts, each times its factor, to a float64 tensor of the parameter's shape."""

    def keeping(self, kept: Any) -> Block:
        """Return the block with zeros for the units that are not kept, whatever their values."""


class BlockOnGpu(Block, Protocol):
    """The parts of several units' gradients on a GPU, which need not be asked whether they are finite."""

    @property
    def leaves_out(self) -> bool:
        """Whether `add_to` adds nothing of a unit whose factor is 0, be it finite or not."""

    def joint_squares(self) -> Any | None:
        """Return squared lengths without scales; None if another block's of the same units have them."""


class TableBlock(Block, Protocol):
    """The parts of a large table, of which the units look up a few rows."""

    @property
    def few_rows(self) -> bool:
        """Whether the rows are so few that the others should not be touched."""

    def added_rows(self, factors: Any) -> tuple[NDArray[np.int64], Any]:
        """Return which rows get something, ascending, and the sum of the units' parts there, each times its factor.

        The sum is an array, or a tensor on a GPU, of shape [rows, columns].
        """


class GradientTotal(Hidden):
    """The sum of gradients, each clipped to `clip_norm`. Add each unit at most once.

    Args:
        clip_norm: norm to which a unit's whole gradient is clipped.
        shapes: the shapes of the parameters.
        scales: relative noise of each coordinate, one positive float64 tensor for each parameter; None means 1.
        counted: share of the squared sensitivity spent on counting the units that were not clipped, in one more
            coordinate; 0 turns counting off.
        losses: the limit to which each unit's loss is clipped, and the share of the squared sensitivity for the sum of
            losses, in one more coordinate; None to add up no losses.
        neighbours: the neighbour relation of the sensitivity: adding or removing one unit.
        dtype: what the released sum is rounded to, after its noise; None for float64.
    """

    __slots__ = (
        "_clip_norm", "_counted", "_dtype", "_losses", "_neighbours", "_scales", "_shapes", "_shared", "_tables",
        "_total", "_within",
    )  # fmt: skip

    def __init__(
        self,
        clip_norm: float,
        shapes: Sequence[tuple[int, ...]],
        *,
        scales: Sequence[Any] | None = None,
        counted: float = 0.0,
        losses: tuple[float, float] | None = None,
        neighbours: Neighbours = ADD_REMOVE,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        if not LEAST_NORM <= clip_norm <= LARGEST_NORM or not 0 <= counted + (losses[1] if losses else 0.0) < 1:
            raise InputError(
                f"Expected a clip_norm from {LEAST_NORM:g} to {LARGEST_NORM:g} and counted in [0, 1), got {clip_norm}, "
                f"{counted}.",
                argument=None,
            )
        self._clip_norm = float(clip_norm)
        self._shapes = [tuple(shape) for shape in shapes]
        self._scales = None if scales is None else list(scales)
        self._counted = float(counted)
        self._losses = losses
        self._neighbours = neighbours
        self._dtype = dtype
        self._tables: dict[int, _TableTotal] | None = None  # by parameter; all others are in the tensor
        self._total: Any | None = None  # one tensor for these parameters; None before the first units
        self._shared = False  # whether a sealed sum holds the tensor
        self._within = [0.0, 0.0]  # units within the norm, and losses; each from the middle of its range

    @property
    def clip_norm(self) -> float:
        """The norm to which a unit's whole gradient is clipped."""
        return self._clip_norm

    def add(self, blocks: Sequence[Block], real: Any | None = None, losses: Any | None = None) -> None:
        """Add the gradients of some units, one block for each parameter.

        A gradient that is not finite counts as zero, because a refusal would reveal something about one unit's data.

        Args:
            blocks: the units' gradients, by parameter.
            real: for each unit, whether it is real or only pads the batch; None if all are real.
            losses: the loss of each unit, if the object adds up losses.
        """
        inner = self._clip_norm * _INNER
        if self._clips_alone(real) and self._in_one_pass(blocks, inner):
            return
        on_gpu = bool(blocks) and all(getattr(block, "leaves_out", False) for block in blocks)
        squares = self._squares(blocks, on_gpu)
        if on_gpu:
            norms, factors = None, _factors_on_gpu(squares, inner, real)
        else:
            norms, kept, factors = _factors(squares, inner, real)
            blocks = blocks if kept is None else [block.keeping(kept) for block in blocks]
        if blocks:
            self._add_parts(blocks, factors)
        if self._counted:
            lengths = squares.double().clamp_min(0).sqrt() if norms is None else norms
            within = (lengths <= inner).double() - 0.5
            self._within[0] += float((within if real is None else within[real.to(within.device)]).sum())
        if self._losses is not None:
            self._within[1] += _around_the_middle(losses, self._losses[0], real)

    def add_up_over(self, add_up: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        """Replace the sum by the sum over several processes. Each process must have added other units.

        Args:
            add_up: takes this process's numbers and returns the sums over all processes. It is trusted with them.
        """
        result = add_up(np.concatenate([np.asarray(self._values()), self._within]))
        self._total, self._tables = result[:-2].copy(), {}
        self._within = [float(value) for value in result[-2:]]

    def sealed(self) -> BoundedSum:
        """Return the sum so far, hidden and flat, with the sensitivity that its clipping gives it."""
        scales = None if self._scales is None else [_flat(held) for held in self._scales]
        text = _clipped_to(self._clip_norm)
        if scales is not None:
            text += " in units of the relative noise"
        extra = self._extra()
        if not extra:
            held = None if scales is None else np.concatenate(scales)
            later = self._on_gpu()
            values = np.broadcast_to(0.0, self._size) if later else self._values()
            result = BoundedSum(
                _KEY, values, self._clip_norm, text, held, neighbours=self._neighbours, dtype=self._dtype,
                room=device_copies.page_locked if later else None,
            )  # fmt: skip
            self._shared = True
            return result._on_its_way(self._begun()) if later else result
        values, self._shared = self._values(), True
        bound = self._clip_norm / math.sqrt(1 - sum(share for _, _, share, _ in extra))
        relative = [half / (bound * math.sqrt(share)) for _, half, share, _ in extra]
        held = np.concatenate([*(scales or [np.ones(values.size)]), relative])
        value = np.concatenate([np.asarray(values), [number for number, *_ in extra]])
        text += "".join(f"; with {words}, {share:g} of the squared sensitivity" for _, _, share, words in extra)
        return BoundedSum(_KEY, value, bound, text, held, neighbours=self._neighbours, dtype=self._dtype)

    def _squares(self, blocks: Sequence[Any], on_gpu: bool) -> Any:
        """Return the squared lengths of the units' whole gradients."""
        squares: Any = None
        for k, block in enumerate(blocks):
            scales = None if self._scales is None else self._scales[k]
            part = block.joint_squares() if on_gpu and scales is None else block.squared_norms(scales)
            if part is not None:  # parameters may be on several devices
                squares = part if squares is None else squares + part.to(squares.device)
        return squares

    @property
    def _size(self) -> int:
        """The number of coordinates of the gradient."""
        return sum(map(math.prod, self._shapes))

    def _on_gpu(self) -> bool:
        """Whether the sum is on a GPU, which may still be at work on it."""
        if not self._tables:
            return self._total is not None and not isinstance(self._total, np.ndarray) and _asynchronous(self._total)
        held = [] if self._total is None else [self._total]
        held += [table.numbers for table in self._tables.values()]
        return not any(isinstance(each, np.ndarray) or not _asynchronous(each) for each in held)

    def _begun(self) -> Callable[[], NDArray[np.float64] | MostlyZero]:
        """Begin to copy the sum to the host, as it is now; return what waits for it and lays it in order."""
        flat = None if self._total is None else device_copies.begun(self._total)
        tables = {k: table.begun() for k, table in (self._tables or {}).items()}

        def arrived() -> NDArray[np.float64] | MostlyZero:
            values = np.zeros(0) if flat is None else flat().reshape(-1)
            if not tables:
                return values
            return MostlyZero.joined(self._in_order(values, {k: table() for k, table in tables.items()}))

        return arrived

    def _clips_alone(self, real: Any | None) -> bool:
        """Whether clipped gradients are all that is added, from real units only and without scales."""
        return real is None and self._scales is None and not self._counted and self._losses is None

    def _in_one_pass(self, blocks: Sequence[Any], inner: float) -> bool:
        """Let one layer add its units' gradients, clipped, if it can; return whether it did."""
        of_one_layer = getattr(blocks[0], "of_one_layer", None) if blocks else None
        if of_one_layer is None or not of_one_layer(blocks):
            return False
        total = self._own_total(blocks[0], self._size)
        added: bool = blocks[0].add_all_clipped(total, inner, bias=len(blocks) == 2)
        return added

    def _add_parts(self, blocks: Sequence[Any], factors: Any) -> None:
        """Add the units' parts: those of tables with few rows to these rows, all others to one tensor."""
        if self._tables is None:
            few = [k for k, block in enumerate(blocks) if getattr(block, "few_rows", False)]
            self._tables = {k: _TableTotal(self._shapes[k]) for k in few}
        others = [k for k in range(len(blocks)) if k not in self._tables]
        sizes = [math.prod(self._shapes[k]) for k in others]
        parts = self._own_total(blocks[others[0]], sum(sizes)).split_with_sizes(sizes) if others else ()
        for k, part in zip(others, parts, strict=True):
            blocks[k].add_to(part.view(self._shapes[k]), factors)
        for k, total in self._tables.items():
            total.add(*blocks[k].added_rows(factors))

    def _own_total(self, block: Block, size: int) -> Any:
        """Return the tensor to add to. It is new at the start, and again after the sum so far was sealed."""
        if self._total is None:
            self._total = block.zeros(size)
        elif self._shared:
            self._total = self._total.clone()
        self._shared = False
        return self._total

    def _values(self) -> NDArray[np.float64] | MostlyZero:
        """Return the sum, flat."""
        if self._tables:
            flat = np.zeros(0) if self._total is None else _flat(self._total)
            return MostlyZero.joined(self._in_order(flat, {k: table.values() for k, table in self._tables.items()}))
        return np.zeros(self._size) if self._total is None else _flat(self._total)

    def _in_order(self, flat: NDArray[np.float64], tables: dict[int, MostlyZero]) -> list[MostlyZero]:
        """Return the sum of each parameter: those of some tables, and of all others, which lie behind one another."""
        result, first = [], 0
        for k, shape in enumerate(self._shapes):
            if k in tables:
                result.append(tables[k])
            else:
                result.append(MostlyZero.whole(flat[first : first + math.prod(shape)]))
                first += math.prod(shape)
        return result

    def _extra(self) -> list[tuple[float, float, float, str]]:
        """Return for each extra coordinate its value, how far one unit moves it, its share, and its description."""
        result = []
        if self._counted:
            result.append((self._within[0], 0.5, self._counted, "the count of units within it"))
        if self._losses is not None:
            largest, share = self._losses
            result.append((self._within[1], largest / 2, share, f"the sum of losses clipped to {largest:g}"))
        return result


class _TableTotal:
    """The sum of gradients of a large table: of the rows that were looked up, or of all once they are many.

    Args:
        shape: of the table.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._n_rows = shape[0]
        self._rows = np.zeros(0, np.int64)
        self.numbers: Any = np.zeros((0, math.prod(shape[1:])))  # a tensor if they were added once, on a GPU

    def add(self, rows: NDArray[np.int64], numbers: Any) -> None:
        """Add numbers to some rows; these are ascending."""
        if not len(self._rows):
            self._rows, self.numbers = rows, numbers
            return
        self.numbers, numbers = _of_rows(self.numbers), _of_rows(numbers)
        if len(self._rows) < self._n_rows:
            self._make_room(rows)
        self.numbers[np.searchsorted(self._rows, rows)] += numbers

    def values(self) -> MostlyZero:
        """Return the sum so far, row by row."""
        return self._row_by_row(_of_rows(self.numbers))

    def begun(self) -> Callable[[], MostlyZero]:
        """Begin to copy the sum so far from a GPU; the result waits for it."""
        arrived = device_copies.begun(self.numbers)
        return lambda: self._row_by_row(arrived())

    def _row_by_row(self, numbers: NDArray[np.float64]) -> MostlyZero:
        if len(self._rows) == self._n_rows:
            return MostlyZero.whole(numbers)
        return MostlyZero.of_rows(self._rows, numbers, self._n_rows)

    def _make_room(self, rows: NDArray[np.int64]) -> None:
        """Hold these rows too; or all rows of the table, if these are too many."""
        held = np.union1d(self._rows, rows)
        if _FEW * len(held) > self._n_rows:
            held = np.arange(self._n_rows)
        wide = np.zeros((len(held), self.numbers.shape[1]))
        wide[np.searchsorted(held, self._rows)] = self.numbers
        self._rows, self.numbers = held, wide


class RowCounts(Hidden):
    """Hidden counts of the units that look up each row of some tables.

    A unit adds 1/√m to each of its m rows: a vector of norm 1.

    Args:
        n_rows: the number of rows in all tables together.
        neighbours: the neighbour relation of the sensitivity: adding or removing one unit.
    """

    __slots__ = ("_counts", "_neighbours")

    def __init__(self, n_rows: int, neighbours: Neighbours = ADD_REMOVE) -> None:
        self._counts = np.zeros(n_rows)
        self._neighbours = neighbours

    def add(self, units: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Add all rows of some units. Add each unit at most once.

        Args:
            units: the unit of each look-up.
            rows: the row that it looked up; negative rows are ignored.
        """
        known = rows >= 0
        pairs = np.unique(units[known] * len(self._counts) + rows[known])  # count each row of a unit once
        whose, which = np.divmod(pairs, len(self._counts))
        np.add.at(self._counts, which, _INNER / np.sqrt(np.bincount(whose)[whose]))

    def add_up_over(self, add_up: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        """Replace the counts by the counts over several processes. Each process must have added other units."""
        self._counts = add_up(self._counts)

    def sealed(self) -> BoundedSum:
        """Return the counts, hidden, with their sensitivity."""
        text = "each unit adds the same to every row that it looks up, 1 in norm"
        return BoundedSum(_KEY, self._counts, 1.0, text, neighbours=self._neighbours)


@lru_cache(maxsize=16)
def _clipped_to(norm: float) -> str:
    """Return the derivation in words; mostly the same at every step, and longer to write than to find."""
    return f"each unit's whole gradient clipped to norm {norm:g}"


def _factors(squares: Any, inner: float, real: Any | None) -> tuple[Any, Any | None, Any]:
    """Return lengths, which units are kept (None: all), and factors: those that clip, and 0 for units not kept."""
    norms = squares.double().clamp_min(0).sqrt_()
    factors = norms.clamp_min(inner).reciprocal_().mul_(inner)
    if real is None and math.isfinite(float(norms.sum())):
        return norms, None, factors
    kept = norms.isfinite() if real is None else norms.isfinite() & real.to(norms.device)
    return norms, None if bool(kept.all()) else kept, factors.where(kept, 0.0)


def _factors_on_gpu(squares: Any, inner: float, real: Any | None) -> Any:
    """Return factors as `_factors` does, but ask nothing: 0 for units that are not finite or not real."""
    factors = squares.double().clamp_min(inner * inner).rsqrt_().mul_(inner)  # of an infinite length: 0
    factors = factors.nan_to_num_(nan=0.0)
    return factors if real is None else factors * real.to(factors.device)


def _asynchronous(values: Any) -> bool:
    return device_copies.asynchronous(values.device)


def _of_rows(numbers: Any) -> NDArray[np.float64]:
    """Return the numbers of some rows of a table; those of a tensor as a new array."""
    held: NDArray[np.float64] = numbers if isinstance(numbers, np.ndarray) else numbers.cpu().numpy().copy()
    return held


def _around_the_middle(losses: Any, largest: float, real: Any | None) -> float:
    """Return the sum of losses clipped to [0, largest], each less largest / 2. A loss that is not finite adds 0."""
    held = losses.double()
    parts = held.clamp(0.0, largest).where(held.isfinite(), largest / 2) - largest / 2
    return float((parts if real is None else parts[real.to(parts.device)]).sum())


def number_of_units(n_units: int, neighbours: Neighbours) -> BoundedSum:
    """Return the hidden number of units. One unit moves it by 1."""
    return BoundedSum(_KEY, np.array([float(n_units)]), 1.0, "one for each unit", neighbours=neighbours)


def _flat(values: Any) -> NDArray[np.float64]:
    """Return float64 numbers, flat; those of an array, or of a tensor on the processor, without a copy."""
    held = values if isinstance(values, np.ndarray) else values.numpy(force=True)
    return np.asarray(held, np.float64).reshape(-1)

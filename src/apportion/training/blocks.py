"""Parts of units' gradients, by parameter: stored in full, or as factors.

The gradient of a linear map's weight, for one unit, is Σ_t b_t a_tᵀ over the unit's positions t (rows, times, pixels),
where a is the input and b the gradient of the output. Its squared length is Σ_{t,t'} (a_t · a_t')(b_t · b_t'), and a
weighted sum over units is one matrix product, so no unit's gradient is formed if that would cost more.

Lengths, sums over positions and sums over units are float64, whatever the gradients are. Positions may cancel, and then
the length of the sum is lost in the rounding of its terms, which depends on how many positions other units of the pass
have. So every length of a sum over positions has a small part of the size of its terms added to it (`rounding_of`):
what rounding leaves of a unit that cancels is then far below the clip norm (docs/proofs/optimizers.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apportion.linalg import device_copies
from apportion.linalg.unit_products import available, squares_of_look_ups

_NUMBERS, _NUMBERS_ON_GPU = 2**19, 2**25  # of stored gradients that are held in float64 at a time
_LARGE, _FEW = 2**15, 8  # numbers of a large table; its rows are few up to one in so many


def rounding_of(values: Tensor) -> float:
    """Return what is added to a length, over the size of its terms: far above their rounding, and that of their sum."""
    return 1e-6 if values.dtype == torch.float64 else 1e-4


class OnDevice(ABC):
    """A block with its numbers on one device."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Of the numbers."""

    @property
    def leaves_out(self) -> bool:
        """Whether `add_to` adds nothing of a unit whose factor is 0, even if it is not finite: on a GPU."""
        return device_copies.asynchronous(self.device)

    def joint_squares(self) -> Any | None:
        """Return squared lengths; None if they are counted with those of another block."""
        return self.squared_norms(None)

    @abstractmethod
    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient, divided by scales if given."""

    def zeros(self, size: int) -> Tensor:
        """Return float64 zeros on the device of the numbers."""
        return torch.zeros(size, dtype=torch.float64, device=self.device)


@dataclass(frozen=True, repr=False)
class Stored(OnDevice):
    """One gradient for each unit.

    Attributes:
        values: units along the first axis, then the shape of the parameter.
        sizes: sums of the absolute values of a unit's terms; None where each value is one term.
        rounding: what is added to a length, over the length of the sizes.
        narrow: whether the values are sums of float32 numbers, whose squares fit in float64; None to tell by dtype.
    """

    values: Tensor
    sizes: Tensor | None = None
    rounding: float = 0.0
    narrow: bool | None = None

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient, divided by scales if given."""
        result = _scaled_lengths(self.values, scales, self.narrow).square()
        sizes = result if self.sizes is None else _scaled_lengths(self.sizes, scales, self.narrow).square()
        return result + self.rounding**2 * sizes

    @property
    def device(self) -> torch.device:
        """Of the gradients."""
        return self.values.device

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor."""
        weights, values = factors.to(self.device).double(), _flat(self.values)
        safe = self.leaves_out
        most = _NUMBERS if self.device.type == "cpu" and not safe else _NUMBERS_ON_GPU
        at_once = max(1, most // max(1, values.shape[1]))
        for first in range(0, len(values), at_once):
            some = slice(first, first + at_once)
            wide = values[some].double()
            _add(total, weights[some] @ (torch.nan_to_num(wide) if safe else wide))

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        return self.values

    def keeping(self, kept: Any) -> Stored:
        """Return the block with zeros for units that are not kept."""
        mask = kept.to(self.values.device).reshape(-1, *[1] * (self.values.dim() - 1))
        sizes = None if self.sizes is None else self.sizes.where(mask, 0.0)
        return Stored(self.values.where(mask, 0.0), sizes, self.rounding, self.narrow)


@dataclass(frozen=True, repr=False)
class Product(OnDevice):
    """The gradient of a weight matrix as its two factors, position by position.

    Attributes:
        outgoing: b, of shape [units, positions, rows of the weight].
        incoming: a, of shape [units, positions, columns of the weight].
        shape: of the parameter.
    """

    outgoing: Tensor
    incoming: Tensor
    shape: tuple[int, ...]

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient, computed in the cheapest way."""
        a, b = self.incoming, self.outgoing
        if scales is not None:
            wide = self._wide
            sizes = torch.bmm(wide[1].abs().mT, wide[0].abs()).flatten(1)
            return Stored(self._formed, sizes, rounding_of(b)).squared_norms(scales)
        narrow = a.dtype != torch.float64 and b.dtype != torch.float64
        if a.shape[1] == 1:
            plain = lengths(self._wide[0][:, 0], narrow) * lengths(self._wide[1][:, 0], narrow)
            return plain.square() * (1 + rounding_of(b) ** 2)
        if cheaper_formed(a.shape[1], a.shape[2], b.shape[2]):
            sizes = (lengths(self._wide[0], narrow) * lengths(self._wide[1], narrow)).sum(1)
            formed = Stored(self._formed, narrow=narrow).squared_norms(None)
            return formed + (rounding_of(b) * sizes).square()
        rounding = rounding_of(b)
        (a, tops), (b, others) = (_at_most_one(wide, narrow) for wide in self._wide)
        products = torch.bmm(a, a.mT).mul_(torch.bmm(b, b.mT))
        sizes = products.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt().sum(1)
        result = products.sum((1, 2)).clamp_min(0) + (rounding * sizes).square()
        return result if tops is None or others is None else result * (tops * others).square()

    @property
    def device(self) -> torch.device:
        """Of the factors."""
        return self.outgoing.device

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor; from their gradients, if those were formed."""
        if "_formed" in self.__dict__:
            return Stored(self._formed).add_to(total, factors)
        a, b = self._wide
        scaled = (b * factors.to(b.device).double()[:, None, None]).flatten(0, 1).T
        if self.leaves_out:
            a, scaled = torch.nan_to_num(a), scaled.nan_to_num_()
        if total.device == b.device:
            total.view(len(scaled), -1).addmm_(scaled, a.flatten(0, 1))
        else:
            _add(total, torch.mm(scaled, a.flatten(0, 1)))

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        return self._formed.reshape(-1, *self.shape).to(self.outgoing.dtype)

    def keeping(self, kept: Any) -> Product | Stored:
        """Return the block with zeros for units that are not kept; gradients used for lengths are the ones added."""
        if "_formed" in self.__dict__:
            return Stored(self._formed.reshape(-1, *self.shape)).keeping(kept)
        mask = kept.to(self.outgoing.device)[:, None, None]
        return Product(self.outgoing.where(mask, 0.0), self.incoming.where(mask, 0.0), self.shape)

    @cached_property
    def _wide(self) -> tuple[Tensor, Tensor]:
        """Return both factors in float64."""
        return self.incoming.double(), self.outgoing.double()

    @cached_property
    def _formed(self) -> Tensor:
        """Return the gradients of all units."""
        return torch.bmm(self._wide[1].mT, self._wide[0]).flatten(1)


class Found(NamedTuple):
    """Rows of a table that were looked up; private, like the rows of data.

    Attributes:
        rows: of every look-up.
        different: each once, ascending.
        places: of every look-up among these.
    """

    rows: Tensor
    different: NDArray[np.int64]
    places: Tensor


@dataclass(frozen=True, repr=False)
class Lookup(OnDevice):
    """The gradient of an embedding: the rows that were looked up, and the gradients of the outputs.

    Attributes:
        outgoing: b, of shape [units, positions, width].
        rows: of shape [units, positions]; -1 for no row.
        shape: of the parameter.
        known: whether every position is known to have looked up a row, so that a GPU need not be asked.
        found: for a GPU, what is held of the rows that were looked up before; None to ask for them. A unit that looks
            up other rows now counts as not finite.
    """

    outgoing: Tensor
    rows: Tensor
    shape: tuple[int, ...]
    known: bool = False
    found: Found | None = None

    def squared_norms(self, scales: Any | None) -> Tensor:
        """Return the squared length of each unit's gradient; positions that looked up the same row are added first."""
        squares = self._squares(scales)
        if self.found is None:
            return squares
        as_held = (self.rows.clamp_min(0).flatten() == self.found.rows).view(self.rows.shape).all(1)
        return squares.where(as_held, math.inf)

    def _squares(self, scales: Any | None) -> Tensor:
        in_kernel = self.outgoing.dtype == torch.float32 and self.device.type == "cpu" and not self.leaves_out
        if scales is None and in_kernel and available():
            outgoing, rows = (np.ascontiguousarray(each.numpy()) for each in (self.outgoing, self.rows.long()))
            return torch.from_numpy(squares_of_look_ups(outgoing, rows, rounding_of(self.outgoing)))
        b, tops = _at_most_one(self.outgoing.double(), self.outgoing.dtype != torch.float64)
        if not self._all_known:
            b = b * (self.rows >= 0)[:, :, None]
        if scales is not None:
            b = b / scales.double()[self.rows.clamp_min(0)]
        others = self.rows[:, :, None] != self.rows[:, None, :]
        result = torch.bmm(b, b.mT).masked_fill_(others, 0.0).sum((1, 2)).clamp_min(0)
        result = result + (rounding_of(self.outgoing) * lengths(b, tops is None).sum(1)).square()
        return result if tops is None else result * tops.square()

    @property
    def device(self) -> torch.device:
        """Of the gradients of the outputs."""
        return self.outgoing.device

    def add_to(self, total: Tensor, factors: Any) -> None:
        """Add the sum over units, each times its factor, to the rows that were looked up; no other row is touched."""
        rows, parts = self._scaled(factors)
        total.index_add_(0, rows.to(total.device), parts.to(total.device))

    @property
    def few_rows(self) -> bool:
        """Whether so few rows of a large table were looked up that the others should not be touched."""
        return math.prod(self.shape) >= _LARGE and _FEW * self.rows.numel() <= self.shape[0]

    def added_rows(self, factors: Any) -> tuple[NDArray[np.int64], Any]:
        """Return which rows were looked up, ascending, and the sum over units there, each times its factor."""
        rows, parts = self._scaled(factors)
        found = self.found or different_rows(rows)
        sums = self.zeros(len(found.different) * parts.shape[1]).view(len(found.different), -1)
        sums.index_add_(0, found.places, parts)
        return found.different, sums if self.leaves_out else sums.cpu().numpy()

    def _scaled(self, factors: Any) -> tuple[Tensor, Tensor]:
        """Return the row of each look-up and what is added there."""
        scaled = self.outgoing.double() * factors.to(self.device).double()[:, None, None]
        if self.leaves_out:
            scaled = scaled.nan_to_num_()
            rows = self.rows if self.known else self.rows.clamp_min(0)
            return rows.flatten(), (scaled if self.known else self._nothing_unknown(scaled)).flatten(0, 1)
        kept = () if self._all_known else self.rows >= 0
        return self.rows[kept].flatten(), scaled[kept].reshape(-1, scaled.shape[2])

    def each(self) -> Tensor:
        """Return one gradient for each unit."""
        n, positions, width = self.outgoing.shape
        result = self.outgoing.new_zeros((n, self.shape[0] + 1, width))
        at = self.rows.where(self.rows >= 0, self.shape[0])[:, :, None].expand(n, positions, width)
        return result.scatter_add_(1, at, self.outgoing)[:, :-1]

    @cached_property
    def _all_known(self) -> bool:
        """Whether every position looked up a row; for all that the host knows, if it would have to ask a GPU."""
        if self.known or self.leaves_out:
            return self.known
        return not self.rows.numel() or int(self.rows.min()) >= 0

    def keeping(self, kept: Any) -> Lookup:
        """Return the block with zeros for units that are not kept."""
        outgoing = self.outgoing.where(kept.to(self.outgoing.device)[:, None, None], 0.0)
        return Lookup(outgoing, self.rows, self.shape, self.known, self.found)

    def _nothing_unknown(self, values: Tensor) -> Tensor:
        """Return the values with 0 at positions that looked up no row."""
        return values.where((self.rows >= 0)[:, :, None], 0.0)


def different_rows(rows: Tensor) -> Found:
    """Return which rows were looked up."""
    different, places = torch.unique(rows, return_inverse=True)
    return Found(rows, different.cpu().numpy(), places)


def cheaper_formed(positions: int, columns: int, rows: int) -> bool:
    """Whether forming a unit's gradient costs less than products between its positions."""
    return positions > 1 and 3 * positions * (columns + rows) > 2 * columns * rows


def _add(total: Tensor, part: Tensor) -> None:
    total += part.reshape(total.shape).to(total.device)


def _flat(values: Tensor) -> Tensor:
    """Return each unit's numbers in a row; one number for a parameter without axes."""
    return values.flatten(1) if values.dim() > 1 else values[:, None]


def _scaled_lengths(values: Tensor, scales: Any | None, narrow: bool | None) -> Tensor:
    flat = _flat(values)
    return lengths(flat, narrow) if scales is None else lengths(flat.double() / scales.double().flatten())


def lengths(values: Tensor, narrow: bool | None = None) -> Tensor:
    """Return lengths along the last axis in float64, correct even if squares would overflow or underflow.

    Args:
        values: the numbers.
        narrow: whether they have come from float32, whose squares fit in float64; None to tell by their dtype.
    """
    plain = torch.linalg.vector_norm(values, dim=-1, dtype=torch.float64)
    fits = values.dtype != torch.float64 if narrow is None else narrow
    if fits:
        return plain
    if not device_copies.asynchronous(values.device) and bool(((plain > 1e-140) & plain.isfinite()).all()):
        return plain
    tops = _tops(values.double(), -1)
    return torch.linalg.vector_norm(values.double() / tops, dim=-1) * tops[..., 0]


def sizes_of_rows(values: Tensor) -> Tensor:
    """Return numbers at least as large as the lengths of rows, and hardly larger; of any shape and layout.

    They are computed in the precision of the values, where squares fit in it.
    """
    if device_copies.asynchronous(values.device):
        return lengths(values.flatten(1)) * (1 + 2.0**-10)
    axes = tuple(range(1, values.dim()))
    plain = torch.linalg.vector_norm(values, dim=axes).double() * (1 + 2.0**-10)
    if bool(((plain > 1e-12) & (plain < 1e18)).all()):
        return plain
    return lengths(values.flatten(1)) * (1 + 2.0**-10)


def _at_most_one(wide: Tensor, narrow: bool) -> tuple[Tensor, Tensor | None]:
    """Return each unit's numbers over the largest of them, and that; None for float32's, whose squares fit anyway."""
    if narrow:
        return wide, None
    tops = _tops(wide, (1, 2))
    return wide / tops, tops.flatten()


def _tops(values: Tensor, axes: int | tuple[int, ...]) -> Tensor:
    return values.abs().amax(axes, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)

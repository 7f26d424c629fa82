"""Dropout whose masks belong to units: a unit's mask does not depend on who else is in the pass.

A mask is a function of the unit's id, of the row's place among the unit's own rows, of the number of the step, and of
the place of the dropout in the module. None of them moves when another unit comes or goes, so a unit's gradient is a
function of its own rows, as the bound on the clipped sum needs. Masks need not be secret (docs/proofs/optimizers.md).

Layers and functions of torch are keyed (`Dropout`, `Dropout1d` to `3d`, `scaled_dot_product_attention`). Out of reach
are the weights inside `nn.MultiheadAttention`: set its `dropout` to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from apportion.errors import InputError
from apportion.privacy.sampling import Keys

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # of SplitMix64
_BITS = 52  # of a row's number, so that float64 holds it exactly
_WHOLE = {functional.dropout, torch.dropout}
_CHANNELS = {functional.dropout1d, functional.dropout2d, functional.dropout3d, torch.feature_dropout}
_ATTENTION = functional.scaled_dot_product_attention


def row_numbers(keys: Keys, offsets: NDArray[np.int64]) -> Tensor:
    """Return a number for each row, from its unit's key and its place among the unit's rows."""
    sizes = np.diff(offsets)
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    with np.errstate(over="ignore"):
        first, second = (_mixed(np.ascontiguousarray(keys[:, k])) for k in (0, 1))
        of_unit = np.repeat(_mixed(first + np.uint64(_FIRST) * second), sizes)
        mixed = _mixed(of_unit + np.uint64(_GOLDEN) * places.astype(np.uint64))
    return torch.as_tensor((mixed >> np.uint64(64 - _BITS)).astype(np.int64))


def numbers_by_content(*columns: Tensor) -> Tensor:
    """Return a number for each row, from what it holds and from its place among rows that hold the same.

    For rows without ids: their places among all rows would move if another row were left out.
    """
    rows = np.concatenate([_bytes_of(each) for each in columns], axis=1)
    contents, places = _contents(rows), np.zeros(len(rows), np.uint64)
    _, alike, counts = np.unique(contents, return_inverse=True, return_counts=True)
    again = counts[alike] > 1  # others differ from all rows
    places[again] = _places_among_equals(rows[again])
    return row_numbers(np.stack([contents, places], axis=1), np.arange(len(rows) + 1))


def _places_among_equals(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how many rows before each one hold the same."""
    _, group = np.unique(rows.view(np.dtype((np.void, rows.shape[1]))).reshape(-1), return_inverse=True)
    order, sizes = np.argsort(group, kind="stable"), np.bincount(group)
    places = np.empty(len(rows), np.int64)
    places[order] = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places


def _bytes_of(column: Tensor) -> NDArray[np.uint8]:
    """Return the bytes of each row, filled up to whole numbers of 64 bits."""
    held = column.detach().cpu().contiguous().reshape(len(column), math.prod(column.shape[1:]))
    width = held.shape[1] * held.element_size()
    rows = np.zeros((len(held), -(-width // 8) * 8), np.uint8)
    rows[:, :width] = held.view(torch.uint8).numpy() if held.numel() else 0
    return rows


def _contents(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a hash of the content of each row."""
    words, result = rows.view(np.uint64), np.zeros(len(rows), np.uint64)
    for k in range(words.shape[1]):  # of columns
        result = _mixed(result ^ words[:, k])
    return result


def with_numbers(inputs: Tensor, numbers: Tensor) -> Tensor:
    """Return rows with their numbers as the last column: whole numbers, or float64."""
    wide = torch.float64 if inputs.is_floating_point() else torch.int64
    flat = inputs.reshape(len(inputs), math.prod(inputs.shape[1:])).to(wide)
    return torch.cat([flat, numbers.to(flat.device, wide)[:, None]], dim=1)


class KeyedDropout(nn.Module):  # type: ignore[misc]
    """Takes the numbers of rows off and applies a module with masks keyed by them.

    Args:
        module: the module with dropout.
        like: rows without their numbers, for their shape and dtype.
    """

    def __init__(self, module: nn.Module, like: Tensor) -> None:
        super().__init__()
        self.module = module
        self.step = 0
        self._shape = tuple(like.shape[1:])
        self._dtype = like.dtype

    def forward(self, rows: Tensor) -> Any:
        """Return what the module returns."""
        numbers = rows[:, -1].detach().round().to(torch.int64)
        inputs = rows[:, :-1].reshape(len(rows), *self._shape).to(self._dtype)
        with _Masks(_hashed(numbers + _signed(_GOLDEN * (self.step + 1)))):
            return self.module(inputs)


def uses_dropout(forward: Callable[[], Any]) -> bool:
    """Whether a pass uses dropout of a kind that can be keyed."""
    with _Noticing() as seen:
        forward()
    return bool(seen.found)


class _Noticing(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= _rate(func, args, kwargs or {}) > 0
        return func(*args, **(kwargs or {}))


class _Masks(TorchFunctionMode):  # type: ignore[misc]
    """Draws every mask of a pass from the keys of its rows."""

    def __init__(self, keys: Tensor) -> None:
        super().__init__()
        self._keys = keys
        self._uses = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        rate = _rate(func, args, named)
        if not rate:
            return func(*args, **named)
        if func is _ATTENTION:
            return self._attention(rate, args, named)
        return self._dropped(_given(args, named, 0, "input", None), rate, channels=func in _CHANNELS)

    def _dropped(self, values: Tensor, rate: float, *, channels: bool = False) -> Tensor:
        if values.dim() == 0 or len(values) != len(self._keys):
            raise InputError(
                f"Expected dropout on one entry for each of {len(self._keys)} rows along the first axis, got a tensor "
                f"of shape {tuple(values.shape)}; each unit must have its own mask.",
                argument="module",
            )
        if rate >= 1:
            return values * 0.0
        self._uses += 1
        shape = tuple(values.shape[1:2]) + (1,) * (values.dim() - 2) if channels else tuple(values.shape[1:])
        places = torch.arange(math.prod(shape), device=values.device) * _signed(_GOLDEN)
        of_rows = _hashed(self._keys.to(values.device) + _signed(_FIRST * self._uses))
        drawn = (_hashed(of_rows[:, None] + places[None]) >> 11) & (2**53 - 1)
        kept = (drawn >= math.ceil(rate * 2**53)).reshape(-1, *shape)
        return (values / (1 - rate)).where(kept, 0.0)

    def _attention(self, rate: float, args: Any, named: dict[str, Any]) -> Tensor:
        """Return scaled dot-product attention with masks of its own on the weights."""
        query, key, value, mask = (_given(args, named, k, name, None) for k, name in enumerate(_NAMES))
        if named.get("enable_gqa"):
            raise InputError("Expected attention without enable_gqa where it has dropout.", argument="module")
        size = named.get("scale") or query.shape[-1] ** -0.5
        scores = query @ key.mT * size
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        if _given(args, named, 5, "is_causal", False):
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        return self._dropped(torch.softmax(scores, dim=-1), rate) @ value


_NAMES = ("query", "key", "value", "attn_mask")


def _rate(func: Any, args: Any, named: dict[str, Any]) -> float:
    """Return the rate of a dropout that is on; 0 for any other call."""
    if func is _ATTENTION:
        return float(_given(args, named, 4, "dropout_p", 0.0))
    if func not in _WHOLE and func not in _CHANNELS:
        return 0.0
    on = _given(args, named, 2, "train" if func is torch.dropout else "training", True)
    return float(_given(args, named, 1, "p", 0.5)) if on else 0.0


def _given(args: Any, named: dict[str, Any], place: int, name: str, default: Any) -> Any:
    return args[place] if len(args) > place else named.get(name, default)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's output function of each number."""
    values = values + np.uint64(_GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_SECOND)
    return np.asarray(values ^ (values >> np.uint64(31)), np.uint64)


def _hashed(values: Tensor) -> Tensor:
    """Return the same of whole numbers in torch, whose products wrap around."""
    values = values + _signed(_GOLDEN)
    values = (values ^ _shifted(values, 30)) * _signed(_FIRST)
    values = (values ^ _shifted(values, 27)) * _signed(_SECOND)
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, bits: int) -> Tensor:
    return (values >> bits) & (2 ** (64 - bits) - 1)


def _signed(number: int) -> int:
    """Return the whole number of 64 bits with a sign that has the same bits."""
    held = number % 2**64
    return held - 2**64 if held >= 2**63 else held

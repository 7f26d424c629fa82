"""Rows out of a `Dataset` or `DataLoader` of PyTorch: inputs, targets, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from apportion.errors import InputError

Column = str | int | Callable[[Any], Any]
"""A key or position of a batch, or a function of the batch."""

_AT_A_TIME = 1024


def columns_of(
    source: Any, *, user: Column | None, target: Column | None, collate: Callable[[list[Any]], Any] | None
) -> tuple[Any, Tensor | None, Any]:
    """Read all rows once. Return inputs, targets and ids of users.

    Args:
        source: a `DataLoader`, or a `Dataset`.
        user: the column of users; None if there is none.
        target: the column of targets; None if the module computes its loss from its inputs.
        collate: makes a batch of a dataset's rows; None for that of PyTorch.
    """
    inputs, targets, users = [], [], []
    for batch in _batches(source, collate):
        rest = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(batch))
        if user is not None:
            users.append(_ids(_taken(batch, rest, user, "user")))
        if target is not None:
            targets.append(torch.as_tensor(_taken(batch, rest, target, "target")))
        inputs.append(rest)
    if not inputs:
        raise InputError("Expected at least one row, got none.", argument="source")
    joined = {name: _joined([each[name] for each in inputs], name) for name in inputs[0]}
    named = any(isinstance(name, str) for name in joined)
    shaped = joined if named else next(iter(joined.values())) if len(joined) == 1 else tuple(joined.values())
    whose = None if user is None else np.concatenate(users)
    return shaped, (None if target is None else _joined(targets, "target")), whose


def _batches(source: Any, collate: Callable[[list[Any]], Any] | None) -> Iterator[Any]:
    if isinstance(source, DataLoader):
        if collate is not None:
            raise InputError("Expected collate only for a Dataset; a DataLoader has its own.", argument="collate")
        yield from source
        return
    if not isinstance(source, Dataset):
        raise InputError(f"Expected a Dataset or a DataLoader, got {type(source).__name__}.", argument="source")
    items: Any = source if not hasattr(source, "__len__") else (source[k] for k in range(len(source)))
    held: list[Any] = []
    for item in items:
        held.append(item)
        if len(held) == _AT_A_TIME:
            yield (collate or default_collate)(held)
            held = []
    if held:
        yield (collate or default_collate)(held)


def _taken(batch: Any, rest: dict[Any, Any], column: Column, argument: str) -> Any:
    """Return a column of the batch, and take it out of the inputs if it is one of them."""
    if callable(column):
        return column(batch)
    known = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(batch))
    from_the_end = isinstance(column, int) and column < 0 and not isinstance(batch, Mapping)
    at = len(known) + int(column) if from_the_end else column
    if at not in known:
        raise InputError(f"Expected {argument} to be one of {list(known)}, got {column!r}.", argument=argument)
    rest.pop(at, None)
    return known[at]


def _ids(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _joined(parts: list[Any], name: Any) -> Tensor:
    try:
        tensors = [torch.as_tensor(part) for part in parts]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"Expected numbers in column {name!r}, got {type(parts[0]).__name__}; leave it out by a collate.",
            argument="source",
        ) from error
    shapes = {tuple(each.shape[1:]) for each in tensors}
    if len(shapes) > 1:
        raise InputError(
            f"Expected rows of one shape in column {name!r}, got {sorted(shapes)}; pad them in the collate function.",
            argument="source",
        )
    return torch.cat(tensors)

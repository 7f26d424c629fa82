"""Rows out of a `Dataset` or `DataLoader` of PyTorch: inputs, targets, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

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
        _require_every_row(source)
        yield from _in_order(source)
        return
    held: list[Any] = []
    for item in _items(source):
        held.append(item)
        if len(held) == _AT_A_TIME:
            yield _collated(held, collate)
            held = []
    if held:
        yield _collated(held, collate)


def _items(source: Any) -> Iterator[Any]:
    """Return the rows of a dataset: of PyTorch, or anything that has a length and rows by number."""
    if isinstance(source, IterableDataset):
        return iter(source)
    by_number = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if not by_number or isinstance(source, str | bytes | Mapping | Tensor | np.ndarray):
        raise InputError(f"Expected a Dataset or a DataLoader, got {type(source).__name__}.", argument="source")
    return (source[k] for k in range(len(source)))


def _collated(rows: list[Any], collate: Callable[[list[Any]], Any] | None) -> Any:
    if collate is not None:
        return collate(rows)
    try:
        return default_collate(rows)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"Expected rows that PyTorch puts together, got {error}; pad or leave out columns in a collate function.",
            argument="collate",
        ) from error


def _require_every_row(loader: DataLoader[Any]) -> None:
    """Refuse a loader that may leave rows out or repeat them: which ones would depend on how many others there are."""
    batches, sampler = loader.batch_sampler, _sampler_of(loader)
    whole = batches is None or (type(batches) is BatchSampler and not batches.drop_last)
    if isinstance(loader.dataset, IterableDataset):
        plain = not getattr(loader, "drop_last", False)
    else:
        once = (
            type(sampler) is RandomSampler and not sampler.replacement and getattr(sampler, "_num_samples", 0) is None
        )
        plain = whole and (type(sampler) is SequentialSampler or once) and len(sampler) == len(loader.dataset)
    if not plain:
        raise InputError(
            "Expected a DataLoader that gives every row once, got one with drop_last or a sampler of its own: a user "
            "more would change which rows of others are left out. Pass its dataset, or leave these out.",
            argument="source",
        )


def _in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader of the same rows in their own order. A shuffled one would move all rows for one user more."""
    if isinstance(loader.dataset, IterableDataset) or type(_sampler_of(loader)) is SequentialSampler:
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=getattr(loader.batch_sampler, "batch_size", None),
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )


def _sampler_of(loader: DataLoader[Any]) -> Any:
    """Return what chooses the rows: that of the batches, if the loader makes batches."""
    return getattr(loader.batch_sampler, "sampler", loader.sampler)


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
    held = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if held.ndim == 0:
        raise InputError("Expected batches of rows, got single rows; give the loader a batch_size.", argument="source")
    return held


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

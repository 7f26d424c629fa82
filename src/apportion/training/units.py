"""Whose data training protects: users with all their rows, or single rows. Each is a class of its own.

Rows are ordered by unit, so that a unit's gradient can be formed from its own rows before it is clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from apportion.data.grouping import group_rows
from apportion.data.user_keys import sampling_keys
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_EXAMPLE, Neighbours
from apportion.privacy.purposes import Purpose
from apportion.privacy.sampling import Keys
from apportion.privacy.session import Session
from apportion.training.checkpoints import identity_of
from apportion.training.dropout import numbers_by_content, row_numbers, with_numbers
from apportion.training.module_state import version_of
from apportion.training.reading import Column, columns_of
from apportion.training.structured import Layout


class Units:
    """Training rows, ordered by unit; private.

    Args:
        inputs: one row of model inputs each.
        targets: one row of targets each.
        offsets: rows of unit k lie between offsets[k] and offsets[k + 1].
        keys: two numbers for each unit, derived from its id alone, for Poisson samples.
        layout: how several tensors of a row lie side by side in `inputs`; None for one tensor.
    """

    neighbours: ClassVar[Neighbours]
    name: ClassVar[str]
    counted: ClassVar[Purpose]

    def __init__(
        self, inputs: Tensor, targets: Tensor, offsets: NDArray[np.int64], keys: Keys, layout: Layout | None = None
    ) -> None:
        self._inputs = inputs
        self._targets = targets
        self._offsets = offsets
        self._keys = keys
        self._numbers: Tensor | None = None
        self.layout = layout

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows hidden)"

    @property
    def keys(self) -> Keys:
        """Two numbers for each unit. Together they are private, because they reveal who is there."""
        return self._keys

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def like(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets without rows, for their shapes, dtypes and devices, which are public."""
        return self._with_numbers(self._inputs[:0], slice(0)), self._targets[:0]

    @property
    def version(self) -> int:
        """How often the rows were written to, as far as torch counts it."""
        return version_of(self._inputs) + version_of(self._targets)

    def numbered(self) -> Self:
        """Return the same units with one more column of inputs: a number for each row, for masks of dropout."""
        result = copy(self)
        result._numbers = self._row_numbers().to(self._inputs.device)
        return result

    def _row_numbers(self) -> Tensor:
        return row_numbers(self._keys, self._offsets)

    def of_process(self, process: int, processes: int) -> NDArray[np.bool_]:
        """Return which units belong to one of several processes. It follows from each unit's id alone."""
        return np.asarray(self._keys[:, 0] % np.uint64(processes) == process)

    def _with_numbers(self, inputs: Tensor, rows: Any) -> Tensor:
        return inputs if self._numbers is None else with_numbers(inputs, self._numbers[rows])

    def identity(self, settings: dict[str, Any]) -> str:
        """Return a hash of settings and of all rows; as private as they are."""
        layout = {"layout": repr(self.layout)}
        return identity_of({**settings, **layout}, [self._inputs, self._targets], [self._offsets, self._keys])

    def batches(self, units: NDArray[np.int64], rows_at_once: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield inputs, targets and offsets of some units in batches; a unit's rows stay together."""
        for rows, offsets in self.pieces(units, rows_at_once):
            yield *self.taken(rows), offsets

    def pieces(self, units: NDArray[np.int64], rows_at_once: int) -> Iterator[tuple[Any, Tensor]]:
        """Yield which rows some units have, for `taken`, and their offsets, in batches; a unit's rows stay together."""
        sizes = np.diff(self._offsets)[units]
        for some in _chunks(sizes, rows_at_once):
            chosen, counts = units[some], sizes[some]
            offsets = np.concatenate([[0], np.cumsum(counts)])
            yield self._rows_of(chosen, counts, offsets), torch.as_tensor(offsets)

    def taken(self, rows: Any) -> tuple[Tensor, Tensor]:
        """Return copies of inputs and targets of some rows."""
        return self.inputs_of(rows), self.targets_of(rows)

    def inputs_of(self, rows: Any) -> Tensor:
        """Return a copy of the inputs of some rows.

        A module may write into them. And products of matrices round by where in memory rows lie, which in a part of all
        rows would depend on how many rows others have.
        """
        inputs = self._inputs[rows]
        return self._with_numbers(inputs.clone() if isinstance(rows, slice) else inputs, rows)

    def inputs_into(self, held: Tensor, rows: Any, places: Tensor | None) -> Tensor:
        """Copy the inputs of some rows, without numbers, into a tensor that `inputs_of` made for as many.

        Args:
            held: the tensor.
            rows: which rows.
            places: of the copied rows among these; None for all in order.
        """
        with torch.no_grad():
            inputs = self._inputs[rows].detach()
            return held.copy_(inputs) if places is None else torch.index_select(inputs, 0, places, out=held)

    def targets_of(self, rows: Any) -> Tensor:
        """Return a copy of the targets of some rows, since a loss may write into them."""
        if isinstance(rows, slice):
            all_rows = rows.start == 0 and rows.stop == len(self._targets)
            return (self._targets if all_rows else self._targets[rows]).clone()
        return self._targets[rows.to(self._targets.device)]

    def _rows_of(self, chosen: NDArray[np.int64], counts: NDArray[np.int64], offsets: NDArray[np.int64]) -> Any:
        """Return the rows of some units; a slice if they lie behind one another."""
        first, last = int(chosen[0]), int(chosen[-1])
        if last - first + 1 == len(chosen):
            return slice(int(self._offsets[first]), int(self._offsets[last + 1]))
        starts = np.repeat(self._offsets[chosen] - offsets[:-1], counts)
        return torch.as_tensor(starts + np.arange(offsets[-1]), device=self._inputs.device)


class UserRows(Units):
    """All rows of a user are one unit: the guarantee is for adding or removing a user.

    Args:
        inputs: one row of model inputs each: a tensor, or a dictionary or tuple of tensors, which the module gets as
            keywords or positions.
        targets: one row of targets each; None if the module computes its own loss.
        users: the user of each row, integers or text.
    """

    neighbours = ADD_REMOVE
    name = "users"
    counted = Purpose.NUMBER_OF_USERS

    def __init__(self, inputs: Any, targets: Any, users: ArrayLike) -> None:
        layout, inputs, targets = _matching(inputs, targets)
        grouping = _grouped(users, len(inputs))
        if grouping.order is not None:
            places = torch.as_tensor(grouping.order)
            inputs, targets = inputs[places.to(inputs.device)], targets[places.to(targets.device)]
        super().__init__(inputs, targets, grouping.indptr, sampling_keys(grouping.ids), layout)

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        user: Column,
        target: Column | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> Self:
        """Read all rows of a `Dataset` or `DataLoader` of PyTorch once, in the order that it gives them.

        Args:
            source: rows that are dictionaries or tuples. All of them must fit in memory.
            user: the column of users: a key, a position, or a function of a batch.
            target: the column of targets, likewise; None if the module computes its own loss.
            collate: makes a batch of a dataset's rows; None for that of PyTorch.
        """
        inputs, targets, users = columns_of(source, user=user, target=target, collate=collate)
        return cls(inputs, targets, users)


class ExampleRows(Units):
    """Each row is a unit: the guarantee is for adding or removing one row, which is weaker for users with several rows.

    Args:
        inputs: one row of model inputs each, as for `UserRows`.
        targets: one row of targets each; None if the module computes its own loss.
        ids: ids of the rows, all different; default: their positions. Masks of dropout belong to ids if they are given,
            else to what rows hold, because positions move if another row is left out.
    """

    neighbours = ADD_REMOVE_EXAMPLE
    name = "examples"
    counted = Purpose.NUMBER_OF_EXAMPLES

    def __init__(self, inputs: Any, targets: Any, ids: ArrayLike | None = None) -> None:
        layout, inputs, targets = _matching(inputs, targets)
        names = Vocabulary(np.arange(len(inputs)) if ids is None else ids)
        if len(names) != len(inputs):
            raise InputError(f"Expected {len(inputs)} ids, one for each row, got {len(names)}.", argument="ids")
        super().__init__(inputs, targets, np.arange(len(inputs) + 1), sampling_keys(names), layout)
        self._named = ids is not None

    def _row_numbers(self) -> Tensor:
        return super()._row_numbers() if self._named else numbers_by_content(self._inputs, self._targets)

    @classmethod
    def of(
        cls, source: Any, *, target: Column | None = None, collate: Callable[[list[Any]], Any] | None = None
    ) -> Self:
        """Read all rows of a `Dataset` or `DataLoader` once; see `UserRows.of`."""
        inputs, targets, _ = columns_of(source, user=None, target=target, collate=collate)
        return cls(inputs, targets)


class ExampleSession(Session):
    """A session that protects single rows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "neighbours": ADD_REMOVE_EXAMPLE})


def session_for(units: Units) -> type[Session]:
    """Return the kind of session that protects these units."""
    return ExampleSession if isinstance(units, ExampleRows) else Session


def _grouped(users: ArrayLike, n_rows: int) -> Any:
    try:
        return group_rows(users, n_rows, single_user=True)
    except InputError as error:
        raise error if error.argument else InputError(error.problem, argument="users") from error


def _matching(inputs: Any, targets: Any) -> tuple[Layout | None, Tensor, Tensor]:
    layout = None
    if isinstance(inputs, Mapping) or (isinstance(inputs, tuple) and any(isinstance(x, Tensor) for x in inputs)):
        layout, inputs = Layout.of(inputs)
    if isinstance(inputs, list) and any(isinstance(each, Tensor) and each.dim() for each in inputs):
        raise InputError(
            "Expected inputs as a tensor, or as a dictionary or tuple of tensors, got a list of tensors; pass "
            "tuple(inputs) if they are columns, torch.stack(inputs) if they are rows.",
            argument="inputs",
        )
    inputs = torch.as_tensor(inputs)
    if inputs.dim() == 0 or inputs.layout != torch.strided:
        got = "a single number" if inputs.dim() == 0 else f"{inputs.layout}; call .to_dense()"
        raise InputError(f"Expected inputs with rows along the first axis, dense, got {got}.", argument="inputs")
    targets = torch.zeros(len(inputs), device=inputs.device) if targets is None else torch.as_tensor(targets)
    if len(inputs) != len(targets):
        raise InputError(
            f"Expected as many targets as inputs, got {len(targets)} and {len(inputs)}.", argument="targets"
        )
    return layout, inputs, targets


def _chunks(sizes: NDArray[np.int64], rows_at_once: int) -> Iterator[slice]:
    """Return runs of units whose rows, with each unit padded to the longest, are at most so many; or one long unit."""
    first = 0
    while first < len(sizes):
        longest = np.maximum.accumulate(sizes[first : first + rows_at_once])
        padded = longest * np.arange(1, len(longest) + 1)
        count = max(1, int(np.searchsorted(padded, rows_at_once, side="right")))
        yield slice(first, first + count)
        first += count

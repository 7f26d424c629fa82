"""The general contribution: any function of a user's own rows, with the whole part clipped to a public norm.

Clipped parts are truncated towards zero to whole numbers of a public step. Only whole numbers are added, so the sum
does not depend on the order or grouping of additions (docs/proofs/exact.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import FloatArray, Offsets, Parts
from apportion.privacy.contributions.base import Contribution, Floats, Kernels, Sums, UserRun, Weighting
from apportion.privacy.contributions.distinct_tasks import require_distinct_tasks
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours, in_words, moved_by_user

_BITS = 32  # steps in a clip norm
_AT_A_TIME = 1 << 20  # the steps of this many rows add up to less than 2^53, which doubles hold exactly
_NUMBERS_AT_ONCE = 1 << 23  # number of a user's rows handled at a time, whatever their width

Part = Callable[[Any, Any], tuple[Floats, ...]]
"""(users, weights of their rows or None) -> one array per output. Each entry depends on its own user's rows alone."""


def step_of(clip_norm: float) -> float:
    """Return the step of the lattice for parts clipped to this norm."""
    return linalg.step_below(clip_norm, _BITS)


@dataclass(frozen=True)
class Output:
    """One of the sums that a user's part goes into.

    Attributes:
        width: numbers in a row.
        clip_norm: the norm to which all rows of a user together are clipped.
        by_task: True for one row per observation, added to that observation's task; False for one row per user.
        what: what a part is, in words for the statement.
        taxicab: the L1 norm to which all rows of a user together are clipped as well; None for no such bound.
    """

    width: int
    clip_norm: float
    by_task: bool
    what: str
    taxicab: float | None = None

    def __post_init__(self) -> None:
        if self.taxicab is not None and not 0 < self.taxicab < np.inf:
            raise InputError(f"Expected a finite L1 bound above 0, got {self.taxicab}.", argument="taxicab")

    @property
    def step(self) -> float:
        """The step of the lattice that parts are truncated to."""
        return step_of(self.clip_norm)

    def zeros(self, n_tasks: int) -> NDArray[np.int64]:
        """Return the sum over no users."""
        return np.zeros((n_tasks, self.width) if self.by_task else self.width, np.int64)


@dataclass(frozen=True, eq=False)
class ClippedParts(Contribution):
    """The values that a function computes from each user's own rows, clipped.

    Attributes:
        part: the function. It may use the users it is given, and public and released numbers. For each user it must
            return what it would return for that user alone.
        outputs: the sums, in the order in which the function returns its arrays.
        weights: the weights of users' rows, passed to the function. Users whose weights are all 0 take no part.
        neighbours: the neighbour relation of the sensitivity; if there are weights, it is theirs.
    """

    part: Part
    outputs: tuple[Output, ...]
    weights: Weighting | None = None
    neighbours: Neighbours = ADD_REMOVE

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sums over these users, in batches, clipped and in whole steps."""
        require_distinct_tasks(users, any(each.by_task for each in self.outputs))
        sums = tuple(each.zeros(users.n_tasks) for each in self.outputs)
        runs = users.runs(kernels.rows_at_once)
        if any(each.by_task for each in self.outputs):  # keep only one copy of sums that are as long as the task list
            for run in runs:
                self._add_run(run, sums)
            return sums
        for own in kernels.side_by_side(self._of_run, runs):
            for total, part in zip(sums, own, strict=True):
                total += part
        return sums

    def _of_run(self, run: UserRun) -> Sums:
        sums = tuple(each.zeros(run.n_tasks) for each in self.outputs)
        self._add_run(run, sums)
        return sums

    def _add_run(self, run: UserRun, sums: Sums) -> None:
        """Add a run of users.

        The weights of the whole run are computed first, so that only rows of users who take part need further memory.
        """
        weights = None if self.weights is None else self.weights.formed(run)._values
        taking_part = (
            run.present if weights is None else np.bincount(run.owner, weights != 0, minlength=run.n_users) > 0
        )
        widest = max((each.width for each in self.outputs if not each.by_task), default=1)
        user = row = 0
        for piece in run.runs(max(run.n_rows, 1), max(_NUMBERS_AT_ONCE // widest, 1), taking_part):
            rows = slice(row, row + piece.n_rows)
            own = None if weights is None else weights[rows]
            self._add(piece, own, taking_part[user : user + piece.n_users], sums)
            user, row = user + piece.n_users, rows.stop

    def _add(self, run: UserRun, weights: Any, taking_part: NDArray[np.bool_], sums: Sums) -> None:
        parts = self.part(run, weights)
        for output, total, rows in zip(self.outputs, sums, parts, strict=True):
            if output.by_task:
                whole = whole_rows(rows, run.indptr, output)
                whole[~taking_part[run.owner]] = 0  # no part for them, whatever the function returns
                add_by_task(total, whole, run.column("tasks"))
            else:
                total += whole_parts(rows, output)[_one_row_each(taking_part, len(rows))].sum(axis=0)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sums with the sensitivity that their clipping gives them."""
        neighbours = self.neighbours if self.weights is None else self.weights.neighbours
        return tuple(sealed_output(output, total, neighbours) for output, total in zip(self.outputs, sums, strict=True))


def sealed_output(output: Output, total: NDArray[Any], neighbours: Neighbours) -> BoundedSum:
    """Seal a sum of clipped parts with the sensitivity that its clipping gives it."""
    text = f"{output.what}: each user's whole part clipped to norm {output.clip_norm:g}"
    moved, l1_bound = moved_by_user(neighbours), None
    if output.taxicab is not None:
        text += f", to L1 norm {output.taxicab:g}"
        l1_bound = output.taxicab * moved
    text += in_words(neighbours)
    bound = output.clip_norm * moved
    return BoundedSum(_KEY, total, bound, text, l1_bound=l1_bound, neighbours=neighbours, step=output.step)


def whole_parts(rows: FloatArray, output: Output) -> NDArray[np.int64]:
    """Return one row for each user, clipped to the output's norm and truncated to whole steps."""
    return whole_rows(rows, np.arange(len(rows) + 1), output).astype(np.int64)


def whole_rows(rows: FloatArray, indptr: Offsets, output: Output) -> FloatArray:
    """Return all rows of each user, clipped together to the output's norm and truncated to whole steps."""
    if rows.ndim != 2 or rows.shape[1] != output.width:
        raise InputError(
            f"Expected rows of {output.width} numbers for {output.what!r}, got shape {rows.shape}.", argument=None
        )
    if output.taxicab is not None:
        owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        lengths = np.bincount(owner, np.abs(rows).sum(axis=1), minlength=len(indptr) - 1)
        rows = rows * (output.taxicab / np.maximum(lengths, output.taxicab))[owner][:, None]
    return linalg.whole_steps(Parts.clipped(rows, indptr, output.clip_norm)._values, output.step)


def add_by_task(total: NDArray[np.int64], whole: FloatArray, tasks: NDArray[np.int32]) -> None:
    """Add rows of whole steps to the totals of their tasks."""
    for first in range(0, len(tasks), _AT_A_TIME):
        part = slice(first, first + _AT_A_TIME)
        for column in range(total.shape[1]):
            total[:, column] += np.bincount(tasks[part], whole[part, column], minlength=len(total)).astype(np.int64)


def _one_row_each(taking_part: NDArray[np.bool_], n_rows: int) -> NDArray[np.bool_]:
    """Return which rows count if there is one row per user: those of users who take part.

    The function may return a row for every user, or only for those taking part. Any other number would mean several
    rows for one user, each clipped by itself.
    """
    if n_rows == len(taking_part):
        return taking_part
    if n_rows == int(taking_part.sum()):
        return np.ones(n_rows, bool)
    raise InputError(
        "Expected one row for each user, or one for each user who takes part, got another number of rows.",
        argument=None,
    )

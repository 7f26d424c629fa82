"""Sums by group of numbers that are not negative, with a bound on each of a user's cells instead of one on their norm.

What a user adds lies in a box: between 0 and 1 in every group, however many groups the user is in. All cells of a user
are weighed down by one factor, min(1, cap / largest cell), so they keep their ratio (docs/proofs/boxes.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from apportion import linalg
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.contributions.base import Contribution, Floats, Kernels, Sums, UserRun
from apportion.privacy.contributions.clipped import add_by_task, step_of
from apportion.privacy.contributions.group_sums import Cells, GroupMoments
from apportion.privacy.neighbours import ADD_REMOVE

_STEP = step_of(1.0)


@dataclass(frozen=True, eq=False)
class GroupBoxes(Contribution):
    """One number for every group, each user's between 0 and 1 in each.

    Attributes:
        statistic: makes one number for every cell; its cap is that of a user's largest cell.
    """

    statistic: GroupMoments

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sums over these users, within the box and in whole steps."""
        total = np.zeros((users.n_tasks, 1), np.int64)
        for run in users.runs(kernels.rows_at_once):
            cells = Cells.of(run)  # a user has one cell in a group at most
            add_by_task(total, linalg.whole_steps(self._boxed(run, cells), _STEP), cells.tasks)
        return (total,)

    def _boxed(self, users: UserRun, cells: Cells) -> Floats:
        held = self.statistic.moments(users, cells)
        largest = np.maximum(cells.largest(held), self.statistic.cap)
        rows = held / np.repeat(largest, np.diff(cells.indptr))[:, None]
        return np.where(rows > 0, np.minimum(rows, 1.0), 0.0)  # whatever was formed; not a number counts as 0

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sums with the box that each user's part was brought into."""
        (total,), text = sums, "what a user is in its groups: between 0 and 1 in each"
        l2_bound, l1_bound = math.sqrt(total.size), float(total.size)
        return (BoundedSum(_KEY, total, l2_bound, text, None, l1_bound, ADD_REMOVE, _STEP, box_bound=1.0),)

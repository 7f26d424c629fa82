"""The weight of rows at the points of a public list and between them. A quantile on that list is chosen by it.

A row's value is in one cell: cell 2k + 1 is the point k itself, cell 2k lies between the points k − 1 and k. A user's
weights add up to at most the bound of its weighting, and that bounds the L1 norm of its part
(docs/proofs/contributions.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.contributions.base import Contribution, Kernels, Sums, UserRun
from apportion.privacy.contributions.row_weights import RowWeighting

Floats = NDArray[np.float64]

_BITS = 32  # steps in the largest weight of a user
_AT_A_TIME = 1 << 20  # the steps of this many rows add up to less than 2^53, which doubles hold exactly


@dataclass(frozen=True, eq=False)
class CellWeights(Contribution):
    """Σ_i w_i e_c(i), where c(i) is the cell of row i. Values beyond the list count as its ends.

    Attributes:
        points: the public list, ascending.
        weights: makes w.
        column: name of the users' column of values.
    """

    points: Floats
    weights: RowWeighting
    column: str = "values"

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the weight of every cell. Each row's weight is truncated to whole steps."""
        values = np.asarray(users.column(self.column), np.float64).reshape(users.n_rows)
        if not np.isfinite(values).all():
            raise InputError("Expected one finite value per row; at least one is not.", argument=None)
        inside = np.clip(values, self.points[0], self.points[-1])
        cells = np.searchsorted(self.points, inside, "left") + np.searchsorted(self.points, inside, "right")
        whole = linalg.whole_steps(self.weights.of(users), self._step)
        total = np.zeros(2 * len(self.points) + 1, np.int64)
        for first in range(0, len(cells), _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            total += np.bincount(cells[part], whole[part], minlength=len(total)).astype(np.int64)
        return (total,)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the weights. One user moves them by its total weight, in the L1 norm."""
        moved, weights = self.weights.moved(1.0), self.weights
        text = f"{weights.description}, each row in one of {len(sums[0])} cells"
        return (BoundedSum(_KEY, sums[0], moved, text, None, moved, weights.neighbours, self._step),)

    @property
    def _step(self) -> float:
        return linalg.step_below(self.weights.moved(1.0), _BITS)

"""The curator: it takes one bounded part per round from every party, releases the sum, and sends a matrix back.

It never sees a row of data. Its input is sealed (`TaskModels`, `TaskMatrices`), its output is a function of released
numbers, and one call of `answer` is everything that parties and curator exchange in a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import unpack
from apportion.parties.release import MatrixRelease
from apportion.parties.structure import Structure
from apportion.privacy import BoundedSum, Neighbours, Purpose, Session
from apportion.privacy.task_sums import TaskMatrices, TaskModels, matrix_total, model_gram, model_squares

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Released:
    """What may be shared of one round: released numbers and what was derived from them.

    Attributes:
        matrix: the sum with its noise, symmetric, or its diagonal alone.
        stddev: standard deviation of the noise on the diagonal; 1/√2 of it off the diagonal.
        shared: M or Ω, as sent to the parties.
        values: eigenvalues of the matrix, or its entries, in units of K².
        kept: the number of directions or features that exceed the noise.
    """

    matrix: Floats
    stddev: float
    shared: Floats
    values: Floats
    kept: int


class Curator:
    """Holds the session. It sees parts only in a form that it may release.

    Args:
        session: the session that is charged for the releases.
        release: draws each round's matrix.
        shares: one for each round, as planned by the release.
        structure: how a released matrix is interpreted.
        n_tasks: the number of tasks, if it is public.
        pooled: whether a round's answer uses all releases so far, weighted by their shares, instead of only the last.
    """

    def __init__(
        self,
        session: Session,
        release: MatrixRelease,
        shares: Sequence[Any],
        structure: Structure,
        n_tasks: int | None,
        *,
        pooled: bool,
    ) -> None:
        self._session = session
        self._release = release
        self._shares = tuple(shares)
        self._structure = structure
        self._n_tasks = n_tasks
        self._pooled = pooled
        self._sum: Floats | None = None
        self.rounds: list[Released] = []

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation that the session protects."""
        return self._session.neighbours

    def answer(self, sent: TaskModels | TaskMatrices) -> Floats:
        """Release the sum of what was sent, and return the matrix for all parties."""
        name, share = Purpose.MODEL_COVARIANCE.at(round=len(self.rounds) + 1), self._shares[len(self.rounds)]
        released, stddev = self._release.draw(self._session, name, self._statistic(sent), share)
        matrix = released if self._structure.diagonal else np.asarray(unpack(released), np.float64)
        matrix, stddev = self._pool(matrix, stddev)
        unit, largest = sent.norm**2, math.inf if self._n_tasks is None else float(self._n_tasks)
        result = self._structure.read(matrix / unit, stddev / unit, largest)
        self.rounds.append(Released(matrix, stddev, result.shared, result.values, result.kept))
        return result.shared.copy()

    def _statistic(self, sent: TaskModels | TaskMatrices) -> BoundedSum:
        if isinstance(sent, TaskMatrices):
            return matrix_total(sent, self.neighbours)
        return (model_squares if self._structure.diagonal else model_gram)(sent, self.neighbours)

    def _pool(self, matrix: Floats, stddev: float) -> tuple[Floats, float]:
        """Return the mean of all releases so far, weighted by their shares, with the noise of one release."""
        if not self._pooled:
            return matrix, stddev
        fractions = [share.fraction for share in self._shares[: len(self.rounds) + 1]]
        self._sum = matrix * fractions[-1] if self._sum is None else self._sum + matrix * fractions[-1]
        total = math.fsum(fractions)
        return self._sum / total, stddev * math.sqrt(fractions[-1] / total)

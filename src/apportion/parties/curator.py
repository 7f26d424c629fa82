"""The curator: takes one bounded part from every party a round, releases their sum, and sends a matrix back.

It never sees a row of data. What it is given is sealed (`TaskModels`, `TaskMatrices`), what it returns is a function of
released numbers, and one call of `answer` is the whole of what crosses between parties and curator in a round.
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
    """What may be shared of one round: released numbers and what was read from them.

    Attributes:
        matrix: the sum with its noise, symmetric, or its diagonal alone.
        stddev: of the noise on the diagonal; 1/√2 of it off the diagonal.
        shared: M or Ω, as it was sent to the parties.
        values: eigenvalues of the matrix, or its entries, in units of K².
        kept: how many directions or features stand out of the noise.
    """

    matrix: Floats
    stddev: float
    shared: Floats
    values: Floats
    kept: int


class Curator:
    """Holds the session; knows parts only as what it may release.

    Args:
        session: what the releases are charged to.
        release: draws each round's matrix.
        shares: one for each round, as the release planned them.
        structure: what is read from a released matrix.
        n_tasks: the number of tasks, where it is public.
        pooled: whether a round's answer is read from all releases so far, by their shares, instead of the last.
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
        """What the session promises."""
        return self._session.neighbours

    def answer(self, sent: TaskModels | TaskMatrices) -> Floats:
        """Release the sum of what was sent, and return the matrix for everybody."""
        name, share = Purpose.MODEL_COVARIANCE.at(round=len(self.rounds) + 1), self._shares[len(self.rounds)]
        released, stddev = self._release.draw(self._session, name, self._statistic(sent), share)
        matrix = released if self._structure.diagonal else np.asarray(unpack(released), np.float64)
        matrix, stddev = self._pool(matrix, stddev)
        unit, largest = sent.norm**2, math.inf if self._n_tasks is None else float(self._n_tasks)
        found = self._structure.read(matrix / unit, stddev / unit, largest)
        self.rounds.append(Released(matrix, stddev, found.shared, found.values, found.kept))
        return found.shared.copy()

    def _statistic(self, sent: TaskModels | TaskMatrices) -> BoundedSum:
        if isinstance(sent, TaskMatrices):
            return matrix_total(sent, self.neighbours)
        return (model_squares if self._structure.diagonal else model_gram)(sent, self.neighbours)

    def _pool(self, matrix: Floats, stddev: float) -> tuple[Floats, float]:
        """The mean of all releases so far, weighed by their shares: noise as if all were one release."""
        if not self._pooled:
            return matrix, stddev
        fractions = [share.fraction for share in self._shares[: len(self.rounds) + 1]]
        self._sum = matrix * fractions[-1] if self._sum is None else self._sum + matrix * fractions[-1]
        total = math.fsum(fractions)
        return self._sum / total, stddev * math.sqrt(fractions[-1] / total)

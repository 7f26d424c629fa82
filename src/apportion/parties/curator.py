"""The curator: takes one bounded part from every party a round, releases their sum, and sends a matrix back.

It never sees a row of data. What it is given is sealed (`TaskModels`, `TaskMatrices`), what it returns is a function of
released numbers, and one call of `answer` is the whole of what crosses between parties and curator in a round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import unpack
from apportion.parties.structure import Structure
from apportion.privacy import BoundedSum, Neighbours, Session, Share
from apportion.privacy.task_sums import TaskMatrices, TaskModels, matrix_total, model_gram, model_squares
from apportion.privacy.wishart import OuterSum, WishartShare

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
        shares: one for each round, or one for all releases with Wishart noise.
        structure: what is read from a released matrix.
        n_tasks: the number of tasks, where it is public.
        pooled: whether a round's answer is read from all releases so far, by their shares, instead of the last.
    """

    def __init__(
        self,
        session: Session,
        shares: Sequence[Share] | WishartShare,
        structure: Structure,
        n_tasks: int | None,
        *,
        pooled: bool,
    ) -> None:
        self._session = session
        self._shares = shares if isinstance(shares, WishartShare) else tuple(shares)
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
        name = f"round {len(self.rounds) + 1}: covariance of models"
        matrix, stddev = self._wishart(name, sent) if self._by_wishart else self._gaussian(name, sent)
        matrix, stddev = self._pool(matrix, stddev)
        unit, largest = sent.norm**2, math.inf if self._n_tasks is None else float(self._n_tasks)
        found = self._structure.read(matrix / unit, stddev / unit, largest)
        self.rounds.append(Released(matrix, stddev, found.shared, found.values, found.kept))
        return found.shared.copy()

    @property
    def _by_wishart(self) -> bool:
        return isinstance(self._shares, WishartShare)

    def _gaussian(self, name: str, sent: TaskModels | TaskMatrices) -> tuple[Floats, float]:
        """The sum with Gaussian noise, and the noise's deviation on the diagonal."""
        assert not isinstance(self._shares, WishartShare)
        share, statistic = self._shares[len(self.rounds)], self._statistic(sent)
        released = np.asarray(self._session.release(name, statistic, share), np.float64)
        matrix = released if self._structure.diagonal else np.asarray(unpack(released), np.float64)
        return matrix, statistic.l2_sensitivity / share.mu

    def _wishart(self, name: str, sent: TaskModels | TaskMatrices) -> tuple[Floats, float]:
        """The sum with Wishart noise less its mean, and the deviation of Gaussian noise that reaches as far up."""
        assert isinstance(self._shares, WishartShare)
        assert isinstance(sent, TaskModels)
        statistic, share = OuterSum.of(sent, self.neighbours), self._shares
        matrix = np.asarray(unpack(self._session.release_wishart(name, statistic, share)), np.float64)
        dimension, scale = statistic.dimension, share.noise_multiplier * statistic.l2_sensitivity
        degrees = share.degrees(dimension)
        reach = scale * (2 * math.sqrt(degrees * dimension) + dimension)  # of s G Gᵀ - s k I, upwards
        return matrix - scale * degrees * np.eye(dimension), reach / math.sqrt(2 * dimension)

    def _statistic(self, sent: TaskModels | TaskMatrices) -> BoundedSum:
        if isinstance(sent, TaskMatrices):
            return matrix_total(sent, self.neighbours)
        return (model_squares if self._structure.diagonal else model_gram)(sent, self.neighbours)

    def _pool(self, matrix: Floats, stddev: float) -> tuple[Floats, float]:
        """The mean of all releases so far, weighed by their shares: noise as if all were one release."""
        if not self._pooled:
            return matrix, stddev
        fractions = self._fractions()
        self._sum = matrix * fractions[-1] if self._sum is None else self._sum + matrix * fractions[-1]
        total = math.fsum(fractions)
        return self._sum / total, stddev * math.sqrt(fractions[-1] / total)

    def _fractions(self) -> list[float]:
        """Of the budget, for every round up to this one."""
        made = len(self.rounds) + 1
        if isinstance(self._shares, WishartShare):
            return [self._shares.fraction] * made
        return [share.fraction for share in self._shares[:made]]

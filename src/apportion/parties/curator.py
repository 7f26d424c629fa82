"""The curator takes one bounded part per round from every party, releases the sum, and sends an answer back.

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
from apportion.parties.common import Common, common_of
from apportion.parties.release import MatrixRelease
from apportion.parties.structure import Covariance, CuratorAnswer, Structure
from apportion.privacy import BoundedSum, Neighbours, Purpose, Session
from apportion.privacy.party_sums import PartForm
from apportion.privacy.task_sums import TaskMatrices, TaskModels, features_of, outer_sum

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Answer:
    """What the curator sends to all parties: a function of released numbers.

    Attributes:
        shared: the matrix M or Ω.
        common: what is known about the common model; None if nothing is known.
    """

    shared: Floats
    common: Common | None = None

    @property
    def silent(self) -> bool:
        """Whether there is nothing to learn from others."""
        return self.common is None and np.array_equal(self.shared, np.eye(len(self.shared)))


@dataclass(frozen=True, eq=False)
class Released:
    """What may be shared about one round: released numbers, and what was derived from them.

    Attributes:
        matrix: the sum with its noise, symmetric, or its diagonal alone.
        stddev: standard deviation of the noise on the diagonal; 1/√2 of it off the diagonal.
        shared: M or Ω, as sent to the parties.
        values: eigenvalues of the matrix, or its entries, in units of K².
        kept: the number of directions or features that exceed the noise.
        mean: the mean of the models' directions with its noise, and last the mean of their sizes; None if not released.
        common: what was derived from the mean; None if it is not released, or within the noise.
    """

    matrix: Floats
    stddev: float
    shared: Floats
    values: Floats
    kept: int
    mean: Floats | None = None
    common: Common | None = None

    @property
    def answer(self) -> Answer:
        """What was sent to all parties."""
        return Answer(self.shared.copy(), self.common)


class Curator:
    """Holds the session. It sees parts only in a form that it may release.

    Args:
        session: the session that is charged for the releases.
        release: draws each round's matrix.
        shares: one for each round, as planned by the release.
        structure: how a released matrix is interpreted.
        n_tasks: the number of tasks, if it is public.
        form: what the parts are made of.
        pooled: whether a round's answer uses all releases so far, weighted by their shares, instead of only the last.
    """

    def __init__(
        self,
        session: Session,
        release: MatrixRelease,
        shares: Sequence[Any],
        structure: Structure,
        n_tasks: int | None,
        form: PartForm,
        *,
        pooled: bool,
    ) -> None:
        self._session = session
        self._release = release
        self._shares = tuple(shares)
        self._structure = structure
        self._n_tasks = n_tasks
        self._pooled = pooled
        self.form = form
        self._weights = form.weights
        self._sum: Floats | None = None
        self.rounds: list[Released] = []

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation that the session protects."""
        return self._session.neighbours

    @property
    def n_rounds(self) -> int:
        """How many rounds are planned."""
        return len(self._shares)

    def answer(self, sent: TaskModels | TaskMatrices) -> Answer:
        """Release the sum of what was sent, and return the answer for all parties."""
        if self._release.on_lattice:
            return self.answer_to(self.form.of(sent))
        assert isinstance(sent, TaskModels)
        return self.answer_to(outer_sum(sent, self.neighbours))

    def answer_to(self, total: BoundedSum) -> Answer:
        """Release a sum that was formed elsewhere, and return the answer for all parties."""
        name, share = Purpose.MODEL_COVARIANCE.at(round=len(self.rounds) + 1), self._shares[len(self.rounds)]
        released, stddev = self._release.draw(self._session, name, total, share)
        released, stddev = self._pool(released, stddev)
        unit, largest = self.form.norm**2, math.inf if self._n_tasks is None else float(self._n_tasks)
        mean, common, second = self._taken_apart(released, stddev, unit)
        matrix = second if self._structure.diagonal else np.asarray(unpack(second), np.float64)
        result = self._read(released[: len(matrix)] / unit, matrix / unit, stddev / unit, largest)
        self.rounds.append(Released(matrix, stddev, result.shared, result.values, result.kept, mean, common))
        return self.rounds[-1].answer

    def _read(self, first: Floats, matrix: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return what to send back. EM also uses the mean, if a covariance could be visible at all.

        Args:
            first: the first entries of the release: the sum of a u, if it has one.
            matrix: the second moment.
            stddev: the standard deviation of the noise on its diagonal.
            largest: the number of tasks, or infinity.
        """
        weights, structure = self._weights, self._structure
        if weights is None or weights.mean >= 2 or not isinstance(structure, Covariance):
            return structure.read(matrix, stddev, largest)
        return structure.read_beside(first / math.sqrt(2), weights.mean / 2, matrix, stddev, largest)

    def _taken_apart(self, released: Floats, stddev: float, unit: float) -> tuple[Floats | None, Common | None, Floats]:
        """Return the means of directions and sizes, what is known about the common model, and the second moment."""
        if self._weights is None or self._n_tasks is None:
            return None, None, released
        dimension = features_of(len(released), diagonal=self._structure.diagonal)
        at, size_at = unit * math.sqrt(self._weights.mean), unit * math.sqrt(self._weights.size)
        total, size = released[:dimension] / at, float(released[dimension]) / size_at
        common = common_of(total, size, stddev / at, stddev / size_at, self._n_tasks)
        return np.append(total, size) / self._n_tasks, common, released[dimension + 1 :]

    def _pool(self, released: Floats, stddev: float) -> tuple[Floats, float]:
        """Return the mean of all releases so far, weighted by their shares, with the noise of one release."""
        if not self._pooled:
            return released, stddev
        fractions = [share.fraction for share in self._shares[: len(self.rounds) + 1]]
        self._sum = released * fractions[-1] if self._sum is None else self._sum + released * fractions[-1]
        total = math.fsum(fractions)
        return self._sum / total, stddev * math.sqrt(fractions[-1] / total)

"""How the curator releases the matrix of a round. Gaussian noise is the default; another is an object of this kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.rounds import RoundSchedule
from apportion.privacy import BoundedSum, Neighbours, Session
from apportion.privacy.purposes import ReleaseName

Floats = NDArray[np.float64]


class MatrixRelease(ABC):
    """Plans the rounds' shares, and draws each round's matrix."""

    @property
    @abstractmethod
    def noise_words(self) -> str:
        """What the stated standard deviation is, as the beginning of a sentence on the page."""

    @abstractmethod
    def check(self, neighbours: Neighbours, schedule: RoundSchedule | None, *, outer_products: bool) -> None:
        """Refuse settings that this release cannot serve.

        Args:
            neighbours: what the session promises.
            schedule: of the rounds, if one was given.
            outer_products: whether whole matrices of models' outer products are released.
        """

    @abstractmethod
    def plan(self, session: Session, rounds: int, schedule: RoundSchedule) -> Sequence[Any]:
        """One share for each round; each has a `fraction` of the budget."""

    @abstractmethod
    def draw(self, session: Session, name: ReleaseName, statistic: BoundedSum, share: Any) -> tuple[Floats, float]:
        """The released sum, packed as the statistic is, and the standard deviation of its noise on the diagonal."""


@dataclass(frozen=True)
class GaussianRelease(MatrixRelease):
    """Gaussian noise, rounds weighed by a schedule."""

    @property
    def noise_words(self) -> str:
        """What the stated deviation is."""
        return "Its noise has a standard deviation of"

    def check(self, neighbours: Neighbours, schedule: RoundSchedule | None, *, outer_products: bool) -> None:
        """Serves all settings."""

    def plan(self, session: Session, rounds: int, schedule: RoundSchedule) -> Sequence[Any]:
        """As the schedule divides the budget."""
        return session.plan(rounds=schedule.shares(rounds)).several("rounds")

    def draw(self, session: Session, name: ReleaseName, statistic: BoundedSum, share: Any) -> tuple[Floats, float]:
        """The sum with Gaussian noise."""
        released = np.asarray(session.release(name, statistic, share), np.float64)
        return released, statistic.l2_sensitivity / share.mu

"""How the curator releases a round's matrix. Gaussian noise is the default; others implement `MatrixRelease`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.rounds import RoundSchedule
from apportion.privacy import BoundedSum, Neighbours, Session
from apportion.privacy.purposes import ReleaseName

Floats = NDArray[np.float64]


class MatrixRelease(ABC):
    """Plans the rounds' shares, and draws each round's matrix.

    Attributes:
        carries_mean: whether it can release the mean of models beside their outer products.
        on_lattice: whether it adds noise to whole numbers of steps, instead of to floating-point outer products.
    """

    carries_mean: ClassVar[bool] = False
    on_lattice: ClassVar[bool] = False

    @property
    @abstractmethod
    def noise_words(self) -> str:
        """What the stated standard deviation refers to, as the beginning of a sentence on the page."""

    @abstractmethod
    def check(self, neighbours: Neighbours, schedule: RoundSchedule | None, *, outer_products: bool) -> None:
        """Refuse settings that this release does not support.

        Args:
            neighbours: the neighbour relation that the session protects.
            schedule: the schedule of the rounds, if one was given.
            outer_products: whether whole matrices of models' outer products are released.
        """

    @abstractmethod
    def plan(self, session: Session, rounds: int, schedule: RoundSchedule) -> Sequence[Any]:
        """Return one share for each round; each has a `fraction` of the budget."""

    @abstractmethod
    def draw(self, session: Session, name: ReleaseName, statistic: BoundedSum, share: Any) -> tuple[Floats, float]:
        """Return the released sum, packed like the statistic, and the stddev of the noise on its diagonal."""


@dataclass(frozen=True)
class GaussianRelease(MatrixRelease):
    """Gaussian noise, with rounds weighted by a schedule."""

    carries_mean: ClassVar[bool] = True
    on_lattice: ClassVar[bool] = True

    @property
    def noise_words(self) -> str:
        """What the stated standard deviation refers to."""
        return "Its noise has a standard deviation of"

    def check(self, neighbours: Neighbours, schedule: RoundSchedule | None, *, outer_products: bool) -> None:
        """Accept all settings."""

    def plan(self, session: Session, rounds: int, schedule: RoundSchedule) -> Sequence[Any]:
        """Divide the budget by the schedule."""
        return session.plan(rounds=schedule.shares(rounds)).several("rounds")

    def draw(self, session: Session, name: ReleaseName, statistic: BoundedSum, share: Any) -> tuple[Floats, float]:
        """Return the sum with Gaussian noise."""
        released = np.asarray(session.release(name, statistic, share), np.float64)
        return released, statistic.l2_sensitivity / share.mu

"""The curator's matrix released with Wishart noise, for comparison with the Gaussian default.

Use `ProtectedMultiTask(release=WishartRelease(200), neighbours=ADD_REMOVE_TASK, ...)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apportion.allocation.rounds import RoundSchedule
from apportion.errors import InputError
from apportion.linalg import pack
from apportion.parties.release import Floats, MatrixRelease
from apportion.privacy import BoundedSum, Neighbours, PlannedShare, Session
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.purposes import ReleaseName
from apportion.privacy.task_sums import OuterSum
from apportion.published.model_protection.wishart import Wishart


@dataclass(frozen=True)
class WishartRelease(MatrixRelease):
    """Additive Wishart noise: neighbours add or remove a task, rounds get equal parts, cost is composed numerically.

    Args:
        spare_degrees: degrees of freedom beyond the dimension minus one.
    """

    spare_degrees: int = 200

    @property
    def noise_words(self) -> str:
        """What the stated standard deviation refers to."""
        return "Its noise, minus its mean, reaches as far up as Gaussian noise with a standard deviation of"

    def check(self, neighbours: Neighbours, schedule: RoundSchedule | None, *, outer_products: bool) -> None:
        """Refuse other neighbours, a schedule, and sums of anything but outer products."""
        if neighbours != ADD_REMOVE_TASK:
            raise InputError(
                f"Expected ADD_REMOVE_TASK with Wishart noise, got: {neighbours.relation}.", argument="neighbours"
            )
        if not outer_products:
            raise InputError("Expected a whole matrix of models' outer products for Wishart noise.", argument=None)
        if schedule is not None:
            raise InputError(
                f"Expected no schedule with Wishart noise, whose rounds are equal, got {schedule}.", argument="schedule"
            )

    def plan(self, session: Session, rounds: int, schedule: RoundSchedule) -> Sequence[PlannedShare[Wishart]]:
        """Return the same share for every round."""
        return [session.plan_with(Wishart(self.spare_degrees), rounds)[1]] * rounds

    def draw(self, session: Session, name: ReleaseName, statistic: BoundedSum, share: Any) -> tuple[Floats, float]:
        """Return the sum with Wishart noise minus its mean, and the stddev of Gaussian noise that reaches as far up."""
        assert isinstance(statistic, OuterSum)
        mechanism: Wishart = share.mechanism
        released = np.asarray(session.release_with(mechanism, name, statistic, share), np.float64)
        dimension = statistic.dimension
        scale, degrees = mechanism.scale(statistic, share), mechanism.degrees(dimension)
        reach = scale * (2 * math.sqrt(degrees * dimension) + dimension)  # of s G Gᵀ - s k I, upwards
        return released - scale * degrees * pack(np.eye(dimension)), reach / math.sqrt(2 * dimension)

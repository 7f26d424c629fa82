"""The releases of a step: of a gradient alone, or of counts of table rows before it, on the same units.

What a step costs is fixed before the first. Two releases of a step share its μ²: for full batches as two Gaussian
releases; on a sample as a pair that costs what one release with the whole share costs (docs/proofs/optimizers.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy import BoundedSum, PlannedShare, Purpose, SampledGaussian, Session, Share
from apportion.privacy.budget import Plan
from apportion.privacy.sampling import Sample
from apportion.training.processes import Processes, together

_Share = Share | PlannedShare[SampledGaussian]
Form = Callable[[Sample | None], BoundedSum]


@dataclass(frozen=True)
class StepShare:
    """What a step may cost.

    Attributes:
        gradient: for the sum of gradients.
        rows: for counts of table rows before it; None if none are released.
    """

    gradient: _Share
    rows: _Share | None = None

    @property
    def mu(self) -> float:
        """Of both together, for a unit that takes part."""
        return self.gradient.mu if self.rows is None else math.hypot(self.gradient.mu, self.rows.mu)


def plan_steps(
    session: Session, steps: int, sampling: float, others: dict[str, float], rows: float | None
) -> tuple[Plan, list[StepShare]]:
    """Fix the cost of every step, beside other releases.

    Args:
        session: pays.
        steps: the number of steps.
        sampling: probability that a unit takes part in a step.
        others: shares of the budget for other releases.
        rows: the part of a step's μ² for counts of table rows; None if no step releases any.
    """
    if sampling < 1:
        plan, sampled = session.plan_sampled(steps, sampling, **others)
        if rows is None:
            return plan, [StepShare(sampled)] * steps
        counts, gradient = sampled.in_parts(rows)
        return plan, [StepShare(gradient, counts)] * steps
    each = (1 - sum(others.values())) / steps
    if rows is None:
        plan = session.plan(**others, steps=[each] * steps)
        return plan, [StepShare(share) for share in plan.several("steps")]
    plan = session.plan(**others, touched=[each * rows] * steps, steps=[each * (1 - rows)] * steps)
    return plan, list(map(StepShare, plan.several("steps"), plan.several("touched")))


@dataclass(frozen=True, eq=False)
class StepReleases:
    """Releases the sums of steps in the first of several processes, and tells the others.

    Attributes:
        session: of the first process.
        processes: that train together.
    """

    session: Session
    processes: Processes

    def gradient(self, step: int, form: Form, share: StepShare) -> NDArray[Any]:
        """Form the sum in every process; charge and draw in the first, which tells the others."""
        tell, paid, name = self.processes.tell, share.gradient, Purpose.GRADIENT.at(step=step)

        def release() -> Any:
            if self.processes.number > 0:
                return form(tell(None) if isinstance(paid, PlannedShare) else None) and None
            if isinstance(paid, PlannedShare):
                return self.session.release_sampled(name, lambda sample: form(tell(sample)), paid)
            return self.session.release(name, form(None), paid)

        return np.asarray(tell(together(self.processes, release)))

    def gradient_at_rows(
        self, step: int, count: Form, choose: Callable[[Any], Any], form: Form, share: StepShare
    ) -> NDArray[Any]:
        """Release counts of rows, choose rows by them, and release the sum of the gradients there.

        Args:
            step: the number of the step.
            count: forms the counts.
            choose: takes the released counts in the first process, what it returned there in the others.
            form: forms the sum after that.
            share: pays for both.
        """
        tell, paid, rows = self.processes.tell, share.gradient, share.rows
        names = Purpose.TABLE_ROWS.at(step=step), Purpose.GRADIENT.at(step=step)

        def second(sample: Sample | None, drawn: Any) -> BoundedSum:
            tell(choose(drawn))
            return form(sample)

        def release() -> Any:
            if self.processes.number > 0:
                sample = tell(None) if isinstance(paid, PlannedShare) else None
                count(sample)
                choose(tell(None))
                return form(sample) and None
            if isinstance(paid, PlannedShare) and isinstance(rows, PlannedShare):
                return self.session.release_sampled_pair(
                    names, lambda sample: count(tell(sample)), second, (rows, paid)
                )
            assert isinstance(paid, Share)
            assert isinstance(rows, Share)
            return self.session.release(names[1], second(None, self.session.release(names[0], count(None), rows)), paid)

        return np.asarray(tell(together(self.processes, release)))

"""The search for optimal label weights by Newton's method on their dual.

If there are many users, the dual is nearly smooth and a handful of steps suffice. A user adds to
Newton's model only if it has two or more entries above its threshold, which about m² / ρ users have. With few users, or
a high ratio ρ of price and variance, the model is good only nearby. Steps are therefore damped until the dual rises,
and the ratio is raised to its value in stages; without variance, until the variance no longer matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from apportion.regression.label_weights.certificate import Certificate
from apportion.regression.label_weights.curvature import label_dual
from apportion.regression.label_weights.dual import Candidate, DualPoint, LabelDual
from apportion.regression.label_weights.projection import Floats, UserBlock

_STAGE = 10.0  # factor by which the ratio rises from one stage to the next
_STAGE_GAP = 1e-2
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-12, 1e9
_MORE_DAMPING, _LESS_DAMPING = 5.0, 0.2
_ENOUGH_OF_PREDICTED = 1e-4
_ROUNDING = 1e-12


class NewtonSearch:
    """Starts from least squares and keeps the best weights it finds.

    Args:
        blocks: the features in coordinates with Σ q qᵀ = I.
        target: R, what the weights' moment must be.
        norm: p.
        certificate: the objective, when to stop, and where the result is noted.
    """

    def __init__(
        self, blocks: Sequence[UserBlock], target: Floats, norm: Literal[1, 2], certificate: Certificate
    ) -> None:
        self.blocks, self.target, self.norm, self.certificate = blocks, target, norm, certificate
        self.damping = _FIRST_DAMPING
        self.best = label_dual(blocks, target, 1.0, norm).least_squares()
        certificate.improves(self.best.squares, self.best.cap)

    @property
    def easy_ratio(self) -> float:
        """Return a ratio at which users with two entries near their threshold outnumber the d² unknowns."""
        n_users, dim = self.blocks[-1].users.stop, len(self.target)
        return float(max(n_users, (n_users / dim) ** 2))

    def run(self) -> None:
        """Climb the dual, in stages, until the certificate says to stop or no step helps."""
        point: DualPoint | None = None
        for ratio in self._ratios():
            dual = label_dual(self.blocks, self.target, ratio, self.norm)
            point = self._first(dual) if point is None else _carried(point, dual)
            point = self._climb(dual, point)
            if self.certificate.over:
                return

    def try_without_stages(self, most_iterations: int) -> None:
        """Climb the dual of the problem itself, for a limited number of iterations."""
        dual = label_dual(self.blocks, self.target, self.certificate.ratio, self.norm)
        point: DualPoint | None = self._first(dual)
        for _ in range(most_iterations + 1):
            if point is None or self._noted(dual, point):
                return
            point = self._step(dual, point)

    def rows(self, n_rows: int) -> Floats:
        """Return the best weights, in the order in which the features were given."""
        return label_dual(self.blocks, self.target, 1.0, self.norm).rows(self.best, n_rows)

    def _ratios(self) -> Iterator[float]:
        ratio = self.easy_ratio
        last = min(self.certificate.ratio, 1e12 * ratio)
        while ratio < last:
            yield ratio
            ratio *= _STAGE
        yield last

    def _first(self, dual: LabelDual) -> DualPoint:
        """Return the dual at the matrix of least squares."""
        cap = min(self.best.cap, np.sqrt(self.best.squares / dual.ratio))
        return dual.evaluate(self.target, cap, np.zeros(dual.n_users))

    def _climb(self, dual: LabelDual, point: DualPoint) -> DualPoint:
        """Take steps until the gap of the stage, or of the problem, is small."""
        while not self._noted(dual, point):
            found = self._step(dual, point)
            if found is None:
                return point
            point = found
        return point

    def _is_enough(self, dual: LabelDual, point: DualPoint, candidate: Candidate) -> bool:
        """Whether to raise the ratio: not if it is the last one, or if the variance matters too little already."""
        without_variance = (point.cap * candidate.largest_magnitudes / candidate.linear) ** 2 - 1
        last = dual.ratio == self.certificate.ratio or without_variance <= self.certificate.tolerance / 2
        attained = candidate.squares + dual.ratio * candidate.cap**2
        return not last and attained <= point.linear * (1 + _STAGE_GAP)

    def _noted(self, dual: LabelDual, point: DualPoint) -> bool:
        """Keep better weights and bounds, and return whether to stop. Both bounds hold at every stage."""
        certificate, candidate = self.certificate, dual.candidate(point)
        if certificate.variance > 0:
            certificate.bounded(certificate.variance * point.lower_bound(certificate.ratio))
        if candidate is not None:
            certificate.bounded(certificate.price * (candidate.linear / candidate.largest_magnitudes) ** 2)
            if certificate.improves(candidate.squares, candidate.cap):
                self.best = candidate
        certificate.report()
        return certificate.over or (candidate is not None and self._is_enough(dual, point, candidate))

    def _step(self, dual: LabelDual, point: DualPoint) -> DualPoint | None:
        """Return a damped step of Newton's method that makes progress; None if there is none."""
        system, tried = dual.system(point), 0
        while self.damping <= _MOST_DAMPING:
            step = system.step(self.damping)
            rise = float(np.vdot(dual.target - point.moment, step))
            found = dual.evaluate(point.matrix + step, point.cap, point.thresholds)
            if _is_progress(dual, point, found, rise):
                self.damping = max(self.damping * (1 if tried else _LESS_DAMPING), _LEAST_DAMPING)
                self.certificate.iterations += 1
                return found
            self.damping *= _MORE_DAMPING
            tried += 1
        self.damping = _FIRST_DAMPING
        return None


def _is_progress(dual: LabelDual, before: DualPoint, after: DualPoint, rise: float) -> bool:
    """Whether the dual rose as predicted or, if rounding hides that, the constraint is met better."""
    if rise > _ROUNDING * before.linear:
        return after.linear >= before.linear + _ENOUGH_OF_PREDICTED * rise
    return dual.residual(after) < dual.residual(before)


def _carried(point: DualPoint, dual: LabelDual) -> DualPoint:
    """Return the point of the previous stage in this one. Thresholds grow with the ratio; what they leave does not."""
    growth = dual.ratio * point.cap / float(point.thresholds.sum())
    return dual.evaluate(growth * point.matrix, point.cap, growth * point.thresholds)

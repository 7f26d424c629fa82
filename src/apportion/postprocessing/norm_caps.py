"""Where to cap the norms of users, from a released histogram of them.

A user whose norm r is beyond the cap C is weighed down by C/r. A smaller cap means less noise. It also takes a share f
from totals, which is corrected as far as it is known. And it shifts weights from large users to small ones, which moves
a mean where values go with size. The cap has the least sum of squared relative errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNSURE = 0.5  # of a correction, as a share of it
_WITHIN = 4  # points that stand for an octave
_UNEVEN = 3.0  # mean square of the size of a group over the square of its mean
_SLOPE = 0.02  # by how much of its range a mean goes with an octave of users' size, as feared


@dataclass(frozen=True, eq=False)
class Norms:
    """Users by norm.

    Attributes:
        points: norms that stand for users.
        counts: how many users each stands for.
        ratio: mean of a user's L1 norm over its norm; it grows with the root of the norm.
    """

    points: Floats
    counts: Floats
    ratio: float

    @classmethod
    def of(cls, counts: Floats, edges: Floats, ratio: float) -> Norms:
        """From counts by octave, each spread over its octave; fewer than half a user is nobody."""
        counts = np.where(counts >= 0.5, counts, 0.0)
        within = 2.0 ** ((np.arange(_WITHIN) + 0.5) / _WITHIN)
        return cls((edges[:, None] * within).ravel(), np.repeat(counts / _WITHIN, _WITHIN), ratio)

    @property
    def totals(self) -> Floats:
        """L1 norm of a user at each point."""
        roots = np.sqrt(self.points)
        typical = float((self.counts * roots).sum() / max(float(self.counts.sum()), 1e-9))
        return np.asarray(self.points * self.ratio * roots / max(typical, 1e-9))

    def total(self, cap: float = math.inf) -> float:
        """All L1 norms together, users weighed down to the cap."""
        return float((self.counts * self.totals * np.minimum(cap / self.points, 1.0)).sum())

    def lost(self, cap: float) -> float:
        """f: the share of all L1 norms that the cap takes away."""
        return 1 - self.total(cap) / max(self.total(), 1e-9)

    def shift(self, cap: float) -> float:
        """By how many octaves the cap moves the mean octave, users weighed by their L1 norms."""
        places, weights = np.log2(self.points), self.counts * self.totals
        lower = weights * np.minimum(cap / self.points, 1.0)
        return _mean(places, weights) - _mean(places, lower)


def feared_shift(norms: Norms, cap: float) -> float:
    """What the cap may do to a mean, as a share of its range."""
    return _SLOPE * norms.shift(cap)


def best_cap(norms: Norms, noise: float, n_groups: int, *, of_means: bool) -> float:
    """The cap with the least error.

    Args:
        norms: of users.
        noise: standard deviation of the noise in a number that one user moves by 1.
        n_groups: how many groups share the total.
        of_means: whether means are wanted, which a common factor does not move, or totals.
    """
    ends = norms.points * 2 ** (0.5 / _WITHIN)  # of what each point stands for
    tried = ends[norms.counts > 0] if norms.counts.any() else ends[:1]
    errors = [_error(norms, float(cap), noise, n_groups, of_means=of_means) for cap in tried]
    return float(tried[int(np.argmin(errors))])


def _mean(values: Floats, weights: Floats) -> float:
    return float((weights * values).sum() / max(float(weights.sum()), 1e-9))


def _error(norms: Norms, cap: float, noise: float, n_groups: int, *, of_means: bool) -> float:
    spread = noise * cap * n_groups / max(norms.total(cap), 1e-9)
    moved = feared_shift(norms, cap) / 0.5 if of_means else UNSURE * norms.lost(cap) * math.sqrt(_UNEVEN)
    return spread**2 + moved**2

"""The cap on users' weights for quantiles, from a released histogram of sizes.

Rows of a user weigh min(h, s)/s each. Noise in ranks is as h over the total weight. A low h weighs large users down,
which moves ranks where values go with sizes: an octave of sizes is expected to move them a little, and feared to move
them more. The cap with the least expected squared error is taken; what is feared widens the bound on ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from apportion.allocation.users import size_buckets
from apportion.data.users import Users
from apportion.estimators.contributions import Noisy
from apportion.postprocessing.class_counts import class_counts
from apportion.postprocessing.size_dependence import SizeClasses
from apportion.privacy import Purpose, Session
from apportion.privacy.contributions import SizeHistogram
from apportion.statistics.user_parts import Target

SIZES = 0.15  # share of the budget
_EXPECTED, _FEARED = 0.01, 0.04  # by how much an octave of sizes moves ranks, standard deviations


@dataclass(frozen=True)
class RankCap:
    """A cap on a user's weight.

    Attributes:
        cap: h.
        safe_total: the total weight, not too large.
        octaves: by which the mean size is lower with the cap.
    """

    cap: float
    safe_total: float
    octaves: float

    def off(self, probability: float) -> float:
        """By how much the cap moves ranks at most, with this probability."""
        return NormalDist().inv_cdf((1 + probability) / 2) * _FEARED * self.octaves


def rank_cap(
    users: Users, of: Target, max_size: int, sought: list[float], session: Session, release: Callable[..., Noisy]
) -> RankCap:
    """Release the histogram, and choose."""
    edges = np.asarray(size_buckets(max_size if of == "rows" else 1), np.float64)
    share = session.plan(sizes=SIZES).one("sizes")
    noisy = release(session, Purpose.SIZES, users, SizeHistogram(edges), share)
    stddev = math.sqrt(noisy.variance)
    ends = np.minimum(2 * edges - 1, max_size)
    classes = SizeClasses(class_counts(noisy.values, stddev, "sizes"), np.sqrt(edges * ends), stddev)
    noise = 2 * len(sought) / ((1 - SIZES) * session.budget.epsilon)
    errors = [(noise * cap / classes.total(cap)) ** 2 + (_EXPECTED * classes.below(cap)[0]) ** 2 for cap in ends]
    cap = float(ends[int(np.argmin(errors))])
    counted = np.minimum(classes.sizes, cap)[classes.counts >= 1]
    doubt = stddev * math.sqrt(float(np.square(counted).sum()))
    total = classes.total(cap)
    octaves, unsure = classes.below(cap)
    return RankCap(cap, max(total - 2 * doubt, total / 4, cap), octaves + unsure)

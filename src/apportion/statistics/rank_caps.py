"""The cap on users' weights for quantiles, from a released histogram of sizes.

Each row of a user of size s weighs min(h, s)/s. The noise in ranks is proportional to h over the total weight. A low
h gives large users less weight, which moves ranks if values depend on sizes. Each octave of sizes is expected to move
them a little, and may move them more; where candidates are few, such as grades, a small move changes no answer. The cap
with the least expected squared error is taken, and the bound on ranks is widened for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import size_buckets
from apportion.estimators.contributions import Noisy, capped_weights
from apportion.postprocessing.class_counts import likely_counts
from apportion.postprocessing.size_dependence import SizeClasses
from apportion.privacy import Purpose
from apportion.privacy.contributions import RowWeighting, SizeHistogram
from apportion.privacy.ranks import Candidates
from apportion.statistics.quantile_search import PointSearch
from apportion.statistics.user_parts import Target

SIZES = 0.1  # share of the budget
_EXPECTED, _FEARED = 0.05, 0.08  # by how much an octave of sizes moves ranks, standard deviations
_EXPECTED_OF_GRADES, _GRADES = 0.01, 20  # the same where candidates are so few that a small move changes none


@dataclass(frozen=True)
class RankCap:
    """A cap on a user's weight.

    Attributes:
        most: h.
        safe_total: the total weight, not too large.
        octaves: by which the mean size is lower with the cap.
        ranks: the quantiles themselves, which are sought among weighted rows.
    """

    most: float
    safe_total: float
    octaves: float
    ranks: list[float]

    @property
    def weighting(self) -> RowWeighting:
        """The rule."""
        return capped_weights(self.most)

    def off(self, deviation: float, probability: float) -> NDArray[np.float64]:
        """Return how far ranks are off at most, with this probability, if the sum of weights is off by so much."""
        moved = NormalDist().inv_cdf((1 + probability) / 2) * _FEARED * self.octaves
        return np.full(len(self.ranks), min(deviation / self.safe_total + moved, 1.0))


def rank_cap(
    search: PointSearch, of: Target, max_size: int, sought: list[float], release: Callable[..., Noisy]
) -> RankCap:
    """Release the histogram and choose the cap.

    Args:
        search: users, and where their quantiles are sought.
        of: the target.
        max_size: public.
        sought: the quantiles, ascending.
        release: makes a release of a contribution for a share.
    """
    users, session, line = search.users, search.session, search.line
    grades = isinstance(line, Candidates) and len(line.points) <= _GRADES
    edges = np.asarray(size_buckets(max_size if of == "rows" else 1), np.float64)
    share = session.plan(sizes=SIZES).one("sizes")
    noisy = release(session, Purpose.SIZES, users, SizeHistogram(edges), share)
    stddev = math.sqrt(noisy.variance)
    ends = np.minimum(2 * edges - 1, max_size)
    shapes = likely_counts(noisy.values, stddev, "sizes")
    classes = SizeClasses.of(shapes, np.sqrt(edges * ends), stddev)
    noise = 2 * len(sought) / ((1 - SIZES) * session.budget.epsilon)
    moved = _EXPECTED_OF_GRADES if grades else _EXPECTED
    cap = float(min(ends, key=lambda cap: _expected_error(classes, float(cap), noise * float(cap), moved)))
    counted = np.minimum(classes.sizes, cap)[classes.counts >= 1]
    doubt = stddev * math.sqrt(float(np.square(counted).sum()))
    total = classes.total(cap)
    octaves = float((classes.shares() - classes.shares(cap)) @ classes.octaves)
    unsure = math.sqrt(np.square(classes.moved(cap, classes.octaves)) @ classes.variances)
    return RankCap(cap, max(total - 2 * doubt, total / 4, cap), octaves + unsure, sought)


def _expected_error(classes: SizeClasses, cap: float, noise: float, moved: float) -> float:
    """The squared error of ranks with a cap that an octave moves by so much, over all likely numbers by size."""
    weights, totals, taken = classes.likely(cap)
    return float(weights @ (np.square(noise / totals) + np.square(moved * (taken @ classes.octaves))))

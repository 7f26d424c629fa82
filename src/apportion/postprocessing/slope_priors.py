"""What to expect of how users' means go with their sizes: several priors, between which released sums decide.

The mean of a size class lies near a line in the octave of the size. A prior says how steep the line may be, and how
much users of one size may differ. A class is off the line by what its few users differ, and by a bend that is larger if
the line is steep. In a stratum, users are not spread over sizes as the likely shape says. So its mean may be off too,
by part of what an octave changes.

For intervals, slopes and bends are parts of the standard deviation between users of one size: where users differ much,
classes of users do, too. In 23 of 24 real sets the slope was from 0 to 0.6 of it, in one with 19 users 1.9. A line may
be steep, but does not turn: turns make all intervals wider, steep lines only those where values go with sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.size_dependence import OF_ROWS, OF_USERS

Floats = NDArray[np.float64]

_UNKNOWN = 0.2  # prior standard deviation of a mean on a scale from 0 to 1
_STEEP = (0.002, 0.01, 0.03, 0.1)  # prior standard deviations of what an octave of sizes changes
_APART = (1.0, 6.0, 30.0)  # variances of users of one size, over what is usual
_RELATED, _RELATED_LIKELY = (0.03, 0.1, 0.3, 1.0), (0.3, 0.25, 0.25, 0.2)  # slopes, over what users of one size differ
_DIFFER, _DIFFER_LIKELY = (0.5, 2.0, 6.0, 30.0), (0.3, 0.35, 0.15, 0.2)  # with these variances, over what is usual
_RELATED_BENT = 0.05  # the same for what classes are off the line
_BEND, _UNLIKE = 0.25, 0.2  # parts of a slope by which classes are off the line, and strata off their classes


@dataclass(frozen=True, eq=False)
class SlopePriors:
    """Priors on the slope and on how much users of one size differ.

    Attributes:
        slopes: of each prior, the standard deviation of what an octave of sizes changes.
        spreads: of each, the variance of users of one size over what is usual.
        likely: how likely each is; together 1.
        bent: of each, by how much the mean of a class is off the line.
        wanders: of each, by how much the line may turn within an octave.
    """

    slopes: Floats
    spreads: Floats
    likely: Floats
    bent: Floats
    wanders: Floats

    @classmethod
    def of(cls, steep: tuple[float, ...], apart: tuple[float, ...], bent: float, wanders: float) -> SlopePriors:
        """Return all pairs of slopes and spreads, which are as likely as given."""
        slopes, spreads = (np.ravel(grid) for grid in np.meshgrid(_STEEP, _APART, indexing="ij"))
        every = np.ones(len(slopes))
        return cls(slopes, spreads, np.outer(steep, apart).ravel(), bent * every, wanders * every)

    @classmethod
    def related(cls) -> SlopePriors:
        """Return priors under which all is in proportion to what users of one size differ by."""
        spreads, slopes = (np.ravel(grid) for grid in np.meshgrid(_DIFFER, _RELATED, indexing="ij"))
        differ = np.sqrt(spreads * OF_USERS)
        likely = np.outer(_DIFFER_LIKELY, _RELATED_LIKELY).ravel()
        return cls(slopes * differ, spreads, likely, _RELATED_BENT * differ, np.zeros(len(slopes)))

    def given(self, log_fits: Floats) -> SlopePriors:
        """Return the priors, weighed by how well each fits."""
        logs = np.log(self.likely) + log_fits
        weights = np.exp(logs - logs.max())
        return replace(self, likely=weights / weights.sum())

    def covariances(self, counts: Floats, sizes: Floats, strata: int = 0) -> Floats:
        """Return the covariance of the class means and then of what so many strata are off, by shape and prior.

        Args:
            counts: numbers of users by class, a row for each shape.
            sizes: of the classes.
            strata: how many there are.
        """
        places = np.log2(sizes)
        octaves = places - (counts @ places / counts.sum(axis=1))[:, None]
        differ = self.spreads[:, None] * OF_USERS + OF_ROWS / sizes
        own = np.square(self.bent)[:, None] + np.square(_BEND * self.slopes)[:, None]
        own = own + differ / np.maximum(counts, 1.0)[:, None]
        near = places[-1] - places[0] - np.abs(places[:, None] - places)
        level = _UNKNOWN**2 + np.square(self.wanders)[:, None, None] / 2 * near
        steep = np.square(self.slopes)[:, None, None] * (octaves[:, :, None] * octaves[:, None, :])[:, None]
        found = np.zeros((*own.shape[:2], len(sizes) + strata, len(sizes) + strata))
        found[..., : len(sizes), : len(sizes)] = level + own[..., None] * np.eye(len(sizes)) + steep
        off = np.arange(len(sizes), len(sizes) + strata)
        found[..., off, off] = np.square(_UNLIKE * self.slopes)[:, None]
        return found


EXPECTED = SlopePriors.of((0.6, 0.25, 0.1, 0.05), (0.75, 0.2, 0.05), bent=0.01, wanders=0.0)
FEARED = SlopePriors.of((0.3, 0.35, 0.22, 0.13), (0.5, 0.3, 0.2), bent=0.015, wanders=0.015)
DOUBTED = SlopePriors.related()  # for intervals; the others are for means and for caps

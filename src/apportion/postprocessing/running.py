"""What rounds tell together of the moments that all tasks share.

One round says little of them at a small budget. They change slowly from round to round, so each is followed by a filter
(Kalman, 1960): a normal belief, whose variance grows a little before each round, and which a release then narrows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

VARIANCES = (0.1, 4.0)
"""Between these the variance of residuals is, whatever is released; in labels."""

_VOTERS_SPREAD = 0.15  # of the number of voters around what popularity leads to expect, relative
_SLOPE_SPREAD = 0.05  # of the squared factor, clipped, around the part of residuals that is kept
_CLIPPED_SPREAD = 0.15  # of the clipped variance around the square of that part, relative to the whole
_STARTING_LEVEL = 0.3, 0.12  # of tastes in the first round that has any, and the spread of that among data sets
_LEVEL = 0.15, 0.15  # in later rounds
_FIRST_DRIFT = 0.15  # of residual variances from a user's own mean to the first round
_DRIFT = 0.05  # of residual variances from one round to the next
_SLOW_DRIFT = 0.03  # of the others


@dataclass(frozen=True)
class Belief:
    """A number, known up to a normal error.

    Attributes:
        mean: the best guess.
        variance: of the error.
    """

    mean: float
    variance: float

    @classmethod
    def around(cls, mean: float, spread: float) -> Self:
        """Return a belief with this standard deviation."""
        return cls(mean, spread**2)

    def after(self, value: float, noise: float, drift: float) -> Belief:
        """Return the belief once the number may have drifted and was seen with noise; both are standard deviations.

        >>> Belief(0.0, 1.0).after(2.0, 1.0, 0.0)
        Belief(mean=1.0, variance=0.5)
        """
        before = self.variance + drift**2
        gain = before / (before + noise**2)
        return Belief(self.mean + gain * (value - self.mean), (1 - gain) * before)

    def between(self, low: float, high: float) -> Belief:
        """Return the belief with its mean between these."""
        return Belief(float(np.clip(self.mean, low, high)), self.variance)


@dataclass(frozen=True)
class Beliefs:
    """All levels of shared moments, and how many rounds they have seen.

    Attributes:
        voters: total say of all users.
        slope: mean square of users' factors on item biases, as clipped.
        residual: mean squared residual.
        clipped: the same after users' parts were clipped.
        level: mean square of a taste in one coordinate, as clipped.
        n_rounds: that were seen.
    """

    voters: Belief
    slope: Belief
    residual: Belief
    clipped: Belief
    level: Belief
    n_rounds: int = 0

    @classmethod
    def at_start(cls, voters: float, residual: Belief, kept: Belief) -> Beliefs:
        """Return what is known before the first round.

        Args:
            voters: total say that popularity leads to expect.
            residual: of users' residuals around their own means.
            kept: the part of them that clipping keeps, in the mean over users.
        """
        clipped = Belief.around(kept.mean**2 * residual.mean, _CLIPPED_SPREAD)
        slope = Belief(kept.mean, kept.variance + _SLOPE_SPREAD**2)
        level = Belief.around(*_STARTING_LEVEL)
        return cls(Belief.around(voters, _VOTERS_SPREAD * voters), slope, residual, clipped, level)

    def after(self, released: Floats, traced: float | None, stddev: float, latent: int) -> Beliefs:
        """Return the beliefs after a round.

        Args:
            released: say, and say times squared factor, squared residual and clipped squared residual, summed.
            traced: say times the mean square of tastes in all coordinates over their number, summed; None if there are
                no tastes.
            stddev: of the noise of each released number.
            latent: number of coordinates of a taste.
        """
        voters = self.voters.after(float(released[0]), stddev, _SLOW_DRIFT * self.voters.mean)
        total = max(voters.mean, 10.0)
        noise = float(np.hypot(stddev, np.sqrt(voters.variance))) / total
        drift = _DRIFT if self.n_rounds else _FIRST_DRIFT
        level = self.level if self.n_rounds != 2 else Belief.around(*_LEVEL)
        if traced is not None:
            level = level.after(traced / total, stddev * np.sqrt(latent) / total, _SLOW_DRIFT)
        return Beliefs(
            voters,
            self.slope.after(float(released[1]) / total, noise, _SLOW_DRIFT),
            self.residual.after(float(released[2]) / total, noise, drift),
            self.clipped.after(float(released[3]) / total, noise, drift),
            level,
            self.n_rounds + 1,
        )

"""What the models of all parties have in common: their mean direction and their size. All of it is post-processing.

The curator releases Σ u_i / m (u_i = w_i / |w_i|) and Σ s_i / m, where s_i² is the share of its labels' variance that
party i's own model explains. If |Σ u_i / m|² is near 1, all models point the same way; near 0, they have no direction
in common. A party then believes w ~ N(f s v̄, r v Ω), with v̄ the mean direction less its noise, f about 1, and r about

    (1 - share)² s² / (1 - s²),

the variance that differences between parties explain, over the variance that is left. (The more alike the parties' own
models are, the more of their differences is noise.) The same r is used if there is no common direction: then only the
size is shared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.privacy.task_sums import MomentWeights

Floats = NDArray[np.float64]

_CERTAIN = 1.5  # how far the squared length must lie above that of noise alone, in its standard deviations
_LARGEST_SHARE = 0.95  # two parties are never exactly alike
_SIZE, _SIZE_SPREAD = 0.5, 0.3  # size of a model before anything is released, and its standard deviation
_LEAST_SIZE, _LARGEST_SIZE = 0.1, 0.95
_SURE_SIZE = 0.05  # standard deviation up to which sizes are of use without a common direction
_SPREAD_OF_LOGS = 1.2  # standard deviation of log r over parties
_SPREAD_OF_FACTORS = 0.25  # standard deviation over parties of the log of the length of the common part
_FAINT, _LOUD = 0.4, 0.8  # sizes alone, and directions, are of use up to these lengths of the noise
_ODDS, _BEYOND_DOUBT = 10.0, 4.0  # odds for the shared model; they hold from this many standard deviations on
_DOUBT = 2.0  # decrease of the log odds for each standard deviation less
_SIZE_PART = 0.3  # weight of the size, relative to that of the mean


@dataclass(frozen=True, eq=False)
class Common:
    """What the curator knows about the parties' common model.

    Attributes:
        direction: the mean of the models' directions, shrunk towards 0 by its noise.
        share: squared length of the mean direction: 0 if models have no direction in common, 1 if all have the same.
        size: typical size of a model: the root of the share of labels' variance that it explains.
        size_stddev: the standard deviation of the error of the size.
        doubt: how much lower the log odds for the common model are than they would be for a mean that is certain.
    """

    direction: Floats
    share: float
    size: float
    size_stddev: float
    doubt: float

    @property
    def chance_of_alone(self) -> float:
        """The probability that a party does better alone, before it looks at its rows."""
        return 1 / (1 + _ODDS * math.exp(-self.doubt))

    @property
    def spread(self) -> float:
        """The variance that differences between parties explain, over the variance that is left."""
        return (1 - self.share) ** 2 * self.size**2 / (1 - self.size**2)

    @property
    def spread_of_logs(self) -> float:
        """The standard deviation of log r over parties, including the error of the size."""
        slope = 2 / self.size + 2 * self.size / (1 - self.size**2)
        return math.hypot(_SPREAD_OF_LOGS, slope * self.size_stddev)

    @property
    def spread_of_factors(self) -> float:
        """The standard deviation of log f over parties, including the error of the size."""
        return math.hypot(_SPREAD_OF_FACTORS, self.size_stddev / self.size)

    def within(self, directions: Floats) -> Common:
        """Return the same, with only the part of the mean direction that lies in the span of some directions."""
        basis, _ = np.linalg.qr(directions)
        return replace(self, direction=np.asarray(basis @ (basis.T @ self.direction)))


def moment_weights(dimension: int, reach: float, n_tasks: int) -> MomentWeights:
    """Return the weights of mean and size beside the second moment: a² = 2/d, or 2 if no covariance could be visible.

    A sum of outer products has d times as many entries as a mean. At a² = 2 the outer products cost nothing: the part
    moves no further than twice the length of its mean.

    Args:
        dimension: the number of features d.
        reach: 1/μ, with μ of all rounds together.
        n_tasks: the number of tasks, public.
    """
    covariance = _weights(2 / dimension)
    stddev = reach * math.sqrt(2 + 2 * covariance.mean + covariance.mean**2 / 2 + covariance.size)
    return covariance if n_tasks > stddev * math.sqrt(dimension / 2) else _weights(2.0)


def _weights(mean: float) -> MomentWeights:
    return MomentWeights(min(mean, 2.0), _SIZE_PART * min(mean, 2.0))


def common_of(total: Floats, size: float, stddev: float, size_stddev: float, n_tasks: int) -> Common | None:
    """Return what is known about the common model, or None if the noise hides it.

    Args:
        total: the released sum of directions.
        size: the released sum of sizes.
        stddev: the standard deviation of the noise on every entry of `total`.
        size_stddev: the standard deviation of the noise on `size`.
        n_tasks: the number of tasks, public.
    """
    mean = total / n_tasks
    noise = len(mean) * (stddev / n_tasks) ** 2
    variance = noise + 1 / n_tasks  # the mean of random directions has this squared length
    deviation = variance * math.sqrt(2 / len(mean))
    beyond = float(mean @ mean) - variance
    share = min(max(beyond - _CERTAIN * deviation, 0.0), _LARGEST_SHARE)
    found, error = _believed(size / n_tasks, size_stddev / n_tasks)
    length = math.sqrt(noise)
    if length >= _LOUD or (share == 0 and (length >= _FAINT or error > _SURE_SIZE)):
        return None
    doubt = _DOUBT * max(_BEYOND_DOUBT - beyond / deviation, 0.0) if share > 0 else 0.0
    return Common(mean * (share / (share + variance)), share, found, error, doubt)


def _believed(size: float, stddev: float) -> tuple[float, float]:
    """Return the released mean size, weighed against a typical size, and its error."""
    trust = _SIZE_SPREAD**2 / (_SIZE_SPREAD**2 + stddev**2)
    found = float(np.clip(_SIZE + trust * (size - _SIZE), _LEAST_SIZE, _LARGEST_SIZE))
    return found, math.sqrt(trust) * stddev

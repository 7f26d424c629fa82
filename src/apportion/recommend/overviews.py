"""The number of users and the mean rating, from one or two releases, and from what means of ratings usually are."""

from __future__ import annotations

from dataclasses import dataclass, replace

_NOISE = 2**-0.5  # of the mean over the range, for one user and μ = 1
_STDDEV = 0.01  # of that noise, which is asked for
_USUAL_MEAN, _SPREAD = 0.65, 0.12  # of data sets, over the range


@dataclass(frozen=True)
class Overview:
    """Released numbers.

    Attributes:
        n_users: the number of users.
        centre: the mean of users' mean ratings.
        share: of the budget, that they took.
    """

    n_users: float
    centre: float
    share: float

    def wanted_share(self, mu: float, most: float) -> float:
        """Return the share at which the noise of the mean is a hundredth of the scale, and at most this one.

        >>> Overview(10_000.0, 3.5, 0.003).wanted_share(1.0, 0.05) < 0.003
        True
        >>> Overview(100.0, 3.5, 0.003).wanted_share(1.0, 0.05)
        0.05
        """
        return float(min((_NOISE / (_STDDEV * self.n_users * mu)) ** 2, most))

    def with_another(self, other: Overview) -> Overview:
        """Return the mean of two releases, by their precisions, which are as their shares."""
        total = self.share + other.share
        n_users = (self.share * self.n_users + other.share * other.n_users) / total
        centre = (self.share * self.centre + other.share * other.centre) / total
        return Overview(n_users, centre, total)

    def with_likely_mean(self, value_range: tuple[float, float], mu: float) -> Overview:
        """Return the same with the mean drawn to where means of scales usually are, as far as its noise requires."""
        low, high = value_range
        variance = (_NOISE / (self.n_users * mu)) ** 2 / self.share
        trust = _SPREAD**2 / (_SPREAD**2 + variance)
        place = (self.centre - low) / (high - low)
        return replace(self, centre=low + (high - low) * (_USUAL_MEAN + trust * (place - _USUAL_MEAN)))

"""The error to expect at each ε, before anything is spent: a law fitted on generated data and MovieLens 1M.

For n users, m items and r rows per user, with k = n r / m rows per item and a budget of privacy parameter μ, a fit
loses

    loss = a r^b k^c / (1 + (s / h)^g),        s = μ n r^e / m^d,

as a fraction of the error that the same recommender has with negligible noise (for clicks, of its recall). s measures
how far an item stands out of the noise. The numerator is the most that can be lost. `benchmarks/price_study.py`
measures the losses and fits the six coefficients. The law depends only on sizes. Data of the same size differ, and the
intervals account for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apportion.errors import InputError
from apportion.privacy import Budget

EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
DELTA = 1e-6
_MOST = 0.9  # limit of a loss, whatever the law says


@dataclass(frozen=True)
class Size:
    """Public guesses of the size of the data.

    Attributes:
        users: number of users.
        items: number of items.
        rows: mean number of rows of a user.
    """

    users: float
    items: float
    rows: float

    def __post_init__(self) -> None:
        """Refuse sizes that no data set has."""
        for argument, value in (("users", self.users), ("items", self.items), ("rows_per_user", self.rows)):
            if not (math.isfinite(value) and value >= 1):
                raise InputError(f"Expected {argument} >= 1, got {value:g}.", argument=argument)
        if self.rows > self.items:
            raise InputError(
                f"Expected at most as many rows a user as items ({self.items:g}), got {self.rows:g}.",
                argument="rows_per_user",
            )


@dataclass(frozen=True)
class Law:
    """The coefficients, in the notation above.

    Attributes:
        level: a.
        rows_power: b.
        density_power: c.
        half: h, the signal s at which half of the loss is left.
        steepness: g.
        items_power: d.
        signal_power: e, of rows in the signal.
        spread: nine of ten losses on data that the law had not seen were this close to it.
        users: the least and the most users in the study.
        items: the least and the most items.
        rows: the least and the most rows per user.
    """

    level: float
    rows_power: float
    density_power: float
    half: float
    steepness: float
    items_power: float
    signal_power: float
    spread: float
    users: tuple[float, float]
    items: tuple[float, float]
    rows: tuple[float, float]

    def loss(self, size: Size, mu: float) -> float:
        """Return the expected loss as a fraction."""
        rows, items = math.pow(size.rows, self.signal_power), math.pow(size.items, self.items_power)
        signal: float = mu * size.users * rows / items
        density = size.users * size.rows / size.items
        most = self.level * math.pow(size.rows, self.rows_power) * math.pow(density, self.density_power)
        return min(most / (1 + math.pow(signal / self.half, self.steepness)), _MOST)

    def outside(self, size: Size) -> tuple[str, ...]:
        """Return which of the sizes lie outside the study."""
        studied = {"users": self.users, "items": self.items, "rows": self.rows}
        return tuple(name for name, (low, high) in studied.items() if not low <= getattr(size, name) <= high)


RATINGS = Law(
    level=0.0042,
    rows_power=0.6661,
    density_power=0.1657,
    half=1477.6806,
    steepness=1.0201,
    items_power=0.5129,
    signal_power=1.0,
    spread=0.0134,
    users=(750, 30_000),
    items=(200, 4000),
    rows=(5, 110),
)
"""From `python -m benchmarks.price_study`: 90 losses of 18 sizes, generated and from MovieLens 1M."""

CLICKS = Law(
    level=0.9048,
    rows_power=0.0,
    density_power=0.0,
    half=15.2924,
    steepness=0.6224,
    items_power=0.5,
    signal_power=0.5,
    spread=0.2624,
    users=(749, 30_000),
    items=(200, 4000),
    rows=(8, 82),
)
"""From `python -m benchmarks.price_study --clicks`: 50 losses of 10 sizes. Sizes say little about clicks."""

USUAL = {False: 0.86, True: 0.33}
"""Without privacy on MovieLens 1M: the RMSE of ratings from 1 to 5, and the Recall@20 of clicks."""


@dataclass(frozen=True)
class Expected:
    """What to expect at one ε.

    Attributes:
        epsilon: ε of the fit.
        loss: the fraction by which the error is higher than without privacy, or the recall lower.
        low: the lower end of an interval that held nine of ten losses in the study.
        high: its upper end.
        error: the resulting error or recall.
        interval: the error or recall at both ends of the interval, best first.
    """

    epsilon: float
    loss: float
    low: float
    high: float
    error: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Forecast:
    """What to expect at several ε, and the assumptions behind it.

    Attributes:
        size: the size of the data that it is for.
        clicks: True for clicks, False for ratings.
        delta: δ of the fits.
        without_privacy: the error, or the recall, without privacy.
        expected: one for each ε.
        outside: which sizes lie outside the study.
    """

    size: Size
    clicks: bool
    delta: float
    without_privacy: float
    expected: tuple[Expected, ...]
    outside: tuple[str, ...]

    @property
    def metric(self) -> str:
        """The metric that is forecast."""
        return "Recall@20" if self.clicks else "RMSE"


def forecast(
    size: Size,
    epsilons: Sequence[float] = EPSILONS,
    *,
    delta: float = DELTA,
    clicks: bool = False,
    without_privacy: float | None = None,
) -> Forecast:
    """Return what to expect of private fits to data of this size. No data are needed.

    Args:
        size: public guesses of the size of the data.
        epsilons: the ε of each fit.
        delta: δ of the fits.
        clicks: True if the data are clicks, False if they are ratings.
        without_privacy: the RMSE, or the Recall@20, of a good recommender without privacy; None for that of MovieLens.

    >>> found = forecast(Size(1e6, 2e4, 50), [0.5, 5.0]).expected
    >>> found[1].loss < found[0].loss
    True
    """
    base, law = USUAL[clicks] if without_privacy is None else without_privacy, CLICKS if clicks else RATINGS
    if not (math.isfinite(base) and base > 0):
        raise InputError(f"Expected an error without privacy > 0, got {base:g}.", argument="without_privacy")
    if clicks and base > 1:
        raise InputError(f"Expected a recall without privacy of at most 1, got {base:g}.", argument="without_privacy")
    sign = -1 if clicks else 1
    rows = []
    for epsilon in epsilons:
        loss = law.loss(size, Budget(epsilon, delta).mu)
        low, high = max(loss - law.spread, 0.0), min(loss + law.spread, 1.0)
        errors = [base * (1 + sign * each) for each in (loss, low, high)]
        rows.append(Expected(epsilon, loss, low, high, errors[0], (errors[1], errors[2])))
    return Forecast(size, clicks, delta, base, tuple(rows), law.outside(size))

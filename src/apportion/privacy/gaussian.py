"""Exact Gaussian differential privacy: from μ to (ε, δ) and back.

A Gaussian release with noise standard deviation σ on a sum of L2 sensitivity Δ is μ-GDP with μ = Δ/σ. Such
releases compose exactly, μ² = Σ μ_k², even if each release is chosen after seeing the earlier ones. The profile is

    δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)            (Balle and Wang 2018, Thm 8; Dong, Roth and Su 2022, Cor. 1)

and is tight. All three conversions below err on the private side: a δ is rounded up, a μ down, an ε up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

_RELATIVE_SLACK = 1e-12  # covers the rounding of erfc and exp; their relative errors stay below 1e-13 here
_SMALLEST = 2.0**-1022  # also rounds up an underflow


def delta_of(epsilon: float, mu: float) -> float:
    """Return δ(ε) of a μ-GDP mechanism, rounded up.

    >>> round(delta_of(1.0, 0.5), 6)
    0.00683
    >>> delta_of(1.0, 0.0)
    0.0
    """
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    above = _normal_tail(epsilon / mu - mu / 2)
    below = math.exp(min(epsilon + _log_normal_tail(epsilon / mu + mu / 2), 0.0))
    slack = _RELATIVE_SLACK + 1e-15 * epsilon  # exp(epsilon + ...) loses digits as epsilon grows
    return min(1.0, max(0.0, above - below) + slack * above + _SMALLEST)


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest μ whose profile stays at or below δ at ε, rounded down."""
    return _largest(lambda mu: delta_of(epsilon, mu) <= delta)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 at which a μ-GDP mechanism is (ε, δ)-DP, rounded up."""
    if mu == 0.0 or delta_of(0.0, mu) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    low, high = 0.0, 1.0
    while delta_of(high, mu) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high


def mu_of_pure(epsilon: float) -> float:
    """Return the μ that a pure ε-DP release is charged: μ = −2 Φ⁻¹(1 / (1 + e^ε)), rounded up.

    The trade-off curve of pure ε-DP consists of two straight lines that meet at α = 1/(1 + e^ε). The convex Gaussian
    curve through that corner lies below both, so the release is μ-GDP.
    """
    if epsilon > 600:  # exp would underflow here: the normal tail is below exp(-x²/2)/2
        return 2 * math.sqrt(2 * epsilon) * (1 + _RELATIVE_SLACK)
    if epsilon < 1e-4:  # 1/2 - p would cancel here: the curve lies below its tangent at 0
        return epsilon * math.sqrt(math.pi / 2) * (1 + _RELATIVE_SLACK)
    return -2 * NormalDist().inv_cdf(math.exp(-epsilon) / (1 + math.exp(-epsilon))) * (1 + 1e-9)


def pure_of_mu(mu: float) -> float:
    """Return the largest pure ε whose charge is at most μ: the inverse of `mu_of_pure`, rounded down."""
    return _largest(lambda epsilon: mu_of_pure(epsilon) <= mu, ceiling=600.0)


def _largest(allowed: Callable[[float], bool], ceiling: float = 1e6) -> float:
    """Bisect for the largest argument in (0, ceiling] that is allowed; the result itself is allowed."""
    low, high = 0.0, 1.0
    while high < ceiling and allowed(high):
        low, high = high, min(2 * high, ceiling)
    if allowed(high):
        return high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def _normal_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def _log_normal_tail(x: float) -> float:
    """Return log Φ(−x), by the asymptotic series where erfc would underflow."""
    if x < 30:
        return math.log(_normal_tail(x))
    inverse = 1 / (x * x)
    series = 1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse * (1 - 9 * inverse))))
    return -x * x / 2 - math.log(x * math.sqrt(2 * math.pi)) + math.log(series)

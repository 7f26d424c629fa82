"""What a fixed list of mechanisms costs, and how much noise a budget asks for.

Gaussian releases are composed in closed form (`apportion.privacy.gaussian`). A list with anything else in it is
composed numerically by dp_accounting's privacy loss distributions, whose grid is pessimistic; an allowance in δ covers
the rounding of its convolutions, so that an answer is not below the true cost. The parameters must be fixed beforehand;
a session that decides as it goes charges by the Gaussian-DP filter instead (`apportion.privacy.session`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from apportion.errors import BudgetError, InputError
from apportion.privacy import gaussian, wishart
from apportion.privacy.budget import Budget

_INTERVAL = 1e-4  # grid of the privacy loss; finer is tighter and slower
_LITTLE = 1e-3  # a noise multiplier below this is not considered: no privacy worth the name
_LEAST, _MOST = 1e-9, 1e9  # of a noise multiplier: beyond them arithmetic gives out before meaning does
_LARGEST_LOSS = 1000.0  # composed numerically; more is no privacy, and takes more memory than there is


@dataclass(frozen=True)
class Gaussian:
    """`count` Gaussian releases whose noise is `noise_multiplier` times their L2 sensitivity."""

    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)

    @property
    def mu_squared(self) -> float:
        """The μ² of all of them; no noise costs infinity."""
        return self.count / self.noise_multiplier**2 if self.noise_multiplier else math.inf


@dataclass(frozen=True)
class Laplace:
    """`count` releases of one number with Laplace noise of `noise_multiplier` times its sensitivity."""

    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)


@dataclass(frozen=True)
class Pure:
    """`count` releases known only to be ε-DP: the exponential mechanism, Laplace noise on a vector."""

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.epsilon, self.count)


@dataclass(frozen=True)
class SampledGaussian:
    """`count` Gaussian releases, each on a fresh Poisson sample of the users."""

    noise_multiplier: float
    sampling_probability: float
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        if not 0 < self.sampling_probability <= 1:
            raise InputError(f"Expected a sampling probability in (0, 1], got {self.sampling_probability}.")


@dataclass(frozen=True)
class Wishart:
    """`count` sums of outer products with Wishart noise of scale `noise_multiplier` times a model's squared norm bound.

    Attributes:
        noise_multiplier: s / K².
        spare_degrees: degrees of freedom beyond the dimension less one.
        count: how many.
    """

    noise_multiplier: float
    spare_degrees: int
    count: int = 1

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.count)
        if self.spare_degrees < wishart.LEAST_SPARE:
            least = wishart.LEAST_SPARE
            raise InputError(f"Expected at least {least} spare degrees of freedom, got {self.spare_degrees}.")


Mechanism = Gaussian | Laplace | Pure | SampledGaussian | Wishart
_Point = tuple[float, float]  # a noise multiplier and its excess


def epsilon_of(mechanisms: Sequence[Mechanism], delta: float, interval: float = _INTERVAL) -> float:
    """Return an ε at which the composition is (ε, δ)-DP under add/remove of one user.

    Args:
        mechanisms: what is composed.
        delta: the δ.
        interval: grid of the privacy loss where it is composed numerically; a wider one is faster and says more.

    >>> round(epsilon_of([Gaussian(4.22)], 1e-6), 2)
    1.0
    """
    if not 0 < delta < 1:
        raise InputError(f"Expected delta strictly between 0 and 1, got {delta}.")
    if all(isinstance(m, Gaussian) for m in mechanisms):
        return gaussian.epsilon_of(_gaussian_mu(mechanisms), delta)
    if _is_noiseless(mechanisms):
        return math.inf
    kept = delta - _allowance(mechanisms)
    if kept < 0.99 * delta:
        raise InputError(f"A delta of {delta:g} is too small to compose {_count(mechanisms)} releases numerically.")
    return float(_distribution(mechanisms, interval).get_epsilon_for_delta(kept))


def delta_of(mechanisms: Sequence[Mechanism], epsilon: float) -> float:
    """Return a δ at which the composition is (ε, δ)-DP under add/remove of one user."""
    if all(isinstance(m, Gaussian) for m in mechanisms):
        return gaussian.delta_of(epsilon, _gaussian_mu(mechanisms))
    if _is_noiseless(mechanisms):
        return 1.0
    return float(_distribution(mechanisms, _INTERVAL).get_delta_for_epsilon(epsilon)) + _allowance(mechanisms)


def calibrate(make: Callable[[float], Sequence[Mechanism]], budget: Budget) -> float:
    """Return the smallest noise multiplier z (to 0.01 %) at which `make(z)` stays within the budget.

    The cost of `make(z)` must fall as z grows. The answer itself is within the budget. Losses are on a grid that is
    wider for larger ε, which costs little of it.
    """
    interval = interval_for(budget)

    def excess(z: float) -> float:
        """How far beyond the budget, in the logarithm of ε."""
        if z < _LITTLE or math.fsum(_rough_loss(m) for m in make(z)) > _LARGEST_LOSS:
            return math.inf
        cost = epsilon_of(make(z), budget.delta, interval)
        return math.log(max(cost, 1e-12) / budget.epsilon) if math.isfinite(cost) else math.inf

    low, high = _bracket(excess, budget)
    return _crossing(excess, low, high)


def interval_for(budget: Budget) -> float:
    """A grid of the privacy loss whose rounding is small beside the budget."""
    return _INTERVAL * max(1.0, budget.epsilon / 2)


def _bracket(excess: Callable[[float], float], budget: Budget) -> tuple[_Point, _Point]:
    """Two noise multipliers, one beyond the budget and one within it, a factor of 2 apart."""
    z, at = 1.0, excess(1.0)
    step = 2.0 if at > 0 else 0.5
    while True:
        following = z * step
        if following > 1e6:
            raise BudgetError(f"No noise below 1e6 times the sensitivity fits epsilon = {budget.epsilon}.")
        there = excess(following)
        if (at > 0) != (there > 0):
            return (z, at) if at > 0 else (following, there), (following, there) if at > 0 else (z, at)
        z, at = following, there


def _crossing(excess: Callable[[float], float], low: _Point, high: _Point) -> float:
    """The least noise within the budget, to 0.01 %: the secant in logarithms, kept inside what is known."""
    while high[0] - low[0] > 1e-4 * high[0]:
        middle = math.sqrt(low[0] * high[0])
        if math.isfinite(low[1]):
            part = low[1] / (low[1] - high[1])
            middle = low[0] * (high[0] / low[0]) ** part * (1 + 2e-5)  # beyond the crossing, if the curve is straight
            if not low[0] * (1 + 3e-5) < middle < high[0] * (1 - 3e-5):
                middle = math.sqrt(low[0] * high[0])
        at = excess(middle)
        if at <= 0:
            high = middle, at
            nearer = middle * (1 - 8e-5)  # most often the crossing is just below: one look settles it
            if nearer > low[0] and (below := excess(nearer)) > 0:
                low = nearer, below
        else:
            low = middle, at
    return high[0]


def _gaussian_mu(mechanisms: Sequence[Mechanism]) -> float:
    squares = math.fsum(m.mu_squared for m in mechanisms if isinstance(m, Gaussian))
    return math.sqrt(squares) * (1 + 1e-15)


def _count(mechanisms: Sequence[Mechanism]) -> int:
    return sum(m.count for m in mechanisms)


def _allowance(mechanisms: Sequence[Mechanism]) -> float:
    """More than the rounding of a numerical composition takes from δ: 3e-17 a release was the most ever seen."""
    return 3e-16 * max(_count(mechanisms), 100)


def _is_noiseless(mechanisms: Sequence[Mechanism]) -> bool:
    return any(not isinstance(m, Pure) and m.noise_multiplier == 0 for m in mechanisms)


def _distribution(mechanisms: Sequence[Mechanism], interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if math.fsum(_rough_loss(m) for m in mechanisms) > _LARGEST_LOSS:
        raise InputError("So little noise has no privacy worth composing: its privacy loss is beyond 1000.")
    gaussians = [m for m in mechanisms if isinstance(m, Gaussian)]
    parts = [_one_distribution(m, pld, interval) for m in mechanisms if not isinstance(m, Gaussian)]
    if gaussians:
        total = Gaussian(1 / _gaussian_mu(gaussians))
        parts.append(_one_distribution(total, pld, interval))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return whole


def _rough_loss(mechanism: Mechanism) -> float:
    """About the largest privacy loss that a mechanism puts on the grid."""
    match mechanism:
        case Pure(epsilon, count):
            return epsilon * count
        case Laplace(z, count):
            return count / z
        case Gaussian(z, count) | SampledGaussian(z, _, count):
            return count / (2 * z * z) + 10 * math.sqrt(count) / z
        case Wishart(z, spare_degrees, count):
            return wishart.rough_loss(z, spare_degrees, count)


def _one_distribution(mechanism: Mechanism, pld: Any, interval: float) -> Any:
    grid = {"value_discretization_interval": interval}
    match mechanism:
        case Gaussian(z, _):
            return pld.from_gaussian_mechanism(z, **grid)
        case Laplace(z, count):
            return pld.from_laplace_mechanism(z, **grid).self_compose(count)
        case SampledGaussian(z, probability, count):
            one = pld.from_gaussian_mechanism(z, sampling_prob=probability, **grid)
            return one.self_compose(count)
        case Pure(epsilon, count):
            from dp_accounting.pld.common import DifferentialPrivacyParameters

            one = pld.from_privacy_parameters(DifferentialPrivacyParameters(epsilon, 0.0), **grid)
            return one.self_compose(count)
        case Wishart(z, spare_degrees, count):
            from dp_accounting.pld.pld_pmf import DensePLDPmf

            ways = wishart.losses(z, spare_degrees, interval)
            present, absent = (DensePLDPmf(interval, way.first, way.masses, way.infinite, True) for way in ways)
            return pld.PrivacyLossDistribution(present, absent).self_compose(count)


def _check(parameter: float, count: int) -> None:
    if not (parameter == 0 or _LEAST <= parameter <= _MOST):
        raise InputError(f"Expected a noise multiplier or epsilon of 0 or from {_LEAST} to {_MOST}, got {parameter}.")
    if count < 1:
        raise InputError(f"Expected a count of at least 1, got {count}.")

"""The cost of a fixed list of releases, and the noise that a budget requires.

Gaussian releases are composed in closed form (`apportion.privacy.gaussian`). Any other list is composed numerically by
dp_accounting's privacy loss distributions, whose grid is pessimistic. An allowance in δ covers the rounding of its
convolutions, so that an answer is never below the true cost. All parameters must be fixed in advance. A session that
decides as it goes charges by the Gaussian-DP filter instead (`apportion.privacy.session`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from apportion.errors import BudgetError, InputError
from apportion.privacy import gaussian
from apportion.privacy.budget import Budget

_INTERVAL = 1e-4  # grid of the privacy loss; finer is tighter and slower
_WIDER, _ABOUT = 8.0, 2e-3  # a grid this many times wider finds the noise to about this relative error
_FAR = 1.5  # a search that takes smaller steps than this factor enlarges them as it goes on
_LITTLE = 1e-3  # smaller noise multipliers are not considered: they give no meaningful privacy
_LEAST, _MOST = 1e-9, 1e9  # limits of a noise multiplier: floating-point arithmetic fails beyond them
_LARGEST_LOSS = 1000.0  # largest loss composed numerically: a larger one gives no privacy and needs too much memory


class Part(ABC):
    """`count` releases of one kind, as the accountant sees them. Subclass it to add a kind.

    Attributes:
        count: the number of releases.
    """

    count: int

    @property
    @abstractmethod
    def words(self) -> str:
        """Describe one release in words."""

    @property
    @abstractmethod
    def noiseless(self) -> bool:
        """Whether there is no noise at all. No noise costs infinity."""

    @property
    @abstractmethod
    def rough_loss(self) -> float:
        """Estimate the largest privacy loss that the releases put on the grid."""

    @abstractmethod
    def distribution(self, interval: float) -> Any:
        """Return the privacy loss distribution of all `count` releases on dp_accounting's grid, rounded up."""


@dataclass(frozen=True)
class Gaussian(Part):
    """`count` Gaussian releases whose noise is `noise_multiplier` times their L2 sensitivity."""

    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.count)

    @property
    def words(self) -> str:
        """Return its name and its noise."""
        return f"Gaussian, noise {self.noise_multiplier:g}"

    @property
    def mu_squared(self) -> float:
        """The μ² of all releases together; no noise costs infinity."""
        return self.count / self.noise_multiplier**2 if self.noise_multiplier else math.inf

    @property
    def noiseless(self) -> bool:
        """Whether the noise multiplier is 0."""
        return self.noise_multiplier == 0

    @property
    def rough_loss(self) -> float:
        """The mean of the loss plus ten standard deviations."""
        return _gaussian_loss(self.noise_multiplier, self.count)

    def distribution(self, interval: float) -> Any:
        """Return the distribution of one release with the same μ as all of them together."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        noise = self.noise_multiplier / math.sqrt(self.count)
        return pld.from_gaussian_mechanism(noise, value_discretization_interval=interval)


@dataclass(frozen=True)
class Laplace(Part):
    """`count` releases of one number with Laplace noise of `noise_multiplier` times its sensitivity."""

    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.count)

    @property
    def words(self) -> str:
        """Return its name and its noise."""
        return f"Laplace, noise {self.noise_multiplier:g}"

    @property
    def noiseless(self) -> bool:
        """Whether the noise multiplier is 0."""
        return self.noise_multiplier == 0

    @property
    def rough_loss(self) -> float:
        """The largest possible loss."""
        return self.count / self.noise_multiplier

    def distribution(self, interval: float) -> Any:
        """Return the distribution composed with itself `count` times."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        one = pld.from_laplace_mechanism(self.noise_multiplier, value_discretization_interval=interval)
        return one.self_compose(self.count)


@dataclass(frozen=True)
class Pure(Part):
    """`count` releases known only to be ε-DP: the exponential mechanism, or Laplace noise on a vector."""

    epsilon: float
    count: int = 1
    noiseless: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_noise(self.epsilon, self.count)

    @property
    def words(self) -> str:
        """Return its name and its ε."""
        return f"Pure, epsilon {self.epsilon:g}"

    @property
    def rough_loss(self) -> float:
        """The largest possible loss."""
        return self.epsilon * self.count

    def distribution(self, interval: float) -> Any:
        """Return randomised response, the worst case of all ε-DP releases, composed with itself `count` times."""
        from dp_accounting.pld import privacy_loss_distribution as pld
        from dp_accounting.pld.common import DifferentialPrivacyParameters

        parameters = DifferentialPrivacyParameters(self.epsilon, 0.0)
        one = pld.from_privacy_parameters(parameters, value_discretization_interval=interval)
        return one.self_compose(self.count)


@dataclass(frozen=True)
class SampledGaussian(Part):
    """`count` Gaussian releases, each on a fresh Poisson sample of the users."""

    noise_multiplier: float
    sampling_probability: float
    count: int = 1

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.count)
        if not 0 < self.sampling_probability <= 1:
            raise InputError(
                f"Expected a sampling probability in (0, 1], got {self.sampling_probability}.",
                argument="sampling_probability",
            )

    @property
    def words(self) -> str:
        """Return its name, noise and sampling probability."""
        return f"Gaussian, noise {self.noise_multiplier:g}, sampled at {self.sampling_probability:g}"

    @property
    def noiseless(self) -> bool:
        """Whether the noise multiplier is 0."""
        return self.noise_multiplier == 0

    @property
    def rough_loss(self) -> float:
        """The loss of Gaussian releases on all users."""
        return _gaussian_loss(self.noise_multiplier, self.count)

    def distribution(self, interval: float) -> Any:
        """Return the distribution composed with itself `count` times."""
        from dp_accounting.pld import privacy_loss_distribution as pld

        one = pld.from_gaussian_mechanism(
            self.noise_multiplier, sampling_prob=self.sampling_probability, value_discretization_interval=interval
        )
        return one.self_compose(self.count)


_Point = tuple[float, float]  # a noise multiplier and its excess


def epsilon_of(parts: Sequence[Part], delta: float, interval: float = _INTERVAL) -> float:
    """Return an ε at which the composition is (ε, δ)-DP under add/remove of one user.

    Args:
        parts: the releases to compose.
        delta: the δ.
        interval: grid of the privacy loss in a numerical composition; a wider one is faster but gives a larger ε.

    >>> round(epsilon_of([Gaussian(4.22)], 1e-6), 2)
    1.0
    """
    if not 0 < delta < 1:
        raise InputError(f"Expected delta strictly between 0 and 1, got {delta}.", argument="delta")
    if all(isinstance(part, Gaussian) for part in parts):
        return gaussian.epsilon_of(_gaussian_mu(parts), delta)
    if any(part.noiseless for part in parts):
        return math.inf
    kept = delta - _allowance(parts)
    if kept < 0.99 * delta:
        raise InputError(
            f"A delta of {delta:g} is too small to compose {_count(parts)} releases numerically.", argument="delta"
        )
    with np.errstate(over="ignore"):  # of exp(loss) at losses above 709
        return float(_distribution(parts, interval).get_epsilon_for_delta(kept))


def delta_of(parts: Sequence[Part], epsilon: float) -> float:
    """Return a δ at which the composition is (ε, δ)-DP under add/remove of one user."""
    if all(isinstance(part, Gaussian) for part in parts):
        return gaussian.delta_of(epsilon, _gaussian_mu(parts))
    if any(part.noiseless for part in parts):
        return 1.0
    return float(_distribution(parts, _INTERVAL).get_delta_for_epsilon(epsilon)) + _allowance(parts)


def calibrate(make: Callable[[float], Sequence[Part]], budget: Budget) -> float:
    """Return the smallest noise multiplier z (to 0.01 %) at which `make(z)` stays within the budget.

    The cost of `make(z)` must fall as z grows. The answer itself is within the budget. The grid of the privacy loss is
    wider for larger ε, which costs little accuracy. A first search on a still wider grid, where an evaluation is fast,
    finds roughly where to look.
    """

    def excess_on(interval: float) -> Callable[[float], float]:
        def excess(z: float) -> float:
            """Return how far `make(z)` is beyond the budget, in the logarithm of ε."""
            if z < _LITTLE or math.fsum(part.rough_loss for part in make(z)) > _LARGEST_LOSS:
                return math.inf
            cost = epsilon_of(make(z), budget.noise_delta, interval)
            return math.log(max(cost, 1e-12) / budget.epsilon) if math.isfinite(cost) else math.inf

        return excess

    roughly = excess_on(_WIDER * interval_for(budget))
    about = _crossing(roughly, *_bracket(roughly, budget, 1.0, 2.0), _ABOUT)
    excess = excess_on(interval_for(budget))
    return _crossing(excess, *_bracket(excess, budget, about, 1 + 2 * _ABOUT), 1e-4)


def interval_for(budget: Budget) -> float:
    """Return a grid of the privacy loss whose rounding is small relative to the budget."""
    return _INTERVAL * max(1.0, budget.epsilon / 2)


def _bracket(excess: Callable[[float], float], budget: Budget, start: float, factor: float) -> tuple[_Point, _Point]:
    """Return two noise multipliers, at least this factor apart: one exceeds the budget and the other fits it."""
    z, at = start, excess(start)
    step = factor if at > 0 else 1 / factor
    while True:
        following = z * step
        if following > 1e6:
            raise BudgetError(f"No noise below 1e6 times the sensitivity fits epsilon = {budget.epsilon}.")
        there = excess(following)
        if (at > 0) != (there > 0):
            return (z, at) if at > 0 else (following, there), (following, there) if at > 0 else (z, at)
        z, at = following, there
        step = step**2 if factor < _FAR else step


def _crossing(excess: Callable[[float], float], low: _Point, high: _Point, within: float) -> float:
    """Return the least noise that fits the budget, to this relative error.

    The search is a bracketed secant search in logarithms.
    """
    while high[0] - low[0] > within * high[0]:
        middle = math.sqrt(low[0] * high[0])
        if math.isfinite(low[1]):
            part = low[1] / (low[1] - high[1])
            middle = low[0] * (high[0] / low[0]) ** part
            middle *= 1 + 0.2 * within  # beyond the crossing, if the curve is straight
            if not low[0] * (1 + 0.3 * within) < middle < high[0] * (1 - 0.3 * within):
                middle = math.sqrt(low[0] * high[0])
        at = excess(middle)
        if at <= 0:
            high = middle, at
            nearer = middle * (1 - 0.8 * within)  # the crossing is usually just below; one more evaluation confirms it
            if nearer > low[0] and (below := excess(nearer)) > 0:
                low = nearer, below
        else:
            low = middle, at
    return high[0]


def _gaussian_mu(parts: Sequence[Part]) -> float:
    squares = math.fsum(part.mu_squared for part in parts if isinstance(part, Gaussian))
    return math.sqrt(squares) * (1 + 1e-15)


def _count(parts: Sequence[Part]) -> int:
    return sum(part.count for part in parts)


def _allowance(parts: Sequence[Part]) -> float:
    """Bound the δ that rounding in a numerical composition can use up; the largest seen was 3e-17 per release."""
    return 3e-16 * max(_count(parts), 100)


def _distribution(parts: Sequence[Part], interval: float) -> Any:
    if math.fsum(part.rough_loss for part in parts) > _LARGEST_LOSS:
        raise InputError(
            "Expected a privacy loss of at most 1000 for a numerical composition; with so little noise it is larger.",
            argument=None,
        )
    result = [part.distribution(interval) for part in parts if not isinstance(part, Gaussian)]
    gaussians = [part for part in parts if isinstance(part, Gaussian)]
    if gaussians:
        result.append(Gaussian(1 / _gaussian_mu(gaussians)).distribution(interval))
    whole = result[0]
    for each in result[1:]:
        whole = whole.compose(each)
    return whole


def _gaussian_loss(noise_multiplier: float, count: int) -> float:
    return count / (2 * noise_multiplier**2) + 10 * math.sqrt(count) / noise_multiplier


def check_noise(parameter: float, count: int) -> None:
    """Refuse an invalid noise multiplier, ε or count."""
    if not (parameter == 0 or _LEAST <= parameter <= _MOST):
        raise InputError(
            f"Expected a noise multiplier or epsilon of 0 or from {_LEAST} to {_MOST}, got {parameter}.", argument=None
        )
    if count < 1:
        raise InputError(f"Expected a count of at least 1, got {count}.", argument="count")

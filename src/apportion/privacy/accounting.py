"""What a fixed list of mechanisms costs, and how much noise a budget asks for.

Gaussian releases are composed in closed form (`apportion.privacy.gaussian`). A list with anything else in it is
composed numerically by dp_accounting's privacy loss distributions, whose rounding is pessimistic, so an answer is
never below the true cost. The parameters must be fixed beforehand; a session that decides as it goes charges by
the Gaussian-DP filter instead (`apportion.privacy.session`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from apportion.errors import BudgetError, InputError
from apportion.privacy import gaussian
from apportion.privacy.budget import Budget

_INTERVAL = 1e-4  # grid of the privacy loss; finer is tighter and slower
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


Mechanism = Gaussian | Laplace | Pure | SampledGaussian


def epsilon_of(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Return an ε at which the composition is (ε, δ)-DP under add/remove of one user.

    >>> round(epsilon_of([Gaussian(4.22)], 1e-6), 2)
    1.0
    """
    if not 0 < delta < 1:
        raise InputError(f"Expected delta strictly between 0 and 1, got {delta}.")
    if all(isinstance(m, Gaussian) for m in mechanisms):
        return gaussian.epsilon_of(_gaussian_mu(mechanisms), delta)
    if _is_noiseless(mechanisms):
        return math.inf
    return float(_distribution(mechanisms).get_epsilon_for_delta(delta))


def delta_of(mechanisms: Sequence[Mechanism], epsilon: float) -> float:
    """Return a δ at which the composition is (ε, δ)-DP under add/remove of one user."""
    if all(isinstance(m, Gaussian) for m in mechanisms):
        return gaussian.delta_of(epsilon, _gaussian_mu(mechanisms))
    if _is_noiseless(mechanisms):
        return 1.0
    return float(_distribution(mechanisms).get_delta_for_epsilon(epsilon))


def calibrate(make: Callable[[float], Sequence[Mechanism]], budget: Budget) -> float:
    """Return the smallest noise multiplier z (to 0.01 %) at which `make(z)` stays within the budget.

    The cost of `make(z)` must fall as z grows. The answer itself is within the budget.
    """
    low, high = 0.0, 1.0
    while epsilon_of(make(high), budget.delta) > budget.epsilon:
        low, high = high, 2 * high
        if high > 1e6:
            raise BudgetError(f"No noise below 1e6 times the sensitivity fits epsilon = {budget.epsilon}.")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        fits = epsilon_of(make(middle), budget.delta) <= budget.epsilon if middle > 1e-3 else False
        low, high = (low, middle) if fits else (middle, high)
    return high


def _gaussian_mu(mechanisms: Sequence[Mechanism]) -> float:
    squares = math.fsum(m.mu_squared for m in mechanisms if isinstance(m, Gaussian))
    return math.sqrt(squares) * (1 + 1e-15)


def _is_noiseless(mechanisms: Sequence[Mechanism]) -> bool:
    return any(not isinstance(m, Pure) and m.noise_multiplier == 0 for m in mechanisms)


def _distribution(mechanisms: Sequence[Mechanism]) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    if math.fsum(_rough_loss(m) for m in mechanisms) > _LARGEST_LOSS:
        raise InputError("So little noise has no privacy worth composing: its privacy loss is beyond 1000.")
    gaussians = [m for m in mechanisms if isinstance(m, Gaussian)]
    parts = [_one_distribution(m, pld) for m in mechanisms if not isinstance(m, Gaussian)]
    if gaussians:
        total = Gaussian(1 / _gaussian_mu(gaussians))
        parts.append(_one_distribution(total, pld))
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


def _one_distribution(mechanism: Mechanism, pld: Any) -> Any:
    grid = {"value_discretization_interval": _INTERVAL}
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


def _check(parameter: float, count: int) -> None:
    if not (parameter == 0 or _LEAST <= parameter <= _MOST):
        raise InputError(f"Expected a noise multiplier or epsilon of 0 or from {_LEAST} to {_MOST}, got {parameter}.")
    if count < 1:
        raise InputError(f"Expected a count of at least 1, got {count}.")

"""The Rényi filter, for accounts that also cover runs on Poisson samples of the users, and selections among tries.

Each order α keeps its own sum of Rényi-DP parameters ρ(α) and its own allowance. A charge is allowed while at least
one order stays within its allowance. Which order that is may depend on what was released, so δ is divided among the
orders; giving each order the whole δ would be wrong (docs/proofs/ledger.md has an attack). So there are few orders, all
of them whole numbers, for which the ρ of a sampled release is a finite sum of positive terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

from apportion.errors import InputError
from apportion.privacy.budget import Budget
from apportion.privacy.ledger.events import Event, GaussianRelease, ListedRelease, PureRelease, SampledRun, SelectionRun
from apportion.privacy.ledger.filters import Amounts, Filter, above, added, no_keys
from apportion.privacy.selection import Law, Tries, divergence

_LARGEST_ORDER = 1024
_PLACES = (
    1.0,
    0.7,
    0.5,
)  # fractions between order 1 and the best order for Gaussian releases; samples do better with lower orders
_SLACK = 1e-12  # relative; exceeds the rounding of a few logarithms
_SUM_SLACK = 1e-10  # in the logarithm of a sampled release's moment, whose terms are rounded


class RenyiFilter(Filter):
    """Allows charges while at least one order α has Σ ρ(α) within its allowance."""

    kind = "renyi"

    def __init__(self, budget: Budget, orders: Sequence[int] | None = None) -> None:
        if budget.pure:
            raise InputError("Expected a delta above 0 for an account of kind 'renyi', got 0.", argument="delta")
        self.orders = _checked(orders) if orders is not None else default_orders(budget)
        self._delta = budget.noise_delta / len(self.orders)
        allowances = tuple(allowance(order, budget.epsilon, self._delta) for order in self.orders)
        super().__init__(budget, allowances, tuple(f"order {order}" for order in self.orders))
        if not any(total > 0 for total in self.totals):
            raise InputError(
                f"Expected an epsilon that one of the orders {', '.join(map(str, self.orders))} can reach at delta "
                f"{budget.noise_delta:g}, got {budget.epsilon:g}.",
                argument="epsilon",
            )

    def cost(self, event: Event) -> Amounts:
        """Return ρ at each order, never below the truth. Beyond an allowance the exact value does not matter."""
        whole = self._gaussian(event.mus) if isinstance(event, SampledRun) else self.nothing
        costs = added(whole, self._cost(event))
        return tuple(map(min, costs, self._beyond))

    @property
    def _beyond(self) -> Amounts:
        return tuple(abs(total) + 1 for total in self.totals)

    def _cost(self, event: Event) -> Amounts:
        match event:
            case GaussianRelease(mu):
                return self._gaussian((mu,))
            case PureRelease(epsilon):
                exact = Fraction(epsilon)
                return tuple(min(exact, order * exact**2 / 2) for order in self.orders)
            case SampledRun(_, noise, probability, steps):
                result = zip(sampled_divergences(noise, probability, self.orders), self._beyond, strict=True)
                return tuple(steps * Fraction(rho) if math.isfinite(rho) else beyond for rho, beyond in result)
            case ListedRelease():
                raise no_keys()
            case SelectionRun(mu, mean, law):
                tries = Tries(mean, cast(Law, law))
                return tuple(Fraction(divergence(order, mu, tries)) for order in self.orders)

    def _gaussian(self, mus: Sequence[float]) -> Amounts:
        squares = sum((Fraction(mu) ** 2 for mu in mus), Fraction(0))
        return tuple(order * squares / 2 for order in self.orders)

    def spent_epsilon(self, spent: Amounts) -> float:
        """Return the least ε over all orders."""
        if not any(spent):
            return 0.0
        return max(
            0.0, min(epsilon_at(order, above(rho), self._delta) for order, rho in zip(self.orders, spent, strict=True))
        )

    def spent_mu(self, spent: Amounts) -> float | None:
        """Return None: μ is not counted here."""
        return None

    def gaussian_left(self, spent: Amounts) -> Fraction:
        """Return 2/α times what is left, at the best order."""
        left = (2 * (total - rho) / order for order, rho, total in zip(self.orders, spent, self.totals, strict=True))
        return max(Fraction(0), *left)

    def covers(self, budget: Budget, spent: Amounts) -> bool:
        """Return True: a run on samples may cost less or more than Gaussian releases of the same budget."""
        return True

    def most(self, budget: Budget) -> Amounts | None:
        """Return None, for the same reason."""
        return None


def allowance(order: int, epsilon: float, delta: float) -> Fraction:
    """Return the largest ρ at which (order, ρ)-RDP is (ε, δ)-DP, rounded down; it may be negative."""
    return Fraction(epsilon) - Fraction(_conversion(order, delta))


def epsilon_at(order: int, rho: float, delta: float) -> float:
    """Return the ε of (order, ρ)-RDP at δ, rounded up."""
    return rho * (1 + _SLACK) + _conversion(order, delta)


def default_orders(budget: Budget) -> tuple[int, ...]:
    """Return the best order for Gaussian releases, and smaller ones, which are better for small samples."""
    delta = budget.noise_delta / len(_PLACES)
    best = max(range(2, _LARGEST_ORDER + 1), key=lambda order: allowance(order, budget.epsilon, delta) / order)
    near = {max(2, round(1 + (best - 1) * place)) for place in _PLACES}
    return tuple(sorted(order for order in near if order == best or allowance(order, budget.epsilon, delta) > 0))


def sampled_divergences(noise: float, probability: float, orders: Sequence[int]) -> list[float]:
    """Return ρ at whole orders of one Gaussian release on a Poisson sample, by dp_accounting, rounded up."""
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(orders))
    accountant.compose(dp_event.PoissonSampledDpEvent(probability, dp_event.GaussianDpEvent(noise)))
    result = zip(orders, accountant.rdp, strict=True)
    return [float(rho) * (1 + _SLACK) + _SUM_SLACK / (order - 1) for order, rho in result]


def _conversion(order: int, delta: float) -> float:
    """Return what ε adds to ρ: log(1 − 1/α) − (log δ + log α)/(α − 1), rounded up."""
    terms = math.log1p(-1 / order), -math.log(delta) / (order - 1), -math.log(order) / (order - 1)
    return math.fsum(terms) + _SLACK * math.fsum(map(abs, terms))


def _checked(orders: Sequence[int]) -> tuple[int, ...]:
    given = tuple(sorted(set(orders)))
    if not given or any(order != int(order) or not 2 <= order <= _LARGEST_ORDER for order in given):
        raise InputError(f"Expected whole orders from 2 to {_LARGEST_ORDER}, got {tuple(orders)}.", argument="orders")
    return tuple(int(order) for order in given)

"""The cost of making several tries and keeping the best: private selection with a random number of tries.

One try is a private run that returns a result with a score. A selection draws K, makes K independent tries of the same
kind, and returns the one with the best score and nothing about the others. K follows a truncated negative binomial law

    P[K = k] = γ (1 − γ)^(k − 1)             geometric     (η = 1)
    P[K = k] = (1 − γ)^k / (k log(1/γ))      logarithmic   (η = 0)

If one try is μ-GDP, the selection has at every order λ > 1 a Rényi divergence of at most

    λ μ²/2 + (1 + η) log(Φ(Φ⁻¹(γ) + μ) / γ) + log E[K] / (λ − 1).

This is Theorem 2 of Papernot and Steinke, "Hyperparameter Tuning with Rényi Differential Privacy" (ICLR 2022). Its
middle term is taken from the Gaussian trade-off curve instead of a second Rényi order, which is never larger
(docs/proofs/selection.md). Everything errs on the private side: a divergence and an ε are rounded up, a μ down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.privacy import gaussian
from apportion.privacy.budget import Budget
from apportion.privacy.noise import NoiseSource

Law = Literal["geometric", "logarithmic"]

_ETA: Final[dict[Law, int]] = {"geometric": 1, "logarithmic": 0}
_SLACK = 1e-10  # relative; exceeds the rounding of a few logarithms and of the inverse normal distribution function
_ORDERS: Final = 1 + np.geomspace(1e-3, 1e6, 2001)
_LEAST_MU: Final = 1e-12
_LEAST_EPSILON: Final = 1e-9  # least ε of a budget; with a large δ even that buys some μ
_FEWEST_TRIES: Final = 1.1  # on average
_MOST_TRIES: Final = 10_000.0


@dataclass(frozen=True)
class Tries:
    """The distribution of the number of tries K. It is public and does not depend on the data.

    Args:
        mean: E[K], at least 1.1.
        law: the shape of the distribution. A geometric number costs more and is rarely far below its mean. A
            logarithmic one costs less and is often 1.

    >>> Tries(10.0).gamma
    0.1
    """

    mean: float
    law: Law = "geometric"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", float(self.mean))
        if self.law not in _ETA:
            raise InputError(f"Expected a law among {', '.join(_ETA)}, got {self.law!r}.", argument="law")
        if not _FEWEST_TRIES <= self.mean <= _MOST_TRIES:
            raise InputError(
                f"Expected a mean number of tries from {_FEWEST_TRIES:g} to {_MOST_TRIES:g}, got {self.mean:g}.",
                argument="mean",
            )

    @property
    def eta(self) -> int:
        """η of the negative binomial law."""
        return _ETA[self.law]

    @property
    def gamma(self) -> float:
        """γ of the law; it is small if there are many tries."""
        if self.law == "geometric":
            return 1 / self.mean
        return _logarithmic_gamma(self.mean)

    @property
    def log_mean(self) -> float:
        """The logarithm of E[K], for the law as drawn."""
        return math.log(self.mean if self.law == "geometric" else _logarithmic_mean(self.gamma))

    def probability(self, k: int) -> float:
        """Return P[K = k]."""
        if k < 1:
            return 0.0
        gamma = self.gamma
        if self.law == "geometric":
            return gamma * (1 - gamma) ** (k - 1)
        return float((1 - gamma) ** k / (k * -math.log(gamma)))

    def draw(self, noise: NoiseSource) -> int:
        """Draw one K by inverting the distribution function at a uniform number of 52 bits."""
        left, k, gamma = float(noise.uniform(1)[0]), 1, self.gamma
        term = self.probability(1)
        while left > term > 1e-18:
            left -= term
            term *= (1 - gamma) * (1.0 if self.law == "geometric" else k / (k + 1))
            k += 1
        return k


@dataclass(frozen=True)
class SelectionCost:
    """The cost of a selection, and of one of its tries.

    Attributes:
        tries: the law of the number of tries.
        one_try: the budget of one try: its ε at the same δ, as if nothing had been tuned.
        epsilon: the ε of the whole selection, at `delta`.
        delta: the δ of both.
        order: the Rényi order from which ε follows.
    """

    tries: Tries
    one_try: Budget
    epsilon: float
    delta: float
    order: float


def divergence(order: float, mu: float, tries: Tries) -> float:
    """Return the Rényi divergence of a selection among μ-GDP tries at one order above 1, rounded up.

    It is at most that of any larger order. The formula is least at 1 + √(2 log E[K]) / μ.
    """
    least = 1 + math.sqrt(2 * max(tries.log_mean, 0.0)) / mu
    return float(_divergences(np.array([order, max(order, least)]), mu, tries).min())


def epsilon_of(mu: float, delta: float, tries: Tries) -> float:
    """Return the ε at δ of a selection among μ-GDP tries, rounded up."""
    return _best(mu, delta, tries)[0]


def calibrate(budget: Budget, tries: Tries) -> SelectionCost:
    """Return the most that one try may cost if the selection is to stay within the budget.

    >>> calibrate(Budget(1.0, 1e-6), Tries(10)).one_try.epsilon  # doctest: +ELLIPSIS
    0.48...
    """
    low, high = _LEAST_MU, budget.mu  # a selection costs more than one try
    if _as_budget(low, budget.delta, tries)[1] > budget.epsilon:
        raise InputError(
            f"Expected an epsilon that pays for {tries.mean:g} tries on average at delta {budget.delta:g}, got "
            f"{budget.epsilon:g}.",
            argument="epsilon",
        )
    while high - low > 1e-7 * high:  # the low end always fits
        middle = (low + high) / 2
        low, high = (middle, high) if _as_budget(middle, budget.delta, tries)[1] <= budget.epsilon else (low, middle)
    one_try, epsilon, order = _as_budget(low, budget.delta, tries)
    return SelectionCost(tries, one_try, epsilon, budget.delta, order)


def _as_budget(mu: float, delta: float, tries: Tries) -> tuple[Budget, float, float]:
    """Turn a μ for one try into a budget. Return it with the selection's cost at the μ that this budget really has."""
    one_try = Budget(max(gaussian.epsilon_of(mu, delta), _LEAST_EPSILON), delta)
    epsilon, order = _best(one_try.mu, delta, tries)
    return one_try, epsilon, order


def _best(mu: float, delta: float, tries: Tries) -> tuple[float, float]:
    """Return the least ε over all orders, and its order. Everything is fixed in advance, so the best order may be used.

    (λ, ρ)-RDP is (ε, δ)-DP with ε = ρ + log(1 − 1/λ) − (log δ + log λ)/(λ − 1)    (Canonne, Kamath, Steinke 2020).
    """
    beyond = np.stack([np.log1p(-1 / _ORDERS), -math.log(delta) / (_ORDERS - 1), -np.log(_ORDERS) / (_ORDERS - 1)])
    result = _divergences(_ORDERS, mu, tries) + beyond.sum(axis=0) + _SLACK * np.abs(beyond).sum(axis=0)
    best = int(np.argmin(result))
    return max(0.0, float(result[best])), float(_ORDERS[best])


def _divergences(orders: NDArray[np.float64], mu: float, tries: Tries) -> NDArray[np.float64]:
    if not (math.isfinite(mu) and mu > 0 and (orders > 1).all()):
        raise InputError(
            f"Expected a finite mu above 0 and orders above 1, got {mu} and {orders.min()}.", argument=None
        )
    one = orders * mu**2 / 2
    chosen = (1 + tries.eta) * _log_ratio(tries.gamma, mu)
    return np.asarray((one + chosen + tries.log_mean / (orders - 1)) * (1 + _SLACK))


def _log_ratio(gamma: float, mu: float) -> float:
    """Return the largest growth of log P[E] between neighbours, for a μ-GDP event E with P[E] = γ, rounded up."""
    raised = 0.5 * math.erfc(-(NormalDist().inv_cdf(gamma) + mu) / math.sqrt(2))
    return math.log(raised / gamma) + _SLACK * (1 + mu)


@lru_cache(maxsize=64)
def _logarithmic_gamma(mean: float) -> float:
    """Return the γ of the logarithmic law with this mean, or with a mean that is negligibly smaller."""
    low, high = 1e-9, 1 - 1e-12  # the mean decreases in γ
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _logarithmic_mean(middle) > mean else (low, middle)
    return high


def _logarithmic_mean(gamma: float) -> float:
    return (1 / gamma - 1) / -math.log(gamma)

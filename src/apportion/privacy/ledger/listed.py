"""An account that reserves a part of δ for lists of private keys. Their parts of δ add up, beside the cost of noise.

Both must stay within what was reserved for them when the account was opened (docs/proofs/keys.md).
"""

from __future__ import annotations

from fractions import Fraction

from apportion.privacy.budget import Budget
from apportion.privacy.ledger.events import Event, ListedRelease
from apportion.privacy.ledger.filters import Amounts, Filter, below


class FilterWithKeys(Filter):
    """The amounts that noise adds up to and, as a last amount, Σ δ of the lists of keys.

    Args:
        noise: the filter for noise.
    """

    def __init__(self, noise: Filter) -> None:
        self.noise = noise
        self.kind = noise.kind
        kept = Fraction(noise.budget.keys_delta)
        super().__init__(noise.budget, (*noise.totals, kept), (*noise.measures, "delta for lists of keys"))

    def allows(self, spent: Amounts) -> bool:
        """Whether the noise is within its total, and the lists are within theirs."""
        self.noise.totals = self.totals[:-1]
        return self.noise.allows(spent[:-1]) and spent[-1] <= self.totals[-1]

    def cost(self, event: Event) -> Amounts:
        """Return what the noise costs, and the part of δ."""
        if isinstance(event, ListedRelease):
            return (*self.noise.cost(event.noisy), Fraction(event.delta))
        return (*self.noise.cost(event), Fraction(0))

    def spent_epsilon(self, spent: Amounts) -> float:
        """Return the ε of the noise."""
        return self.noise.spent_epsilon(spent[:-1])

    def spent_mu(self, spent: Amounts) -> float | None:
        """Return the μ of the noise."""
        return self.noise.spent_mu(spent[:-1])

    def gaussian_left(self, spent: Amounts) -> Fraction:
        """Return what is left for noise."""
        self.noise.totals = self.totals[:-1]
        return self.noise.gaussian_left(spent[:-1])

    def budget_within(self, fraction: float, spent: Amounts) -> Budget:
        """Return the budget for noise, with the same fraction of what is left for lists."""
        found = self.noise.budget_within(fraction, spent[:-1])
        keys = below(Fraction(fraction) * (self.totals[-1] - spent[-1]))
        return Budget(found.epsilon, found.noise_delta + max(keys, 0.0), max(keys, 0.0))

    def covers(self, budget: Budget, spent: Amounts) -> bool:
        """Whether the noise of a session fits, and the δ that the session reserves for lists."""
        return self.noise.covers(budget, spent[:-1]) and Fraction(budget.keys_delta) <= self.totals[-1] - spent[-1]

    def most(self, budget: Budget) -> Amounts | None:
        """Return the most for noise, and the δ that the session reserves for lists."""
        noise = self.noise.most(budget)
        return None if noise is None else (*noise, Fraction(budget.keys_delta))

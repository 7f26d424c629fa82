"""An account that keeps a part of δ for lists of private keys: their parts add up, beside what noise costs.

Both must stay within what was kept for them when the account was opened (docs/proofs/keys.md).
"""

from __future__ import annotations

from fractions import Fraction

from apportion.privacy.budget import Budget
from apportion.privacy.ledger.events import Event, ListedRelease
from apportion.privacy.ledger.filters import Amounts, Filter, below


class FilterWithKeys(Filter):
    """What the noise of an account adds up to, and as a last amount Σ δ of lists of keys.

    Args:
        noise: the filter for noise.
    """

    def __init__(self, noise: Filter) -> None:
        self.noise = noise
        self.kind = noise.kind
        kept = Fraction(noise.budget.keys_delta)
        super().__init__(noise.budget, (*noise.totals, kept), (*noise.measures, "delta for lists of keys"))

    def allows(self, spent: Amounts) -> bool:
        """Whether noise is within its total, and lists within theirs."""
        self.noise.totals = self.totals[:-1]
        return self.noise.allows(spent[:-1]) and spent[-1] <= self.totals[-1]

    def cost(self, event: Event) -> Amounts:
        """What noise costs, and the part of δ."""
        if isinstance(event, ListedRelease):
            return (*self.noise.cost(event.noisy), Fraction(event.delta))
        return (*self.noise.cost(event), Fraction(0))

    def spent_epsilon(self, spent: Amounts) -> float:
        """That of noise."""
        return self.noise.spent_epsilon(spent[:-1])

    def spent_mu(self, spent: Amounts) -> float | None:
        """That of noise."""
        return self.noise.spent_mu(spent[:-1])

    def gaussian_left(self, spent: Amounts) -> Fraction:
        """What noise has left."""
        self.noise.totals = self.totals[:-1]
        return self.noise.gaussian_left(spent[:-1])

    def budget_within(self, fraction: float, spent: Amounts) -> Budget:
        """That of noise, with the same fraction of what is left for lists."""
        found = self.noise.budget_within(fraction, spent[:-1])
        keys = below(Fraction(fraction) * (self.totals[-1] - spent[-1]))
        return Budget(found.epsilon, found.noise_delta + max(keys, 0.0), max(keys, 0.0))

    def covers(self, budget: Budget, spent: Amounts) -> bool:
        """Whether noise fits, and what the session keeps for lists."""
        return self.noise.covers(budget, spent[:-1]) and Fraction(budget.keys_delta) <= self.totals[-1] - spent[-1]

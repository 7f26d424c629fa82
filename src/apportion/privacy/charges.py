"""A charge and its release: the account that records the charge, the release that waits for its draw, its opening."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from apportion.errors import BudgetError
from apportion.privacy import gaussian
from apportion.privacy.bounded_sum import _KEY
from apportion.privacy.budget import Budget, Share
from apportion.privacy.keys import KeyedSum
from apportion.privacy.ledger.events import Event, GaussianRelease, ListedRelease, PureRelease, Receipt
from apportion.privacy.mechanisms import Mechanism, Opened, PlannedShare, Statistic
from apportion.privacy.purposes import ReleaseName
from apportion.privacy.ranks import RankScores
from apportion.privacy.statement import LedgerReference, Release


class LedgerAccount(Protocol):
    """A durable record of charges. It refuses by raising, before anything is drawn.

    If it has `neighbours`, it accepts only sessions for that relation.
    """

    def charge(self, name: str, event: Event) -> Receipt | None:
        """Record that a release is about to be drawn."""


@dataclass(frozen=True, eq=False)
class Pending:
    """A release that has been charged but not yet drawn.

    Attributes:
        release: the release as the statement lists it.
        mechanism: the mechanism that will draw it.
        statistic: the hidden statistic.
        scale: the scale of the noise.
    """

    release: Release
    mechanism: Mechanism[Any]
    statistic: Statistic
    scale: float


def opened(statistic: Statistic, exact: bool) -> Opened:
    """Open a statistic for a draw. In exact arithmetic, return it in whole steps of its lattice."""
    if isinstance(statistic, RankScores):
        return Opened(statistic._reveal(_KEY))
    if isinstance(statistic, KeyedSum):
        return Opened(statistic._reveal(_KEY, steps=exact), step=statistic.step if exact else None)
    if statistic.in_shares:
        return Opened(None, statistic.scales, statistic.step, statistic._drawn)
    if exact and statistic.step is not None:
        return Opened(statistic._reveal_steps(_KEY), statistic.scales, statistic.step)
    return Opened(statistic._reveal(_KEY), statistic.scales, dtype=statistic.dtype, room=statistic.room)


def recorded(
    name: ReleaseName, mechanism: Mechanism[Any], statistic: Statistic, share: Any, scale: float, budget: Budget
) -> Release:
    """The release as the statement lists it. Refuse one without noise."""
    stddev, mu = mechanism.stddev(statistic, scale), _mu_of(share, budget)
    epsilon = share.pure_epsilon if mechanism.pure else None
    if not 0 < stddev < math.inf:
        raise BudgetError(f"Expected a share of this session's budget that buys finite noise, got {share}.")
    planned = isinstance(share, PlannedShare)
    return Release(
        name=name.text,
        purpose=name.purpose,
        stage=name.stage,
        mechanism=mechanism.key,
        mechanism_words=mechanism.words,
        shape=statistic.shape,
        share=share.fraction if planned else _cost(mu, epsilon, budget) / worth(budget),
        mu=mu,
        sensitivity=mechanism.sensitivity(statistic),
        derivation=statistic.derivation,
        stddev=stddev,
        epsilon=epsilon,
        delta=mechanism.delta,
        threshold=mechanism.threshold(statistic, scale),
    )


def worth(budget: Budget) -> float:
    """The size of the whole budget: its μ², or its ε if it is pure."""
    return budget.epsilon if budget.pure else budget.mu**2


def cost_of(record: Release, budget: Budget) -> float:
    """Return what a release takes from the budget, in the same unit."""
    return _cost(record.mu, record.epsilon, budget)


def _cost(mu: float | None, epsilon: float | None, budget: Budget) -> float:
    amount = epsilon if budget.pure else mu
    assert amount is not None  # shares of the other kind, and planned ones, never get here
    return amount if budget.pure else amount**2


def _mu_of(share: Share | PlannedShare[Any], budget: Budget) -> float | None:
    """Return the Gaussian-DP parameter of a release that takes the share, or a bound on it."""
    if isinstance(share, PlannedShare):
        stated: float | None = share.mechanism.mu(share.noise_multiplier)
        return stated
    return gaussian.mu_of_pure(share.pure_epsilon) if budget.pure else share.mu


def event_of(record: Release) -> Event:
    """Return the event that a ledger is charged for an unplanned release."""
    assert record.mu is not None
    noisy = GaussianRelease(record.mu) if record.epsilon is None else PureRelease(record.epsilon)
    return ListedRelease(noisy, record.delta) if record.delta else noisy


def reference_to(receipts: Sequence[Receipt]) -> LedgerReference | None:
    """Return the reference to the recorded charges, for the statement; None if no ledger was charged."""
    if not receipts:
        return None
    last = receipts[-1]
    return LedgerReference(last.account, last.run, len(receipts), last.number, last.hash)

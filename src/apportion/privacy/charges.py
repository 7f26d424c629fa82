"""A charge and its release: the account that records it, the release that waits for its draw, and how it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from apportion.privacy.bounded_sum import _KEY
from apportion.privacy.keys import KeyedSum
from apportion.privacy.ledger.events import Event, GaussianRelease, ListedRelease, PureRelease, Receipt
from apportion.privacy.mechanisms import Mechanism, Opened, Statistic
from apportion.privacy.ranks import RankScores
from apportion.privacy.statement import Release


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
    """Open a statistic for a draw; in exact arithmetic, as whole numbers of steps."""
    if isinstance(statistic, RankScores):
        return Opened(statistic._reveal(_KEY))
    if isinstance(statistic, KeyedSum):
        return Opened(statistic._reveal(_KEY, steps=exact), step=statistic.step if exact else None)
    if statistic.in_shares:
        return Opened(None, statistic.scales, statistic.step, statistic._drawn)
    if exact and statistic.step is not None:
        return Opened(statistic._reveal_steps(_KEY), statistic.scales, statistic.step)
    return Opened(statistic._reveal(_KEY), statistic.scales)


def event_of(record: Release) -> Event:
    """Return what a ledger is charged for a release that was not planned."""
    assert record.mu is not None
    noisy = GaussianRelease(record.mu) if record.epsilon is None else PureRelease(record.epsilon)
    return ListedRelease(noisy, record.delta) if record.delta else noisy

"""The session: the only way from a hidden sum to numbers. It charges, then draws.

A session is a Gaussian-DP filter. It may decide as it goes, on what was released before: as long as the μ² of all
releases stays at or below the budget's, the whole is (ε, δ)-DP (docs/proofs/composition.md). A pure ε-DP release
(Laplace, exponential) is charged the μ of the Gaussian curve below its own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Protocol

from apportion.errors import BudgetError
from apportion.privacy import gaussian, mechanisms
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.budget import Budget, Plan, Share, make_plan
from apportion.privacy.noise import NoiseSource, SystemNoise
from apportion.privacy.statement import Release, Statement

DEFAULTS = (
    "library defaults: constants and functions of public and released quantities, developed on MovieLens 1M; "
    "nothing was chosen by looking at these data unless they are those"
)


class Ledger(Protocol):
    """A durable record of charges; it refuses by raising before anything is drawn."""

    def charge(self, name: str, mu: float) -> None:
        """Record that a release of this μ is about to be drawn."""


class Session:
    """Spends one budget on named releases and writes the statement.

    Args:
        budget: the whole (ε, δ).
        noise: where randomness comes from; the operating system unless a test says otherwise.
        public: sentences naming what is assumed public.
        tuning: how settings were chosen, if that is known before estimators add theirs.
        window: the time span of the data, declared.
        ledger: a durable record that every charge is written to first.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        noise: NoiseSource | None = None,
        public: Sequence[str] = (),
        tuning: str | None = None,
        window: str = "not declared",
        ledger: Ledger | None = None,
    ) -> None:
        self._budget = budget
        self._noise = noise or SystemNoise()
        self._lock = threading.Lock()
        self._public = list(public)
        self._tuning = [] if tuning is None else [tuning]
        self._window = window
        self._ledger = ledger
        self._releases: list[Release] = []

    @property
    def budget(self) -> Budget:
        """The whole (ε, δ); fixed for the life of a session."""
        return self._budget

    @property
    def noise(self) -> NoiseSource:
        """Where randomness comes from; fixed for the life of a session."""
        return self._noise

    @property
    def spent(self) -> float:
        """The fraction of the budget's μ² that has been charged."""
        return math.fsum(r.mu**2 for r in self._releases) / self.budget.mu**2

    def plan(self, **fractions: float | Sequence[float]) -> Plan:
        """Divide what is left: fractions of the whole budget's μ², which must fit in what is unspent."""
        return make_plan(self.budget.mu, max(0.0, 1 - self.spent), fractions)

    def assume_public(self, sentence: str) -> None:
        """Add a sentence to what the statement lists as assumed public."""
        if sentence not in self._public:
            self._public.append(sentence)

    def declare_tuning(self, sentence: str) -> None:
        """Add how the settings of what is released were chosen to what the statement says of it."""
        if sentence not in self._tuning:
            self._tuning.append(sentence)

    def release(self, name: str, statistic: BoundedSum, share: Share) -> Any:
        """Charge the share, then return the sum with Gaussian noise.

        Privacy: add or remove one user; μ = share.mu; noise standard deviation is the statistic's own L2
        sensitivity divided by μ, times its per-coordinate scales.
        """
        stddev = statistic.l2_sensitivity / share.mu
        self._charge(name, "Gaussian", statistic, statistic.l2_sensitivity, share, stddev)
        return self._draw(name, statistic, stddev)

    def release_laplace(self, name: str, statistic: BoundedSum, share: Share) -> Any:
        """Charge the share, then return the sum with Laplace noise scaled to its L1 sensitivity.

        Privacy: pure ε-DP with the largest ε whose Gaussian-DP charge is at most share.mu.
        """
        scale = statistic.l1_sensitivity / gaussian.pure_of_mu(share.mu)
        self._charge(name, "Laplace", statistic, statistic.l1_sensitivity, share, scale * math.sqrt(2))
        return mechanisms.add_laplace(statistic._reveal(_KEY), scale, self.noise)

    def choose(self, name: str, scores: BoundedSum, share: Share) -> int:
        """Charge the share, then return an index by the exponential mechanism: high scores are likely.

        Privacy: pure ε-DP; a score moves by at most the L2 sensitivity, so the rate is ε / (2 sensitivity).
        """
        rate = gaussian.pure_of_mu(share.mu) / (2 * scores.l2_sensitivity)
        self._charge(name, "exponential", scores, scores.l2_sensitivity, share, math.pi / math.sqrt(6) / rate)
        return mechanisms.choose_exponential(scores._reveal(_KEY), rate, self.noise)

    def statement(self) -> Statement:
        """Return the statement of everything charged so far."""
        from apportion import __version__

        mu = math.sqrt(math.fsum(r.mu**2 for r in self._releases))
        return Statement(
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            spent_epsilon=gaussian.epsilon_of(mu, self.budget.delta),
            spent_mu=mu,
            releases=tuple(self._releases),
            public=tuple(self._public),
            tuning="; ".join(self._tuning) or DEFAULTS,
            noise=self.noise.description,
            releasable=self.noise.releasable,
            window=self._window,
            version=__version__,
        )

    def _charge(
        self,
        name: str,
        mechanism: str,
        statistic: BoundedSum,
        sensitivity: float,
        share: Share,
        stddev: float,
    ) -> None:
        """Refuse, or record durably, before any noise is drawn; one charge at a time."""
        if not share.mu > 0 or not math.isfinite(stddev):
            raise BudgetError(f"Expected a share that buys a finite noise, got mu = {share.mu}.")
        fraction = share.mu**2 / self.budget.mu**2
        derivation = statistic.derivation
        record = Release(name, mechanism, statistic.shape, fraction, share.mu, sensitivity, derivation, stddev)
        with self._lock:
            self._refuse_beyond_budget(record)
            if self._ledger is not None:
                self._ledger.charge(name, share.mu)
            self._releases.append(record)

    def _refuse_beyond_budget(self, record: Release) -> None:
        if any(r.name == record.name for r in self._releases):
            raise BudgetError(f"A release named {record.name!r} was already made in this session.")
        before = [r.mu**2 for r in self._releases]
        if math.fsum([*before, record.mu**2]) > self.budget.mu**2:
            left = max(0.0, 1 - math.fsum(before) / self.budget.mu**2)
            raise BudgetError(
                f"Release {record.name!r} asks for {record.share:.6g} of the budget but {left:.6g} is left."
            )

    def _draw(self, name: str, statistic: BoundedSum, stddev: float) -> Any:
        """Draw the Gaussian release; the auditor's replay overrides this to feed recorded values."""
        return mechanisms.add_gaussian(statistic._reveal(_KEY), stddev, statistic.scales, self.noise)

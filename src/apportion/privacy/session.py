"""The session: the only way from a hidden sum to numbers. It charges, then draws.

A session is a Gaussian-DP filter. It may decide as it goes, on what was released before: as long as the μ² of all
releases stays at or below the budget's, the whole is (ε, δ)-DP (docs/proofs/composition.md). A pure ε-DP release
(Laplace, exponential) is charged the μ of the Gaussian curve below its own. Where δ is 0 there are only pure releases,
and their ε add up.

A session promises one neighbour relation, and releases only what states its sensitivity for that one.

Releases on Poisson samples of the users do not fit that filter. A session with any of them fixes all its parameters
beforehand, by `plan_sampled`, and is accounted numerically; so does one with Wishart noise, by `plan_wishart`.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import BudgetError
from apportion.privacy import gaussian, mechanisms
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Weights
from apportion.privacy.budget import Budget, Plan, Share, make_plan
from apportion.privacy.fixed_schedule import FixedSchedule, cost_of_all, noise_beside, wishart_beside
from apportion.privacy.ledger.events import Event, GaussianRelease, PureRelease, Receipt, SampledRun
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_EXAMPLE, Neighbours
from apportion.privacy.noise import NoiseSource, noise_source
from apportion.privacy.ranks import Base, RankScores
from apportion.privacy.sampling import LEAST_PROBABILITY, Keys, SampledShare, poisson_sample
from apportion.privacy.statement import EXACT_ARITHMETIC, REAL_ARITHMETIC, LedgerReference, Release, Statement
from apportion.privacy.wishart import OuterSum, WishartShare, add_wishart

DEFAULTS = (
    "library defaults: constants and functions of public and released quantities, developed on MovieLens 1M; "
    "nothing was chosen by looking at these data unless they are those"
)

_EXACT_MECHANISMS = ("Gaussian", "Laplace")


class LedgerAccount(Protocol):
    """A durable record of charges; it refuses by raising before anything is drawn.

    One that has `neighbours` bears sessions for those alone.
    """

    def charge(self, name: str, event: Event) -> Receipt | None:
        """Record that a release is about to be drawn."""


class Session:
    """Spends one budget on named releases and writes the statement.

    Args:
        budget: the whole (ε, δ).
        noise: where randomness comes from: "secure" (which None is, too) for the operating system, "exact" for the
            same with sums and noise in exact arithmetic, or a source of one's own.
        public: sentences naming what is assumed public.
        tuning: how settings were chosen, if that is known before estimators add theirs.
        window: the time span of the data, declared.
        ledger: a durable record that every charge is written to first: an account of a `Ledger`.
        neighbours: which two data sets are to be indistinguishable.

    Example:
        >>> from apportion.statistics import UserMean
        >>> session = Session(Budget(epsilon=1.0, delta=1e-6))
        >>> mean = UserMean(value_range=(0, 5), sizes="private")
        >>> fitted = mean.fit([4, 3, 5, 4], users=["ann", "ann", "bob", "cem"], session=session)
        >>> round(session.spent, 6)
        1.0
    """

    def __init__(
        self,
        budget: Budget,
        *,
        noise: NoiseSource | str | None = None,
        public: Sequence[str] = (),
        tuning: str | None = None,
        window: str = "not declared",
        ledger: LedgerAccount | None = None,
        neighbours: Neighbours = ADD_REMOVE,
    ) -> None:
        borne = getattr(ledger, "neighbours", neighbours)
        if borne != neighbours:
            raise BudgetError(
                f"Expected a session for the neighbours of its account, which differ thus: {borne.relation}; got: "
                f"{neighbours.relation}."
            )
        self._budget = budget
        self._noise = noise_source(noise)
        self._lock = threading.Lock()
        self._public = list(public)
        self._tuning = [] if tuning is None else [tuning]
        self._window = window
        self._ledger = ledger
        self._receipts: list[Receipt] = []
        self._neighbours = neighbours
        self._releases: list[Release] = []
        self._schedule: FixedSchedule | None = None

    @property
    def budget(self) -> Budget:
        """The whole (ε, δ); fixed for the life of a session."""
        return self._budget

    @property
    def noise(self) -> NoiseSource:
        """Where randomness comes from; fixed for the life of a session."""
        return self._noise

    @property
    def exact(self) -> bool:
        """Whether sums and noise are exact; then only sums on a lattice are released."""
        return bool(getattr(self._noise, "exact", False))

    @property
    def neighbours(self) -> Neighbours:
        """Which two data sets are to be indistinguishable; fixed for the life of a session."""
        return self._neighbours

    @property
    def spent(self) -> float:
        """The fraction of the budget that has been charged; with sampled releases, of what was planned."""
        if self._schedule is not None:
            return math.fsum(r.share for r in self._releases)
        return math.fsum(map(self._cost_of, self._releases)) / self._worth

    def plan(self, **fractions: float | Sequence[float]) -> Plan:
        """Divide what is left: fractions of the whole budget, which must fit in what is unspent."""
        if self._schedule is not None:
            raise BudgetError("All releases of this session were fixed beforehand; nothing else can be planned.")
        return make_plan(self.budget, max(0.0, 1 - self.spent), fractions)

    def plan_sampled(
        self, steps: int, probability: float, **fractions: float | Sequence[float]
    ) -> tuple[Plan, SampledShare]:
        """Fix everything this session will do: Gaussian releases, and sampled ones for the rest of the budget.

        Args:
            steps: how many releases on a fresh Poisson sample of the users.
            probability: with which a user is in a sample.
            fractions: shares of the budget's μ² for Gaussian releases on all users.
        """
        if steps < 1 or not LEAST_PROBABILITY <= probability <= 1:
            asked = f"{steps} and {probability}"
            raise BudgetError(f"Expected at least 1 step and a probability from {LEAST_PROBABILITY} to 1, got {asked}.")
        if self.budget.pure:
            raise BudgetError("Expected a delta above 0 for Gaussian releases on samples, got 0.")
        if self.neighbours != ADD_REMOVE_EXAMPLE:  # units that come and go are what their accounting is for
            self._require_neighbours("releases on samples", ADD_REMOVE)
        plan = make_plan(self.budget, 1.0, fractions)
        parts = [share for held in plan.values() for share in (held if isinstance(held, tuple) else (held,))]
        multiplier = noise_beside(tuple(share.mu for share in parts), probability, steps, self.budget)
        left = (1 - math.fsum(share.fraction for share in parts)) / steps
        sampled = SampledShare(left, probability, multiplier, steps)
        with self._lock:
            if self._releases or self._schedule is not None:
                raise BudgetError("Sampled releases must be planned before anything else is released or planned.")
            run = SampledRun(tuple(share.mu for share in parts), multiplier, probability, steps)
            self._write_down(f"{steps} releases on samples, {len(parts)} on all users", run)
            self._schedule = FixedSchedule(Counter(share.mu for share in parts), sampled)
        return plan, sampled

    def plan_wishart(
        self, steps: int, spare_degrees: int, **fractions: float | Sequence[float]
    ) -> tuple[Plan, WishartShare]:
        """Fix everything this session will do: Gaussian releases, and ones with Wishart noise for the rest.

        Args:
            steps: how many releases with Wishart noise.
            spare_degrees: its degrees of freedom beyond the dimension less one; more come closer to Gaussian noise.
            fractions: shares of the budget's μ² for Gaussian releases.
        """
        if steps < 1:
            raise BudgetError(f"Expected at least 1 release with Wishart noise, got {steps}.")
        if self.budget.pure or self._ledger is not None:
            raise BudgetError("Expected a delta above 0 and no ledger, as releases with Wishart noise need.")
        plan = make_plan(self.budget, 1.0, fractions)
        parts = [share for held in plan.values() for share in (held if isinstance(held, tuple) else (held,))]
        multiplier = wishart_beside(tuple(share.mu for share in parts), spare_degrees, steps, self.budget)
        left = (1 - math.fsum(share.fraction for share in parts)) / steps
        share = WishartShare(left, multiplier, spare_degrees, steps)
        with self._lock:
            if self._releases or self._schedule is not None:
                raise BudgetError("Wishart noise must be planned before anything else is released or planned.")
            self._schedule = FixedSchedule(Counter(share.mu for share in parts), share)
        return plan, share

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

        Privacy: μ = share.mu for the session's neighbours; noise standard deviation is the statistic's own L2
        sensitivity divided by μ, times its per-coordinate scales.
        """
        stddev = statistic.l2_sensitivity / share.mu
        record = self._charge(name, "Gaussian", statistic, statistic.l2_sensitivity, share, stddev)
        return self._gaussian(record, statistic)

    def release_sampled(
        self, name: str, weights: Weights, form: Callable[[Weights], BoundedSum], share: SampledShare, keys: Keys
    ) -> Any:
        """Draw a fresh Poisson sample of the users, charge, then return the sum over the sample with Gaussian noise.

        Args:
            name: of the release.
            weights: of all users; those outside the sample get zero before `form` sees them.
            form: makes the sum from the weights it is given, and from no others.
            share: as planned by `plan_sampled`.
            keys: two numbers for each user, from its id alone.

        Privacy: add or remove one user; all releases of the session are composed numerically (`accounting`).
        """
        statistic = form(weights.of_users(self._sample(name, keys, share.probability)))
        stddev = statistic.l2_sensitivity * share.noise_multiplier
        mechanism = f"Gaussian on a Poisson sample of users (probability {share.probability:g})"
        record = Release(
            name, mechanism, statistic.shape, share.fraction, share.mu, statistic.l2_sensitivity,
            statistic.derivation, stddev,
        )  # fmt: skip
        self._require_fitting(name, mechanism, statistic)
        self._record(record, lambda: self._take_sampled(share))
        return self._gaussian(record, statistic)

    def release_wishart(self, name: str, statistic: OuterSum, share: WishartShare) -> Any:
        """Charge, then return the sum of outer products with additive Wishart noise, its mean included.

        Privacy: add or remove one task; all releases of the session are composed numerically (`accounting`).
        """
        if not isinstance(statistic, OuterSum):
            raise BudgetError(f"Release {name!r} with Wishart noise needs a sum of outer products (OuterSum).")
        scale = share.noise_multiplier * statistic.l2_sensitivity
        degrees = share.degrees(statistic.dimension)
        record = Release(
            name, f"additive Wishart ({degrees} degrees of freedom)", statistic.shape, share.fraction, share.mu,
            statistic.l2_sensitivity, statistic.derivation, scale * math.sqrt(2 * degrees),
        )  # fmt: skip
        self._require_fitting(name, record.mechanism, statistic)
        self._record(record, lambda: self._take_sampled(share))
        return self._draw(record, statistic, lambda: add_wishart(statistic._reveal(_KEY), scale, degrees, self.noise))

    def release_laplace(self, name: str, statistic: BoundedSum, share: Share) -> Any:
        """Charge the share, then return the sum with Laplace noise scaled to its L1 sensitivity.

        Privacy: pure ε-DP for the session's neighbours, with ε = share.pure_epsilon.
        """
        scale = statistic.l1_sensitivity / share.pure_epsilon
        record = self._charge(
            name, "Laplace", statistic, statistic.l1_sensitivity, share, scale * math.sqrt(2), pure=True
        )

        def draw() -> Any:
            if statistic.step is not None and self.exact:
                return mechanisms.add_exact_laplace(statistic._reveal_steps(_KEY), statistic.step, scale, self.noise)
            return mechanisms.add_laplace(statistic._reveal(_KEY), scale, self.noise)

        return self._draw(record, statistic, draw)

    def choose(self, name: str, scores: BoundedSum, share: Share) -> int:
        """Charge the share, then return an index by the exponential mechanism: high scores are likely.

        Privacy: pure ε-DP; a score moves by at most the L2 sensitivity, so the rate is ε / (2 sensitivity).
        """
        rate = share.pure_epsilon / (2 * scores.l2_sensitivity)
        spread = math.pi / math.sqrt(6) / rate
        record = self._charge(name, "exponential", scores, scores.l2_sensitivity, share, spread, pure=True)
        chosen = self._draw(
            record, scores, lambda: mechanisms.choose_exponential(scores._reveal(_KEY), rate, self.noise)
        )
        return int(chosen)

    def choose_points(self, name: str, scores: RankScores, base: Base, share: Share) -> list[float]:
        """Charge the share, then return one point of the line for each cell, by the exponential mechanism.

        Privacy: pure ε-DP; one user moves the scores of all cells together by at most their total sensitivity, so the
        rate is ε / (2 sensitivity) in each.
        """
        rate = share.pure_epsilon / (2 * scores.total_sensitivity)
        record = self._charge(
            name, "exponential, on the line", scores, scores.total_sensitivity, share, 1 / rate, pure=True
        )

        def draw() -> list[float]:
            return [mechanisms.choose_point(cell, rate, base, self.noise) for cell in scores._reveal(_KEY)]

        return [float(point) for point in self._draw(record, scores, draw)]

    def statement(self) -> Statement:
        """Return the statement of everything charged so far."""
        from apportion import __version__

        mu, spent = self._spent_in_all()
        return Statement(
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            spent_epsilon=spent,
            spent_mu=mu,
            releases=tuple(self._releases),
            public=tuple(self._public),
            tuning="; ".join(self._tuning) or DEFAULTS,
            noise=self.noise.description,
            arithmetic=EXACT_ARITHMETIC if self.exact else REAL_ARITHMETIC,
            releasable=self.noise.releasable,
            unit=self.neighbours.unit,
            neighbours=self.neighbours.relation,
            window=self._window,
            version=__version__,
            ledger=self._reference(),
        )

    def _charge(
        self,
        name: str,
        mechanism: str,
        statistic: BoundedSum | RankScores,
        sensitivity: float,
        share: Share,
        stddev: float,
        *,
        pure: bool = False,
    ) -> Release:
        """Refuse, or record durably, before any noise is drawn; one charge at a time."""
        self._require_fitting(name, mechanism, statistic)
        epsilon = share.pure_epsilon if pure else None
        mu = gaussian.mu_of_pure(share.pure_epsilon) if self.budget.pure else share.mu
        if share.of.pure != self.budget.pure or not mu > 0 or not 0 < stddev < math.inf:
            raise BudgetError(f"Expected a share of this session's budget that buys a finite noise, got {share}.")
        record = Release(
            name, mechanism, statistic.shape, 0.0, mu, sensitivity, statistic.derivation, stddev, epsilon
        )  # fmt: skip
        record = replace(record, share=self._cost_of(record) / self._worth)
        self._record(record, lambda: self._refuse_beyond_budget(record))
        return record

    def _require_fitting(self, name: str, mechanism: str, statistic: BoundedSum | RankScores) -> None:
        """Refuse what is bounded for other neighbours, and in exact arithmetic what is not on a lattice."""
        self._require_neighbours(name, statistic.neighbours)
        if not self.exact:
            return
        if not mechanism.startswith(_EXACT_MECHANISMS):
            raise BudgetError(f"Release {name!r} ({mechanism}) has no form in exact arithmetic; leave that off for it.")
        if not isinstance(statistic, BoundedSum) or statistic.step is None:
            raise BudgetError(f"Release {name!r} is not a sum on a lattice, as exact arithmetic needs it.")

    def _require_neighbours(self, name: str, stated: Neighbours) -> None:
        if stated != self.neighbours:
            raise BudgetError(
                f"Release {name!r} is bounded for neighbours that differ thus: {stated.relation}; this session "
                f"promises: {self.neighbours.relation}."
            )

    @property
    def _worth(self) -> float:
        """What the whole budget is worth: its μ², or its ε if it is pure."""
        return self.budget.epsilon if self.budget.pure else self.budget.mu**2

    def _cost_of(self, record: Release) -> float:
        """What a release takes from that."""
        if not self.budget.pure:
            return record.mu**2
        assert record.epsilon is not None
        return record.epsilon

    def _spent_in_all(self) -> tuple[float | None, float]:
        """The μ of what was released, where it is defined, and its ε at the budget's δ."""
        if self._schedule is not None:
            return None, self._spent_numerically()
        if self.budget.pure:
            return None, math.fsum(map(self._cost_of, self._releases))
        mu = math.sqrt(math.fsum(map(self._cost_of, self._releases)))
        return mu, gaussian.epsilon_of(mu, self.budget.delta)

    def _record(self, record: Release, refuse: Callable[[], None]) -> None:
        with self._lock:
            if any(r.name == record.name for r in self._releases):
                raise BudgetError(f"A release named {record.name!r} was already made in this session.")
            refuse()
            if self._schedule is None:  # else all releases were charged together when they were planned
                epsilon = record.epsilon
                self._write_down(record.name, GaussianRelease(record.mu) if epsilon is None else PureRelease(epsilon))
            self._releases.append(record)

    def _write_down(self, name: str, event: Event) -> None:
        """Charge the ledger, if there is one; it raises to refuse."""
        receipt = None if self._ledger is None else self._ledger.charge(name, event)
        if receipt is not None:
            self._receipts.append(receipt)

    def _reference(self) -> LedgerReference | None:
        if not self._receipts:
            return None
        last = self._receipts[-1]
        return LedgerReference(last.account, last.run, len(self._receipts), last.number, last.hash)

    def _take_sampled(self, share: SampledShare | WishartShare) -> None:
        """One of the planned sampled or Wishart releases is made; without a plan, or beyond it, nothing is."""
        kind = "wishart" if isinstance(share, WishartShare) else "sampled"
        if self._schedule is None or share != self._schedule.sampled:
            raise BudgetError(f"Expected a share that this session's plan_{kind} made.")
        if self._schedule.made >= share.steps:
            raise BudgetError(f"All {share.steps} {kind} releases of this session have been made.")
        self._schedule.made += 1

    def _spent_numerically(self) -> float:
        """ε of what was released, sampled releases among it."""
        assert self._schedule is not None
        share = self._schedule.sampled
        mus = tuple(r.mu for r in self._releases if r.mechanism == "Gaussian")
        return cost_of_all(mus, share, len(self._releases) - len(mus), self.budget)

    def _sample(self, name: str, keys: Keys, probability: float) -> NDArray[np.bool_]:
        """Who takes part; the auditor records it."""
        return poisson_sample(keys, self._secret(name), probability)

    def _secret(self, name: str) -> bytes:
        """A fresh secret for a sample; the auditor's replay overrides this to feed recorded ones."""
        return self.noise.key()

    def _refuse_beyond_budget(self, record: Release) -> None:
        if self._schedule is not None:
            if record.mechanism != "Gaussian" or self._schedule.gaussian[record.mu] < 1:
                raise BudgetError(f"Release {record.name!r} is not one that plan_{self._schedule.kind} fixed.")
            self._schedule.gaussian[record.mu] -= 1
            return
        before = [self._cost_of(r) for r in self._releases]
        if math.fsum([*before, self._cost_of(record)]) > self._worth:
            left = max(0.0, 1 - math.fsum(before) / self._worth)
            raise BudgetError(
                f"Release {record.name!r} asks for {record.share:.6g} of the budget but {left:.6g} is left."
            )

    def _gaussian(self, record: Release, statistic: BoundedSum) -> Any:
        """Draw a Gaussian release."""
        scales, stddev, step = statistic.scales, record.stddev, statistic.step

        def draw() -> Any:
            if step is not None and self.exact:
                return mechanisms.add_exact_gaussian(statistic._reveal_steps(_KEY), step, stddev, scales, self.noise)
            return mechanisms.add_gaussian(statistic._reveal(_KEY), stddev, scales, self.noise)

        return self._draw(record, statistic, draw)

    def _draw(self, record: Release, statistic: BoundedSum | RankScores, draw: Callable[[], Any]) -> Any:
        """Draw what was charged for; the auditor's replay overrides this to feed recorded values."""
        return draw()

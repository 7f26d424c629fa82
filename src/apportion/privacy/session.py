"""The session: the only way from a hidden sum to numbers. It charges, then draws.

A session is a Gaussian-DP filter. It may decide as it goes, based on earlier releases: as long as the μ² of all
releases stays within the budget's, the whole is (ε, δ)-DP (docs/proofs/composition.md). A pure ε-DP release (Laplace,
exponential) is charged the μ of the Gaussian curve below its own. If δ is 0, only pure releases are possible, and their
ε add up.

A session protects one neighbour relation, and releases only statistics that state their sensitivity for it.

Releases by a planned mechanism, such as those on Poisson samples of the users, do not fit that filter. A session with
such releases fixes all its parameters in advance, by `plan_with`, and is accounted numerically.

The mechanism decides how a release is drawn and what it costs (`privacy.mechanisms`). `release_with` takes any.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from apportion.errors import BudgetError
from apportion.privacy import gaussian
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.budget import Budget, Plan, Share, make_plan
from apportion.privacy.charges import LedgerAccount, Pending, cost_of, event_of, opened, recorded, reference_to, worth
from apportion.privacy.checkpoints import Checkpoint, Kept
from apportion.privacy.declarations import Declarations
from apportion.privacy.fixed_schedule import FixedSchedule, noise_beside
from apportion.privacy.keys import KeyedSum, Listed
from apportion.privacy.ledger.events import Event, Receipt
from apportion.privacy.mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    PlannedShare,
    PointsOnLine,
    SampledGaussian,
    ThresholdedGaussian,
    ThresholdedLaplace,
)
from apportion.privacy.mechanisms.mechanism import PlannedType, ShareType
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours
from apportion.privacy.noise import NoiseSource, noise_source
from apportion.privacy.purposes import Name, ReleaseName, release_name
from apportion.privacy.ranks import Base, RankScores
from apportion.privacy.release_checks import require_plannable, require_share, require_statistic
from apportion.privacy.sampling import Sample
from apportion.privacy.spent import Spent
from apportion.privacy.statement import EXACT_ARITHMETIC, REAL_ARITHMETIC, Release, Statement


class Session(Declarations):
    """Spends one budget on named releases and writes the statement.

    Args:
        budget: the whole (ε, δ).
        noise: where randomness comes from. `"secure"` (default): the operating system. `"exact"`: the same, with
            sums and noise in exact arithmetic. Or a source of your own.
        public: sentences naming what is assumed public.
        tuning: how settings were chosen; estimators add their own sentences.
        window: the time span of the data, declared.
        ledger: a durable record that every charge is written to first: an account of a `Ledger`.
        neighbours: the neighbour relation that the session protects.
        checkpoint: where releases are stored, so that a stopped fit can be resumed.

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
        checkpoint: Checkpoint | None = None,
    ) -> None:
        borne = getattr(ledger, "neighbours", neighbours)
        if borne != neighbours:
            raise BudgetError(
                f"The neighbours of this session are {neighbours.relation!r}, those of its account {borne.relation!r}; "
                "open an account for the same neighbours."
            )
        super().__init__(public, tuning, window)
        self._budget = budget
        self._noise = noise_source(noise)
        self._lock = threading.Lock()
        self._ledger = ledger
        self._checkpoint = checkpoint
        self._turn: int | None = None  # at the checkpoint
        self._receipts: list[Receipt] = []
        self._neighbours = neighbours
        self._releases: list[Release] = []
        self._spent = Spent(worth(budget), budget.keys_delta)
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
        """Whether sums and noise are exact. Then only sums on a lattice are released."""
        return bool(getattr(self._noise, "exact", False))

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation that the session protects; fixed for the life of a session."""
        return self._neighbours

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where releases are stored; fixed for the life of a session."""
        return self._checkpoint

    @property
    def account(self) -> str | None:
        """The account of a ledger that is charged, the same for every handle on it; None without a ledger."""
        if self._ledger is None:
            return None
        return str(getattr(self._ledger, "identity", type(self._ledger).__qualname__))

    @property
    def spent(self) -> float:
        """The fraction of the budget charged so far; with planned releases, the fraction of the plan."""
        if self._schedule is not None:
            return math.fsum(r.share for r in self._releases)
        return math.fsum(map(self._cost_of, self._releases)) / worth(self.budget)

    def plan(self, **fractions: float | Sequence[float]) -> Plan:
        """Divide the unspent budget. The fractions are relative to the whole budget and must fit in what is left."""
        if self._schedule is not None:
            raise BudgetError("All releases of this session were fixed in advance; nothing else can be planned.")
        return make_plan(self.budget, max(0.0, 1 - self.spent), fractions)

    def plan_with(
        self, mechanism: PlannedType, steps: int, **fractions: float | Sequence[float]
    ) -> tuple[Plan, PlannedShare[PlannedType]]:
        """Fix all releases of this session: Gaussian ones, and planned ones that use the rest of the budget.

        Args:
            mechanism: the mechanism that draws the planned releases.
            steps: the number of planned releases.
            fractions: shares of the budget's μ² for Gaussian releases.
        """
        require_plannable(mechanism, steps, self.budget, self.neighbours)
        plan = make_plan(self.budget, 1.0, fractions)
        parts = [share for held in plan.values() for share in (held if isinstance(held, tuple) else (held,))]
        mus = tuple(share.mu for share in parts)
        multiplier = noise_beside(mus, mechanism, steps, self.budget)
        left = (1 - math.fsum(share.fraction for share in parts)) / steps
        event = mechanism.event(mus, multiplier, steps)
        apart = nullcontext() if self._checkpoint is None else self._checkpoint.lock  # taken first, as for a release
        with apart, self._lock:
            if self._releases or self._schedule is not None:
                raise BudgetError(f"Releases by {mechanism.words} must be planned before anything else.")
            if self._ledger is not None:
                if event is None:
                    raise BudgetError(
                        f"A ledger cannot record releases by {mechanism.words}, because no filter has a theorem for "
                        "them; leave the ledger out."
                    )
                self._charge_plan(f"{steps} planned releases: {mechanism.words}; {len(parts)} Gaussian ones", event)
            planned = PlannedShare(mechanism, left, multiplier, steps)
            self._schedule = FixedSchedule(Counter(mus), planned)
        return plan, planned

    def plan_sampled(
        self, steps: int, probability: float, **fractions: float | Sequence[float]
    ) -> tuple[Plan, PlannedShare[SampledGaussian]]:
        """Fix all releases of this session: Gaussian ones, and sampled ones that use the rest of the budget.

        Args:
            steps: the number of releases, each on a fresh Poisson sample of the users.
            probability: the probability that a user is in a sample.
            fractions: shares of the budget's μ² for Gaussian releases on all users.
        """
        return self.plan_with(SampledGaussian(probability), steps, **fractions)

    def release(self, name: Name, statistic: BoundedSum, share: Share) -> Any:
        """Charge the share, then return the sum with Gaussian noise.

        Privacy: μ = share.mu for the session's neighbours; noise standard deviation is the statistic's own L2
        sensitivity divided by μ, times its per-coordinate scales.
        """
        return self.release_with(Gaussian(), name, statistic, share)

    def release_laplace(self, name: Name, statistic: BoundedSum, share: Share) -> Any:
        """Charge the share, then return the sum with Laplace noise scaled to its L1 sensitivity.

        Privacy: pure ε-DP for the session's neighbours, with ε = share.pure_epsilon.
        """
        return self.release_with(Laplace(), name, statistic, share)

    def release_keys(self, name: Name, counts: KeyedSum, share: Share, keys_delta: float) -> Listed:
        """Charge the share and a part of δ, then return the keys whose counts with noise pass a threshold.

        Args:
            name: the name of the release.
            counts: the counts of private keys.
            share: pays for the counts.
            keys_delta: pays for the list: it sets the threshold.

        Privacy: the cost of the share, plus `keys_delta` in δ (docs/proofs/keys.md). Keys below the threshold, and
        their number, stay hidden.
        """
        mechanism = (ThresholdedLaplace if self.budget.pure else ThresholdedGaussian)(keys_delta)
        listed: Listed = self.release_with(mechanism, name, counts, share)
        return listed

    def choose(self, name: Name, scores: BoundedSum, share: Share) -> int:
        """Charge the share, then choose an index by the exponential mechanism; high scores are likely.

        Privacy: pure ε-DP; a score moves by at most the L2 sensitivity, so the rate is ε / (2 sensitivity).
        """
        return int(self.release_with(Exponential(), name, scores, share))

    def choose_points(self, name: Name, scores: RankScores, base: Base, share: Share) -> list[float]:
        """Charge the share, then choose one point of the line for each cell by the exponential mechanism.

        Privacy: pure ε-DP; one user moves the scores of all cells together by at most their total sensitivity, so the
        rate is ε / (2 sensitivity) in each.
        """
        return [float(point) for point in self.release_with(PointsOnLine(base), name, scores, share)]

    def release_sampled(
        self, name: Name, form: Callable[[Sample], BoundedSum], share: PlannedShare[SampledGaussian]
    ) -> Any:
        """Draw a fresh Poisson sample of the users, charge, then return the sum over the sample with Gaussian noise.

        Args:
            name: the name of the release.
            form: makes the sum over exactly the users in the sample that it is given.
            share: as planned by `plan_sampled`.

        Privacy: add or remove one user; all releases of the session are composed numerically (`accounting`).
        """
        if share.of is not None:
            raise BudgetError("Two parts of a share must be released on one sample, by release_sampled_pair.")
        named = release_name(name)
        statistic = form(self._sample(named.text, share.mechanism.probability))
        return self._release(share.mechanism, named, statistic, share)

    def release_sampled_pair(
        self,
        names: tuple[Name, Name],
        first: Callable[[Sample], BoundedSum],
        second: Callable[[Sample, Any], BoundedSum],
        shares: tuple[PlannedShare[SampledGaussian], PlannedShare[SampledGaussian]],
    ) -> Any:
        """Release a sum over a fresh sample, then a second sum over the same sample that may depend on the first.

        Privacy: the shares are from `PlannedShare.in_parts`; together they cost what one release with the whole share
        costs (docs/proofs/optimizers.md). `second` receives the first released sum. The method returns the second.
        """
        (one, other), mechanism = map(release_name, names), shares[0].mechanism
        sample = self._sample(one.text, mechanism.probability)
        drawn = self._release(mechanism, one, first(sample), shares[0])
        return self._release(mechanism, other, second(sample, drawn), shares[1])

    def release_with(self, mechanism: Mechanism[ShareType], name: Name, statistic: Any, share: ShareType) -> Any:
        """Charge the share, then return what the mechanism draws from the hidden statistic.

        Args:
            mechanism: owns the norm, the noise and the cost.
            name: the name of the release.
            statistic: the hidden statistic, of the kind that the mechanism takes.
            share: the share of the budget; for a planned mechanism, the result of `plan_with`.

        Privacy: what the mechanism guarantees for its share and for the sensitivity that the statistic states.
        """
        if getattr(mechanism, "on_sample", False):
            raise BudgetError(f"Releases by {mechanism.words} go through release_sampled, which draws the sample.")
        return self._release(mechanism, release_name(name), statistic, share)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """The receipts that the ledger returned for its charges so far."""
        return tuple(self._receipts)

    def readmit(self, releases: Sequence[Release], receipts: Sequence[Receipt] = ()) -> None:
        """Record releases that this run made, and charged, before it was stopped. Nothing is drawn or charged."""
        with self._lock:
            self._receipts[:0] = receipts
            for record in releases:
                planned = None if self._schedule is None else self._schedule.planned
                made = planned is not None and record.mechanism == planned.mechanism.key
                share = planned.with_mu(record.mu) if planned is not None and made else None
                self._admit(record, share, Kept(None, None), readmitted=True)

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
            keys_delta=self.budget.keys_delta,
            noise=self.noise.description,
            arithmetic=EXACT_ARITHMETIC if self.exact else REAL_ARITHMETIC,
            releasable=self.noise.releasable,
            neighbours=self.neighbours,
            version=__version__,
            ledger=reference_to(self._receipts),
            **self._declared(),
        )

    def _release(self, mechanism: Mechanism[Any], name: ReleaseName, statistic: Any, share: Any) -> Any:
        """Charge, then draw: the one way from a hidden statistic to numbers."""
        require_statistic(name.text, mechanism, statistic, self.neighbours, self.exact)
        require_share(mechanism, share, self.budget)
        for sentence in getattr(statistic, "caveats", ()):
            self.declare_unprotected(sentence)
        scale = mechanism.scale(statistic, share)
        record = recorded(name, mechanism, statistic, share, scale, self.budget)
        planned = share if isinstance(share, PlannedShare) else None
        drawn = self._drawn_or_kept(Pending(record, mechanism, statistic, scale), planned)
        if isinstance(drawn, Listed):  # the number of keys is known only now, from the released list
            with self._lock:
                held = self._releases
                self._releases = [replace(each, shape=drawn.shape) if each is record else each for each in held]
        return drawn

    def _drawn_or_kept(self, pending: Pending, planned: PlannedShare[Any] | None) -> Any:
        """Charge and draw. A release that the checkpoint holds is neither charged nor drawn again."""
        record, checkpoint = pending.release, self._checkpoint
        if checkpoint is None:
            self._charge(record, planned)
            return self._draw(pending)
        with checkpoint.lock:  # one release at a time: its number is its place in the checkpoint
            turn, number = self._turn_at(checkpoint), len(self._releases)
            kept = checkpoint.find(number, record, planned=self._schedule is not None, turn=turn)
            if kept is not None:
                self._charge(record, planned, kept)
                return kept.value
            opened(pending.statistic, self.exact)  # forms a deferred sum: if that fails, it fails before the charge
            receipt = self._charge(record, planned)
            checkpoint.begin(number, turn)
            drawn = self._draw(pending)
            checkpoint.store(number, record, drawn, receipt, turn)
            return drawn

    def _turn_at(self, checkpoint: Checkpoint) -> int:
        """Return this session's turn at its checkpoint, claimed at first use. A later session ends the turn."""
        if self._turn is None:
            self._turn = checkpoint.claim()
        return self._turn

    def _cost_of(self, record: Release) -> float:
        return cost_of(record, self.budget)

    def _spent_in_all(self) -> tuple[float | None, float]:
        """Return the μ of what was released, if defined, and its ε at the budget's δ."""
        if self._schedule is not None:
            return None, self._schedule.spent_epsilon(self._releases, self.budget)
        if self.budget.pure:
            return None, math.fsum(map(self._cost_of, self._releases))
        mu = math.sqrt(math.fsum(map(self._cost_of, self._releases)))
        return mu, gaussian.epsilon_of(mu, self.budget.noise_delta)

    def _charge(self, record: Release, planned: PlannedShare[Any] | None, kept: Kept | None = None) -> Receipt | None:
        """Refuse a name that is taken and a release beyond the plan or the budget. Else charge durably and record it.

        One charge at a time, before any noise is drawn. A stored release was charged earlier and is only recorded.
        """
        with self._lock:
            return self._admit(record, planned, kept)

    def _admit(
        self, record: Release, planned: PlannedShare[Any] | None, kept: Kept | None, *, readmitted: bool = False
    ) -> Receipt | None:
        """Check a release, charge it unless it was charged before, and record it. The caller holds the lock."""
        receipt, cost = None if kept is None else kept.receipt, None
        self._spent.refuse_copy()
        self._spent.refuse_taken(record.name)
        stored = kept is not None and not readmitted
        if stored and receipt is None and self._ledger is not None and self._schedule is None:
            raise BudgetError(
                f"Release {record.name!r} of the checkpoint was not charged to a ledger; start a new fit, in another "
                "checkpoint."
            )
        if self._schedule is not None:
            self._schedule.take(record, planned)
        elif planned is not None:
            raise BudgetError(f"Expected a share that a plan of this session made, got {planned}.")
        else:
            cost = self._cost_of(record)
            self._spent.refuse_beyond(record, cost)
        if self._schedule is None and kept is None:  # planned releases were charged together
            receipt = None if self._ledger is None else self._ledger.charge(record.name, event_of(record))
        self._receipts += [] if receipt is None else [receipt]
        self._spent.take(record, cost)
        self._releases.append(record)
        return receipt

    def _charge_plan(self, name: str, event: Event) -> None:
        """Charge the ledger once for a whole plan, unless the checkpoint says it was done. It refuses by raising."""
        assert self._ledger is not None
        kept = self._checkpoint
        turn = 0 if kept is None else self._turn_at(kept)
        receipt = None if kept is None else kept.plan_charged(name, event, getattr(self._ledger, "name", None), turn)
        if receipt is None:
            receipt = self._ledger.charge(name, event)
            if kept is not None and receipt is not None:
                kept.store_plan(name, event, receipt, turn)
        self._receipts += [] if receipt is None else [receipt]

    def _sample(self, name: str, probability: float) -> Sample:
        """Draw a fresh sample; the auditor records it."""
        return Sample(self._secret(name), probability)

    def _secret(self, name: str) -> bytes:
        """Return a fresh secret for a sample. The auditor's replay overrides this to feed recorded secrets."""
        return self._noise_of("sample").key()

    def _noise_of(self, use: str) -> NoiseSource:
        """Return the source of one draw. With a checkpoint, a seeded source starts anew: a stop makes no difference."""
        at = None if self._checkpoint is None else getattr(self.noise, "at", None)
        made: NoiseSource = self.noise if at is None else at(f"{use} {len(self._releases)}")
        return made

    def _draw(self, pending: Pending) -> Any:
        """Draw the release that was charged. The auditor's replay overrides this to feed recorded values."""
        return pending.mechanism.draw(opened(pending.statistic, self.exact), pending.scale, self._noise_of("draw"))

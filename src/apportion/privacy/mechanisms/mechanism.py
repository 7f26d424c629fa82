"""What a mechanism is: the one object that knows how a release is drawn and what it costs.

A mechanism owns the norm that its sensitivity is measured in, the scale of noise that a share buys, the draw, the cost,
whether it has a form in exact arithmetic, and the words of the statement. A session asks the mechanism; it knows none
by name. A mechanism of one's own is a class in one file, used by `session.release_with`.

There are two kinds. The cost of a `Mechanism` is that of its share: μ of Gaussian DP, or ε if it is pure. Then a
session may decide on every release as it goes. The cost of a `PlannedMechanism` is composed numerically, so that all
releases of its session are fixed before the first (`session.plan_with`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from apportion.privacy.accounting import Part
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.bounds import FloatArray, Hidden
from apportion.privacy.budget import Share
from apportion.privacy.keys import KeyedSum
from apportion.privacy.ledger.events import Event
from apportion.privacy.neighbours import Neighbours
from apportion.privacy.noise import NoiseSource
from apportion.privacy.ranks import RankScores

if TYPE_CHECKING:
    from apportion.privacy.statement import Release

Statistic = BoundedSum | RankScores | KeyedSum


@dataclass(frozen=True, eq=False)
class Opened:
    """A hidden value as the session opens it for a draw, and for nothing else.

    Attributes:
        value: the sum as an array, or what other statistics hide.
        scales: relative noise of each coordinate of the last axis; None if all are 1.
        step: where the draw is to be exact, the step of the lattice that `value` counts in whole numbers; else None.
    """

    value: Any
    scales: FloatArray | None = None
    step: float | None = None


ShareType = TypeVar("ShareType", bound="Share | PlannedShare[Any]")


class Mechanism(ABC, Generic[ShareType]):
    """Draws a release from a hidden statistic.

    A subclass that takes a plain `Share` promises: one draw at `scale(statistic, share)` is ε-DP with
    ε = share.pure_epsilon if `pure`, and else μ-GDP with μ = share.mu, for statistics whose sensitivity is as stated;
    but for an event of probability `delta`.

    Attributes:
        key: names the mechanism in statements and cards; stable, and not used by any other.
        pure: whether a release is ε-DP, with nothing left to δ.
        exact: whether `draw` has a form in exact arithmetic, used where `opened.step` is not None.
    """

    key: ClassVar[str]
    takes: ClassVar[type[Hidden]] = BoundedSum  # the kind of statistic that it draws from
    pure: ClassVar[bool] = False
    exact: ClassVar[bool] = False

    @property
    @abstractmethod
    def words(self) -> str:
        """The mechanism in words, for statements and pages."""

    @property
    def delta(self) -> float:
        """What a release takes from the part of δ that is kept for lists of keys, beside its share."""
        return 0.0

    def threshold(self, statistic: Any, scale: float) -> float | None:
        """What a number with noise must reach to leave at all; None where every one does."""
        return None

    @abstractmethod
    def sensitivity(self, statistic: Any) -> float:
        """How far one unit moves the statistic, in the norm that this mechanism needs."""

    @abstractmethod
    def scale(self, statistic: Any, share: ShareType) -> float:
        """The scale of the noise that the share buys."""

    @abstractmethod
    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> Any:
        """Draw a release. Whoever calls this has charged for it."""

    def stddev(self, statistic: Any, scale: float) -> float:
        """The standard deviation of the noise, for the statement; of a choice, the scale that tells scores apart."""
        return scale

    @abstractmethod
    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """How far apart two hidden values are, in the norm of `sensitivity`; for audits."""

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Log-density of a release given the hidden value, up to a constant; for likelihood-ratio audits."""
        raise NotImplementedError(f"The mechanism {self.key!r} states no density for likelihood-ratio audits.")

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """The noise that the charge of a stored release asks for; None if a statement cannot tell."""
        return None


class PlannedMechanism(Mechanism["PlannedShare[Any]"]):
    """A mechanism whose cost is composed numerically; noise is a multiple of the sensitivity, fixed by the plan.

    Attributes:
        on_sample: whether the statistic must be that of a fresh Poisson sample, which `release_sampled` alone draws.
        relations: the neighbour relations that `part` is the cost for.
    """

    on_sample: ClassVar[bool] = False
    relations: ClassVar[tuple[Neighbours, ...]]

    @abstractmethod
    def part(self, noise_multiplier: float, count: int) -> Part:
        """What so many releases are to the accountant."""

    @abstractmethod
    def mu(self, noise_multiplier: float) -> float | None:
        """The Gaussian-DP parameter of one release, for the statement; None if it has none."""

    def event(self, mus: tuple[float, ...], noise_multiplier: float, steps: int) -> Event | None:
        """What a ledger is charged for the whole plan; None if no ledger can bear it."""
        return None

    def scale(self, statistic: Any, share: PlannedShare[Any]) -> float:
        """The sensitivity times the noise multiplier of the plan."""
        return self.sensitivity(statistic) * share.noise_multiplier


PlannedType = TypeVar("PlannedType", bound=PlannedMechanism)


@dataclass(frozen=True)
class PlannedShare(Generic[PlannedType]):
    """What each of several releases by one planned mechanism may cost; all of them were planned together.

    Attributes:
        mechanism: that draws them.
        fraction: an even part of what the plan's Gaussian releases left, for display: cost does not add up linearly.
        noise_multiplier: noise of a release over its sensitivity.
        steps: how many such releases were planned.
    """

    mechanism: PlannedType
    fraction: float
    noise_multiplier: float
    steps: int

    @property
    def mu(self) -> float:
        """Sensitivity over noise of one release."""
        return 1 / self.noise_multiplier

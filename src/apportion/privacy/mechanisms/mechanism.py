"""Mechanisms: each is the one object that knows how a release is drawn and what it costs.

A mechanism owns the norm of its sensitivity, the scale of the noise that a share buys, the draw, the cost, whether it
has a form in exact arithmetic, and its words in the statement. A session asks the mechanism; it knows none by name.
Your own mechanism is a class in one file, used by `session.release_with`.

There are two kinds. The cost of a `Mechanism` is that of its share: μ of Gaussian DP, or ε if it is pure. A session may
then decide on every release as it goes. The cost of a `PlannedMechanism` is composed numerically, so all releases of
its session are fixed before the first (`session.plan_with`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.errors import BudgetError
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
    """A hidden value that the session opens for a draw, and for nothing else.

    Attributes:
        value: the sum as an array, or what other statistics hide.
        scales: relative noise of each coordinate of the last axis; None if all are 1.
        step: for an exact draw, the step of the lattice that `value` counts in whole numbers; otherwise None.
        drawn: if clients draw the noise, the function that forms the sum with noise of a given scale; there is no value
            then.
        dtype: what the numbers with their noise may be rounded to at the end; None to leave them as they are.
        room: makes the vector that they may be written to, of a size and a dtype; None for a plain new one.
    """

    value: Any
    scales: FloatArray | None = None
    step: float | None = None
    drawn: Callable[[float], Any] | None = None
    dtype: np.dtype[Any] | None = None
    room: Callable[[int, DTypeLike], NDArray[Any]] | None = None


ShareType = TypeVar("ShareType", bound="Share | PlannedShare[Any]")


class Mechanism(ABC, Generic[ShareType]):
    """Draws a release from a hidden statistic.

    A subclass that takes a plain `Share` guarantees: one draw at `scale(statistic, share)` is ε-DP with
    ε = share.pure_epsilon if `pure`, and otherwise μ-GDP with μ = share.mu, if the stated sensitivity is right; except
    for an event of probability `delta`.

    Attributes:
        key: names the mechanism in statements and cards; stable and unique.
        pure: whether a release is ε-DP with δ = 0.
        exact: whether `draw` has a form in exact arithmetic, used where `opened.step` is not None.
        in_shares: whether clients can draw the noise in shares; then `draw` uses `opened.drawn`.
    """

    key: ClassVar[str]
    takes: ClassVar[type[Hidden]] = BoundedSum  # the class of statistics that the mechanism draws from
    pure: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    in_shares: ClassVar[bool] = False

    @property
    @abstractmethod
    def words(self) -> str:
        """The mechanism in words, for statements and pages."""

    @property
    def delta(self) -> float:
        """The part of δ that a release takes, beside its share, from what is reserved for lists of keys."""
        return 0.0

    def threshold(self, statistic: Any, scale: float) -> float | None:
        """Return what a number with noise must reach to be released at all; None if every number is released."""
        return None

    @abstractmethod
    def sensitivity(self, statistic: Any) -> float:
        """Return how far one unit moves the statistic, in the norm that this mechanism needs."""

    @abstractmethod
    def scale(self, statistic: Any, share: ShareType) -> float:
        """Return the scale of the noise that the share buys."""

    @abstractmethod
    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> Any:
        """Draw a release. The caller has already charged for it."""

    def stddev(self, statistic: Any, scale: float) -> float:
        """Return the standard deviation of the noise, for the statement; for a choice, that of the noise on scores."""
        return scale

    @abstractmethod
    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the distance of two hidden values in the norm of `sensitivity`; for audits."""

    def log_density(self, released: Any, hidden: Any, scales: FloatArray | None, scale: float) -> float:
        """Return the log-density of a release given the hidden value, up to a constant; for likelihood-ratio audits."""
        raise NotImplementedError(f"The mechanism {self.key!r} states no density for likelihood-ratio audits.")

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return the noise that a stored release's charge requires; None if the statement cannot tell."""
        return None


class PlannedMechanism(Mechanism["PlannedShare[Any]"]):
    """A mechanism with numerically composed cost. The plan fixes its noise as a multiple of the sensitivity.

    Attributes:
        on_sample: whether the statistic must come from a fresh Poisson sample, which only `release_sampled` draws.
        relations: the neighbour relations for which `part` is the cost.
    """

    on_sample: ClassVar[bool] = False
    relations: ClassVar[tuple[Neighbours, ...]]

    @abstractmethod
    def part(self, noise_multiplier: float, count: int) -> Part:
        """Return what `count` releases are to the accountant."""

    @abstractmethod
    def mu(self, noise_multiplier: float) -> float | None:
        """Return the Gaussian-DP parameter of one release, for the statement; None if it has none."""

    def event(self, mus: tuple[float, ...], noise_multiplier: float, steps: int) -> Event | None:
        """Return what a ledger is charged for the whole plan; None if no ledger can record it."""
        return None

    def scale(self, statistic: Any, share: PlannedShare[Any]) -> float:
        """Return the sensitivity times the noise multiplier of the plan."""
        return self.sensitivity(statistic) * share.noise_multiplier


PlannedType = TypeVar("PlannedType", bound=PlannedMechanism)


@dataclass(frozen=True)
class PlannedShare(Generic[PlannedType]):
    """What each of several releases by one planned mechanism may cost; all were planned together.

    Attributes:
        mechanism: the mechanism that draws them.
        fraction: an equal part of what the plan's Gaussian releases leave over. It is for display, since costs do not
            add up.
        noise_multiplier: noise of a release divided by its sensitivity.
        steps: number of such releases in the plan.
        of: the share that this one is a part of; None for a whole one.
    """

    mechanism: PlannedType
    fraction: float
    noise_multiplier: float
    steps: int
    of: PlannedShare[PlannedType] | None = None

    @property
    def mu(self) -> float:
        """The sensitivity divided by the noise of one release."""
        return 1 / self.noise_multiplier

    @property
    def part(self) -> float:
        """The part of a whole share's μ² that this share has; 1 for a whole share."""
        return 1.0 if self.of is None else (self.of.noise_multiplier / self.noise_multiplier) ** 2

    def in_parts(self, first: float) -> tuple[PlannedShare[PlannedType], PlannedShare[PlannedType]]:
        """Return the shares of two releases on one sample. Together they take the μ² of a release with this share."""
        if not 0 < first < 1:
            raise BudgetError(f"Expected a first part in (0, 1), got {first}.")
        return self._part(first), self._part(1 - first)

    def with_mu(self, mu: float | None) -> PlannedShare[PlannedType]:
        """Return this share, or the part of it that a release with this μ used."""
        part = 1.0 if mu is None else (mu * self.noise_multiplier) ** 2
        return self if part > 1 - 1e-9 else self._part(part)

    def _part(self, part: float) -> PlannedShare[PlannedType]:
        noise = self.noise_multiplier / math.sqrt(part)
        return replace(self, fraction=self.fraction * part, noise_multiplier=noise, of=self)

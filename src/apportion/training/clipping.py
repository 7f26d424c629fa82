"""The norm to which gradients are clipped: a constant, or one that follows a quantile of gradient lengths at a cost.

Also the metric: with `SecondMomentScales`, gradients are divided by released scales before clipping and noise
(scale-then-privatise), so that coordinates with small gradients get little noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.privacy.clipped_gradients import LARGEST_NORM, LEAST_NORM
from apportion.training.known_noise import AddedNoise, require


class Clip(Protocol):
    """A rule for the clip norm of each step, from public and released values."""

    @property
    def counted(self) -> float:
        """The share of the squared sensitivity for counting the units within the norm; 0 if they are not counted."""

    @property
    def start(self) -> float:
        """The norm of the first step."""

    def following(self, norm: float, within: float) -> float:
        """Return the next norm, from this one and the released fraction of units within it."""

    @property
    def sentence(self) -> str:
        """A sentence for the statement on what is public."""


@dataclass(frozen=True)
class FixedClip:
    """The same norm at every step.

    Attributes:
        norm: C.
    """

    norm: float = 1.0
    counted: float = 0.0

    def __post_init__(self) -> None:
        require("norm", self.norm, low=LEAST_NORM, high=LARGEST_NORM)
        if self.counted:
            raise InputError(f"Expected no count of units with a fixed norm, got {self.counted}.", argument="counted")

    @property
    def start(self) -> float:
        """The norm."""
        return self.norm

    def following(self, norm: float, within: float) -> float:
        """Return the same norm."""
        return norm

    @property
    def sentence(self) -> str:
        """A sentence for the statement."""
        return f"the norm {self.norm:g} to which gradients are clipped"


@dataclass(frozen=True)
class QuantileClip:
    """A norm that moves to a quantile of units' gradient lengths, by a count released with every step.

    C ← C exp(−rate (b̃ − quantile)), b̃ the released fraction of units whose gradients are within C (Andrew, Thakkar,
    McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping", 2021). The count is one more
    coordinate of the released vector; it raises the noise on gradients by the factor 1/√(1 − counted).

    Attributes:
        start: the norm of the first step.
        quantile: the fraction of units that should be within the norm.
        rate: the rate of the updates.
        counted: share of the squared sensitivity for the count.
        smallest: lower limit of the norm.
        largest: upper limit of the norm.
    """

    start: float = 1.0
    quantile: float = 0.5
    rate: float = 0.2
    counted: float = 0.01
    smallest: float = 1e-6
    largest: float = 1e6

    def __post_init__(self) -> None:
        require("quantile", self.quantile, low=0, high=1)
        require("smallest", self.smallest, low=LEAST_NORM, high=self.largest)
        require("largest", self.largest, low=self.smallest, high=LARGEST_NORM)
        require("start", self.start, low=self.smallest, high=self.largest)
        if not (0 < self.counted < 1 and self.rate > 0):
            raise InputError(
                f"Expected a rate above 0 and counted in (0, 1), got {self.rate} and {self.counted}.", argument=None
            )

    def following(self, norm: float, within: float) -> float:
        """Return the next norm. A released fraction outside [0, 1] is noise and is clipped."""
        moved = norm * math.exp(-self.rate * (min(max(within, 0.0), 1.0) - self.quantile))
        return min(max(moved, self.smallest), self.largest)

    @property
    def sentence(self) -> str:
        """A sentence for the statement."""
        return (
            f"the start {self.start:g}, quantile {self.quantile:g} and rate {self.rate:g} of a clip norm that follows "
            "released counts"
        )


@dataclass(frozen=True)
class ReleasedLoss:
    """Release the mean loss of units with every gradient, for a scheduler that watches a loss.

    A unit's loss is the mean over its rows, clipped to [0, largest]. The sum is one more coordinate of the released
    vector; it raises the noise on gradients by the factor 1/√(1 − share), and costs nothing else.

    Attributes:
        largest: the limit of a unit's loss.
        share: share of the squared sensitivity for the sum.
    """

    largest: float
    share: float = 0.02

    def __post_init__(self) -> None:
        if not (LEAST_NORM <= self.largest <= LARGEST_NORM and 0 < self.share < 1):
            raise InputError(
                f"Expected largest from {LEAST_NORM:g} to {LARGEST_NORM:g} and a share in (0, 1), got {self.largest} "
                f"and {self.share}.",
                argument="largest",
            )

    @property
    def sentence(self) -> str:
        """A sentence for the statement."""
        return f"the limit {self.largest:g} of a unit's loss, which a scheduler watches"


@dataclass(frozen=True)
class SecondMomentScales:
    """A rule for the relative noise of each coordinate, from the second moments of the gradients released so far.

    s = √max(v̂ − n̂, floor) over its mean, with v̂ and n̂ moving averages of released squares and of the noise in them,
    as in `DPAdamBC`. Gradients are clipped and get noise as g / s, and are multiplied by s again (scale-then-privatise:
    Ganesh, McMahan and Thakurta, "On Design Principles for Private Adaptive Optimizers", 2025).

    Attributes:
        beta: of the moving averages.
        noise_floor: the floor, relative to the mean of the noise's variance.
        after: number of initial steps with equal scales.
    """

    beta: float = 0.99
    noise_floor: float = 0.1
    after: int = 10

    def __post_init__(self) -> None:
        require("beta", self.beta, low=0, high=1, strictly_below=True)
        if not (self.noise_floor > 0 and self.after >= 1):
            raise InputError(
                f"Expected noise_floor above 0 and after of at least 1, got {self.noise_floor} and {self.after}.",
                argument=None,
            )

    def begin(self) -> MovingScales:
        """Return the scales of one training before its first step."""
        return MovingScales(self)


class MovingScales:
    """The scales of one training, updated by released gradients.

    Args:
        rule: how they are made.
    """

    def __init__(self, rule: SecondMomentScales) -> None:
        self._rule = rule
        self._steps = 0
        self._squares: list[Tensor] = []
        self._noise: list[Tensor] = []

    @property
    def state(self) -> dict[str, object]:
        """All that is needed to go on after a stop; released values only."""
        return {"steps": self._steps, "squares": list(self._squares), "noise": list(self._noise)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self._steps, self._squares, self._noise = state["steps"], list(state["squares"]), list(state["noise"])

    def scales(self) -> list[Tensor] | None:
        """Return one tensor for each parameter; None while all are 1."""
        if self._steps < self._rule.after:
            return None
        weight = 1 - self._rule.beta**self._steps
        noise = torch.cat([n.flatten() for n in self._noise]).mean() / weight
        moments = [(v - n) / weight for v, n in zip(self._squares, self._noise, strict=True)]
        roots = [m.clamp_min(float(self._rule.noise_floor * noise)).sqrt() for m in moments]
        mean = torch.cat([r.flatten() for r in roots]).mean()
        return [root / mean for root in roots]

    def observe(self, released: Sequence[Tensor], variances: Sequence[Tensor | float]) -> None:
        """Update from a released gradient and the variance of its noise."""
        if not self._steps:
            self._squares = [torch.zeros_like(g) for g in released]
            self._noise = [torch.zeros_like(g) for g in released]
        self._steps += 1
        for k, gradient in enumerate(released):
            self._squares[k].lerp_(gradient.square(), 1 - self._rule.beta)
            self._noise[k].lerp_(torch.zeros_like(gradient) + variances[k], 1 - self._rule.beta)


@dataclass(frozen=True)
class ComingStep:
    """How the next private step treats units; public and released values only.

    Attributes:
        clip_norm: the norm to which a unit's gradient is clipped.
        noise: the noise of the release, with the relative scales by which gradients are divided before clipping.
        mean_of_rows: whether a unit's gradient is the mean over its rows instead of the sum.
    """

    clip_norm: float
    noise: AddedNoise
    mean_of_rows: bool = False


def noise_of(
    stddev: float, divisor: float, parameters: Sequence[Tensor], scales: Sequence[Tensor] | None
) -> AddedNoise:
    """Return the noise that a release added to the gradients."""
    if scales is None:
        return AddedNoise(stddev, divisor)
    placed = {p: s.to(p.device, p.dtype) for p, s in zip(parameters, scales, strict=True)}
    return AddedNoise(stddev, divisor, placed)

"""What gradients are clipped to: a constant, or a norm that follows a quantile of gradient lengths and pays for it.

And in which metric: with `SecondMomentScales` gradients are divided by released scales before they are clipped and get
noise (scale-then-privatise), so that coordinates with small gradients get small noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from apportion.errors import InputError
from apportion.training.known_noise import AddedNoise, require


class Clip(Protocol):
    """A rule for the clip norm of each step, from public and released values."""

    @property
    def counted(self) -> float:
        """Share of the squared sensitivity that the count of units within the norm takes; 0 for none."""

    @property
    def start(self) -> float:
        """The norm of the first step."""

    def following(self, norm: float, within: float) -> float:
        """The next norm, from this one and the released fraction of units within it."""

    @property
    def sentence(self) -> str:
        """For the statement, on what is public."""


@dataclass(frozen=True)
class FixedClip:
    """The same norm at every step.

    Attributes:
        norm: C.
    """

    norm: float = 1.0
    counted: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.norm < math.inf or self.counted:
            raise InputError(f"Expected a finite clip norm above 0 and nothing counted, got {self.norm}.")

    @property
    def start(self) -> float:
        """The norm."""
        return self.norm

    def following(self, norm: float, within: float) -> float:
        """The same norm."""
        return norm

    @property
    def sentence(self) -> str:
        """For the statement."""
        return f"the norm {self.norm:g} that gradients are clipped to"


@dataclass(frozen=True)
class QuantileClip:
    """A norm that moves to a quantile of units' gradient lengths, by a count that is released with every step.

    C ← C exp(−rate (b̃ − quantile)), b̃ the released fraction of units whose gradients are within C (Andrew, Thakkar,
    McMahan and Ramaswamy, "Differentially Private Learning with Adaptive Clipping", 2021). The count is one more
    coordinate of the released vector; it raises the noise on gradients by the factor 1/√(1 − counted).

    Attributes:
        start: the norm of the first step.
        quantile: the fraction of units that shall be within the norm.
        rate: of the updates.
        counted: share of the squared sensitivity for the count.
        smallest: the norm stays at or above it.
        largest: the norm stays at or below it.
    """

    start: float = 1.0
    quantile: float = 0.5
    rate: float = 0.2
    counted: float = 0.01
    smallest: float = 1e-6
    largest: float = 1e6

    def __post_init__(self) -> None:
        require("quantile", self.quantile, low=0, high=1)
        require("start", self.start, low=self.smallest, high=self.largest)
        if not (0 < self.counted < 1 and self.rate > 0):
            raise InputError(f"Expected a rate above 0 and counted in (0, 1), got {self.rate} and {self.counted}.")

    def following(self, norm: float, within: float) -> float:
        """The next norm; a released fraction beyond [0, 1] is noise."""
        moved = norm * math.exp(-self.rate * (min(max(within, 0.0), 1.0) - self.quantile))
        return min(max(moved, self.smallest), self.largest)

    @property
    def sentence(self) -> str:
        """For the statement."""
        return (
            f"the start {self.start:g}, quantile {self.quantile:g} and rate {self.rate:g} of a clip norm that follows "
            "released counts"
        )


@dataclass(frozen=True)
class SecondMomentScales:
    """A rule for the relative noise of each coordinate, from the second moments of the gradients released so far.

    s = √max(v̂ − n̂, floor) over its mean, with v̂ and n̂ moving averages of released squares and of the noise in them,
    as in `DPAdamBC`. Gradients are clipped and get noise as g / s, and are multiplied by s again (scale-then-privatise:
    Ganesh, McMahan and Thakurta, "On Design Principles for Private Adaptive Optimizers", 2025).

    Attributes:
        beta: of the moving averages.
        noise_floor: the floor, relative to the mean of the noise's variance.
        after: how many steps are made with equal scales first.
    """

    beta: float = 0.99
    noise_floor: float = 0.1
    after: int = 10

    def __post_init__(self) -> None:
        require("beta", self.beta, low=0, high=1, strictly_below=True)
        if not (self.noise_floor > 0 and self.after >= 1):
            raise InputError(
                f"Expected noise_floor above 0 and after of at least 1, got {self.noise_floor} and {self.after}."
            )

    def begin(self) -> MovingScales:
        """The scales of one training, before its first step."""
        return MovingScales(self)


class MovingScales:
    """The scales of one training, as released gradients come in.

    Args:
        rule: how they are made.
    """

    def __init__(self, rule: SecondMomentScales) -> None:
        self._rule = rule
        self._steps = 0
        self._squares: list[Tensor] = []
        self._noise: list[Tensor] = []

    def scales(self) -> list[Tensor] | None:
        """One tensor for each parameter; None while all are 1."""
        if self._steps < self._rule.after:
            return None
        weight = 1 - self._rule.beta**self._steps
        noise = torch.cat([n.flatten() for n in self._noise]).mean() / weight
        moments = [(v - n) / weight for v, n in zip(self._squares, self._noise, strict=True)]
        roots = [m.clamp_min(float(self._rule.noise_floor * noise)).sqrt() for m in moments]
        mean = torch.cat([r.flatten() for r in roots]).mean()
        return [root / mean for root in roots]

    def observe(self, released: Sequence[Tensor], variances: Sequence[Tensor | float]) -> None:
        """Take in a released gradient and the variance of the noise in it."""
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
        clip_norm: that a unit's gradient is clipped to.
        noise: what the release will add, with the relative scales that gradients are divided by before the clip.
        mean_of_rows: whether a unit's gradient is the mean over its rows, instead of their sum.
    """

    clip_norm: float
    noise: AddedNoise
    mean_of_rows: bool = False


def noise_of(
    stddev: float, divisor: float, parameters: Sequence[Tensor], scales: Sequence[Tensor] | None
) -> AddedNoise:
    """What a release put into the gradients."""
    if scales is None:
        return AddedNoise(stddev, divisor)
    placed = {p: s.to(p.device, p.dtype) for p, s in zip(parameters, scales, strict=True)}
    return AddedNoise(stddev, divisor, placed)

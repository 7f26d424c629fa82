"""Releases that are all fixed before the first: on Poisson samples, or with Wishart noise, beside Gaussian ones.

No filter has a theorem for them that is as tight as their numerical composition, which needs to know them beforehand.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from apportion.privacy import accounting
from apportion.privacy.budget import Budget
from apportion.privacy.sampling import SampledShare
from apportion.privacy.wishart import WishartShare


@lru_cache(maxsize=256)  # repeated fits under one budget ask the same, and an answer takes a second
def noise_beside(mus: tuple[float, ...], probability: float, steps: int, budget: Budget) -> float:
    """The noise multiplier of sampled releases beside Gaussian ones of these μ, such that all fit the budget."""
    fixed = [accounting.Gaussian(1 / mu) for mu in mus]
    return accounting.calibrate(lambda z: [*fixed, accounting.SampledGaussian(z, probability, steps)], budget)


@lru_cache(maxsize=256)
def wishart_beside(mus: tuple[float, ...], spare_degrees: int, steps: int, budget: Budget) -> float:
    """The scale of Wishart noise over the squared bound of a model's norm, likewise."""
    fixed = [accounting.Gaussian(1 / mu) for mu in mus]
    return accounting.calibrate(lambda z: [*fixed, accounting.Wishart(z, spare_degrees, steps)], budget)


@lru_cache(maxsize=256)
def cost_of_all(mus: tuple[float, ...], share: SampledShare | WishartShare, made: int, budget: Budget) -> float:
    """ε of Gaussian releases of these μ and so many of the other kind, at the budget's δ."""
    parts: list[accounting.Mechanism] = [accounting.Gaussian(1 / mu) for mu in mus]
    if isinstance(share, WishartShare):
        parts += [accounting.Wishart(share.noise_multiplier, share.spare_degrees, made)] if made else []
    elif made:
        parts.append(accounting.SampledGaussian(share.noise_multiplier, share.probability, made))
    return accounting.epsilon_of(parts, budget.delta, accounting.interval_for(budget)) if parts else 0.0


@dataclass
class FixedSchedule:
    """What a session with sampled or Wishart releases may still do; all was fixed before the first of them."""

    gaussian: Counter[float]
    sampled: SampledShare | WishartShare
    made: int = 0

    @property
    def kind(self) -> str:
        """By which it was planned."""
        return "wishart" if isinstance(self.sampled, WishartShare) else "sampled"

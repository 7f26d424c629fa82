"""Noise on the counts of private keys. Counts below a threshold are never released.

The threshold follows from the part of δ that the list may use (docs/proofs/keys.md). Noisy counts are rounded to a
public grid, so they are compared with the threshold plus one step of that grid.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from apportion.errors import BudgetError
from apportion.privacy.bounds import FloatArray
from apportion.privacy.budget import Share
from apportion.privacy.keys import KeyedSum, KeyedValues, Law, Listed, threshold_for
from apportion.privacy.mechanisms.gaussian import draw_gaussian
from apportion.privacy.mechanisms.grid import UPWARDS
from apportion.privacy.mechanisms.laplace import draw_laplace
from apportion.privacy.mechanisms.mechanism import Mechanism, Opened
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.statement import Release

_LEAST_SCALE = 2.0**-12  # with at least this noise, the lattice of the counts is finer than the grid
GRID = 2.0**-19  # exceeds the step of the grid of releases, divided by the scale of the noise


def refuse_little_noise(scale: float) -> None:
    """Refuse noise that is so small that the lattice of the counts would be coarser than the grid of releases."""
    if scale < _LEAST_SCALE:
        raise BudgetError(f"Expected noise of at least {_LEAST_SCALE:g} on counts of private keys, got {scale}.")


@dataclass(frozen=True)
class Thresholded(Mechanism[Share]):
    """Lists the keys whose counts with noise pass a threshold, with those counts.

    Args:
        keys_delta: the part of δ that this list may use.
    """

    keys_delta: float

    law: ClassVar[Law]
    takes = KeyedSum
    exact = True

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return f"{self.law.capitalize()}, keys above a threshold"

    @property
    def delta(self) -> float:
        """The part of δ that the list may use."""
        return self.keys_delta

    def threshold(self, statistic: KeyedSum, scale: float) -> float:
        """Return what a noisy count must reach to be listed."""
        return self._threshold(statistic, scale)

    def _threshold(self, counted: KeyedSum | KeyedValues, scale: float) -> float:
        refuse_little_noise(scale)
        own = counted.own
        return threshold_for(self.keys_delta, scale * UPWARDS, own.most, self.law, own.least) + GRID * scale

    @abstractmethod
    def _noisy(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        """Return the noisy counts."""

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> Listed:
        """Return the keys that pass, and the public ones."""
        values: KeyedValues = opened.value
        counts = np.asarray(self._noisy(replace(opened, value=values.counts), scale, noise), np.float64)
        threshold = self._threshold(values, scale)
        listed = values.known | (counts >= threshold)
        texts = tuple(str(text) for text in values.texts[listed])
        return Listed(texts, counts[listed], values.known[listed], threshold, scale)

    def distance(self, one: KeyedValues, other: KeyedValues, scales: FloatArray | None) -> float:
        """Return the distance between the counts; a key that one side lacks counts as 0 there."""
        first, second = aligned(one, other)
        return float(np.linalg.norm(first - second, ord=2 if self.law == "gaussian" else 1))


@dataclass(frozen=True)
class ThresholdedGaussian(Thresholded):
    """Gaussian noise of σ = L2 sensitivity / μ: μ-GDP, plus the part of δ for keys held by one user alone."""

    key = "gaussian-with-threshold"
    law = "gaussian"

    def sensitivity(self, statistic: KeyedSum) -> float:
        """Return the L2 sensitivity."""
        return statistic.l2_sensitivity

    def scale(self, statistic: KeyedSum, share: Share) -> float:
        """Return σ."""
        return statistic.l2_sensitivity / share.mu

    def _noisy(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        return draw_gaussian(opened, scale, noise)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return sensitivity over μ."""
        return release.sensitivity / release.mu if release.mu else None


@dataclass(frozen=True)
class ThresholdedLaplace(Thresholded):
    """Laplace noise of b = L1 sensitivity / ε: ε-DP, plus the part of δ for keys held by one user alone."""

    key = "laplace-with-threshold"
    law = "laplace"
    pure = True

    def sensitivity(self, statistic: KeyedSum) -> float:
        """Return the L1 sensitivity."""
        return statistic.l1_sensitivity

    def scale(self, statistic: KeyedSum, share: Share) -> float:
        """Return b."""
        return statistic.l1_sensitivity / share.pure_epsilon

    def stddev(self, statistic: KeyedSum, scale: float) -> float:
        """Return √2 b."""
        return scale * math.sqrt(2)

    def _noisy(self, opened: Opened, scale: float, noise: NoiseSource) -> NDArray[Any]:
        return draw_laplace(opened, scale, noise)

    @classmethod
    def least_stddev(cls, release: Release) -> float | None:
        """Return √2 times sensitivity over ε."""
        return math.sqrt(2) * release.sensitivity / release.epsilon if release.epsilon else None


def aligned(*several: KeyedValues) -> list[NDArray[np.float64]]:
    """Return the counts of each over the keys of all, 0 for a missing key; for audits."""
    by_text = [dict(zip(each.texts.tolist(), each.counts.tolist(), strict=True)) for each in several]
    texts = sorted({text for each in by_text for text in each})
    return [np.array([each.get(text, 0.0) for text in texts], np.float64) for each in by_text]

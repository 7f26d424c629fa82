"""A list of keys in two rounds. The second round decides by the noisy counts of both.

The first round lists keys that pass with a small share, and keeps its noisy counts of all other keys hidden. They say
which keys are worth a user's weight in the second round. In that round a key is listed if y + r x passes a threshold,
where x and y are its noisy counts in the first and the second round. The weight of one user alone is bounded in both
rounds, so the threshold follows as for one round (docs/proofs/key_rounds.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import BudgetError
from apportion.privacy.bounded_sum import _KEY
from apportion.privacy.keys import KeyedSum, KeyedValues, Listed, OwnWeights, threshold_of
from apportion.privacy.mechanisms.grid import UPWARDS
from apportion.privacy.mechanisms.mechanism import Opened
from apportion.privacy.mechanisms.thresholded import GRID, ThresholdedGaussian, refuse_little_noise
from apportion.privacy.noise import NoiseSource
from apportion.privacy.seen_keys import NoisyCounts, Seen


@dataclass(frozen=True)
class FirstLook(ThresholdedGaussian):
    """Lists the keys that pass. The noisy counts of all keys stay hidden, for the second round."""

    key = "gaussian-first-look"

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> Seen:
        """Return the keys that pass, and what the second round needs."""
        values: KeyedValues = opened.value
        counts = np.asarray(self._noisy(replace(opened, value=values.counts), scale, noise), np.float64)
        threshold = self._threshold(values, scale)
        listed = values.known | ((values.counts > 0) & (counts >= threshold))
        texts = tuple(str(text) for text in values.texts[listed])
        hidden = NoisyCounts(values.texts, counts)
        return Seen(texts, counts[listed], values.known[listed], threshold, scale, values.own, hidden)


@dataclass(frozen=True)
class SecondLook(ThresholdedGaussian):
    """Lists further keys, by the noisy counts of both rounds.

    Args:
        keys_delta: the part of δ that this list may use.
        first: the first round.
        weight: r, the weight of a noisy count of the first round relative to one of the second.
    """

    first: Seen
    weight: float

    key = "gaussian-second-look"

    @property
    def words(self) -> str:
        """The name of the mechanism."""
        return "Gaussian, keys above a threshold in two rounds"

    def level(self, own: OwnWeights, scale: float) -> float:
        """Return the count that passes half of the time, if a key has the same count in both rounds."""
        return self._for(own, scale) / (1 + self.weight)

    def _threshold(self, counted: KeyedSum | KeyedValues, scale: float) -> float:
        return self._for(counted.own, scale)

    def _for(self, own: OwnWeights, scale: float) -> float:
        refuse_little_noise(scale)
        first, weight = self.first, self.weight
        if own.most != first.own.most or not 0 <= weight < math.inf:
            raise BudgetError("Expected as many keys of a user in the second round as in the first.")
        spread = math.hypot(scale, weight * first.scale) * UPWARDS
        largest = own.each("gaussian") + weight * first.own.each("gaussian")[: own.most]
        return threshold_of(self.keys_delta, spread, largest, "gaussian") + GRID * (scale + weight * first.scale)

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> Listed:
        """Return the keys that pass."""
        values: KeyedValues = opened.value
        noisy: NDArray[Any] = self._noisy(replace(opened, value=values.counts), scale, noise)
        both = np.asarray(noisy, np.float64) + self.weight * self.first.hidden._found(_KEY, values.texts)
        threshold = self._threshold(values, scale)
        listed = both >= threshold
        texts = tuple(str(text) for text in values.texts[listed])
        return Listed(texts, both[listed], values.known[listed], threshold, scale)

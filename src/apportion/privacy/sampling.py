"""Poisson samples of users: each user takes part in a release with the same probability, independently of all others.

A sample is drawn from a fresh secret and each user's own key, so that who else is there does not move it: the runs on
two neighbouring data sets can be coupled, as the proof and the auditor do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
"""Two numbers for each user, of 128 bits together, from the user's id alone."""
LEAST_PROBABILITY = 1e-6  # of a sample; a hash has 53 bits, and a rarer event would be rounded


def poisson_sample(keys: Keys, secret: tuple[int, int], probability: float) -> NDArray[np.bool_]:
    """Who takes part: a hash of the user's key and the secret, as a number in [0, 1), below the probability.

    Compared in whole numbers of 2^-53, the probability rounded down.
    """
    mixed = mixed_bits(keys[:, 0] ^ np.uint64(secret[0]))
    mixed = mixed_bits(mixed ^ keys[:, 1])
    mixed = mixed_bits(mixed ^ np.uint64(secret[1]))
    return np.asarray((mixed >> np.uint64(11)) < np.uint64(math.floor(probability * 2.0**53)))


def mixed_bits(values: NDArray[Any]) -> Keys:
    """Each 64-bit number mixed so that every bit of it moves half of the others (the finaliser of SplitMix64)."""
    mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)

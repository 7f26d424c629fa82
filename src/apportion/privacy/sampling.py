"""Poisson samples of users: each user takes part in a release with the same probability, independently of all others.

Membership is a pseudo-random function (ChaCha20) of the user's own key under a fresh secret, so it does not depend on
other users: the runs on two neighbouring data sets can be coupled, as the proof and the auditor do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import keyed_words

Keys = NDArray[np.uint64]
"""Two numbers for each user, of 128 bits together, from the user's id alone."""
LEAST_PROBABILITY = 1e-6  # of a sample; a number has 53 bits, and a rarer event would be rounded


@dataclass(frozen=True)
class Sample:
    """A Poisson sample of the users, as a value: who is in it follows from each user's own key.

    Attributes:
        secret: 32 bytes, fresh for each sample; never stored.
        probability: with which a user is in it.
    """

    secret: bytes = field(repr=False)
    probability: float

    def members(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of the users with these keys are in it."""
        return poisson_sample(keys, self.secret, self.probability)


def poisson_sample(keys: Keys, secret: bytes, probability: float) -> NDArray[np.bool_]:
    """Who takes part: ChaCha20 keyed by the secret at the user's own key, as a number in [0, 1), below the probability.

    Compared in whole numbers of 2^-53, the probability rounded down.

    Args:
        keys: of the users.
        secret: 32 bytes, fresh for each sample.
        probability: of each user.
    """
    numbers = keyed_words(secret, keys) >> np.uint64(11)
    return np.asarray(numbers < np.uint64(math.floor(probability * 2.0**53)))

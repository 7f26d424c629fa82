"""Poisson samples of users: each user takes part in a release with the same probability, independently of all others.

Membership is a pseudo-random function (ChaCha20) of the user's own key under a fresh secret. It does not depend on
other users, so runs on two neighbouring data sets can be coupled, as the proof and the auditor do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import keyed_words

Keys = NDArray[np.uint64]
"""Two numbers for each user, 128 bits together, derived from the user's id alone."""
LEAST_PROBABILITY = 1e-6  # least probability of a sample; numbers have 53 bits, so a rarer event would be rounded


@dataclass(frozen=True)
class Sample:
    """A Poisson sample of the users, as a value. Each user's own key decides whether the user is in it.

    Attributes:
        secret: 32 bytes, fresh for each sample; never stored.
        probability: the probability that a user is in it.
    """

    secret: bytes = field(repr=False)
    probability: float

    def members(self, keys: Keys) -> NDArray[np.bool_]:
        """Return which of the users with these keys are in the sample."""
        return poisson_sample(keys, self.secret, self.probability)


def poisson_sample(keys: Keys, secret: bytes, probability: float) -> NDArray[np.bool_]:
    """Return which users take part: those whose ChaCha20 output, as a number in [0, 1), is below the probability.

    ChaCha20 is keyed by the secret and evaluated at the user's own key. Numbers are compared in whole multiples of
    2^-53, with the probability rounded down.

    Args:
        keys: the users' keys.
        secret: 32 bytes, fresh for each sample.
        probability: the probability of each user.
    """
    numbers = keyed_words(secret, keys) >> np.uint64(11)
    return np.asarray(numbers < np.uint64(math.floor(probability * 2.0**53)))

"""Counts as estimators release them: weighted, with noise, deconvolved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Weights
from apportion.allocation.policies import Allocated, Allocation, TaskCounts
from apportion.data import Interactions
from apportion.engines import Engine
from apportion.engines.protocol import UserChunk
from apportion.errors import InputError
from apportion.postprocessing.popularity import posterior_popularity
from apportion.privacy import Purpose, Session, Share

LEAST_USERS = 10.0  # a noisy number of users is not believed below this


def release_number_of_users(data: Interactions, session: Session, engine: Engine, share: Share) -> float:
    """Release how many users have data; one user moves it by 1."""

    def part(chunk: UserChunk) -> NDArray[np.float64]:
        return np.ones((len(chunk.indptr) - 1, 1))

    sums = engine.user_sum(data, part, 1, 1.0, "one for each user")
    return max(float(session.release(Purpose.NUMBER_OF_USERS, sums, share)[0]), LEAST_USERS)


def release_overview(
    data: Interactions,
    session: Session,
    engine: Engine,
    share: Share,
    value_range: tuple[float, float],
    declared_users: int | None,
) -> tuple[float, float]:
    """Release the number of users and the mean of users' mean values, together; a declared number stands instead.

    A user's part is one and its own mean value, scaled to [-1, 1]: of norm at most √2.
    """
    low, high = value_range
    middle, half = (low + high) / 2, (high - low) / 2

    def part(chunk: UserChunk) -> NDArray[np.float64]:
        values = np.clip(chunk.values, low, high)
        sums = np.bincount(chunk.owner, values - middle, minlength=len(chunk.indptr) - 1)
        means = sums / np.maximum(np.diff(chunk.indptr), 1) / half
        return np.stack([np.ones_like(means), means], axis=1)

    total = engine.user_sum(data, part, 2, float(np.sqrt(2)), "one, and the scaled mean of a user")
    released = session.release(Purpose.OVERVIEW, total, share)
    n_users = float(declared_users or max(float(released[0]), LEAST_USERS))
    return n_users, middle + half * float(np.clip(released[1] / n_users, -1, 1))


def allocated(
    data: Interactions,
    policy: Allocation,
    session: Session,
    engine: Engine,
    shares: Sequence[Share],
    n_users: float,
) -> Allocated:
    """What the policy gives; each count that it asks for is released with the next share."""
    left = list(enumerate(shares))

    def count(weights: Weights) -> TaskCounts:
        if not left:
            raise InputError(f"The allocation asked for more than the {len(shares)} counts that it declares.")
        number, share = left.pop(0)
        name = Purpose.POPULARITY.at(step=number + 1 if number else None)
        released = session.release(name, engine.counts(data, weights), share)
        stddev = 1.0 / share.mu
        return TaskCounts(posterior_popularity(released, stddev, n_users).mean, stddev, n_users)

    for sentence in getattr(policy, "assumes", ()):
        session.assume_public(sentence)
    return policy.allocate(data, count, n_users)

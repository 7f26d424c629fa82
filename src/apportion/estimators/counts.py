"""Counts as estimators release them: weighted, with noise, deconvolved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Weights
from apportion.allocation.policies import Allocation, Count, TaskCounts
from apportion.data import Interactions
from apportion.engines import Engine
from apportion.engines.protocol import UserChunk
from apportion.errors import InputError
from apportion.postprocessing.popularity import posterior_popularity
from apportion.privacy import Session, Share

LEAST_USERS = 10.0  # a noisy number of users is not believed below this


def release_number_of_users(data: Interactions, session: Session, engine: Engine, share: Share) -> float:
    """Release how many users have data; one user moves it by 1."""

    def part(chunk: UserChunk) -> NDArray[np.float64]:
        return np.ones((len(chunk.indptr) - 1, 1))

    sums = engine.user_sum(data, part, 1, 1.0, "one for each user")
    return max(float(session.release("number of users", sums, share)[0]), LEAST_USERS)


def allocated(
    data: Interactions,
    allocation: Allocation,
    session: Session,
    engine: Engine,
    shares: list[Share],
    n_users: float,
) -> Weights:
    """The policy's weights; each count that it asks for is released with the next share."""
    count = counter(data, session, engine, iter(shares), n_users)
    return allocation.weights(data, count)


def counter(data: Interactions, session: Session, engine: Engine, shares: Iterator[Share], n_users: float) -> Count:
    """A function that releases Σ_j w_ij for given weights and returns what the release says of it."""
    made = 0

    def count(weights: Weights) -> TaskCounts:
        nonlocal made
        share = next(shares, None)
        if share is None:
            raise InputError(f"The allocation asked for more counts than the {made} it declares.")
        made += 1
        name = "popularity" if made == 1 else f"popularity {made}"
        released = session.release(name, engine.counts(data, weights), share)
        stddev = 1.0 / share.mu
        return TaskCounts(posterior_popularity(released, stddev, n_users).mean, stddev, n_users)

    return count

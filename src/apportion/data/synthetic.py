"""Synthetic long-tailed data with a known truth, of any size: ratings and clicks.

The popularity of tasks falls as a power of their rank, and users have a log-normal activity. Task codes are in random
order, so a code says nothing about popularity. Every user has at least one observation, pairs are distinct, and the
number of observations is exact. The same generator state gives the same data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion.data.interactions import Interactions
from apportion.data.sampling import draw_distinct
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError

__all__ = ["ClickTruth", "RatingTruth", "long_tailed_clicks", "long_tailed_ratings"]

_ROWS_AT_ONCE = 1 << 18
_STAR_STEPS = {"whole": 1.0, "half": 0.5}


@dataclass(frozen=True, eq=False)
class RatingTruth:
    """The truth behind the ratings: mean + user bias + task bias + user factors · task factors + noise."""

    global_mean: float
    user_bias: NDArray[np.float32]
    task_bias: NDArray[np.float32]
    user_factors: NDArray[np.float32]
    task_factors: NDArray[np.float32]
    noise_stddev: float
    popularity: NDArray[np.float64]

    def expected(self, users: NDArray[np.integer], tasks: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the rating without noise (and before rounding to stars) for parallel arrays of codes."""
        means = np.empty(len(users), np.float32)
        for start in range(0, len(users), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            user, task = users[rows], tasks[rows]
            taste = np.einsum("nd,nd->n", self.user_factors[user], self.task_factors[task])
            means[rows] = self.global_mean + self.user_bias[user] + self.task_bias[task] + taste
        return means


@dataclass(frozen=True, eq=False)
class ClickTruth:
    """The truth behind the clicks: p(task | user) = Σ_k mixture[user, k] profiles[k, task], of low rank."""

    mixture: NDArray[np.float32]
    profiles: NDArray[np.float32]
    popularity: NDArray[np.float64]

    def probabilities(self, users: NDArray[np.integer]) -> NDArray[np.float32]:
        """Return each task's probability of being a user's next click; one row per user."""
        result: NDArray[np.float32] = self.mixture[users] @ self.profiles
        return result


def long_tailed_ratings(
    n_users: int,
    n_tasks: int,
    n_observations: int,
    *,
    rank: int,
    rng: np.random.Generator,
    skew: float = 1.0,
    activity_spread: float = 1.0,
    global_mean: float = 3.5,
    user_bias_stddev: float = 0.4,
    task_bias_stddev: float = 0.4,
    taste_stddev: float = 0.5,
    noise_stddev: float = 0.8,
    stars: Literal["whole", "half"] | None = None,
) -> tuple[Interactions, RatingTruth]:
    """Generate ratings with biases, a low-rank part and noise; which tasks a user rates depends on popularity alone.

    Args:
        n_users: how many users; their ids are 0 to n_users - 1.
        n_tasks: how many tasks, some of which may stay unrated.
        n_observations: how many ratings.
        rank: dimension of the low-rank part.
        rng: source of everything random.
        skew: popularity of the task of rank r is proportional to r**-skew.
        activity_spread: standard deviation of the logarithm of users' activity.
        global_mean: the mean rating.
        user_bias_stddev: spread of users' biases.
        task_bias_stddev: spread of tasks' biases.
        taste_stddev: spread of the low-rank part, whatever the rank.
        noise_stddev: spread of the noise.
        stars: round to whole or half stars and keep within 1 to 5; `None` leaves real numbers.
    """
    if stars is not None and stars not in _STAR_STEPS:
        raise InputError(f"Expected stars to be 'whole', 'half' or None, got {stars!r}.", argument="stars")
    if rank < 1:
        raise InputError(f"Expected rank >= 1, got {rank}.", argument="rank")
    popularity = _power_law(n_tasks, skew, rng)
    degrees = _activity(n_users, n_tasks, n_observations, activity_spread, rng)
    users, tasks = draw_distinct(degrees, _ByPopularity(popularity), rng)
    factor_stddev = math.sqrt(taste_stddev) / rank**0.25
    truth = RatingTruth(
        global_mean=global_mean,
        user_bias=_normals(rng, n_users, stddev=user_bias_stddev),
        task_bias=_normals(rng, n_tasks, stddev=task_bias_stddev),
        user_factors=_normals(rng, n_users, rank, stddev=factor_stddev),
        task_factors=_normals(rng, n_tasks, rank, stddev=factor_stddev),
        noise_stddev=noise_stddev,
        popularity=popularity,
    )
    values = truth.expected(users, tasks) + _normals(rng, len(users), stddev=noise_stddev)
    if stars is not None:
        step = np.float32(_STAR_STEPS[stars])
        values = np.clip(np.rint(values / step) * step, 1.0, 5.0)
    return _assembled(users, tasks, values, n_users, n_tasks), truth


def long_tailed_clicks(
    n_users: int,
    n_tasks: int,
    n_observations: int,
    *,
    rank: int,
    rng: np.random.Generator,
    skew: float = 1.0,
    activity_spread: float = 1.0,
    taste_strength: float = 1.5,
    concentration: float = 0.3,
) -> tuple[Interactions, ClickTruth]:
    """Generate clicks of users who mix `rank` tastes; each taste is a distribution over tasks, tilted from popularity.

    A user's clicks are drawn one after another from p(task | user), without repeats.

    Args:
        n_users: how many users; their ids are 0 to n_users - 1.
        n_tasks: how many tasks, some of which may stay without a click.
        n_observations: how many clicks.
        rank: how many tastes there are.
        rng: source of everything random.
        skew: popularity of the task of rank r is proportional to r**-skew.
        activity_spread: standard deviation of the logarithm of users' activity.
        taste_strength: standard deviation of the logarithm by which a taste raises or lowers a task.
        concentration: Dirichlet parameter of users' mixtures; small values give users with one taste.
    """
    if rank < 1:
        raise InputError(f"Expected rank >= 1, got {rank}.", argument="rank")
    popularity = _power_law(n_tasks, skew, rng)
    degrees = _activity(n_users, n_tasks, n_observations, activity_spread, rng)
    tilted = popularity * np.exp(rng.normal(scale=taste_strength, size=(rank, n_tasks)))
    mixture = rng.standard_gamma(concentration, size=(n_users, rank)) + 1e-6
    truth = ClickTruth(
        mixture=(mixture / mixture.sum(axis=1, keepdims=True)).astype(np.float32),
        profiles=(tilted / tilted.sum(axis=1, keepdims=True)).astype(np.float32),
        popularity=popularity,
    )
    users, tasks = draw_distinct(degrees, _ByTaste(truth), rng)
    return _assembled(users, tasks, np.ones(len(users), np.float32), n_users, n_tasks), truth


class _ByPopularity:
    """All users choose tasks by popularity."""

    def __init__(self, popularity: NDArray[np.float64]) -> None:
        self._popularity = popularity
        self._table = _InverseTable(popularity)

    @property
    def n_tasks(self) -> int:
        return len(self._popularity)

    def draw(self, users: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        return self._table.draw(len(users), rng)

    def log_probabilities(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        row = np.log(self._popularity).astype(np.float32)
        return np.repeat(row[None, :], len(users), axis=0)


class _ByTaste:
    """A user first draws one of its tastes, then a task from it."""

    def __init__(self, truth: ClickTruth) -> None:
        self._truth = truth
        self._thresholds = np.cumsum(truth.mixture, axis=1)[:, :-1]
        self._tables = [_InverseTable(profile.astype(np.float64)) for profile in truth.profiles]

    @property
    def n_tasks(self) -> int:
        return len(self._truth.popularity)

    def draw(self, users: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        level = rng.random(len(users), dtype=np.float32)
        taste = np.zeros(len(users), np.int64)
        for threshold in self._thresholds.T:
            taste += level >= threshold[users]
        tasks = np.empty(len(users), np.int64)
        for position, table in enumerate(self._tables):
            here = np.flatnonzero(taste == position)
            tasks[here] = table.draw(len(here), rng)
        return tasks

    def log_probabilities(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        tiny = np.finfo(np.float32).tiny
        result: NDArray[np.float32] = np.log(np.maximum(self._truth.probabilities(users), tiny))
        return result


class _InverseTable:
    """Draws from a distribution over tasks by inverting its distribution function."""

    def __init__(self, probabilities: NDArray[np.float64]) -> None:
        self._cumulative = np.cumsum(probabilities)
        self._cumulative /= self._cumulative[-1]

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        found = np.searchsorted(self._cumulative, rng.random(size), side="right")
        return np.minimum(found, len(self._cumulative) - 1)


def _power_law(n_tasks: int, skew: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return popularities that add up to 1, in random order."""
    if n_tasks < 1 or skew < 0:
        raise InputError(f"Expected n_tasks >= 1 and skew >= 0, got {n_tasks} and {skew}.", argument=None)
    weights = rng.permutation(np.arange(1, n_tasks + 1) ** -float(skew))
    result: NDArray[np.float64] = weights / weights.sum()
    return result


def _activity(
    n_users: int, n_tasks: int, n_observations: int, spread: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the number of observations of each user: log-normal, from 1 to n_tasks, adding up to n_observations."""
    if not 0 < n_users <= n_observations <= n_users * n_tasks:
        raise InputError(
            f"Expected from {n_users} (one per user) to {n_users * n_tasks} (all pairs) observations "
            f"of at least one user, got {n_observations}.",
            argument="n_observations",
        )
    weights = np.exp(rng.normal(scale=spread, size=n_users))
    degrees = np.ones(n_users, np.int64)
    while (left := n_observations - int(degrees.sum())) > 0:
        room = degrees < n_tasks
        share = np.where(room, weights, 0.0)
        extra = np.floor(left * share / share.sum()).astype(np.int64)
        if not extra.any():  # the remainder, less than one each, goes to those with the largest share
            extra[np.argsort(-share, kind="stable")[: min(left, int(room.sum()))]] = 1
        degrees = np.minimum(degrees + extra, n_tasks)
    return degrees


def _normals(rng: np.random.Generator, *shape: int, stddev: float) -> NDArray[np.float32]:
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(stddev)


def _assembled(
    users: NDArray[np.int32],
    tasks: NDArray[np.int32],
    values: NDArray[np.float32],
    n_users: int,
    n_tasks: int,
) -> Interactions:
    return Interactions(
        users=users,
        tasks=tasks,
        values=values.astype(np.float32, copy=False),
        timestamps=None,
        user_ids=Vocabulary.of_range(n_users, name="user"),
        task_ids=Vocabulary.of_range(n_tasks, name="item"),
    )

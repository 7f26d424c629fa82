"""Splits: parts of a data set for training, validation and test, all under the same vocabularies.

For rating prediction, observations are partitioned at random. For top-k recommendation, whole users are held out: they
are not in training, and the model sees part of their observations (the history) and must predict the rest (the target).
Splits are public choices: they draw from a NumPy generator, never from a noise source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.interactions import Interactions

MIN_OBSERVATIONS_HELD_OUT: Final = 5
"""A user with fewer observations is never held out: there would be too little to show and to predict."""


@dataclass(frozen=True)
class HeldOut:
    """The shown and the hidden rows of held-out users."""

    history: Interactions
    target: Interactions


@dataclass(frozen=True)
class UserSplit:
    """Users for training, and two sets of held-out users."""

    train: Interactions
    validation: HeldOut
    test: HeldOut


def split_by_value(
    data: Interactions, rng: np.random.Generator, fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
) -> tuple[Interactions, ...]:
    """Partition the observations at random into parts of the given fractions.

    Args:
        data: the observations.
        rng: the source of randomness.
        fractions: sizes of the parts, adding up to 1; each part is within one observation of its fraction.

    Example:
        >>> from apportion.data import Interactions
        >>> data = Interactions.from_arrays([1, 1, 2, 2, 3], [1, 2, 1, 2, 3])
        >>> [part.n_observations for part in data.split_by_value(np.random.default_rng(0), (0.6, 0.4))]
        [3, 2]
    """
    edges = _edges(data.n_observations, fractions)
    part_of = np.empty(data.n_observations, np.int8)
    part_of[rng.permutation(data.n_observations)] = np.repeat(np.arange(len(fractions), dtype=np.int8), np.diff(edges))
    return tuple(data.where(part_of == part) for part in range(len(fractions)))


def split_by_time(data: Interactions, fractions: tuple[float, ...] = (0.8, 0.1, 0.1)) -> tuple[Interactions, ...]:
    """Partition the observations by time, the earliest first. Ties are broken by the order of the rows.

    Args:
        data: the observations, with timestamps.
        fractions: sizes of the parts, adding up to 1; each part is within one observation of its fraction.

    Example:
        >>> from apportion.data import Interactions
        >>> data = Interactions.from_arrays([1, 1, 2, 2], [1, 2, 1, 2], timestamps=[40, 10, 30, 20])
        >>> [part.timestamps.tolist() for part in split_by_time(data, (0.5, 0.5))]
        [[10, 20], [40, 30]]
    """
    edges = _edges(data.n_observations, fractions)
    part_of = np.empty(data.n_observations, np.int8)
    order = np.argsort(_times(data), kind="stable")
    part_of[order] = np.repeat(np.arange(len(fractions), dtype=np.int8), np.diff(edges))
    return tuple(data.where(part_of == part) for part in range(len(fractions)))


def _times(data: Interactions) -> NDArray[np.int64]:
    if data.timestamps is None:
        raise InputError("Expected data with timestamps, to split it by time; there are none.", argument="timestamps")
    return data.timestamps


def split_by_users(
    data: Interactions,
    rng: np.random.Generator,
    n_validation: int,
    n_test: int,
    history: float = 0.8,
    *,
    by_time: bool = False,
) -> UserSplit:
    """Hold out whole users, chosen at random among those with at least five observations.

    Each held-out user's observations are divided into a history and a target, each of at least one observation: at
    random, or the earlier and the later ones. Everybody else is for training.

    Args:
        data: the observations.
        rng: chooses the users and their histories.
        n_validation: number of users held out for validation.
        n_test: number of users held out for test.
        history: fraction of a held-out user's observations that is shown.
        by_time: whether the earliest observations are shown, instead of random ones.
    """
    if not 0.0 < history < 1.0:
        raise InputError(f"Expected 0 < history < 1, got {history}.", argument="history")
    chosen = _choose_users(data, rng, n_validation, n_test)
    validation, test = (data.select_users(users) for users in (chosen[:n_validation], chosen[n_validation:]))
    training = np.ones(data.n_users, bool)
    training[chosen] = False
    return UserSplit(
        train=data.select_users(training),
        validation=_show_history(validation, rng, history, by_time),
        test=_show_history(test, rng, history, by_time),
    )


def _edges(n_observations: int, fractions: tuple[float, ...]) -> NDArray[np.int64]:
    if len(fractions) > 127 or min(fractions, default=-1.0) < 0 or not math.isclose(sum(fractions), 1.0):
        raise InputError(
            f"Expected fractions that are not negative and add up to 1, got {fractions}.", argument="fractions"
        )
    edges: NDArray[np.int64] = np.rint(np.concatenate([[0.0], np.cumsum(fractions)]) * n_observations).astype(np.int64)
    for fraction, size in zip(fractions, np.diff(edges), strict=True):
        if fraction > 0 and size == 0:
            raise InputError(
                f"There are too few observations to divide: a fraction of {fraction} of {n_observations} is none.",
                argument="fractions",
            )
    return edges


def _choose_users(data: Interactions, rng: np.random.Generator, n_validation: int, n_test: int) -> NDArray[np.int64]:
    if n_validation < 0 or n_test < 0:
        raise InputError(
            f"Expected numbers of users that are not negative, got {min(n_validation, n_test)}.", argument=None
        )
    eligible = np.flatnonzero(data.by_user.counts >= MIN_OBSERVATIONS_HELD_OUT)
    wanted = n_validation + n_test
    if wanted > len(eligible):
        raise InputError(
            f"Cannot hold out {n_validation} + {n_test} users for validation and test: only {len(eligible)} of "
            f"{data.n_users} users have the {MIN_OBSERVATIONS_HELD_OUT} observations that this takes.",
            argument=None,
        )
    return rng.choice(eligible, size=wanted, replace=False)


def _show_history(data: Interactions, rng: np.random.Generator, fraction: float, by_time: bool) -> HeldOut:
    """Divide every user's observations. Time, or a random order within the user, decides which are shown."""
    counts = data.by_user.counts
    n_shown = np.clip(np.rint(counts * fraction).astype(np.int64), 1, np.maximum(counts - 1, 1))
    order = np.lexsort((_times(data) if by_time else rng.random(data.n_observations), data.users))
    rank = np.empty(data.n_observations, np.int64)
    rank[order] = np.arange(data.n_observations) - data.by_user.indptr[data.users]
    shown = rank < n_shown[data.users]
    return HeldOut(history=data.where(shown), target=data.where(~shown))

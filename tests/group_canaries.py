"""Canary users in one fit of sums by group: each is in or out by a coin, in a group that nobody else is in.

The list of groups is public, so the fit spends nearly all of its ε on one number for each canary, with Laplace noise:
among the largest and the smallest numbers a guess of the coin is right with probability 1 / (1 + exp(-ε)). An engine
that counts users twice shows nearly twice the ε.
"""

from __future__ import annotations

import numpy as np

from apportion.auditing.canaries import epsilon_from_guesses
from apportion.data.users import Users
from apportion.privacy import SeededNoise
from apportion.statistics import UserGroupBy

ALPHA = 1e-6  # probability that an honest fit shows more than its ε
CANARIES, GUESSED = 4000, 0.15  # as a share, at each end
EPSILON = 1.0


def shown_by_canaries(engine, *, canaries=CANARIES, seed=0):
    """The lower bound on ε that one fit shows on this engine."""
    inside = np.random.default_rng(seed).random(canaries) < 0.5
    own = np.flatnonzero(inside)
    groups = [f"{k:06}" for k in range(canaries)]
    made = UserGroupBy(
        "sum", EPSILON, 0.0, value_range=(-1.0, 1.0), keys=groups, law="laplace", shrink=False, engine=engine,
        noise=SeededNoise(seed, exact=True),
    )  # fmt: skip
    made.fit(np.ones(len(own)), users=own, by=[groups[k] for k in own])
    order = np.argsort(made.estimates_["sum"])
    guesses = int(GUESSED * canaries)
    right = int(inside[order[-guesses:]].sum() + (~inside[order[:guesses]]).sum())
    return epsilon_from_guesses(right, 2 * guesses, canaries, 0.0, ALPHA)


class CountsTwice:
    """An engine that counts every user twice."""

    def __init__(self, engine):
        self._engine = engine
        self.exact, self.kernels = engine.exact, engine.kernels

    def add_up(self, users, contributions):
        """Hand the users over twice, as if they were others."""
        columns = {name: np.concatenate([held] * 2) for name, held in users._columns.items()}
        ends = np.append(0, np.cumsum(np.tile(users.sizes, 2)))
        keys = None if users._keys is None else np.concatenate([users.keys, users.keys ^ np.uint64(1)])
        return self._engine.add_up(Users(ends, columns, n_tasks=users.n_tasks, keys=keys), contributions)

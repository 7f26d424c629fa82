"""Weights, rows and labels that a test holds as arrays, as the values that contributions and rounds take."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from apportion.allocation import SplitEqually
from apportion.engines import LocalEngine
from apportion.privacy import Labels, Rows
from apportion.privacy.contributions import Weighting
from apportion.published.skew.updates import Round


@dataclass(frozen=True, eq=False)
class HeldWeights(Weighting):
    """Weights that were made for all of the users, as they are."""

    held: object

    @property
    def description(self):
        return self.held.description

    @property
    def neighbours(self):
        return self.held.neighbours

    @property
    def signed(self):
        return self.held.signed

    def form(self, users):
        return self.held


@dataclass(frozen=True, eq=False)
class HeldRows:
    """Bounded rows of all users or observations, as they are."""

    held: object

    @property
    def norm(self):
        return self.held.norm

    def __call__(self, users, kernels):
        return self.held


@dataclass(frozen=True, eq=False)
class HeldLabels:
    """Bounded labels of all observations, as they are."""

    held: object

    @property
    def bound(self):
        return self.held.bound

    def __call__(self, users, kernels):
        return self.held


@dataclass(frozen=True, eq=False)
class VectorColumn:
    """One vector per user, from a column that users carry."""

    norm: float

    def __call__(self, users, kernels):
        return Rows.clipped(self.vectors(users, kernels), self.norm)

    def vectors(self, users, kernels):
        return users.of_user("vectors")


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """One label per row, from a column that users carry."""

    def of(self, users):
        return users.column("labels")


def values_of(weighting, data):
    """One weight per observation of some interactions."""
    return np.asarray(weighting.of(data.as_users)._values)


def held(values, bound):
    """Labels clipped to a bound, for a contribution."""
    return HeldLabels(Labels.clipped(values, bound))


def round_of(data, vectors, labels, expected, items, *, norm=1.0, unobserved=0.0, number=1, made=Round):
    """A round of these users, whose weights are the equal split."""
    users = data.as_users.with_columns(labels=np.asarray(labels)).with_user_columns(vectors=np.asarray(vectors))
    return made(
        users=users, weights=SplitEqually(), expected=expected, rows=VectorColumn(norm), labels=LabelColumn(),
        items=items, unobserved=unobserved, number=number, kernels=LocalEngine(np.float64).kernels,
    )  # fmt: skip


def plainly(about):
    """What is in a round, as arrays: one entry per row, or one row per user."""
    users = about.users
    return SimpleNamespace(
        users=users.owner,
        tasks=users.column("tasks"),
        n_tasks=users.n_tasks,
        labels=users.column("labels"),
        vectors=users.of_user("vectors"),
        weights=np.asarray(about.weights.of(users)._values, float),
    )

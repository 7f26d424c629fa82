"""One small contribution of each kind, and the users they are evaluated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.allocation import SplitByValue, SplitEqually, TaskFactors
from apportion.estimators.contributions import capped_weights
from apportion.privacy import ADD_REMOVE, Neighbours, ObservationRows, Rows
from apportion.privacy.contributions import (
    CellWeights,
    ClippedParts,
    GroupBoxes,
    GroupMoments,
    GroupSums,
    HeldOut,
    KeyCounts,
    KeyShares,
    MiddleRows,
    NormClasses,
    Output,
    SecondKeyCounts,
    TaskCounts,
    TaskGrams,
    TaskMoments,
    UserGram,
    UserTotal,
    Votes,
    Weighting,
    WithoutHeldOut,
)
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.party_sums import PartForm, PartyParts
from apportion.privacy.task_sums import TaskModels
from apportion.regression.user_sides import ClippedFeatures, ClippedLabels

WIDTH = 3
NORM = 0.7


@dataclass(frozen=True, eq=False)
class OwnRows:
    """A column of the users, its rows clipped to a norm or scaled to it."""

    norm: float = NORM
    scaled: bool = False
    column: str = "rows"

    def __call__(self, users, kernels):
        return (Rows.scaled if self.scaled else Rows.clipped)(users.of_user(self.column), self.norm)


@dataclass(frozen=True, eq=False)
class RowsOfPairs:
    """A column of the observations, its rows scaled to a norm."""

    norm: float = NORM
    column: str = "features"

    def __call__(self, users, kernels):
        return ObservationRows.scaled(users.column(self.column), self.norm)


@dataclass(frozen=True, eq=False)
class SomeTasks(Weighting):
    """Every third task is left out, however many there are."""

    description: str = "a third left out"
    neighbours: Neighbours = ADD_REMOVE

    def form(self, users):
        return self._among(users.n_tasks).form(users)

    def of_tasks(self, n_tasks):
        return self._among(n_tasks).of_tasks(n_tasks)

    def _among(self, n_tasks):
        return TaskFactors(np.arange(n_tasks) % 3 != 1, self.description)


def users_of(data, rows=None):
    """The users of some interactions, with a row of their own, and features and a label for each of their tasks.

    None of these move when others leave.
    """
    if rows is None:
        rows = np.random.default_rng(5).standard_normal((data.n_users, WIDTH))
    users, tasks = data.users.astype(float), data.tasks.astype(float)
    features = np.stack([np.sin(7 * users + tasks), np.cos(tasks - 3 * users), 1 + 0 * users], axis=1)
    priority = (data.users * 7919 + data.tasks * 104729) % 65537
    columns = {"features": features, "labels": data.values.astype(float) - 3, "priority": priority.astype(np.uint64)}
    columns["standing"] = np.array([1.0, 0.5, 0.0])[data.tasks % 3]
    return data.as_users.with_columns(**columns).with_user_columns(rows=rows)


def rows_and_totals(users, weights):
    """A row for each observation, and one for each user."""
    values, tasks = users.column("values"), users.column("tasks")
    totals = np.bincount(users.owner, values, minlength=users.n_users)
    by_task = np.stack([values, tasks + 1.0, np.ones(len(tasks))], axis=1)
    return by_task, np.stack([totals, np.ones_like(totals)], axis=1)


@dataclass(frozen=True)
class ModelsOfParties:
    """A model for each party: its own row, clipped."""

    def __call__(self, users):
        return TaskModels.clipped(users.of_user("rows"), NORM)


def parts_of_parties():
    """What parties contribute when they learn together, a model each."""
    return PartyParts(ModelsOfParties(), PartForm(WIDTH, NORM, ADD_REMOVE_TASK))


def totals_alone(users, weights):
    """A row for each user."""
    return rows_and_totals(users, weights)[1:]


@dataclass(frozen=True)
class LossesOfMeans:
    """Squared error of every held-out value, predicted by some fractions of the mean of the other values."""

    fractions: tuple[float, ...] = (0.0, 0.5, 1.0)
    scale: float = 1.0

    @property
    def n_settings(self):
        return len(self.fractions)

    def __call__(self, kept, shown, kernels):
        totals = np.bincount(kept.owner, kept.column("values"), minlength=kept.n_users)
        means = totals / np.maximum(kept.sizes, 1)
        errors = shown.column("values")[:, None] - means[shown.owner][:, None] * np.array(self.fractions)
        squares = [np.bincount(shown.owner, column**2, minlength=shown.n_users) for column in errors.T]
        return self.scale * np.stack(squares, axis=1)


def moments_of_cells(users, cells):
    """The sum of values and the number of rows of each cell."""
    return np.stack([cells.sums(np.asarray(users.column("values"), float) - 3), cells.sizes], axis=1)


def ones_of_cells(users, cells):
    """One for each cell."""
    return np.ones((cells.n_cells, 1))


STATISTICS = GroupMoments(moments_of_cells, 2, 2.0, size_cap=1.2), GroupMoments(ones_of_cells, 1, 1.5)
NORMS = NormClasses(STATISTICS, (0.5, 1.0, 2.0, 4.0), (1.0, 2.0, 3.0), 8.0)
L1_NORMS = NormClasses(STATISTICS, (0.5, 1.0, 2.0, 4.0), (1.0, 2.0, 3.0), 8.0, taxicab=True)

HELD_OUT = HeldOut(0.9, seed=1)
BY_TASK, OF_USER = Output(3, 2.5, True, "test"), Output(2, 4.0, False, "test")

CONTRIBUTIONS = {
    "counts": lambda: TaskCounts(SplitEqually()),
    "moments": lambda: TaskMoments(SplitEqually(), OwnRows(), ClippedLabels(1.5)),
    "moments of ones": lambda: TaskMoments(SplitEqually(), OwnRows()),
    "moments by value": lambda: TaskMoments(SplitByValue((1.0, 5.0)), OwnRows()),
    "grams": lambda: TaskGrams(SplitEqually(), OwnRows()),
    "moments of observations": lambda: TaskMoments(SplitEqually(), ClippedFeatures(NORM), ClippedLabels(1.5)),
    "grams of observations": lambda: TaskGrams(SplitEqually(), ClippedFeatures(NORM)),
    "user total": lambda: UserTotal(OwnRows()),
    "user gram": lambda: UserGram(OwnRows()),
    "parts": lambda: ClippedParts(rows_and_totals, (BY_TASK, OF_USER), SplitEqually()),
    "parts of users": lambda: ClippedParts(totals_alone, (OF_USER,)),
    "keys": lambda: KeyCounts(300),
    "keys in a second round": lambda: SecondKeyCounts(3),
    "shares of keys": lambda: KeyShares(300),
    "sums by group": lambda: GroupSums(STATISTICS),
    "sums by group in L1 norm": lambda: GroupSums(STATISTICS, taxicab=True),
    "boxes by group": lambda: GroupBoxes(GroupMoments(ones_of_cells, 1)),
    "L1 norms over groups": lambda: ClippedParts(L1_NORMS, (L1_NORMS.output,)),
    "norms over groups": lambda: ClippedParts(NORMS, (NORMS.output,)),
    "weights of cells": lambda: CellWeights(np.array([1.0, 2.5, 4.0]), capped_weights(2.0)),
    "weights of cells, middle rows": lambda: CellWeights(np.array([1.0, 2.5, 4.0]), MiddleRows(0.4, 1.5, 3.0)),
    "votes": lambda: Votes(LossesOfMeans(), HELD_OUT, 3.0, "test"),
    "parts without held-out rows": lambda: WithoutHeldOut(ClippedParts(totals_alone, (OF_USER,)), HELD_OUT),
    "counts of some tasks": lambda: TaskCounts(SomeTasks()),
    "moments of some tasks": lambda: TaskMoments(SomeTasks(), OwnRows()),
}

"""The paper's data: generated tasks that share a structure, School, and a stand-in for LSOA II.

A problem is the rows that tasks train on and the rows that they are judged by. Every row of features has length 1, as
in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion.published.model_protection import TaskLists, alone_l2
from apportion.published.model_protection.rows import LossName
from benchmarks.claim import data_folder, need

Floats = NDArray[np.float64]
Pattern = Literal["low-rank", "group-sparse"]

N_TASKS, N_ROWS, N_FEATURES, RANK, N_TEST = 320, 30, 30, 3, 270
SIGNAL_VARIANCE = 5.3  # of x·w in the low-rank set, beside noise of variance 1
SCHOOLS, SCHOOL_FEATURES = 139, 28
OUTCOMES, OUTCOME_FEATURES, SUBJECTS, MISSING = 41, 295, 4299, 0.137


@dataclass(frozen=True)
class Problem:
    """Tasks to learn.

    Attributes:
        name: of the data.
        train: what tasks learn from.
        test: what they are judged by.
        loss: squared or logistic.
        truth: the models that made the data, where there are such.
        variance: of the test targets, where those here had a mean of each task taken away.
    """

    name: str
    train: TaskLists
    test: TaskLists
    loss: LossName = "squared"
    truth: Floats | None = None
    variance: float | None = None

    @cached_property
    def alone(self) -> Floats:
        """What each task learns alone with an l2 penalty."""
        return alone_l2(self.train, self.loss)

    def score(self, models: Floats) -> float:
        """Error of one model a task on the test rows: nMSE, or 1 - average AUC, so that less is better."""
        if self.loss == "logistic":
            return 1 - average_auc(self.test, models)
        return normalised_error(self.test, models, self.variance)

    def of_tasks(self, n_tasks: int, judged: int) -> Problem:
        """The same with the first so many tasks only; the first `judged` of them count."""
        return Problem(self.name, self.train.first(n_tasks), self.test.first(judged), self.loss)


def normalised_error(rows: TaskLists, models: Floats, variance: float | None = None) -> float:
    """nMSE: the mean squared error over all rows, divided by the variance of all targets.

    Models of further tasks, of which there are no rows, do not count.
    """
    errors = np.concatenate([s - y for s, y in zip(rows.predicted(models[: rows.n_tasks]), rows.targets, strict=True)])
    return float(np.square(errors).mean() / (np.concatenate(rows.targets).var() if variance is None else variance))


def average_auc(rows: TaskLists, models: Floats) -> float:
    """The mean over tasks of the area under the ROC curve; tasks with labels of one kind do not count."""
    areas = []
    for scores, labels in zip(rows.predicted(models), rows.targets, strict=True):
        positive = labels > 0.5
        n_positive, n_negative = int(positive.sum()), int((~positive).sum())
        if n_positive and n_negative:
            ranks = _midranks(scores)
            excess = float(ranks[positive].sum()) - n_positive * (n_positive + 1) / 2
            areas.append(excess / (n_positive * n_negative))
    return float(np.mean(areas))


def synthetic(
    pattern: Pattern, seed: int, *, n_tasks: int = N_TASKS, n_rows: int = N_ROWS, n_features: int = N_FEATURES
) -> Problem:
    """Section 5.4: y = x·w + N(0, 1), x of length 1, and models that are low-rank or use the first 4 features only."""
    rng = np.random.default_rng([seed, 5])
    models = _low_rank(rng, n_tasks, n_features) if pattern == "low-rank" else _sparse(rng, n_tasks, n_features)

    def rows(count: int) -> TaskLists:
        features = _unit(rng.standard_normal((n_tasks, count, n_features)))
        targets = np.einsum("mnd,md->mn", features, models) + rng.standard_normal((n_tasks, count))
        return TaskLists(list(features), list(targets))

    return Problem(f"{pattern} models", rows(n_rows), rows(9 * n_rows), truth=models)


def school(seed: int, share: float = 0.3, folder: Path | None = None) -> Problem:
    """School: exam scores of 15,362 students of 139 schools; a share of each school's rows is for training."""
    from scipy.io import loadmat

    path = need((folder or data_folder()) / "school" / "school.mat", "The School data")
    held = loadmat(path)
    features = [np.asarray(each, np.float64) for each in held["X"].ravel()]
    targets = [np.asarray(each, np.float64).ravel() for each in held["Y"].ravel()]
    return _divided("School", features, targets, share, seed)


def school_standin(seed: int, share: float = 0.3, n_tasks: int = SCHOOLS) -> Problem:
    """Generated data of School's shape: few students a school, categories, a common model and small differences."""
    rng = np.random.default_rng([7, n_tasks])  # the same data for all seeds: those divide it
    sizes = np.clip(rng.lognormal(4.6, 0.5, n_tasks), 22, 251).astype(int)
    common = rng.standard_normal(SCHOOL_FEATURES) * 6
    spread = rng.standard_normal((3, SCHOOL_FEATURES)) * 2
    features, targets = [], []
    for size in sizes:
        rows = (rng.random((size, SCHOOL_FEATURES)) < 0.25).astype(float)
        rows[:, -1] = 1.0
        model = common + rng.standard_normal(3) @ spread
        features.append(rows)
        targets.append(20 + rows @ model + 10 * rng.standard_normal(size))
    return _divided("School (generated)", features, targets, share, seed)


def outcomes_standin(
    seed: int,
    share: float = 0.3,
    *,
    n_subjects: int = SUBJECTS,
    n_tasks: int = OUTCOMES,
    n_features: int = OUTCOME_FEATURES,
) -> Problem:
    """Generated data of the shape of LSOA II: binary outcomes of the same people, mostly binary features, gaps.

    A tenth of the features are numbers, the others 0 or 1 with chances of their own; a fifth of the features are absent
    for a person. Models are low-rank about a common part. A target is missing at the rate of the original.
    """
    rng = np.random.default_rng([11, n_subjects, n_tasks])
    chances = rng.beta(1.0, 2.5, n_features)
    people = (rng.random((n_subjects, n_features)) < chances).astype(float)
    numbers = rng.random(n_features) < 0.1
    people[:, numbers] = rng.standard_normal((n_subjects, int(numbers.sum())))
    people *= rng.random(people.shape) > 0.2
    people = _unit(np.column_stack([people[:, :-1], np.ones(n_subjects)]))
    basis = rng.standard_normal((4, n_features)) * 4
    models = rng.standard_normal(n_features) * 3 + rng.standard_normal((n_tasks, 4)) @ basis
    margins = people @ models.T
    margins -= np.quantile(margins, rng.uniform(0.4, 0.9, n_tasks), axis=0).diagonal()
    labels = (rng.random(margins.shape) < 1 / (1 + np.exp(-margins))).astype(float)
    seen = rng.random(labels.shape) > MISSING
    features = [people[seen[:, task]] for task in range(n_tasks)]
    targets = [labels[seen[:, task], task] for task in range(n_tasks)]
    return _divided("outcomes (generated)", features, targets, share, seed, "logistic")


def _divided(
    name: str,
    features: Sequence[Floats],
    targets: Sequence[Floats],
    share: float,
    seed: int,
    loss: LossName = "squared",
) -> Problem:
    """Rows at random into training and test, a share of each task's; at least two rows on either side.

    With squared loss every task takes its training rows' means away, of features and of targets: an intercept of its
    own, which stays with it.
    """
    rng = np.random.default_rng([seed, 9])
    parts: list[tuple[list[Floats], list[Floats]]] = [([], []), ([], [])]
    for rows, answers in zip(features, targets, strict=True):
        order = rng.permutation(len(answers))
        n_train = int(np.clip(round(share * len(answers)), 2, len(answers) - 2))
        for (held, labels), chosen in zip(parts, (order[:n_train], order[n_train:]), strict=True):
            held.append(_unit(rows[chosen]))
            labels.append(answers[chosen])
    (train, train_labels), (test, test_labels) = parts
    if loss == "logistic":
        return Problem(name, TaskLists(train, train_labels), TaskLists(test, test_labels), loss)
    centres, means = [each.mean(axis=0) for each in train], [each.mean() for each in train_labels]

    def centred(held: Sequence[Floats], labels: Sequence[Floats]) -> TaskLists:
        return TaskLists(
            [each - centre for each, centre in zip(held, centres, strict=True)],
            [each - mean for each, mean in zip(labels, means, strict=True)],
        )

    variance = float(np.concatenate(test_labels).var())
    return Problem(name, centred(train, train_labels), centred(test, test_labels), loss, variance=variance)


def _low_rank(rng: np.random.Generator, n_tasks: int, n_features: int) -> Floats:
    """Rows of a matrix normal variable whose covariance between tasks has rank 3."""
    models = rng.standard_normal((n_tasks, RANK)) @ rng.standard_normal((RANK, n_features))
    return np.asarray(models * np.sqrt(SIGNAL_VARIANCE * n_features / np.square(models).sum(axis=1).mean()))


def _sparse(rng: np.random.Generator, n_tasks: int, n_features: int) -> Floats:
    """The first 4 features have weights between 1 and 50 of either sign, the others none."""
    models = np.zeros((n_tasks, n_features))
    models[:, :4] = rng.uniform(1, 50, (n_tasks, 4)) * rng.choice([-1.0, 1.0], (n_tasks, 4))
    return models


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12))


def _midranks(scores: Floats) -> Floats:
    """Ranks from 1, equal scores sharing their mean."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse])

"""Record and replay: whole fits on neighbouring sets of tasks, release by release."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.auditing import RecordingSession, audit_neighbour
from apportion.privacy import Budget, SeededNoise
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK

from party_cases import FITS, low_rank_tasks, one_direction, published, small, stacked

EVERY_FIT = pytest.mark.parametrize("make", FITS.values(), ids=FITS)


def _neighbour(data, relation, seed, *, logistic):
    """A set of tasks that differs in task 7: it is gone, or it is another one, of another size and scale."""
    features, labels = list(data[0]), list(data[1])
    if relation == ADD_REMOVE_TASK:
        return features[:7] + features[8:], labels[:7] + labels[8:], np.delete(np.arange(len(features)), 7)
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 40))
    features[7] = 10 ** rng.uniform(-3, 3) * rng.standard_normal((size, features[0].shape[1]))
    labels[7] = 10 ** rng.uniform(-3, 3) * rng.standard_normal(size)
    labels[7] = (labels[7] > 0).astype(float) if logistic else labels[7]
    return features, labels, np.arange(len(features))


def _grouped(features, labels, ids):
    rows, column, at = stacked(features, labels)
    return rows, column, np.asarray(ids)[at]


def _audit(make, relation, data, neighbour, seed, epsilon):
    def fit(some, session):
        rows, column, groups = some
        return published(make(neighbours=relation, n_tasks=40).fit(rows, column, groups, session=session))

    arguments = {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(seed), "neighbours": relation}
    return audit_neighbour(fit, data, neighbour, arguments)


@EVERY_FIT
@pytest.mark.parametrize("relation", [ADD_REMOVE_TASK, REPLACE_TASK], ids=["add or remove", "replace"])
def test_no_release_moves_by_more_than_its_sensitivity_when_a_task_changes(make, relation):
    logistic = make().loss == "logistic"
    for seed, epsilon in enumerate((1.0, 30.0, 3000.0)):
        data = low_rank_tasks(seed, logistic=logistic)
        other = _neighbour(data, relation, seed, logistic=logistic)
        ratios = _audit(make, relation, _grouped(*data, np.arange(40)), _grouped(*other), seed, epsilon)
        assert len(ratios) == make()._rounds
        assert max(ratios.values()) <= 1 + 1e-9, ratios


@pytest.mark.parametrize("structure", ["em", "low-rank", "group-sparse", "low-rank+sparse", "relations"])
def test_a_task_at_right_angles_to_the_one_it_replaces_moves_every_release_by_nine_tenths_of_the_bound(structure):
    features, labels = one_direction(40, 5, axis=0)
    others = list(labels)
    others[7] = features[7][:, 1].copy()
    grouped = _grouped(features, labels, np.arange(40)), _grouped(features, others, np.arange(40))
    make = small(structure=structure, rounds=2)
    ratios = _audit(make, REPLACE_TASK, *grouped, 0, 1.0)
    assert max(ratios.values()) <= 1 + 1e-9
    assert min(ratios.values()) >= 0.9, ratios


def test_a_task_that_comes_moves_the_release_by_nine_tenths_of_the_bound():
    data = low_rank_tasks(0)
    other = _neighbour(data, ADD_REMOVE_TASK, 0, logistic=False)
    ratios = _audit(small(), ADD_REMOVE_TASK, _grouped(*data, np.arange(40)), _grouped(*other), 0, 1.0)
    assert min(ratios.values()) >= 0.9


@EVERY_FIT
def test_the_whole_budget_is_spent_and_no_more(make):
    session = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(1), neighbours=REPLACE_TASK)
    make().fit(*low_rank_tasks(3, logistic=make().loss == "logistic"), session=session)
    assert 1 - 1e-9 <= session.spent <= 1.0
    assert session.statement().spent_epsilon <= 2.0


def test_where_the_number_of_tasks_is_private_nothing_published_depends_on_it():
    data = low_rank_tasks(2)
    other = _neighbour(data, ADD_REMOVE_TASK, 2, logistic=False)

    def fit(some, session):
        rows, column, groups = some
        model = FITS["em"](neighbours=ADD_REMOVE_TASK).fit(rows, column, groups, session=session)
        return published(model)

    arguments = {"budget": Budget(30.0, 1e-5), "noise": SeededNoise(2), "neighbours": ADD_REMOVE_TASK}
    ratios = audit_neighbour(fit, _grouped(*data, np.arange(40)), _grouped(*other), arguments)
    assert max(ratios.values()) <= 1 + 1e-9

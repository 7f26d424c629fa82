"""Mechanisms with a bug each, under record and replay: every bug is found, and the twin without it is not accused."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.allocation import SplitEqually, uniform_sample
from apportion.allocation.weightings import OnSample
from apportion.auditing.hidden_values import raw_value
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import Rows
from apportion.privacy.contributions import ClippedParts, Output, TaskCounts, TaskGrams, TaskMoments
from apportion.privacy.sampling import Sample
from held_values import HeldRows, HeldWeights, values_of
from planted import CASES

from strategies import random_interactions

REPLAYED = {case.name: case for case in CASES if case.method == "replay"}


@pytest.mark.parametrize("case", REPLAYED.values(), ids=REPLAYED)
def test_a_planted_bug_is_caught(case):
    found = case.wrong()
    assert found.caught, found.evidence


@pytest.mark.parametrize("case", REPLAYED.values(), ids=REPLAYED)
def test_its_twin_is_not_accused(case):
    found = case.honest()
    assert not found.caught, found.evidence


def test_sampling_by_position_instead_of_identity_is_caught_by_rebuilt_neighbours():
    data = random_interactions(3, n_users=40, density=0.9)
    rebuilt = data.select_users(np.arange(1, 40))
    kept = data.users != 0
    moved = type(data).from_arrays(data.users[kept], data.tasks[kept], data.values[kept], task_ids=data.task_ids)
    for other in (rebuilt, moved):
        weights = values_of(uniform_sample(2, seed=5), other)
        np.testing.assert_array_equal(weights, values_of(uniform_sample(2, seed=5), data)[kept])


def test_engines_refuse_bounded_arrays_made_for_other_data():
    data, other = random_interactions(1), random_interactions(2)
    made = HeldWeights(SplitEqually().of(other.as_users))
    rows = HeldRows(Rows.clipped(np.ones((data.n_users, 2)), 1.0))
    part = ClippedParts(lambda users, _weights: (np.ones((users.n_users, 1)),), (Output(1, 1.0, False, "ones"),), made)
    for contribution in (TaskCounts(made), TaskMoments(made, rows), TaskGrams(made, rows), part):
        with pytest.raises(InputError, match="made for these users"):
            LocalEngine().add_up(data.as_users, [contribution])


def test_users_outside_a_sample_add_nothing_whatever_their_part_returns():
    users = random_interactions(1, n_users=40).as_users
    sample = Sample(bytes(32), 0.5)
    outputs = Output(1, 100.0, True, "ones by task"), Output(1, 1.0, False, "ones")

    def ones(run, _weights):
        return np.ones((run.n_rows, 1)), np.ones((run.n_users, 1))

    parts = ClippedParts(ones, outputs, OnSample(SplitEqually(), sample))
    by_task, over_users = LocalEngine(chunk=17).add_up(users, [parts])
    inside = sample.members(users.keys)
    expected = np.bincount(users.column("tasks"), inside[users.owner], minlength=users.n_tasks)
    assert 0 < inside.sum() < users.n_users
    np.testing.assert_allclose(raw_value(by_task)[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(raw_value(over_users), inside.sum(), rtol=1e-5)

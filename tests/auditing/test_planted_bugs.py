"""Mechanisms with a bug each, under record and replay: every bug is found, and the twin without it is not accused."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import allocation
from apportion.engines import LocalEngine
from apportion.errors import InputError
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
        weights = allocation.uniform_sample(other, 2, seed=5)._values
        np.testing.assert_array_equal(weights, allocation.uniform_sample(data, 2, seed=5)._values[kept])


def test_engines_refuse_bounded_arrays_made_for_other_data():
    data, other = random_interactions(1), random_interactions(2)
    with pytest.raises(InputError, match="made for this data set"):
        LocalEngine().counts(data, allocation.equal_split(other))

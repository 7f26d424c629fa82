"""Weighted counts: the same whole numbers on every path, and no user's part longer than 1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg import TaskWeights
from apportion.linalg.task_counts import tasks_in_order

STEP = 2.0**-32


def users(rng, n_tasks, lengths):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    tasks = [np.sort(rng.choice(n_tasks, n, replace=False)) for n in lengths]
    return indptr, np.concatenate(tasks).astype(np.int32)


def counts_of(indptr, tasks, weights, **keywords):
    sums = np.zeros(weights.values.size, np.int64)
    linalg.task_counts(indptr, tasks, weights, STEP, sums, **keywords)
    return sums


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), only_down=st.booleans(), power=st.integers(-12, 20))
def test_every_path_adds_the_same_whole_numbers_and_no_part_is_longer_than_1(seed, only_down, power):
    rng = np.random.default_rng(seed)
    indptr, tasks = users(rng, 90, rng.integers(0, 80, 30))
    weights = TaskWeights(rng.uniform(0, 1, 90) * 10.0**power, only_down)
    with linalg.use_backend("numpy"):
        wanted = counts_of(indptr, tasks, weights)
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            for threads in (1, 3):
                np.testing.assert_array_equal(counts_of(indptr, tasks, weights, threads=threads), wanted)
    parts = [counts_of([0, j - i], tasks[i:j], weights) for i, j in itertools.pairwise(indptr)]
    np.testing.assert_array_equal(sum(parts), wanted)
    assert max(sum(int(x) ** 2 for x in part) for part in parts) <= 2**64


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_tasks_out_of_order_or_twice_are_refused(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    weights = TaskWeights(np.ones(10))
    for tasks in ([1, 1, 2], [2, 1, 3], [0, 1, 10], [-1, 1, 2]):
        with linalg.use_backend(backend), pytest.raises(InputError, match="ascending order, each once, all below 10"):
            counts_of([0, 3], np.array(tasks, np.int32), weights)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_tasks_are_in_order_if_every_user_has_each_once(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    indptr = np.array([0, 0, 2, 3, 5])
    with linalg.use_backend(backend):
        for tasks, good in (([0, 3, 3, 1, 2], True), ([0, 0, 3, 1, 2], False), ([0, 3, 3, 2, 1], False)):
            assert tasks_in_order(indptr, np.array(tasks, np.int32)) == good

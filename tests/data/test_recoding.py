"""Users on another list of tasks, in memory: the same rows as the observations on that list."""

from __future__ import annotations

import numpy as np

from apportion.data import Vocabulary

from strategies import random_interactions


def test_users_on_another_list_are_those_of_the_observations_on_it():
    data = random_interactions(3, n_users=9, n_tasks=7)
    codes = np.array([4, -1, 0, 2, -1, 1, 3], np.int32)
    listed = data.recoded(codes, Vocabulary(["a", "b", "c", "d", "e"]))
    users = data.as_users.recoded(codes, 5)
    assert np.array_equal(users.indptr, listed.as_users.indptr)
    for name in ("tasks", "values"):
        assert np.array_equal(users.column(name), listed.as_users.column(name))


def test_a_part_without_users_has_the_columns_of_the_others():
    nobody = random_interactions(3, n_users=9, n_tasks=7).as_users.nobody()
    assert (nobody.n_users, nobody.n_rows, nobody.n_tasks) == (0, 0, 7)
    assert nobody.column("tasks").dtype == np.int32
    assert nobody.keys.shape == (0, 2)

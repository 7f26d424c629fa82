"""Wishart noise in place of the curator's Gaussian noise."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.allocation.rounds import Uniform
from apportion.errors import InputError
from apportion.parties import ProtectedMultiTask
from apportion.privacy import SeededNoise
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.published.model_protection import WishartRelease

from party_cases import error, low_rank_tasks, tasks_with_test_rows


def fitted(tasks, epsilon):
    arguments = {"neighbours": ADD_REMOVE_TASK, "n_tasks": 200, "release": WishartRelease(), "noise": SeededNoise(0)}
    return ProtectedMultiTask(epsilon, **arguments).fit(*map(list, tasks))


def test_wishart_noise_helps_parties_where_epsilon_is_large_and_harms_none_where_it_is_small():
    train, test = tasks_with_test_rows(11)
    model = fitted(train, 20.0)
    assert error(model.coef_, test) < 0.9 * error(model.single_task_, test)
    assert model.statement_.releases[0].mechanism == "wishart"
    assert model.statement_.releases[0].mu is None
    assert model.statement_.spent_epsilon <= 20.0
    nothing = fitted(train, 0.01)
    assert np.array_equal(nothing.coef_, nothing.single_task_)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "ADD_REMOVE_TASK with Wishart noise"),
        ({"neighbours": ADD_REMOVE_TASK, "structure": "group-sparse"}, "whole matrix"),
        ({"neighbours": ADD_REMOVE_TASK, "schedule": Uniform()}, "no schedule with Wishart"),
    ],
)
def test_settings_that_wishart_noise_cannot_serve_are_refused(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        ProtectedMultiTask(release=WishartRelease(), **arguments).fit(*low_rank_tasks(0))

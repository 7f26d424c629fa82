"""The auditor against estimators with a bug each: it must catch them all, and pass the one without."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from apportion import allocation
from apportion.allocation import Adaptive
from apportion.auditing import AuditError
from apportion.engines import LocalEngine
from apportion.privacy import bounds
from apportion.recommend import GradientDescent, ratings_user_side
from apportion.recommend import clicks as clicks_module
from apportion.recommend import ratings as ratings_module
from apportion.recommend import updates as updates_module

from private_estimators import alternating, audit_estimator, clicks, ratings
from strategies import random_interactions

RATINGS, CLICKS = ratings_module._Fit, clicks_module._Fit


def catches(make):
    """Whether the audit finds fault with an estimator, on a few data sets and users."""
    for seed in range(12):
        data = random_interactions(seed)
        try:
            findings = audit_estimator(make, data, seed % data.n_users, epsilon=(0.5, 5.0, 100.0)[seed % 3], seed=seed)
        except AuditError:
            return True
        if any(f.ratio > 1 + 1e-9 or f.gap > 1e-7 for f in findings):
            return True
    return False


def patched(owner, name, make_wrong):
    return mock.patch.object(owner, name, make_wrong(getattr(owner, name)))


def forged(cls, **state):
    made = object.__new__(cls)
    for name, value in state.items():
        setattr(made, name, value)
    return made


def unclipped_parts(_right):
    return lambda values, indptr, norm: forged(bounds.Parts, _values=np.asarray(values), _norm=norm)


def unnormalised_weights(_right):
    def wrong(data):
        ones = np.ones(data.n_observations, np.float32)
        return forged(bounds.Weights, _values=ones, _indptr=data.by_user.indptr, _description="x", _rearranged=None)

    return wrong


def exact_counts(right):
    return lambda data, popularity, exponent: right(data, data.by_task.counts + 0.5, exponent)


def exact_number_of_users(right):
    return lambda data, *others: (float(data.n_users), right(data, *others)[1])


def exact_mean(right):
    return lambda data, *others: (right(data, *others)[0], float(data.values.mean()))


def rounds_by_size(right):
    def wrong(self, rng, progress):
        self._settings = replace(self._settings, rounds=2 + self._data.n_observations % 2)
        return right(self, rng, progress)

    return wrong


def seed_from_data(right):
    return lambda self, rng, progress: right(self, np.random.default_rng(self._data.n_observations), progress)


def labels_by_the_largest(right):
    def wrong(chunk, about):
        return right(replace(chunk, values=chunk.values * np.float32(5 / (1 + chunk.values.max(initial=0)))), about)

    return wrong


def centred_over_users(right):
    def wrong(chunk, about):
        rows, summary = right(chunk, about)
        return rows - 0.05 * rows.sum(axis=0) / max(len(rows), 1), summary

    return wrong


def in_the_model(attribute, value):
    def make_wrong(right):
        def wrong(self, state, statement):
            model = right(self, state, statement)
            setattr(model, attribute, value(self._data))
            return model

        return wrong

    return make_wrong


PLANTED = {
    "no clipping of parts": (ratings, bounds.Parts, "clipped", unclipped_parts),
    "weights not normalised": (clicks, allocation, "equal_split", unnormalised_weights),
    "exact counts as popularity": (ratings, allocation, "adaptive", exact_counts),
    "exact number of users in a formula": (ratings, ratings_module, "release_overview", exact_number_of_users),
    "exact mean as centre": (ratings, ratings_module, "release_overview", exact_mean),
    "rounds chosen by the size of the data": (ratings, RATINGS, "run", rounds_by_size),
    "seed taken from the data": (clicks, CLICKS, "run", seed_from_data),
    "labels scaled by the largest": (ratings, ratings_user_side, "contribute", labels_by_the_largest),
    "centred over all users": (ratings, ratings_user_side, "contribute", centred_over_users),
    "exact counts in the model": (
        ratings,
        RATINGS,
        "model",
        in_the_model("popularity", lambda data: data.by_task.counts.astype(np.float32)),
    ),
    "exact mean in the model": (
        ratings,
        RATINGS,
        "model",
        in_the_model("offset", lambda data: float(data.values.mean())),
    ),
    "number of rows in the settings": (
        clicks,
        CLICKS,
        "model",
        in_the_model("settings", lambda data: {"rows": data.n_observations}),
    ),
}


@pytest.mark.parametrize(("make", "owner", "name", "make_wrong"), PLANTED.values(), ids=PLANTED)
def test_a_planted_bug_is_caught(make, owner, name, make_wrong):
    with patched(owner, name, make_wrong):
        assert catches(make)


@pytest.mark.parametrize("make", [ratings, clicks])
def test_the_right_estimator_is_not_accused(make):
    assert not catches(make)


def test_sampling_by_position_instead_of_identity_is_caught_by_rebuilt_neighbours():
    data = random_interactions(3, n_users=40, density=0.9)
    rebuilt = data.select_users(np.arange(1, 40))
    kept = data.users != 0
    moved = type(data).from_arrays(data.users[kept], data.tasks[kept], data.values[kept], task_ids=data.task_ids)
    for other in (rebuilt, moved):
        weights = allocation.uniform_sample(other, 2, seed=5)._values
        np.testing.assert_array_equal(weights, allocation.uniform_sample(data, 2, seed=5)._values[kept])


def test_engines_refuse_bounded_arrays_made_for_other_data():
    from apportion.errors import InputError

    data, other = random_interactions(1), random_interactions(2)
    with pytest.raises(InputError, match="made for this data set"):
        LocalEngine().counts(data, allocation.equal_split(other))


def test_a_sampled_sum_that_ignores_its_sample_is_caught():
    def ignoring(right):
        def wrong(data, engine, rows, _sampled):
            values = np.full(data.n_observations, 0.1)
            everybody = forged(
                bounds.Weights, _values=values, _indptr=data.by_user.indptr, _description="x", _rearranged=None
            )
            return right(data, engine, rows, everybody)

        return wrong

    make = alternating("ratings", GradientDescent(clip=0.3, sampling=0.3, steps=1), Adaptive(0.25))
    assert not catches(make)
    with patched(updates_module, "_moments", ignoring):
        assert catches(make)

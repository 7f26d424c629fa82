"""Canary users: where they are put, what their coins prove, and what they find in whole fits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from apportion.auditing import canaries
from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.recommend import PrivateRatingRecommender

from strategies import random_interactions


def test_canaries_are_users_of_one_task_that_nobody_else_has():
    data = random_interactions(0)
    added = canaries.with_canaries(data, 3, 1.0)
    assert len(added) == 3
    for user, task in zip(added.users, added.tasks, strict=True):
        assert (added.data.tasks[added.data.users == user] == task).all()
        assert added.data.by_task.counts[task] == 1
    assert added.data.n_observations == data.n_observations + 3


def test_those_left_out_leave_no_trace_but_their_tasks():
    data = random_interactions(0)
    added = canaries.with_canaries(data, 3, 1.0)
    kept = added.kept(np.array([True, False, False]))
    assert kept.n_users == data.n_users + 1
    assert kept.n_tasks == data.n_tasks + 3
    assert added.kept(np.zeros(3, bool)).n_observations == data.n_observations


def test_ids_of_text_get_canaries_too():
    data = Interactions.from_arrays(["ann", "bob"], ["x", "y"], [1.0, 2.0])
    added = canaries.with_canaries(data, 2, 5.0)
    assert list(added.data.user_ids.ids)[:2] == ["ann", "bob"]
    assert len(set(added.data.task_ids.ids)) == 4


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_the_bound_from_guesses_exceeds_the_truth_no_more_often_than_it_says(delta):
    """Randomised response on every coin, which publishes the coin with probability δ: (ε, δ)-DP, and the worst."""
    rng = np.random.default_rng(0)
    epsilon, alpha, coins, audits = 1.0, 0.1, 300, 400
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    published = rng.random((audits, coins)) < delta
    right = (published | (rng.random((audits, coins)) < truth)).sum(axis=1)
    bounds = [canaries.epsilon_from_guesses(int(k), coins, coins, delta, alpha) for k in right]
    assert sum(bound > epsilon for bound in bounds) <= binom.ppf(1 - 1e-6, audits, alpha)  # false alarms: 1e-6
    assert np.median(bounds) > 0.7 * epsilon


def test_without_delta_the_bound_is_that_of_a_binomial_number():
    for right, guesses in ((60, 80), (100, 100)):
        bound = canaries.epsilon_from_guesses(right, guesses, 200, 0.0, 0.01)
        success = 1 / (1 + np.exp(-bound))
        assert binom.sf(right - 1, guesses, success) == pytest.approx(0.01, rel=1e-3)


def test_the_bound_with_delta_matches_a_sum_written_out():
    right, guesses, coins, epsilon, delta = 70, 90, 120, 0.7, 1e-4
    success = 1 / (1 + np.exp(-epsilon))
    beyond = sum(binom.pmf(k, guesses, success) for k in range(right, guesses + 1))
    slopes = [sum(binom.pmf(k, guesses, success) for k in range(right - i, right)) / i for i in range(1, right + 1)]
    found = canaries.probability_of_guesses(right, guesses, coins, epsilon, delta)
    assert found == pytest.approx(beyond + 2 * coins * delta * max(slopes))


def test_more_delta_proves_less():
    bounds = [canaries.epsilon_from_guesses(95, 100, 400, delta, 1e-3) for delta in (0.0, 1e-6, 1e-4, 1e-2)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 1.5
    assert canaries.epsilon_from_guesses(50, 100, 400, 0.0, 1e-3) == 0.0


def fit(epsilon, n_users):
    def run(data, noise):
        engine = LocalEngine(np.float64, threads=1)
        estimator = PrivateRatingRecommender(
            epsilon, 1e-5, dimension=2, rounds=2, n_users=n_users, noise=noise, engine=engine
        )
        return estimator.fit(data).model_

    return run


def test_one_fit_with_many_canaries_shows_a_part_of_the_claim_and_not_more():
    data, _ = long_tailed_ratings(
        3000, 200, 15_000, rank=2, rng=np.random.default_rng(0), stars="whole", global_mean=4.6
    )
    found = canaries.audit_one_run(
        fit(8.0, 3000), data, value=1.0, canaries=1500, rng=np.random.default_rng(1)
    )  # fmt: skip
    assert 0.1 * 8 < found.lower_bound <= 8  # above with probability 1e-3
    assert not found.violated


def test_a_fit_without_noise_to_speak_of_is_found_out_by_many_runs():
    """A claim of 1 for a fit with the noise of 60."""
    data = random_interactions(1, n_users=20)

    def lying(some, noise):
        from dataclasses import replace

        model = fit(60.0, 20)(some, noise)
        model.statement = replace(model.statement, epsilon=1.0)
        return model

    found = canaries.audit_many_runs(lying, data, value=1.0, runs=160)
    assert found.violated
    assert found.runs == 320


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="at least 1 canary"):
        canaries.with_canaries(random_interactions(0), 0, 1.0)
    with pytest.raises(InputError, match="got 5, 4 and 9"):
        canaries.epsilon_from_guesses(5, 4, 9, 0.0, 0.1)
    with pytest.raises(InputError, match="at least 80 runs"):
        canaries.audit_many_runs(fit(1.0, 20), random_interactions(0), value=1.0, runs=5)
    with pytest.raises(InputError, match="at least 160 canaries"):
        canaries.audit_one_run(
            fit(1.0, 20), random_interactions(0), value=1.0, canaries=5, rng=np.random.default_rng(0)
        )

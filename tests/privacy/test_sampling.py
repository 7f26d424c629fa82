"""Sampled releases: who is in a sample, what a session allows, and what it says they cost."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from apportion.allocation import SplitEqually
from apportion.allocation.weightings import OnSample
from apportion.data import Interactions
from apportion.data.user_keys import sampling_keys
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.contributions import TaskCounts, TaskMoments
from apportion.privacy.sampling import poisson_sample
from contribution_cases import OwnRows

from statistics_helpers import assert_scale
from strategies import random_interactions

SECRET = bytes(range(32))
KEYS = np.stack([np.arange(200_000, dtype=np.uint64), np.zeros(200_000, np.uint64)], axis=1)


@pytest.mark.parametrize("probability", [0.01, 0.3, 0.9])
def test_a_sample_takes_each_user_with_its_probability_independently(probability):
    samples = [poisson_sample(KEYS, bytes([seed]) * 32, probability) for seed in (1, 2)]
    spread = np.sqrt(probability * (1 - probability) / len(KEYS))
    for mask in samples:  # three looks at 5 standard deviations: a false alarm in 600,000 runs
        assert abs(mask.mean() - probability) < 5 * spread
    both = (samples[0] & samples[1]).mean()
    assert abs(both - probability**2) < 5 * np.sqrt(probability**2 / len(KEYS))
    neighbours = (samples[0][1:] & samples[0][:-1]).mean()
    assert abs(neighbours - probability**2) < 5 * np.sqrt(probability**2 / len(KEYS))


@pytest.mark.parametrize("bit", [0, 77, 255])
def test_a_secret_that_differs_in_one_bit_draws_an_independent_sample(bit):
    other = (int.from_bytes(SECRET, "little") ^ 1 << bit).to_bytes(32, "little")
    one, two = (poisson_sample(KEYS, secret, 0.5) for secret in (SECRET, other))
    assert abs((one == two).mean() - 0.5) < 5 * 0.5 / np.sqrt(len(KEYS))


def test_the_secret_of_a_sample_is_a_fresh_key_of_the_noise_source():
    session = Session(Budget(1.0, 1e-6), noise=SeededNoise(4))
    source = SeededNoise(4)
    assert [session._secret("a"), session._secret("b")] == [source.key(), source.key()]
    assert Session(Budget(1.0, 1e-6))._secret("a") != Session(Budget(1.0, 1e-6))._secret("a")


def test_a_sample_of_a_user_does_not_depend_on_who_else_is_there():
    data = random_interactions(0)
    everybody = poisson_sample(sampling_keys(data.user_ids), SECRET, 0.5)
    rest = np.arange(data.n_users) != 5
    np.testing.assert_array_equal(poisson_sample(sampling_keys(data.user_ids)[rest], SECRET, 0.5), everybody[rest])


def counts_of(data):
    """The counts of everybody."""
    return add_up_one(LocalEngine(np.float64), data.as_users, TaskCounts(SplitEqually()))


def total_of(data, seen=None):
    """What forms the counts of a sample."""

    def form(sample):
        if seen is not None:
            seen.append(sample.members(data.as_users.keys))
        return add_up_one(LocalEngine(np.float64), data.as_users, TaskCounts(OnSample(SplitEqually(), sample)))

    return form


def test_samples_are_fresh_for_each_release_and_hold_only_those_who_were_drawn():
    data = random_interactions(1, n_users=60)
    session = Session(Budget(300.0, 1e-5), noise=SeededNoise(0))
    _, share = session.plan_sampled(2, 0.5)
    seen = []
    released = [session.release_sampled(f"step {k}", total_of(data, seen), share) for k in range(2)]
    assert 10 < seen[0].sum() < 50
    assert not np.array_equal(*seen)
    weights = SplitEqually().of(data.as_users)._values
    for mask, sums in zip(seen, released, strict=True):
        expected = np.bincount(data.tasks, weights * mask[data.users], minlength=data.n_tasks)
        np.testing.assert_allclose(sums, expected, atol=5 * share.noise_multiplier)


def test_only_what_was_planned_can_be_released():
    data = random_interactions(2)
    session = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    plan, share = session.plan_sampled(2, 0.5, counts=0.1)
    counts = counts_of(data)
    with pytest.raises(BudgetError, match="nothing else can be planned"):
        session.plan(more=0.1)
    with pytest.raises(BudgetError, match="not part of this session's plan"):
        session.release("larger", counts, Session(Budget(2.0, 1e-5)).plan(a=0.2).one("a"))
    session.release("counts", counts, plan.one("counts"))
    with pytest.raises(BudgetError, match="not part of this session's plan"):
        session.release("counts again", counts, plan.one("counts"))
    with pytest.raises(BudgetError, match="not part of this session's plan"):
        session.release_laplace("laplace", counts, plan.one("counts"))
    for k in range(2):
        session.release_sampled(f"step {k}", total_of(data), share)
    with pytest.raises(BudgetError, match="All 2 planned releases"):
        session.release_sampled("one too many", total_of(data), share)
    assert len(session.statement().releases) == 3
    with pytest.raises(BudgetError, match="planned before anything else"):
        session.plan_sampled(1, 0.5)
    other = Session(Budget(2.0, 1e-5), noise=SeededNoise(0))
    with pytest.raises(BudgetError, match="that a plan of this session made"):
        other.release_sampled("foreign", total_of(data), share)


@pytest.mark.parametrize(("epsilon", "probability", "steps"), [(0.5, 0.1, 4), (2.0, 0.5, 3), (8.0, 0.2, 12)])
def test_the_cost_is_within_the_budget_nearly_all_of_it_and_agrees_with_another_accountant(epsilon, probability, steps):
    data = random_interactions(3)
    session = Session(Budget(epsilon, 1e-5), noise=SeededNoise(0))
    plan, share = session.plan_sampled(steps, probability, counts=0.2)
    session.release("counts", counts_of(data), plan.one("counts"))
    for k in range(steps):
        session.release_sampled(f"step {k}", total_of(data), share)
    statement = session.statement()
    assert 0.98 * epsilon <= statement.spent_epsilon <= epsilon
    assert statement.spent_mu is None
    assert "numerically" in statement.to_text()
    assert sum(r.share for r in statement.releases) == pytest.approx(1.0)
    accountant = RdpAccountant()  # independent of privacy loss distributions, and never below the true cost
    accountant.compose(dp_event.GaussianDpEvent(1 / plan.one("counts").mu))
    step = dp_event.PoissonSampledDpEvent(probability, dp_event.GaussianDpEvent(share.noise_multiplier))
    accountant.compose(step, steps)
    other = accountant.get_epsilon(1e-5)
    assert statement.spent_epsilon <= other <= 1.6 * statement.spent_epsilon


def test_sampling_lowers_the_noise_that_a_user_who_is_in_needs():
    _, sampled = Session(Budget(1.0, 1e-5)).plan_sampled(4, 0.1)
    plain = Session(Budget(1.0, 1e-5)).plan(rounds=[0.25] * 4).several("rounds")[0]
    assert sampled.noise_multiplier < 0.5 / plain.mu


def test_noise_has_the_planned_standard_deviation():
    data = random_interactions(4)
    users = data.as_users.with_user_columns(rows=np.zeros((data.n_users, 800)))
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(5))
    _, share = session.plan_sampled(1, 0.3)

    def form(sample):
        return add_up_one(LocalEngine(), users, TaskMoments(OnSample(SplitEqually(), sample), OwnRows(2.0)))

    noise = session.release_sampled("noise", form, share)
    assert_scale(noise, stddev=2.0 * share.noise_multiplier, detect=1.2)


def test_two_plans_at_once_cannot_both_be_made():
    session = Session(Budget(1.0, 1e-5))
    outcomes = []

    def plan():
        try:
            session.plan_sampled(3, 0.4)
            outcomes.append("made")
        except BudgetError:
            outcomes.append("refused")

    threads = [threading.Thread(target=plan) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made", "refused"]


@pytest.mark.parametrize(("steps", "probability"), [(0, 0.5), (2, 0.0), (2, 1e-9), (2, 1.5)])
def test_plans_that_make_no_sense_are_refused(steps, probability):
    with pytest.raises(BudgetError, match=r"at least 1 step|a probability from 1e-06 to 1"):
        Session(Budget(1.0, 1e-5)).plan_sampled(steps, probability)


def test_text_ids_get_keys_of_their_own():
    data = random_interactions(6)
    named = Interactions.from_arrays([f"user {u}" for u in data.users], data.tasks, data.values)
    keys = sampling_keys(named.user_ids)
    assert keys.shape == (named.n_users, 2)
    assert len({tuple(row) for row in keys.tolist()}) == named.n_users
    assert len(np.unique(keys)) == 2 * named.n_users

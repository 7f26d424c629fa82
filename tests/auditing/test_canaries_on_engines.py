"""Canary users through whole fits on every engine: an end-to-end check that knows nothing of the code.

A bound above ε is a false alarm with probability 1e-3 in each fit of a recommender, and 1e-6 in sums by group; seeds
are fixed. The engine that counts everybody twenty times shows the power: a user then has twenty times the influence,
and the canaries tell. In sums by group they tell twice from once. The claim `canaries-on-engines` has Spark, and all
recommenders.
"""

from __future__ import annotations

import numpy as np
import pytest

from apportion.auditing.canaries import audit_one_run
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.users import Users
from apportion.engines import DiskEngine, LocalEngine, TorchEngine
from apportion.federated import FederatedEngine, Trust
from apportion.privacy import Budget, Session
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from group_canaries import EPSILON, CountsTwice, shown_by_canaries

BUDGET = Budget(1.0, 1e-5)
ENGINES = {
    "memory": lambda: LocalEngine(np.float32),
    "memory, exact, in runs": lambda: LocalEngine(np.float64, runs=3),
    "torch": lambda: TorchEngine("cpu", np.float32),
}
MORE_ENGINES = {"disk": lambda: DiskEngine("4MiB", np.float64), "federated": lambda: FederatedEngine(Trust(4))}
RECOMMENDERS = {"ratings": PrivateRatingRecommender, "clicks": PrivateClickRecommender}


class CountsTwentyTimes(LocalEngine):
    """Counts every user twenty times."""

    def add_up(self, users, contributions):
        columns = {name: np.concatenate([held] * 20) for name, held in users._columns.items()}
        ends = np.append(0, np.cumsum(np.tile(users.sizes, 20)))
        keys = np.concatenate([users.keys] * 20)
        return super().add_up(Users(ends, columns, n_tasks=users.n_tasks, keys=keys), contributions)


@pytest.fixture(scope="module")
def data():
    return long_tailed_ratings(300, 30, 3000, rank=2, rng=np.random.default_rng(0), stars="whole")[0]


def bound(kind, engine, data):
    """The lower bound on ε that canaries show in one fit."""

    def fit(some, noise):
        estimator = RECOMMENDERS[kind](1.0, 1e-5, dimension=2, rounds=2, engine=engine)
        return estimator.fit(some, session=Session(BUDGET, noise=noise)).model_

    return audit_one_run(fit, data, value=5.0, canaries=1000, rng=np.random.default_rng(1)).lower_bound


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", RECOMMENDERS)
def test_canaries_show_no_more_than_epsilon(kind, name, data):
    assert bound(kind, ENGINES[name](), data) <= BUDGET.epsilon


@pytest.mark.parametrize("name", MORE_ENGINES)
def test_canaries_show_no_more_on_further_engines(name, data):
    assert bound("ratings", MORE_ENGINES[name](), data) <= BUDGET.epsilon


@pytest.mark.parametrize("make", {**ENGINES, **MORE_ENGINES}.values(), ids=[*ENGINES, *MORE_ENGINES])
def test_canaries_in_groups_find_an_engine_that_counts_users_twice(make):
    assert 0.4 * EPSILON < shown_by_canaries(make()) <= EPSILON < shown_by_canaries(CountsTwice(make()))


@pytest.mark.parametrize("kind", RECOMMENDERS)
def test_canaries_find_an_engine_that_counts_users_twenty_times(kind, data):
    assert bound(kind, CountsTwentyTimes(np.float64), data) > 1.5 * BUDGET.epsilon

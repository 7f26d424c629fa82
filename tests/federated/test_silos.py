"""Clients that lie: under masks nobody sees it; a server that sees silos one by one leaves out what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion import linalg
from apportion.allocation import SplitEqually
from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine, Processors
from apportion.errors import InputError
from apportion.federated import (
    FederatedEngine,
    NoisyClientsEngine,
    PlainSilos,
    RefusedError,
    SilosEngine,
    SimulatedClients,
    Trust,
)
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.contributions import PartialSums, TaskCounts
from apportion.recommend import PrivateRatingRecommender

from strategies import interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
DATA, _ = long_tailed_ratings(40, 6, 200, rank=1, rng=np.random.default_rng(0))
COUNTS = TaskCounts(SplitEqually())


def released(engine):
    """Counts of items with noise from a seed."""
    session = Session(Budget(5.0, 1e-6), noise=SeededNoise(1, exact=True))
    (total,) = engine.add_up(DATA.as_users, [COUNTS])
    return session.release("popularity", total, session.plan(all=1.0).one("all"))


def far(numbers):
    return numbers * 1000


def test_checked_silos_release_what_memory_does():
    engine = SilosEngine(10, dropping=0, silos=PlainSilos(4))
    np.testing.assert_array_equal(released(engine), released(LocalEngine(np.float64, exact=True)))


def test_a_silo_outside_its_bound_is_left_out_and_the_sum_is_that_of_the_others():
    silos = PlainSilos(4, {3: far})
    lied = released(SilosEngine(10, dropping=1, silos=silos))
    assert silos.left_out == (3,)
    without = released(SilosEngine(10, dropping=1, silos=PlainSilos(4, {3: np.zeros_like})))
    np.testing.assert_array_equal(lied, without)
    with pytest.raises(RefusedError, match="Only 9 silos are left, and 10 must be"):
        released(SilosEngine(10, dropping=0, silos=silos))


def test_under_masks_the_same_lie_goes_into_the_sum():
    lied = released(FederatedEngine(Trust(10), SimulatedClients(lies={3: far}), np.float64))
    honest = released(FederatedEngine(Trust(10), dtype=np.float64))
    assert np.abs(lied - honest).max() > 500


@given(interactions(), st.integers(1, 3))
def test_what_users_add_up_to_is_always_possible(data, more):
    """Whatever the rows: an honest silo is never left out."""
    users = data.as_users
    sums = PartialSums.over(users, [COUNTS], Processors(np.float64, exact=True))
    assert sums.possible([COUNTS], users.n_users * more)


def test_the_bound_is_the_number_of_users_times_the_sensitivity():
    one_item = Interactions.from_arrays(np.arange(8), np.zeros(8, int))  # each user's part is the whole sensitivity
    sums = PartialSums.over(one_item.as_users, [COUNTS], Processors(np.float64, exact=True))
    assert [sums.possible([COUNTS], most) for most in (7, 8)] == [False, True]


def test_the_statement_says_that_the_server_sees_each_silo():
    engine = SilosEngine(10, dropping=0, silos=PlainSilos(4))
    settings = {"dimension": 1, "rounds": 1, "items": "from-data", "noise": SeededNoise(1, exact=True)}
    statement = PrivateRatingRecommender(5.0, engine=engine, **settings).fit(DATA).statement_
    assert "it sees the exact sums of each of 10 silos, to check them" in statement.to_text()


def test_noise_of_clients_and_silos_without_users_are_refused():
    with pytest.raises(InputError, match="Expected noise of the server"):
        released(NoisyClientsEngine(Trust(10), PlainSilos(4)))
    with pytest.raises(InputError, match="Expected silos of at least 1 user"):
        PlainSilos(0)

"""A server without rows fits what a machine with all rows does."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.federated import DataElsewhere, FederatedEngine, SimulatedClients, Trust
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


class ClientsWithRows:
    """Clients that hold the rows."""

    def __init__(self, users):
        self.users = users

    def add_up(self, terms, question, users):
        return SimulatedClients().add_up(terms, question, self.users)


def data_on_public_list():
    data = random_interactions(5, n_users=30, n_tasks=6)
    listed = DataElsewhere.of_items(data.task_ids.ids).task_ids
    return Interactions.from_codes(data.users, data.tasks, data.values, user_ids=data.user_ids, task_ids=listed)


@pytest.mark.parametrize("estimator", [PrivateRatingRecommender, PrivateClickRecommender])
def test_a_server_without_rows_fits_the_same_model(estimator):
    data = data_on_public_list()
    engine = FederatedEngine(Trust(4), ClientsWithRows(data.as_users), np.float64)
    fits = [
        estimator(epsilon=5.0, noise=SeededNoise(1, exact=True), engine=made).fit(given)
        for made, given in (
            (LocalEngine(np.float64, exact=True), data),
            (engine, DataElsewhere(data.task_ids)),
        )
    ]
    here, there = (fit.model_ for fit in fits)
    np.testing.assert_array_equal(here.vectors, there.vectors)
    np.testing.assert_array_equal(here.popularity, there.popularity)
    assert fits[0].statement_.releases == fits[1].statement_.releases


def test_the_encoder_is_fitted_from_sums_over_clients_alone():
    # Algorithm 8 of the public-features paper (SSP-c), without rows on the server.
    pytest.importorskip("torch", reason="encoders need torch")
    from private_torch import PRIVATE_ENCODERS

    from encoder_cases import features_of

    data = data_on_public_list()
    here, there = (
        PRIVATE_ENCODERS["encoder, statistics"](
            features=features_of(data.n_tasks), engine=made, noise=SeededNoise(3)
        ).fit(given)
        for made, given in (
            (LocalEngine(exact=True), data),
            (FederatedEngine(Trust(4), ClientsWithRows(data.as_users)), DataElsewhere(data.task_ids)),
        )
    )
    np.testing.assert_array_equal(here.model_.vectors, there.model_.vectors)
    assert here.statement_.releases == there.statement_.releases


def test_a_private_list_and_rows_on_the_server_are_refused():
    data = DataElsewhere.of_items(["a", "b", "c"])
    with pytest.raises(InputError, match="rows of a federated fit are at clients"):
        LocalEngine(exact=True).add_up(data.as_users, [])
    with pytest.raises(InputError, match="a private list cannot be released over clients"):
        data.recoded(np.zeros(3, np.int32), data.task_ids)
    with pytest.raises(InputError, match="Expected a public list of items"):
        DataElsewhere(Interactions.from_arrays(["ann", "bob"], [1, 2]).task_ids)

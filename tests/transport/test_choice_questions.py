"""Choices of a ratings fit over the catalogue of questions."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.engines import LocalEngine
from apportion.federated import FederatedEngine
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.transport.configuration import ASKED
from transport_cases import Federation

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


def half_of(popularity, *_, **__):
    return np.arange(len(popularity)) % 2 == 0


@pytest.mark.parametrize("some", [False, True])
def test_choices_are_learned_by_letters_as_in_memory_and_a_federation_of_ratings_allows_it(monkeypatch, tmp_path, some):
    """Rounds are about all items of a list so short, unless we say that some are worth it."""
    if some:
        monkeypatch.setattr("apportion.recommend.choice_rounds.worth_learning", half_of)
    federation = Federation(tmp_path)
    common = {"rank_by": "choice", "dimension": 2, "rounds": 2, "n_users": 2000}
    here, there = (
        PrivateRatingRecommender(20.0, 1e-5, engine=engine, noise=SeededNoise(3), **common).fit(given).model_
        for engine, given in (
            (LocalEngine(np.float64, exact=True), federation.data),
            (FederatedEngine(federation.conditions.trust, federation.clients(), "float64"), federation.elsewhere),
        )
    )
    np.testing.assert_array_equal(here.choice.features, there.choice.features)
    asked = {name for entry in federation.desks[0]._account.entries for name in entry.names}
    assert {"choice-totals", "choice-tastes"} <= asked <= set(ASKED["ratings"])


def test_clicks_are_learned_by_letters_as_in_memory_if_rounds_are_about_some_items(monkeypatch, tmp_path):
    monkeypatch.setattr("apportion.recommend.click_rounds.worth_learning", half_of)
    federation = Federation(tmp_path)
    common = {"dimension": 2, "rounds": 2, "n_users": 2000}
    here, there = (
        PrivateClickRecommender(20.0, 1e-5, engine=engine, noise=SeededNoise(3), **common).fit(given).model_
        for engine, given in (
            (LocalEngine(np.float32, exact=True), federation.data),
            (FederatedEngine(federation.conditions.trust, federation.clients(), "float32"), federation.elsewhere),
        )
    )
    np.testing.assert_array_equal(here.vectors, there.vectors)
    assert here.vectors[::2].any()
    assert not here.vectors[1::2].any()

"""Choices of a ratings fit over the catalogue of questions."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.engines import LocalEngine
from apportion.federated import FederatedEngine
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender
from apportion.transport.configuration import ASKED
from transport_cases import Federation

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


def test_choices_are_learned_by_letters_as_in_memory_and_a_federation_of_ratings_allows_it(tmp_path):
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

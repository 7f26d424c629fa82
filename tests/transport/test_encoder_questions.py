"""The encoder of item features is fitted by letters: Algorithm 8 of the public-features paper."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.engines import LocalEngine
from apportion.federated import FederatedEngine
from apportion.privacy import SeededNoise
from transport_cases import Federation

pytest.importorskip("torch", reason="encoders need torch")
pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


def test_the_encoder_is_fitted_by_letters_as_in_memory(tmp_path):
    from private_torch import PRIVATE_ENCODERS

    from encoder_cases import features_of

    federation = Federation(tmp_path)
    here, there = (
        PRIVATE_ENCODERS["encoder, statistics"](
            features=features_of(federation.data.n_tasks), engine=engine, noise=SeededNoise(3)
        ).fit(given)
        for engine, given in (
            (LocalEngine(exact=True), federation.data),
            (FederatedEngine(federation.conditions.trust, federation.clients()), federation.elsewhere),
        )
    )
    np.testing.assert_array_equal(here.model_.vectors, there.model_.vectors)
    asked = [name for entry in federation.desks[0]._account.entries for name in entry.names]
    assert asked == ["user-means", "popularity", *["encoder-matrices", "encoder-vectors"] * 2]

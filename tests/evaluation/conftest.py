"""Data that tests of evaluation share."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import synthetic


@pytest.fixture(scope="module")
def ratings():
    data, _ = synthetic.long_tailed_ratings(200, 30, 2500, rank=2, rng=np.random.default_rng(1), stars="whole")
    return data


@pytest.fixture(scope="module")
def clicks():
    data, _ = synthetic.long_tailed_clicks(300, 150, 6000, rank=2, rng=np.random.default_rng(2))
    return data

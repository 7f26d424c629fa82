"""Predictions of what weights do to ranks, against users drawn from the model and from others."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.users import Users
from apportion.postprocessing.rank_bias import Keep, Measured, RankBias
from apportion.postprocessing.size_dependence import SizeClasses
from apportion.privacy.contributions import MiddleRows

SIZES = np.array([1.0, 4.0, 16.0, 64.0])
COUNTS = np.array([400.0, 300.0, 200.0, 60.0])
CLASSES = SizeClasses(COUNTS, SIZES)


def drawn(slope, seed=0):
    """Rows of users whose level goes with the octave of their size; the share below the median by `slope` or so."""
    rng = np.random.default_rng(seed)
    sizes = np.repeat(SIZES, COUNTS.astype(int)).astype(int)
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    level = -2.5 * slope * np.log2(sizes) + 0.4 * rng.normal(size=len(sizes))
    return Users(indptr, {"values": np.repeat(level, sizes) + rng.normal(size=indptr[-1])})


def certain(slope, quantile=0.5):
    return RankBias.of(CLASSES, quantile, np.array([slope]), np.ones(1), 1.0)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_without_dependence_a_cap_asks_for_no_correction(quantile):
    predicted = certain(0.0, quantile).predicted(Keep(4.0, 4.0), 0.0)
    assert predicted.rank == pytest.approx(quantile, abs=1e-6)


def test_weights_that_take_nothing_miss_nothing():
    for model in RankBias.before(CLASSES, 0.5):
        predicted = model.predicted(Keep(64.0, 64.0), 0.0)
        assert predicted.rank == pytest.approx(0.5, abs=1e-6)
        assert predicted.missed < 1e-6


@pytest.mark.parametrize("slope", [-0.05, 0.1])
@pytest.mark.parametrize("keep", [Keep(4.0, 4.0), Keep(4.0, 64.0), Keep(16.0, 64.0)], ids=str)
def test_the_corrected_rank_is_near_that_of_the_median_among_weighted_rows(slope, keep):
    users = drawn(slope)
    values = users.column("values")
    weights = MiddleRows(0.5, *keep).of(users)
    true = weights[values <= np.median(values)].sum() / weights.sum()
    rank = certain(slope).predicted(keep, 0.0).rank
    assert abs(true - rank) < 0.45 * abs(true - 0.5)


def test_a_measured_number_tells_the_slope():
    rough = certain(0.0).predicted(Keep(64.0, 64.0), 0.0)
    tilts = np.array([-1.0, 0.0, 1.0, 1.0])
    told = []
    for slope in (-0.1, 0.0, 0.1):
        there = certain(slope).shares[:, 0] - 0.5
        value = float(COUNTS @ (tilts * np.clip(there / 0.3, -1, 1).mean(axis=1)))
        model, _ = RankBias.after(CLASSES, 0.5, Measured(tilts, 0.3, value, 100.0, rough))
        told.append(float(model.likely @ model.slopes))
    np.testing.assert_allclose(told, [-0.1, 0.0, 0.1], atol=0.03)


def test_bounds_on_ranks_grow_with_the_deviation_and_end_where_ranks_do():
    model = certain(0.0, 0.9)
    found = [model.reached(Keep(4.0, 16.0), deviation) for deviation in (10.0, 100.0, 1e6)]
    assert found[0] < found[1] < found[2]
    assert found[2] == pytest.approx(0.9)

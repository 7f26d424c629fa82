"""A party's own units: a model learned in them predicts the same outside of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.standardisation import Standardisation


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("deviations", [False, True])
@given(seed=st.integers(0, 1000), exponent=st.floats(-5, 5))
def test_predictions_are_the_same_in_all_units(deviations, classes, seed, exponent):
    rng = np.random.default_rng(seed)
    matrices = [10**exponent * rng.standard_normal((n, 3)) + rng.standard_normal(3) for n in (2, 7, 1, 30)]
    labels = [rng.standard_normal(len(x)) + 5 for x in matrices]
    units = Standardisation.of(matrices, labels, deviations=deviations, classes=classes)
    rows, columns = units.standardised(matrices, labels)
    models = rng.standard_normal((4, 3 + classes))
    coefficients, intercepts = units.in_given_units(models)
    for k, (x, y) in enumerate(zip(matrices, labels, strict=True)):
        start = 0.0 if classes else y.mean()
        in_given_units = x @ coefficients[k] + intercepts[k]
        assert in_given_units == pytest.approx(rows[k] @ models[k] + start, rel=1e-6, abs=1e-6 * np.abs(x).max() + 1e-6)
        assert columns[k] == pytest.approx(y - start)


def test_features_have_mean_zero_and_deviation_one_and_constant_ones_stay_finite():
    rng = np.random.default_rng(1)
    x = np.column_stack([1e6 * rng.standard_normal(50) + 3e6, np.full(50, 0.1)])
    units = Standardisation.of([x], [np.ones(50)], deviations=True, classes=False)
    rows, labels = units.standardised([x], [np.ones(50)])
    assert rows[0].mean(0) == pytest.approx([0, 0], abs=1e-9)
    assert rows[0][:, 0].std() == pytest.approx(1)
    assert np.abs(rows[0][:, 1]).max() < 1e-12
    assert labels[0].tolist() == [0.0] * 50


def test_one_task_does_not_move_the_units_of_another():
    rng = np.random.default_rng(2)
    x, y = [rng.standard_normal((6, 2)) for _ in range(3)], [rng.standard_normal(6) for _ in range(3)]
    first = Standardisation.of(x, y, deviations=True, classes=False)
    second = Standardisation.of([x[0], 1e9 * x[1][:2], x[2]], [y[0], y[1][:2], y[2]], deviations=True, classes=False)
    for k in (0, 2):
        assert np.array_equal(first.means[k], second.means[k])
        assert np.array_equal(first.scales[k], second.scales[k])


def test_a_task_without_rows_and_numbers_too_large_to_square_stay_finite():
    huge = np.array([[1e308], [-1e308]])
    units = Standardisation.of([np.zeros((0, 1)), huge], [np.zeros(0), np.zeros(2)], deviations=True, classes=False)
    rows, _ = units.standardised([np.zeros((0, 1)), huge], [np.zeros(0), np.zeros(2)])
    assert rows[0].shape == (0, 1)
    assert rows[1].ravel() == pytest.approx([1, -1])
    assert units.scales[0].tolist() == [1.0]

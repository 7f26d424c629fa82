"""Directions in which features differ: principal components, for few columns and for very many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from apportion.data.features import ItemFeatures
from apportion.data.sparse_rows import ColumnRange, SparseRows
from apportion.recommend.features import prior
from apportion.recommend.features.prior import leading_directions, linear_map, regressors

from feature_data import RECOMMENDERS
from strategies import random_interactions


def some_rows(n_rows=80, width=12, seed=0):
    rng = np.random.default_rng(seed)
    rows, columns = np.nonzero(rng.random((n_rows, width)) < 0.3 * rng.random(width))
    groups = (ColumnRange("a", 0, 5), ColumnRange("b", 5, width))
    return SparseRows.from_entries(rows, columns, 1 + rng.random(len(rows)), n_rows, groups)


def test_they_are_the_singular_vectors_of_the_centred_and_capped_features():
    rows = some_rows()
    rows = rows.take(np.flatnonzero(rows.counts))
    found = leading_directions(rows, 4)
    matrix = rows.to_scipy().toarray()
    for group in rows.groups:
        part = matrix[:, group.first : group.last]
        part /= np.sqrt(max(part.var(axis=0).sum(), 1.0))
    left, sizes, _ = np.linalg.svd(matrix - matrix.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(found.values), np.abs(left * sizes)[:, :4], atol=1e-8)
    np.testing.assert_allclose(np.square(found.of_equal_length(3)).mean(axis=0), 1.0)
    mapped = found.intercept + rows.to_scipy() @ found.coefficients
    np.testing.assert_allclose(mapped, found.values, atol=1e-8)


def test_very_many_columns_give_the_same_as_few(monkeypatch):
    rows = some_rows()
    few = leading_directions(rows, 5)
    monkeypatch.setattr(prior, "_FEW_COLUMNS", 0)
    many = leading_directions(rows, 5)
    np.testing.assert_allclose(many.values, few.values, atol=1e-6)


@pytest.mark.parametrize("make", RECOMMENDERS.values(), ids=RECOMMENDERS)
@pytest.mark.parametrize("values", [[1.0] * 9, list(range(9))])
def test_a_single_feature_is_enough_and_a_constant_one_does_no_harm(make, values):
    features = ItemFeatures.from_frame(pa.table({"item": range(9), "x": [float(v) for v in values]}))
    model = make(features).fit(random_interactions(0)).model_
    assert np.isfinite(model.fold_in.features).all()
    new = pa.table({"item": [50], "x": [4.0]})
    assert np.isfinite(model.with_new_items(new).fold_in.features).all()


def test_items_without_features_have_no_direction_and_a_prior_of_their_own():
    rows = some_rows()
    some = rows.take([*range(40), -1, -1])
    found = leading_directions(some, 4)
    np.testing.assert_array_equal(found.values[40:], 0)
    np.testing.assert_allclose(found.values[:40], leading_directions(rows.take(range(40)), 4).values, atol=1e-9)
    described = rows.take(np.flatnonzero(rows.counts))
    assert regressors(np.ones((len(described), 1)), described).covariates.shape[1] == 1
    assert regressors(np.ones((42, 1)), some).covariates[:, 1].tolist() == [*(some.counts[:40] > 0), 0, 0]


def test_a_linear_map_finds_what_features_say():
    rows = some_rows(n_rows=500)
    truth = np.random.default_rng(1).standard_normal((12, 2))
    intercept, coefficients = linear_map(2.0 + rows.to_scipy() @ truth, rows)
    np.testing.assert_allclose(intercept + rows.to_scipy() @ coefficients, 2.0 + rows.to_scipy() @ truth, atol=0.1)


def test_a_weighted_map_is_right_on_the_weighted_average():
    rows = some_rows(n_rows=200)
    rows = rows.take(np.flatnonzero(rows.counts))
    weights = np.exp(np.random.default_rng(2).standard_normal(len(rows)))
    targets = np.log(weights)
    misses = {}
    for name, given in (("weighted", weights), ("alike", None)):
        intercept, coefficients = linear_map(targets, rows, given)
        residuals = targets - (intercept + rows.to_scipy() @ coefficients)[:, 0]
        misses[name] = abs(np.average(residuals, weights=weights))
    assert misses["weighted"] < 0.01
    assert misses["alike"] > 0.3

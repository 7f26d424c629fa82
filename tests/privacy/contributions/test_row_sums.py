"""Sums over rows with weights: one user moves them by at most what they state, and at worst by as much."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import distance, raw_copy, raw_value
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import (
    ADD_REMOVE,
    REPLACE_LABELS,
    REPLACE_VALUES,
    Gaussian,
    Labels,
    Laplace,
    ObservationRows,
)
from apportion.privacy.contributions import (
    BoxedColumns,
    BoxedValues,
    GradientTotal,
    LabelTotal,
    LabelVectors,
    PrivateRowWeights,
    PublicRowWeights,
    RowTotal,
    SizeHistogram,
)
from weighted_rows import layout, private, public, replaced, without

SEEDS = st.integers(0, 2**32 - 1)


def total(users, weights, columns, low=-1.0, high=2.0, **settings):
    """The weighted total of the values of some users, within a range."""
    form = BoxedColumns(low, high, **settings)
    return add_up_one(LocalEngine(), users, RowTotal(form, form.width(columns), weights))


def labels_times(indptr, vectors, labels, low=-1.0, high=1.0):
    """Labels within a range, times public vectors."""
    users = Users(indptr, {"labels": labels, "vectors": vectors})
    form = LabelTotal(BoxedColumns(low, high, column="labels"), LabelVectors.from_rows(vectors, indptr))
    return add_up_one(LocalEngine(), users, form)


def both_norms(one, other):
    return [
        distance(one, raw_copy(other), mechanism) / bound
        for mechanism, bound in ((Gaussian(), one.l2_sensitivity), (Laplace(), one.l1_sensitivity))
    ]


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_replacing_a_users_values_moves_a_weighted_total_by_at_most_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    rows, weights = public(rng, indptr)
    values = rng.normal(size=(indptr[-1], 3)) * 4
    other = replaced(rng.integers(6), indptr, values, rng.normal(size=3) * 9)
    sums = [total(Users(indptr, {"values": v, "weights": rows}), weights, 3) for v in (values, other)]
    assert max(both_norms(*sums)) <= 1 + 1e-9
    assert sums[0].neighbours == REPLACE_VALUES


def test_the_heaviest_user_at_opposite_corners_moves_a_weighted_total_by_all_of_it():
    rng = np.random.default_rng(1)
    indptr = layout(rng)
    rows, weights = public(rng, indptr)
    heaviest = int(np.argmax(np.add.reduceat(rows, indptr[:-1])))
    values = rng.random((indptr[-1], 3))
    low, high = (replaced(heaviest, indptr, values, by) for by in (0.0, 1.0))
    sums = [total(Users(indptr, {"values": v, "weights": rows}), weights, 3, 0.0, 1.0) for v in (low, high)]
    assert min(both_norms(*sums)) >= 1 - 1e-6


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_taking_a_user_out_moves_a_capped_total_by_at_most_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    values = rng.normal(size=(indptr[-1], 2)) * 4
    rest, kept = without(rng.integers(6), indptr, values)
    sums = [total(Users(at, {"values": v}), private(), 2, constant=True) for at, v in ((indptr, values), (rest, kept))]
    assert max(both_norms(*sums)) <= 1 + 1e-9
    assert sums[0].neighbours == ADD_REMOVE


def test_squares_and_a_constant_stand_beside_the_values():
    indptr, values = np.array([0, 2, 3]), np.array([[-1.0, 0.5], [2.0, 9.0], [0.5, -3.0]])
    form = BoxedColumns(-1.0, 2.0, squares=True, constant=True)
    found = raw_value(total(Users(indptr, {"values": values}), private(), 2, squares=True, constant=True))
    scaled = (np.clip(values, -1.0, 2.0) - 0.5) / 3
    expected = np.concatenate([scaled.sum(axis=0), (4 * scaled**2 - 0.5).sum(axis=0), [1.5]])  # every weight is 1
    assert form.width(2) == 5
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_replacing_a_users_labels_moves_their_linear_map_by_at_most_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    rows = rng.normal(size=(indptr[-1], 4))
    labels = rng.normal(size=indptr[-1]) * 3
    user = rng.integers(6)
    other = replaced(user, indptr, labels, rng.normal(size=np.diff(indptr)[user]) * 9)
    sums = [labels_times(indptr, rows, y) for y in (labels, other)]
    assert max(both_norms(*sums)) <= 1 + 1e-9
    assert sums[0].neighbours == REPLACE_LABELS


def test_labels_whose_vectors_point_one_way_move_the_map_by_all_of_it():
    rows = np.outer([1.0, 2.0, 3.0, 0.5], [1.0, 0.0])
    ends = np.zeros(4), np.array([1.0, 1.0, 1.0, 0.0])
    sums = [labels_times(np.array([0, 3, 4]), rows, y, 0.0, 1.0) for y in ends]
    assert min(both_norms(*sums)) >= 1 - 1e-6


class Directions:
    """The directions of rows."""

    norm = 1.0

    def __call__(self, users, kernels):
        return ObservationRows.scaled(users.column("x"), self.norm)


class Slopes:
    """Slopes, clipped."""

    bound = 2.0

    def __call__(self, users, kernels):
        return Labels.clipped(users.column("slopes"), self.bound)


def gradients(indptr, x, slopes, weights, parts=None):
    """The sum of gradients, of parts of the users apart where there are any."""
    rows, of_rows = weights
    users = Users(
        indptr, {"x": x, "slopes": slopes, "weights": rows}, user_columns=None if parts is None else {"part": parts}
    )
    form = GradientTotal(Directions(), Slopes(), of_rows, 3, 0 if parts is None else 3)
    return add_up_one(LocalEngine(), users, form)


@given(SEEDS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_gradients_move_by_at_most_their_sensitivity_also_where_users_are_kept_apart(seed, apart):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    parts = rng.integers(0, 3, 6) if apart else None
    if parts is not None:
        parts[0] = 2
    weights, user = public(rng, indptr), rng.integers(6)
    x, slopes = rng.normal(size=(indptr[-1], 3)), rng.normal(size=indptr[-1]) * 5
    x2 = replaced(user, indptr, x, rng.normal(size=3))
    slopes2 = replaced(user, indptr, slopes, -9.0)
    one, two = (gradients(indptr, rows, g, weights, parts) for rows, g in ((x, slopes), (x2, slopes2)))
    assert distance(one, raw_value(two), Gaussian()) <= one.l2_sensitivity * (1 + 1e-9)
    assert one.shape == ((3, 3) if apart else (3,))


def test_parts_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    indptr = layout(rng)
    weights = public(rng, indptr)
    x, slopes = rng.normal(size=(indptr[-1], 3)), rng.normal(size=indptr[-1])
    whole = raw_value(gradients(indptr, x, slopes, weights))
    apart = raw_value(gradients(indptr, x, slopes, weights, np.array([0, 1, 0, 1, 2, 2])))
    np.testing.assert_array_equal(apart.sum(axis=0), whole)
    held = Slopes()(Users(indptr, {"slopes": slopes}), None)._values * weights[0]
    expected = (held[:, None] * x / np.linalg.norm(x, axis=1, keepdims=True)).sum(axis=0)
    np.testing.assert_allclose(whole, expected, rtol=1e-5)


def test_one_user_is_one_in_the_histogram_of_sizes():
    users = Users(np.array([0, 1, 1, 4, 12]), {})
    histogram = add_up_one(LocalEngine(), users, SizeHistogram(np.array([1.0, 2, 4, 8])))
    assert raw_value(histogram).tolist() == [1, 1, 0, 1]  # the user without rows is nobody
    assert 1 <= histogram.l1_sensitivity == histogram.l2_sensitivity < 1 + 1e-8


def test_private_values_cannot_be_printed_pickled_copied_or_converted():
    hidden = BoxedValues.clipped(np.ones((2, 2)), 0.0, 1.0)
    assert "hidden" in repr(hidden)
    for read in (pickle.dumps, copy.copy, copy.deepcopy, np.asarray, list, float):
        with pytest.raises(TypeError, match=r"private values|must be"):
            read(hidden)


def test_what_breaks_a_bound_is_refused():
    with pytest.raises(InputError, match="within"):
        BoxedValues(np.array([[0.6]]))
    three = Users([0, 3], {"values": np.zeros(3)})
    with pytest.raises(InputError, match="at most 1"):
        PrivateRowWeights(1.0, lambda indptr: np.ones(indptr[-1]), "too much").of(three)
    with pytest.raises(InputError, match="at least 0"):
        PublicRowWeights.from_rows(np.array([0.5, -0.1]), np.array([0, 2]), "negative")
    with pytest.raises(InputError, match="offsets from 0 to 2"):
        total(three, PrivateRowWeights(1.0, lambda indptr: np.zeros(2), "short"), 1)
    short = RowTotal(lambda users: BoxedValues(np.zeros((2, 1))), 1, private())
    with pytest.raises(InputError, match="one weight for each of 2 rows"):
        add_up_one(LocalEngine(), three, short)


def test_public_weights_and_vectors_beyond_what_was_derived_are_refused():
    """The bound is that of the weights it was derived from; users may not bring heavier ones."""
    indptr, rows = np.array([0, 2, 3]), np.array([0.2, 0.2, 0.4])
    weights = PublicRowWeights.from_rows(rows, indptr, "fixed")
    users = Users(indptr, {"values": np.zeros(3), "weights": rows})
    assert total(users, weights, 1).l1_sensitivity == pytest.approx(0.4)
    for heavier in (rows * 1.01, np.array([0.0, 0.0, 0.41]), np.array([0.5, -0.2, 0.1])):
        with pytest.raises(InputError, match=r"at most|at least 0"):
            total(users.with_columns(weights=heavier), weights, 1)
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    form = LabelTotal(BoxedColumns(-1.0, 1.0), LabelVectors.from_rows(vectors, indptr))
    with pytest.raises(InputError, match="at least one user's are longer"):
        add_up_one(LocalEngine(), users.with_columns(vectors=vectors * 1.01), form)


def test_sensitivities_of_tiny_and_huge_weights_of_labels_do_not_vanish():
    for unit in (1e-172, 1e-300, 1e160):
        rows = unit * np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]])
        statistic = labels_times(np.array([0, 1, 3]), rows, np.zeros(3))
        assert statistic.l2_sensitivity == pytest.approx(5 * unit)
        assert statistic.l1_sensitivity == pytest.approx(7 * unit)

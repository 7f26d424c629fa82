"""Sums over rows with weights, and ranks: one user moves them by at most what they state, and at worst by as much."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.door import distance, open_up, peek
from apportion.errors import InputError
from apportion.privacy import (
    ADD_REMOVE,
    REPLACE_LABELS,
    REPLACE_VALUES,
    BoxedValues,
    Gaussian,
    Labels,
    Laplace,
    ObservationRows,
    PrivateRowWeights,
    PublicRowWeights,
    RankedRows,
    UniformBase,
)
from apportion.privacy.contributions import gradient_total, label_total, size_histogram, weighted_total
from apportion.privacy.mechanisms import PointsOnLine

SEEDS = st.integers(0, 2**32 - 1)


def layout(rng, n_users=6):
    return np.concatenate([[0], np.cumsum(rng.integers(1, 6, n_users))])


def without(user, indptr, *columns):
    """Everything but the rows of one user."""
    kept = np.ones(indptr[-1], bool)
    kept[indptr[user] : indptr[user + 1]] = False
    sizes = np.delete(np.diff(indptr), user)
    return np.concatenate([[0], np.cumsum(sizes)]), *(column[kept] for column in columns)


def replaced(user, indptr, rows, by):
    other = rows.copy()
    other[indptr[user] : indptr[user + 1]] = by
    return other


def public(rng, indptr):
    return PublicRowWeights(rng.random(indptr[-1]), indptr, "random")


def private(indptr, threshold=2.0):
    sizes = np.diff(indptr)
    return PrivateRowWeights(np.repeat(np.minimum(threshold / sizes, 1), sizes), indptr, threshold, "capped")


def both_norms(one, other):
    return [
        distance(one, open_up(other), mechanism) / bound
        for mechanism, bound in ((Gaussian(), one.l2_sensitivity), (Laplace(), one.l1_sensitivity))
    ]


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_replacing_a_users_values_moves_a_weighted_total_by_at_most_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    weights = public(rng, indptr)
    values = rng.normal(size=(indptr[-1], 3)) * 4
    other = replaced(rng.integers(6), indptr, values, rng.normal(size=3) * 9)
    sums = [weighted_total(BoxedValues.clipped(v, -1.0, 2.0), weights) for v in (values, other)]
    assert max(both_norms(*sums)) <= 1 + 1e-9
    assert sums[0].neighbours == REPLACE_VALUES


def test_the_heaviest_user_at_opposite_corners_moves_a_weighted_total_by_all_of_it():
    rng = np.random.default_rng(1)
    indptr = layout(rng)
    weights = public(rng, indptr)
    heaviest = int(np.argmax(np.add.reduceat(weights._values, indptr[:-1])))
    values = rng.random((indptr[-1], 3))
    low, high = (replaced(heaviest, indptr, values, by) for by in (0.0, 1.0))
    sums = [weighted_total(BoxedValues.clipped(v, 0.0, 1.0), weights) for v in (low, high)]
    assert min(both_norms(*sums)) >= 1 - 1e-6


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_taking_a_user_out_moves_a_capped_total_by_at_most_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    values = rng.normal(size=(indptr[-1], 2)) * 4
    rest, kept = without(rng.integers(6), indptr, values)
    boxes = [BoxedValues.clipped(v, -1.0, 2.0).with_constant() for v in (values, kept)]
    sums = [weighted_total(box, private(offsets)) for box, offsets in zip(boxes, (indptr, rest), strict=True)]
    assert max(both_norms(*sums)) <= 1 + 1e-9
    assert sums[0].neighbours == ADD_REMOVE


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_replacing_a_users_labels_moves_their_linear_map_by_at_most_its_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    rows = rng.normal(size=(indptr[-1], 4))
    labels = rng.normal(size=indptr[-1]) * 3
    user = rng.integers(6)
    other = replaced(user, indptr, labels, rng.normal(size=np.diff(indptr)[user]) * 9)
    sums = [label_total(BoxedValues.clipped(y[:, None], -1.0, 1.0), rows, indptr) for y in (labels, other)]
    assert max(both_norms(*sums)) <= 1 + 1e-9
    assert sums[0].neighbours == REPLACE_LABELS


def test_labels_whose_vectors_point_one_way_move_the_map_by_all_of_it():
    indptr = np.array([0, 3, 4])
    rows = np.outer([1.0, 2.0, 3.0, 0.5], [1.0, 0.0])
    sums = [
        label_total(BoxedValues.clipped(y[:, None], 0.0, 1.0), rows, indptr)
        for y in (np.zeros(4), np.array([1, 1, 1, 0]))
    ]
    assert min(both_norms(*sums)) >= 1 - 1e-6


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
    one, two = (
        gradient_total(ObservationRows.scaled(rows, 1.0), Labels.clipped(g, 2.0), weights, parts)
        for rows, g in ((x, slopes), (x2, slopes2))
    )
    assert distance(one, peek(two), Gaussian()) <= one.l2_sensitivity * (1 + 1e-9)
    assert one.shape == ((3, 3) if apart else (3,))


def test_parts_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    indptr = layout(rng)
    weights = public(rng, indptr)
    rows = ObservationRows.scaled(rng.normal(size=(indptr[-1], 3)), 1.0)
    slopes = Labels.clipped(rng.normal(size=indptr[-1]), 1.0)
    whole = peek(gradient_total(rows, slopes, weights))
    apart = peek(gradient_total(rows, slopes, weights, np.array([0, 1, 0, 1, 2, 2])))
    np.testing.assert_allclose(apart.sum(axis=0), whole, rtol=1e-12)


def test_one_user_is_one_in_the_histogram_of_sizes():
    indptr = np.array([0, 1, 1, 4, 12])
    histogram = size_histogram(indptr, [1, 2, 4, 8])
    assert peek(histogram).tolist() == [1, 1, 0, 1]  # the user without rows is nobody
    assert 1 <= histogram.l1_sensitivity == histogram.l2_sensitivity < 1 + 1e-8


def ranked(values, weights, low=0.0, high=1.0):
    return RankedRows(values, weights, UniformBase(low, high))


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_replacing_a_users_values_moves_the_scores_of_all_cells_together_by_at_most_their_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    weights, user = public(rng, indptr), rng.integers(6)
    values = rng.random(indptr[-1])
    other = replaced(user, indptr, values, rng.random(np.diff(indptr)[user]))
    cuts = sorted(rng.random(rng.integers(0, 3)))
    quantiles = rng.uniform(0.05, 0.95, len(cuts) + 1)
    one, two = (ranked(v, weights).scores(cuts, quantiles) for v in (values, other))
    assert distance(one, open_up(two), PointsOnLine(UniformBase(0.0, 1.0))) <= one.total_sensitivity * (1 + 1e-9)


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_taking_a_user_out_moves_the_scores_by_at_most_their_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    values = rng.random(indptr[-1])
    rest, kept = without(rng.integers(6), indptr, values)
    cuts = sorted(rng.random(rng.integers(0, 3)))
    quantiles = rng.uniform(0.05, 0.95, len(cuts) + 1)
    one, two = (ranked(v, private(at)).scores(cuts, quantiles) for v, at in ((values, indptr), (kept, rest)))
    assert distance(one, open_up(two), PointsOnLine(UniformBase(0.0, 1.0))) <= one.total_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize(("cuts", "quantiles"), [([], [0.3]), ([0.5], [0.5, 0.5]), ([0.5], [0.8, 0.1])])
def test_moving_the_heaviest_user_across_moves_the_scores_by_all_of_it(cuts, quantiles):
    indptr = np.array([0, 4, *range(5, 13)])  # one user with 0.2, and eight with 0.1
    weights = PublicRowWeights(np.repeat([0.05, 0.1], [4, 8]), indptr, "fixed")
    others = np.repeat([0.005, 0.9], 4)
    one, two = (ranked(np.array([end] * 4 + others.tolist()), weights).scores(cuts, quantiles) for end in (0.49, 0.51))
    moved = distance(one, open_up(two), PointsOnLine(UniformBase(0.0, 1.0)))
    assert moved >= 0.85 * one.total_sensitivity
    assert moved <= one.total_sensitivity


def test_scores_are_the_deviation_of_the_weighted_rank():
    indptr = np.array([0, 2, 3])
    weights = PublicRowWeights(np.array([0.25, 0.25, 0.5]), indptr, "fixed")
    (cell,) = open_up(ranked(np.array([0.6, 0.2, 0.4]), weights).scores([], [0.5]))
    np.testing.assert_allclose(cell.edges, [0, 0.2, 0.4, 0.6, 1])
    np.testing.assert_allclose(cell.deviations, [0.5, 0.25, 0.25, 0.5])


def test_values_beyond_the_range_count_as_its_ends():
    indptr = np.array([0, 1, 2])
    weights = PublicRowWeights(np.array([0.5, 0.5]), indptr, "fixed")
    (cell,) = open_up(ranked(np.array([-7.0, 9.0]), weights).scores([], [0.5]))
    np.testing.assert_allclose(cell.edges, [0, 0, 1, 1])
    np.testing.assert_allclose(cell.deviations, [0.5, 0.0, 0.5])


@pytest.mark.parametrize(
    "hidden",
    [
        BoxedValues.clipped(np.ones((2, 2)), 0.0, 1.0),
        private(np.array([0, 3, 4])),
        ranked(np.array([0.5, 0.6]), private(np.array([0, 1, 2]))),
        ranked(np.array([0.5, 0.6]), private(np.array([0, 1, 2]))).scores([], [0.5]),
    ],
    ids=lambda hidden: type(hidden).__name__,
)
def test_private_values_cannot_be_printed_pickled_copied_or_converted(hidden):
    assert "hidden" in repr(hidden)
    for read in (pickle.dumps, copy.copy, copy.deepcopy, np.asarray, list, float):
        with pytest.raises(TypeError, match=r"private values|must be"):
            read(hidden)


def test_what_breaks_a_bound_is_refused():
    with pytest.raises(InputError, match="within"):
        BoxedValues(np.array([[0.6]]))
    with pytest.raises(InputError, match="at most 1"):
        PrivateRowWeights(np.ones(3), np.array([0, 3]), 1.0, "too much")
    with pytest.raises(InputError, match="at least 0"):
        PublicRowWeights(np.array([0.5, -0.1]), np.array([0, 2]), "negative")
    with pytest.raises(InputError, match="one weight for each of 3 rows"):
        weighted_total(BoxedValues(np.zeros((3, 1))), PublicRowWeights(np.ones(2), np.array([0, 2]), "short"))
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        ranked(np.array([0.5]), private(np.array([0, 1]))).scores([], [1.0])
    with pytest.raises(InputError, match="ascending"):
        ranked(np.array([0.5]), private(np.array([0, 1]))).scores([0.5, 0.2], [0.5] * 3)


def test_sensitivities_of_tiny_and_huge_weights_of_labels_do_not_vanish():
    indptr, labels = np.array([0, 1, 3]), BoxedValues(np.zeros((3, 1)))
    for unit in (1e-172, 1e-300, 1e160):
        statistic = label_total(labels, unit * np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 1.0]]), indptr)
        assert statistic.l2_sensitivity == pytest.approx(5 * unit)
        assert statistic.l1_sensitivity == pytest.approx(7 * unit)

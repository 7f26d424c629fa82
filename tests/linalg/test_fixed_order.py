"""Scores and rankings: what a plain sort finds, ties by column, and a row that does not depend on its neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from apportion.linalg import fixed_order
from apportion.linalg.fixed_order import row_products, top_columns

FEW_VALUES = st.sampled_from([-np.inf, -1.5, 0.0, -0.0, 0.25, 3.0])  # few, so that there are many ties
SCORES = st.tuples(st.integers(1, 6), st.integers(1, 40)).flatmap(
    lambda shape: arrays.arrays(st.sampled_from([np.float32, np.float64]), shape, elements=FEW_VALUES)
)
EDGES = [1, 63, 64, 65, 200]  # around the 64 rows that are worked on at a time


def by_sorting(scores, depth):
    """The same by Python's own sort, which keeps the order of equals."""
    order = [sorted(range(len(row)), key=lambda column: -row[column])[:depth] for row in scores.tolist()]
    return [[-1 if row[c] == -np.inf else c for c in best] for row, best in zip(scores.tolist(), order, strict=True)]


def in_order(left, right):
    """Every product by a loop, in the type of the arrays."""
    sums = np.zeros((len(left), len(right)), np.result_type(left, right))
    for i, j, k in np.ndindex(len(left), len(right), left.shape[1]):
        sums[i, j] += left[i, k] * right[j, k]
    return sums


def matrices(n_left, n_right, width, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((n, width)).astype(dtype) for n in (n_left, n_right))


@given(SCORES, st.data())
def test_the_best_columns_are_those_of_a_plain_sort(scores, data):
    depth = data.draw(st.integers(1, scores.shape[1]))
    kept = scores.copy()
    assert top_columns(scores, depth).tolist() == by_sorting(scores, depth)
    np.testing.assert_array_equal(scores, kept)


@given(SCORES, st.randoms(use_true_random=False))
def test_a_row_is_ranked_alike_wherever_it_stands(scores, random):
    depth = (scores.shape[1] + 1) // 2
    order = random.sample(range(len(scores)), len(scores))
    whole = top_columns(scores, depth)
    np.testing.assert_array_equal(top_columns(scores[order], depth), whole[order])
    for row in range(len(scores)):
        np.testing.assert_array_equal(top_columns(scores[row : row + 1], depth)[0], whole[row])


@given(SCORES)
def test_a_shorter_list_is_the_beginning_of_a_longer_one(scores):
    whole = top_columns(scores, scores.shape[1])
    for depth in range(1, scores.shape[1] + 1):
        np.testing.assert_array_equal(top_columns(scores, depth), whole[:, :depth])


def test_scores_that_are_all_equal_keep_the_order_of_the_columns():
    """Thousands of equals are what partitions with wide vectors put in an order of their own."""
    best = top_columns(np.zeros((3, 5000), np.float32), 700)
    np.testing.assert_array_equal(best, np.tile(np.arange(700), (3, 1)))


def test_places_beyond_the_last_finite_score_are_empty():
    scores = np.full((2, 9), -np.inf)
    scores[1, [2, 7]] = 1.0
    assert top_columns(scores, 4).tolist() == [[-1, -1, -1, -1], [2, 7, -1, -1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 7, 64])
def test_products_are_added_up_in_the_order_of_the_columns(dtype, width):
    left, right = matrices(5, 13, width, dtype)
    found = row_products(left, right)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, in_order(left, right))


@pytest.mark.parametrize("n_rows", EDGES)
def test_a_rows_products_have_the_same_bits_whatever_rows_are_beside_it(n_rows):
    left, right = matrices(n_rows, 2300, 24, np.float32)
    whole = row_products(left, right)
    for row in {0, n_rows // 2, n_rows - 1}:
        np.testing.assert_array_equal(row_products(left[row : row + 1], right)[0], whole[row])
    order = np.random.default_rng(1).permutation(n_rows)
    np.testing.assert_array_equal(row_products(left[order], right), whole[order])


def test_a_columns_products_have_the_same_bits_whatever_columns_are_beside_it():
    left, right = matrices(70, 2300, 24, np.float32)
    whole = row_products(left, right)
    order = np.random.default_rng(1).permutation(len(right))
    np.testing.assert_array_equal(row_products(left, right[order]), whole[:, order])
    for column in (0, 2047, 2048, 2299):
        np.testing.assert_array_equal(row_products(left, right[column : column + 1])[:, 0], whole[:, column])


def test_equal_items_get_equal_scores_in_every_block():
    left, right = matrices(70, 5, 33, np.float32)
    scores = row_products(left, right[np.arange(4200) % 5])
    np.testing.assert_array_equal(scores, scores[:, np.arange(4200) % 5])
    assert (top_columns(scores, 20) < 100).all()  # twenty twins of the best item, and they are the first


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 10), (1000, 10**6)])
def test_the_size_of_a_block_does_not_show(monkeypatch, rows, columns):
    left, right = matrices(70, 230, 24, np.float32)
    wanted = row_products(left, right)
    monkeypatch.setattr(fixed_order, "_ROWS_AT_A_TIME", rows)
    monkeypatch.setattr(fixed_order, "_COLUMNS_AT_A_TIME", columns)
    np.testing.assert_array_equal(row_products(left, right), wanted)


def test_memory_order_does_not_show():
    left, right = matrices(70, 230, 24, np.float32)
    turned = row_products(np.asfortranarray(left), np.asfortranarray(right))
    np.testing.assert_array_equal(turned, row_products(left, right))


def test_products_without_rows_or_columns_are_empty_and_without_width_zero():
    assert row_products(np.empty((0, 3)), np.ones((2, 3))).shape == (0, 2)
    assert row_products(np.ones((2, 3)), np.empty((0, 3))).shape == (2, 0)
    np.testing.assert_array_equal(row_products(np.empty((2, 0)), np.empty((3, 0))), np.zeros((2, 3)))

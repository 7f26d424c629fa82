"""Products of rows and the largest of them: the same bits on every path, ties in the order of the columns."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg.fixed_order import row_products, top_products

needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built")


def some_excluded(rng, n_rows, n_columns, share):
    mask = rng.random((n_rows, n_columns)) < share
    return np.concatenate([[0], np.cumsum(mask.sum(axis=1))]), np.nonzero(mask)[1].astype(np.int32)


def vectors(rng, n_rows, width, dtype, *, coarse):
    """Real numbers, or whole ones, many of whose products tie."""
    drawn = rng.integers(-1, 2, (n_rows, width)) if coarse else rng.standard_normal((n_rows, width))
    return drawn.astype(dtype)


@needs_kernel
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 210),
    n_columns=st.integers(1, 300),
    width=st.integers(1, 70),
    dtype=st.sampled_from([np.float32, np.float64]),
    coarse=st.booleans(),
    share=st.sampled_from([None, 0.0, 0.3, 1.0]),
)
def test_every_path_ranks_alike(seed, n_rows, n_columns, width, dtype, coarse, share):
    rng = np.random.default_rng(seed)
    left = vectors(rng, n_rows, width, dtype, coarse=coarse)
    right = vectors(rng, n_columns, width, dtype, coarse=coarse)
    excluded = None if share is None else some_excluded(rng, n_rows, n_columns, share)
    depth = int(rng.integers(1, n_columns + 1))
    with linalg.use_backend("numpy"):
        products = row_products(left, right)
        columns, scores = top_products(left, right, depth, offset=0.3, excluded=excluded)
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            for threads in (1, 3):
                np.testing.assert_array_equal(row_products(left, right, threads=threads), products)
                found = top_products(left, right, depth, offset=0.3, excluded=excluded, threads=threads)
                np.testing.assert_array_equal(found[0], columns)
                np.testing.assert_array_equal(found[1], scores)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_the_best_are_those_of_a_sort_by_score_and_column(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    rng = np.random.default_rng(0)
    left, right = vectors(rng, 20, 3, np.float32, coarse=True), vectors(rng, 200, 3, np.float32, coarse=True)
    indptr, excluded = some_excluded(rng, 20, 200, 0.9)
    with linalg.use_backend(backend):
        columns, scores = top_products(left, right, 30, excluded=(indptr, excluded))
    for j in range(20):
        gone = set(excluded[indptr[j] : indptr[j + 1]].tolist())
        wanted = sorted((-float(left[j] @ right[i]), i) for i in range(200) if i not in gone)[:30]
        n = len(wanted)
        assert columns[j].tolist() == [i for _, i in wanted] + [-1] * (30 - n)
        assert scores[j].tolist() == [-score for score, _ in wanted] + [-np.inf] * (30 - n)


@needs_kernel
def test_no_array_of_all_products_is_made():
    rng = np.random.default_rng(1)
    left, right = (vectors(rng, n, 8, np.float32, coarse=False) for n in (20_000, 5_000))
    tracemalloc.start()
    top_products(left, right, 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.02 * 20_000 * 5_000 * 4


@pytest.mark.parametrize("depth", [0, 6])
def test_a_depth_beyond_the_columns_is_refused(depth):
    with pytest.raises(InputError, match="depth from 1 to 5"):
        top_products(np.ones((2, 3)), np.ones((5, 3)), depth)


def test_excluded_columns_out_of_order_are_refused():
    left, right = np.ones((2, 3)), np.ones((5, 3))
    top_products(left, right, 2, excluded=(np.array([0, 2, 3]), np.array([1, 4, 0])))  # the next row starts anew
    with pytest.raises(InputError, match="ascending order"):
        top_products(left, right, 2, excluded=(np.array([0, 2, 3]), np.array([4, 1, 0])))
    with pytest.raises(InputError, match="offsets of 2 rows"):
        top_products(left, right, 2, excluded=(np.array([0, 2]), np.array([1, 4])))

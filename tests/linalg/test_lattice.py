"""Sums in whole steps: the same by every path and in every order, never longer than their parts, exact when long."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg

needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built")
FACTOR, PRODUCT = 2.0**-17, 2.0**-34


def segments(seed, n=4000, dim=13, dtype=np.float32, n_segments=60):
    """Observations in segments of all lengths, some of them empty; weights of both signs."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, n, n_segments - 1))
    indptr = np.concatenate([[0], cuts, [n]]).astype(np.int64)
    features = (rng.standard_normal((200, dim)) * 0.2).clip(-1, 1).astype(dtype)
    return indptr, rng.integers(0, 200, n).astype(np.int32), features, rng.uniform(-1, 1, n)


def exact_gram(indptr, indices, features, weights, step):
    """With Python's own whole numbers, from factors in double precision."""
    dim = features.shape[1]
    out = [[0] * (dim * (dim + 1) // 2) for _ in indptr[1:]]
    for s, (begin, end) in enumerate(itertools.pairwise(indptr.tolist())):
        for k in range(begin, end):
            root = math.sqrt(abs(weights[k]))
            p = [math.trunc(root * float(x) / step) for x in features[indices[k]]]
            sign = -1 if weights[k] < 0 else 1
            for r in range(dim):
                for c in range(r + 1):
                    out[s][r * (r + 1) // 2 + c] += sign * p[r] * p[c]
    return np.array(out)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gram_matrices_are_those_of_python_integers(backend, dtype):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    indptr, indices, features, weights = segments(0, n=300, dim=5, dtype=dtype, n_segments=9)
    with linalg.use_backend(backend):
        found = linalg.lattice_gram(indptr, indices, features, weights=weights, step=FACTOR)
    np.testing.assert_array_equal(found, exact_gram(indptr, indices, features, weights, FACTOR))


@needs_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 7, 16, 33])
def test_every_path_gives_the_same_whole_numbers(dtype, dim):
    indptr, indices, features, weights = segments(dim, dim=dim, dtype=dtype)

    def both():
        return (
            linalg.lattice_gram(indptr, indices, features, weights=weights, step=FACTOR, threads=3),
            linalg.lattice_moment(indptr, indices, features, coefficients=weights, step=PRODUCT, threads=2),
        )

    with linalg.use_backend("numpy"):
        expected = both()
    for name in linalg.instruction_sets():
        with linalg.use_instruction_set(name):
            for one, two in zip(both(), expected, strict=True):
                np.testing.assert_array_equal(one, two)


@needs_kernel
def test_no_order_of_additions_changes_a_sum():
    _, indices, features, weights = segments(3, n=50_000)
    ends = np.array([0, len(indices)])
    rng = np.random.default_rng(1)
    grams, moments, floats = set(), set(), set()
    for _ in range(20):
        order = rng.permutation(len(indices))
        given = (ends, indices[order], features)
        grams.add(linalg.lattice_gram(*given, weights=weights[order], step=FACTOR).tobytes())
        moments.add(linalg.lattice_moment(*given, coefficients=weights[order], step=PRODUCT).tobytes())
        floats.add(linalg.segment_moment(*given, coefficients=weights[order], dtype=np.float64).tobytes())
    assert len(grams) == len(moments) == 1
    assert len(floats) > 10  # sums in floating point do depend on it


@needs_kernel
def test_long_segments_are_exact_beyond_the_whole_numbers_of_a_double():
    n = 700_001
    features = np.array([[1.0, 1 - FACTOR]])
    pointers, nobody = np.array([0, n]), np.zeros(n, np.int32)
    steps = 2**17
    gram = linalg.lattice_gram(pointers, nobody, features, step=FACTOR)[0]
    assert gram.tolist() == [n * steps**2, n * steps * (steps - 1), n * (steps - 1) ** 2]
    assert n * steps**2 > 2**53
    moment = linalg.lattice_moment(pointers, nobody, features, coefficients=np.ones(n), step=PRODUCT)[0]
    assert moment.tolist() == [n * 2**34, n * (2**34 - 2**17)]


@settings(max_examples=200)
@given(
    row=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=6),
    weight=st.floats(0, 1),
    bits=st.integers(1, 17),
)
def test_what_is_cut_off_is_never_longer(row, weight, bits):
    """Exactly: in fractions, against the true product with room for the rounding of a root and of products."""
    step = 2.0**-bits
    features = np.array([row])
    gram = linalg.lattice_gram([0, 1], [0], features, weights=[weight], step=step)[0]
    dim = len(row)
    trace = sum(int(gram[r * (r + 1) // 2 + r]) for r in range(dim))  # the squared norm of the factor, and of its Gram
    length = Fraction(weight) * sum(Fraction(x) ** 2 for x in row)
    assert trace * Fraction(step) ** 2 <= length * (1 + Fraction(1, 2**50))


def test_what_does_not_fit_is_refused():
    x = np.array([[1.0]])
    with pytest.raises(ValueError, match=r"power of two, got 0\.3"):
        linalg.lattice_gram([0, 1], [0], x, step=0.3)
    with pytest.raises(ValueError, match="factors of at most 131072 steps"):
        linalg.lattice_gram([0, 1], [0], x, step=2.0**-18)
    with pytest.raises(ValueError, match="products of at most"):
        linalg.lattice_moment([0, 1], [0], x, coefficients=[np.nan], step=PRODUCT)
    with pytest.raises(ValueError, match="finite bound of at least 0"):
        linalg.step_below(math.inf)


def test_steps_of_a_bound():
    assert linalg.step_below(1.0) == 2.0**-34
    assert linalg.step_below(1.1) == 2.0**-33
    assert linalg.step_below(32.0) == 2.0**-29
    assert linalg.step_below(32 * (1 + 2.0**-52)) == 2.0**-28
    assert linalg.step_below(0.0) > 0
    assert linalg.step_below(1e-300) > 0

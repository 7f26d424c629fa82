"""No segment's solution holds anything of another's: not even where that one was not a number."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg

needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built")


@needs_kernel
@pytest.mark.parametrize("instructions", linalg.instruction_sets() or ["none"])
@pytest.mark.parametrize("width", [5, 13, 20, 33, 70])
@pytest.mark.parametrize("whitened", [False, True])
def test_a_segment_that_is_not_a_number_leaves_the_others_as_they_are(instructions, width, whitened):
    rng = np.random.default_rng(width)
    lengths = rng.integers(1, 2 * width, 60)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = rng.integers(0, 30, indptr[-1]).astype(np.int32)
    features = rng.standard_normal((30, width)).astype(np.float32)
    root = rng.standard_normal((width, width)) / np.sqrt(width)
    base = root @ root.T + np.eye(width) if whitened else 1.5 * np.eye(width)
    labels, weights = rng.standard_normal(indptr[-1]), rng.uniform(0, 1, indptr[-1])

    def solutions():
        with linalg.use_instruction_set(instructions):
            return linalg.segment_solve(
                indptr, indices, features, labels=labels, weights=weights, base=base, unsolved="zero", threads=1
            )

    before = solutions()
    spoiled = np.arange(60) % 2 == 0
    rows = np.repeat(spoiled, lengths)
    labels[rows], weights[rows] = np.nan, np.inf
    after = solutions()
    np.testing.assert_array_equal(after[~spoiled], before[~spoiled])
    assert not after[spoiled].any()

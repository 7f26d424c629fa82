"""Norms of private rows: one order of additions, whatever the processor and the layout."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.privacy import Rows
from apportion.privacy.bounds import MARGIN, EqualWeights, Weights


def length(row):
    """Add the squares from the first column on."""
    total = 0.0
    for number in row.astype(float):
        total += float(number) * float(number)
    return np.sqrt(total)


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_scaled_by_squares_added_in_the_order_of_columns(layout, dtype):
    """The order of `np.einsum` gives other last bits of lengths in float64."""
    rows = np.random.default_rng(0).standard_normal((500, 37)).astype(dtype)
    made = Rows.scaled(np.asarray(rows, order=layout), 1.0)._values
    factors = np.array([(1 - MARGIN) / length(row) for row in rows])
    np.testing.assert_array_equal(made, (rows.astype(float) * factors[:, None]).astype(dtype))


def test_the_length_of_a_row_does_not_depend_on_the_rows_beside_it():
    rows = np.random.default_rng(1).standard_normal((5000, 9))
    alone = np.concatenate([Rows.scaled(rows[k : k + 1], 1.0)._values for k in range(4090, 4100)])
    np.testing.assert_array_equal(Rows.scaled(rows, 1.0)._values[4090:4100], alone)


def test_equal_weights_are_those_of_normalised_ones():
    indptr = np.concatenate([[0], np.cumsum(np.random.default_rng(4).integers(0, 40, 200))])
    general = Weights.normalised(np.ones(indptr[-1], np.float32), indptr, "equal")
    equal = EqualWeights(indptr, "equal")
    np.testing.assert_array_equal(equal._values, general._values)
    assert equal._values.dtype == general._values.dtype
    assert equal.belong_to(indptr)
    assert not equal.signed
    with pytest.raises(ValueError, match="read-only"):
        equal._values[0] = 2


@pytest.mark.parametrize("offsets", [[1, 2], [0, 2, 1]])
def test_equal_weights_refuse_offsets_that_are_none(offsets):
    with pytest.raises(InputError, match="Expected offsets from 0 on"):
        EqualWeights(np.array(offsets), "equal")

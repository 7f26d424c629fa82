"""Groups of rows: the same codes and texts whether they are found by a table of codes or by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.groups import _distinct, rows_by_group


@pytest.mark.parametrize("n_groups", [3, 400])
def test_a_table_and_a_sort_find_the_same_groups(n_groups):
    rng = np.random.default_rng(0)
    users, first, second = (rng.integers(0, most, 500) for most in (40, n_groups, 7))
    codes = first * 7 + second
    table, by_sort = _distinct(codes, n_groups * 7), _distinct(codes, 10**12)
    for one, other in zip(table, by_sort, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(table[0][table[1]], codes)
    texts = rows_by_group(users, [first, second], 500).texts
    assert len(texts) == len(table[0])
    assert list(texts) == sorted(texts)

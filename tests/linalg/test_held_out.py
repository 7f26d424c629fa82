"""Rows that are held out: the same with the kernel and with NumPy, and for each user what it would be alone."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.linalg.held_out import held_out_rows
from apportion.linalg.keyed_words import keyed_words

BACKENDS = ["numpy", *(["compiled"] if linalg.compiled_available() else [])]
KEY = bytes(range(32))


def drawn(seed, n_users=80):
    """Users with up to 59 tasks of 300 in ascending order; some have none."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 60, n_users)
    tasks = [np.sort(rng.choice(300, size, replace=False)) for size in sizes]
    ids = rng.integers(0, 2**63, (n_users, 2)).astype(np.uint64)
    return ids, np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(tasks).astype(np.int32)


def by_loops(ids, indptr, tasks, *, fraction, voters, most):
    """Say the rule user by user."""
    held = np.zeros(len(tasks), bool)
    for user, own in enumerate(keyed_words(KEY, ids)):
        rows = np.arange(indptr[user], indptr[user + 1])
        if not len(rows) or int(own) >> 11 >= voters * 2**53:
            continue
        hashes = keyed_words(KEY, np.array([[own, tasks[row]] for row in rows], np.uint64))
        low = [row for row in rows[np.argsort(hashes)] if int(hashes[row - rows[0]]) >> 11 < fraction * 2**53]
        held[low[: min(most, len(rows) - 1)]] = True
    return held


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.95])
@pytest.mark.parametrize(("voters", "most"), [(1.0, 1 << 30), (0.3, 2)])
def test_the_rows_are_those_of_the_rule_for_each_user(fraction, voters, most, backend):
    data, limits = drawn(3), {"fraction": fraction, "voters": voters, "most": most}
    wanted = by_loops(*data, **limits)
    assert wanted.any()
    with linalg.use_backend(backend):
        assert np.array_equal(held_out_rows(KEY, *data, **limits), wanted)

"""Users of several rows each, and weights of their rows."""

from __future__ import annotations

import numpy as np

from apportion.privacy.contributions import PrivateRowWeights, PublicRowWeights


def layout(rng, n_users=6):
    """Offsets of users with one to five rows."""
    return np.concatenate([[0], np.cumsum(rng.integers(1, 6, n_users))])


def without(user, indptr, *columns):
    """Everything but the rows of one user."""
    kept = np.ones(indptr[-1], bool)
    kept[indptr[user] : indptr[user + 1]] = False
    sizes = np.delete(np.diff(indptr), user)
    return np.concatenate([[0], np.cumsum(sizes)]), *(column[kept] for column in columns)


def replaced(user, indptr, rows, by):
    """The rows with others in the place of one user's."""
    other = rows.copy()
    other[indptr[user] : indptr[user + 1]] = by
    return other


def public(rng, indptr):
    """Random weights of rows, and how they are declared."""
    rows = rng.random(indptr[-1])
    return rows, PublicRowWeights.from_rows(rows, indptr, "random")


def private(threshold=2.0):
    """Weights of at most 1, and for one user of at most the threshold."""

    def form(indptr):
        sizes = np.diff(indptr)
        return np.repeat(np.minimum(threshold / np.maximum(sizes, 1), 1), sizes)

    return PrivateRowWeights(threshold, form, "capped")

"""The best items of each user among those that may be recommended, mixed by caps on categories.

No array of users times items is made: `top_products` keeps only the best of each user. A cap limits how many items of
one list may share a word of a category. Items are taken from the best on, and those that exceed a cap are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.linalg.fixed_order import Excluded, top_columns, top_products
from apportion.recommend.categories import Categories

Codes = NDArray[np.int32]
Scores = NDArray[np.floating[Any]]

_DEEPER: Final = 4  # factor by which the search goes deeper if caps leave a list too short


@dataclass(frozen=True, eq=False)
class Caps:
    """How many items of one list may share a word.

    Attributes:
        words: for each item the columns of its words, filled up with one column that has no limit.
        limits: one for each column.
    """

    words: NDArray[np.int64]
    limits: NDArray[np.int64]

    @classmethod
    def of(cls, categories: Categories, caps: Mapping[str, int]) -> Self:
        """Return caps by the name of a category."""
        rows, free = categories.rows, categories.rows.n_columns
        limits = np.full(free + 1, np.iinfo(np.int64).max)
        for name, most in caps.items():
            if most < 1:
                raise InputError(f"Expected a cap of at least 1 for {name!r}, got {most}.", argument="caps")
            group = categories.group(name)
            limits[group.first : group.last] = most
        limited = limits[rows.indices] < limits[free]
        owner, columns = rows.owner()[limited], rows.indices[limited]
        counts = np.bincount(owner, minlength=len(rows))
        words = np.full((len(rows), max(1, int(counts.max(initial=0)))), free)
        words[owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)] = columns
        return cls(words, limits)

    def choose(self, ranked: Codes, k: int) -> NDArray[np.bool_]:
        """Return which places of each ranking are taken: from the first on, at most k, none that breaks a cap."""
        users = np.arange(len(ranked))
        counts = np.zeros((len(ranked), len(self.limits)), np.int32)
        taken = np.zeros(ranked.shape, bool)
        left = np.full(len(ranked), k)
        for place in range(ranked.shape[1]):
            words = self.words[np.maximum(ranked[:, place], 0)]
            fits = (counts[users[:, None], words] < self.limits[words]).all(axis=1)
            fits &= (ranked[:, place] >= 0) & (left > 0)
            counts[users[:, None], words] += fits[:, None]
            taken[:, place], left = fits, left - fits
        return taken


def best_items(
    vectors: Scores,
    features: Scores,
    k: int,
    *,
    offset: float,
    excluded: Excluded | None = None,
    candidates: Codes | None = None,
    caps: Caps | None = None,
) -> tuple[Codes, Scores]:
    """Return the k best items of each user and their scores, best first; -1 and -inf if fewer are left.

    Args:
        vectors: of the users.
        features: of the items.
        k: how many for each.
        offset: what is added to every score.
        excluded: items that a user is not to get, as (indptr, codes); see `top_products`.
        candidates: the items that may be recommended, ascending; None for all.
        caps: how many may share a word; None for any number.
    """
    if candidates is not None:
        features = features[candidates]
        excluded = None if excluded is None else _among(excluded, candidates)
    if caps is None:
        columns, scores = _top(vectors, features, k, offset, excluded)
    else:
        limited = caps if candidates is None else Caps(caps.words[candidates], caps.limits)
        columns, scores = _top_capped(vectors, features, k, offset, excluded, limited)
    if candidates is not None and len(candidates):
        columns = np.where(columns < 0, columns, candidates[np.maximum(columns, 0)]).astype(np.int32)
    return columns, scores


def _top(vectors: Scores, features: Scores, k: int, offset: float, excluded: Excluded | None) -> tuple[Codes, Scores]:
    """Call `top_products`, padded if there are fewer than k items altogether."""
    columns = np.full((len(vectors), k), -1, np.int32)
    scores = np.full((len(vectors), k), -np.inf, vectors.dtype)
    depth = min(k, len(features))
    if depth and len(vectors):
        columns[:, :depth], scores[:, :depth] = top_products(vectors, features, depth, offset=offset, excluded=excluded)
    return columns, scores


def _top_capped(
    vectors: Scores, features: Scores, k: int, offset: float, excluded: Excluded | None, caps: Caps
) -> tuple[Codes, Scores]:
    """Search deeper for the users whose list the caps leave short, until it is full or nothing is left."""
    columns = np.full((len(vectors), k), -1, np.int32)
    scores = np.full((len(vectors), k), -np.inf, vectors.dtype)
    waiting, depth = np.arange(len(vectors)), k
    while len(waiting) and len(features):
        depth = min(depth * _DEEPER, len(features))
        ranked, values = _top(vectors[waiting], features, depth, offset, _of_rows(excluded, waiting))
        taken = caps.choose(ranked, k)
        n_taken = taken.sum(axis=1)
        places = np.argsort(~taken, axis=1, kind="stable")[:, :k]
        there = np.arange(places.shape[1]) < n_taken[:, None]
        columns[waiting, : places.shape[1]] = np.where(there, np.take_along_axis(ranked, places, axis=1), -1)
        scores[waiting, : places.shape[1]] = np.where(there, np.take_along_axis(values, places, axis=1), -np.inf)
        waiting = waiting[(n_taken < k) & (ranked[:, -1] >= 0) & (depth < len(features))]
    return columns, scores


def _of_rows(excluded: Excluded | None, rows: NDArray[np.int64]) -> Excluded | None:
    """Return what some of the users must not get."""
    if excluded is None:
        return None
    indptr, codes = excluded
    counts = np.diff(indptr)[rows]
    edges = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(edges[-1]) + np.repeat(indptr[rows] - edges[:-1], counts)
    return edges, codes[places]


def _among(excluded: Excluded, candidates: Codes) -> Excluded:
    """Return the same in the numbering of the candidates; other items are left out."""
    indptr, codes = excluded
    places = np.searchsorted(candidates, codes)
    known = places < len(candidates)
    known[known] = candidates[places[known]] == codes[known]
    kept = np.concatenate([[0], np.cumsum(known)])
    return kept[indptr], places[known].astype(np.int32)


def history_of(history: Interactions, users: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the history of these consecutive users with rows: offsets and tasks in order."""
    indptr = history.by_user.indptr
    rows = slice(indptr[users[0]], indptr[users[-1] + 1]) if len(users) else slice(0, 0)
    return np.concatenate([[0], np.cumsum(history.by_user.counts[users])]), history.tasks[rows]


def best_columns(scores: NDArray[np.floating[Any]], k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the top k per row, best first; ties go to the lower code; masked entries become task -1."""
    tasks = top_columns(scores, k).astype(np.int32)
    best = np.take_along_axis(scores, np.maximum(tasks, 0), axis=1).astype(np.float32)
    best[tasks < 0] = -np.inf
    return tasks, best

"""Checks for features that are too specific: they distinguish items without saying what items share.

In private learning, every item has its own statistics, and each costs noise. A feature such as the font size of an
advertisement turns one item into many; a feature whose values each occur with one item is an id under another name.
Both can be seen in the public features alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.data.sparse_rows import SparseRows

_ALONE = 0.8  # a group is specific if this share of its entries has a value that no other item has
_MULTIPLIED = 3.0  # number of items for each item that would be left without the group
_FEWEST_ITEMS = 20
_GROUPS_TO_JUDGE_BY = 3
_GROUPS_OF_A_GRID = 2
_FILLED = 0.5  # share of all combinations of two groups that must occur
_SHORTEST_SIDE = 3  # least number of values of the coarser group
_TOLD_APART = 0.8  # number of different combinations per item


def too_specific(rows: SparseRows) -> list[str]:
    """Return one sentence for every feature group that looks too specific."""
    if len(rows) < _FEWEST_ITEMS:
        return []
    return [*_ids_under_another_name(rows), *_multipliers(rows)]


def _ids_under_another_name(rows: SparseRows) -> list[str]:
    uses = np.bincount(rows.indices, minlength=rows.n_columns)
    group_of_entry = rows.group_of_entry()
    found = []
    for position, group in enumerate(rows.groups):
        entries = rows.indices[group_of_entry == position]
        if group.size < _FEWEST_ITEMS or not len(entries):
            continue
        alone = float(np.mean(uses[entries] == 1))
        if alone > _ALONE:
            found.append(
                f"Feature {group.name!r} is very specific: {alone:.0%} of its entries belong to a single "
                "item, so items share little through it."
            )
    return found


def _multipliers(rows: SparseRows) -> list[str]:
    marks = _marks(rows)
    whole = marks.sum(axis=1, dtype=np.uint64)
    with_it = len(np.unique(whole))
    if len(rows.groups) < _GROUPS_TO_JUDGE_BY:
        return _of_a_grid(rows, marks, with_it)
    found = []
    for position, group in enumerate(rows.groups):
        without = len(np.unique(whole - marks[:, position]))
        if with_it > _MULTIPLIED * without:
            found.append(_multiplies(group.name, with_it, without))
    return found


def _of_a_grid(rows: SparseRows, marks: NDArray[np.uint64], with_it: int) -> list[str]:
    """Return the finer of two groups if nearly all their combinations occur, each with one item.

    With only two groups, one alone says too little about items to judge what they would be without the other: a genre
    and a year are both needed, and many films share them. It is different if every brand has every font.
    """
    if len(rows.groups) != _GROUPS_OF_A_GRID:
        return []
    sizes = [len(np.unique(marks[:, position])) for position in range(_GROUPS_OF_A_GRID)]
    filled = with_it >= _FILLED * sizes[0] * sizes[1] and with_it >= _TOLD_APART * len(rows)
    filled = filled and min(sizes) >= _SHORTEST_SIDE
    finer = int(np.argmax(sizes))
    without = sizes[1 - finer]
    return (
        [_multiplies(rows.groups[finer].name, with_it, without)] if filled and with_it > _MULTIPLIED * without else []
    )


def _multiplies(name: str, with_it: int, without: int) -> str:
    return (
        f"Feature {name!r} may be too specific: without it, the {with_it} different items would be "
        f"{without}; if only this feature distinguishes them, leave it out and give them one id."
    )


def _marks(rows: SparseRows) -> NDArray[np.uint64]:
    """Return a random number per row and group that depends only on the row's entries in that group."""
    rng = np.random.default_rng(0)
    codes = rng.integers(1, 2**63, rows.n_columns, dtype=np.uint64)
    bits = rows.values.view(np.uint32).astype(np.uint64) | np.uint64(1 << 33)
    entry = codes[rows.indices] * (bits * np.uint64(2) + np.uint64(1))
    marks = np.zeros((len(rows), len(rows.groups)), np.uint64)
    np.add.at(marks, (rows.owner(), rows.group_of_entry()), entry)
    return marks

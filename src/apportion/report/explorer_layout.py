"""The position of each item on the map: near items with a similar released vector.

The map starts from the two leading principal components of the items' directions. Then items at a small angle are
pulled together and random pairs are pushed apart, as in UMAP (McInnes, Healy and Melville 2018, with a = 1.6, b = 1).
Only released vectors are used.

The map is the same on every machine. Directions are rounded to whole steps, so their products are exact in any order.
Everything after that adds, multiplies and divides one number at a time, and draws pairs from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

GRID: Final = 4095
"""Coordinates run from 0 to this number, in whole steps."""

_N_NEAR: Final = 12
_WIDTH: Final = 24  # number of principal components used to find neighbours
_STEPS: Final = 2.0**14  # steps in a unit vector's coordinate: products of two, summed over the width, stay exact
_START_STEPS: Final = 64.0  # size of the starting map
_START_SIZE: Final = 3.0
_EPOCHS: Final = 160
_SPREAD: Final = 1.6
_PUSHES: Final = 10
_LONGEST_STEP: Final = 4.0
_CELLS_AT_ONCE: Final = 1 << 22
_RUNS: Final = 16

Points = NDArray[np.float64]


def item_map(vectors: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Return two coordinates for each item, from 0 to `GRID`; items without a vector lie in the middle.

    Args:
        vectors: the vectors by which items are compared, one row each.
    """
    directions = _directions(vectors)
    known = np.flatnonzero(directions.any(axis=1))
    places = np.full((len(directions), 2), GRID // 2, np.uint16)
    if len(known) < 3:
        places[known, 0] = np.linspace(GRID // 4, GRID - GRID // 4, len(known)).astype(np.uint16)
        return places
    whole = _leading(directions[known])
    near = _nearest(whole, min(_N_NEAR, len(known) - 1))
    start = np.round(whole[:, :2] / _STEPS * _START_SIZE * _START_STEPS) / _START_STEPS
    places[known] = _on_grid(_settled(start, near))
    return places


def _directions(vectors: NDArray[np.floating[Any]]) -> Points:
    exact = np.asarray(vectors, np.float64)
    lengths = np.sqrt(np.square(exact).sum(axis=1, keepdims=True))
    units: Points = np.divide(exact, lengths, out=np.zeros_like(exact), where=lengths > 0)
    return units


def _leading(directions: Points) -> Points:
    """Return the leading principal components in whole steps: at least two, each with a positive largest entry."""
    centred = directions - directions.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :_WIDTH]
    result = np.zeros((len(centred), max(2, axes.shape[1])))
    result[:, : axes.shape[1]] = centred @ axes
    signs = np.sign(result[np.argmax(np.round(np.abs(result), 6), axis=0), np.arange(result.shape[1])])
    return np.round(result * np.where(signs < 0, -1.0, 1.0) * _STEPS)


def _nearest(whole: Points, k: int) -> NDArray[np.int64]:
    """Return the k nearest items of each. Sums of whole numbers below 2^53 do not depend on their order."""
    squares = np.square(whole).sum(axis=1)
    result = np.empty((len(whole), k), np.int64)
    for rows in _blocks(len(whole)):
        closeness = 2 * (whole[rows] @ whole.T) - squares
        closeness[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = -np.inf
        result[rows] = _largest(closeness, k)
    return result


def _largest(values: Points, k: int) -> NDArray[np.int64]:
    """Return the columns of the k largest values of each row, largest first, ties by column.

    The k-th largest maximum over runs of columns is a bound that few values reach, so only those are sorted.
    """
    starts = np.arange(0, values.shape[1], max(1, values.shape[1] // (_RUNS * k)))
    most = np.maximum.reduceat(values, starts, axis=1)
    bound = np.sort(most, axis=1)[:, -k]
    rows, columns = np.nonzero(values >= bound[:, None])
    order = np.lexsort((columns, -values[rows, columns], rows))
    firsts = np.searchsorted(rows[order], np.arange(len(values)))
    return np.asarray(columns[order][firsts[:, None] + np.arange(k)])


def _settled(start: Points, near: NDArray[np.int64]) -> Points:
    """Pull along the edges to near items and push random pairs apart, with ever smaller steps."""
    n_items, k = near.shape
    rng = np.random.default_rng(0)
    one, other = np.repeat(np.arange(n_items), k), near.ravel()
    strength = np.tile(1.0 / np.arange(1, k + 1), n_items)
    places = start + rng.integers(-50, 51, start.shape) / 1000.0
    for epoch in range(_EPOCHS):
        step = 0.25 * (1 - epoch / _EPOCHS)
        moves = _pull(places, one, other, strength)
        for _ in range(_PUSHES):
            moves += _push(places, rng.integers(0, n_items, size=(n_items,)))
        places = places + step * np.clip(moves, -_LONGEST_STEP, _LONGEST_STEP)
    return places


def _pull(places: Points, one: NDArray[np.int64], other: NDArray[np.int64], strength: Points) -> Points:
    apart = places[one] - places[other]
    force = -2 * _SPREAD * strength / (1 + _SPREAD * _squared(apart))
    return _added(apart * force[:, None], one, len(places)) - _added(apart * force[:, None], other, len(places))


def _push(places: Points, other: NDArray[np.int64]) -> Points:
    apart = places - places[other]
    squared = _squared(apart)
    force = 2 / ((0.01 + squared) * (1 + _SPREAD * squared))
    return apart * force[:, None]


def _squared(apart: Points) -> Points:
    across, up = apart[:, 0], apart[:, 1]
    return np.asarray(across * across + up * up)


def _added(rows: Points, to: NDArray[np.int64], n_items: int) -> Points:
    return np.stack([np.bincount(to, rows[:, axis], minlength=n_items) for axis in range(2)], axis=1)


def _on_grid(places: Points) -> NDArray[np.uint16]:
    """Return whole steps on a square; the outermost 0.1 % of items are moved in, to leave room for the rest."""
    ordered = np.sort(places, axis=0)
    cut = len(places) // 1000
    low, high = ordered[cut], ordered[len(places) - 1 - cut]
    size = max(float((high - low).max()), 1e-9)
    corner = (low + high) / 2 - size / 2
    return np.asarray(np.clip(np.round((places - corner) / size * GRID), 0, GRID), np.uint16)


def _blocks(n_items: int) -> Iterator[slice]:
    size = max(1, _CELLS_AT_ONCE // n_items)
    return (slice(start, min(start + size, n_items)) for start in range(0, n_items, size))

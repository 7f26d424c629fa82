"""The position of each item on the map: near items with a similar released vector.

The map starts from the two leading principal components of the items' directions. Then items at a small angle are
pulled together and random pairs are pushed apart, as in UMAP (McInnes, Healy and Melville 2018, with a = 1.6, b = 1).
Only released vectors are used.

The map is the same on every machine. Directions are rounded to whole steps, so their products are exact in any order.
Everything after that adds, multiplies and divides one number at a time, and draws pairs from a fixed seed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.fixed_order import top_products

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
    """Return the k nearest items of each, ties by their order.

    The nearest have the largest 2 x·y - |y|², which is one product of longer rows; sums of whole numbers below 2^53 do
    not depend on their order.
    """
    squares = np.square(whole).sum(axis=1, keepdims=True)
    asked = np.concatenate([2 * whole, np.full_like(squares, -1.0)], axis=1)
    others = np.concatenate([whole, squares], axis=1)
    itself = np.arange(len(whole) + 1), np.arange(len(whole), dtype=np.int32)
    return top_products(asked, others, k, excluded=itself)[0].astype(np.int64)


def _settled(start: Points, near: NDArray[np.int64]) -> Points:
    """Pull along the edges to near items and push random pairs apart, with ever smaller steps."""
    n_items, k = near.shape
    rng = np.random.default_rng(0)
    one, other = np.repeat(np.arange(n_items), k), near.ravel()
    strength = np.tile(1.0 / np.arange(1, k + 1), n_items)
    places = np.ascontiguousarray((start + rng.integers(-50, 51, start.shape) / 1000.0).T)
    for epoch in range(_EPOCHS):
        step = 0.25 * (1 - epoch / _EPOCHS)
        moves = _pull(places, one, other, strength)
        for _ in range(_PUSHES):
            moves += _push(places, rng.integers(0, n_items, size=(n_items,)))
        places = places + step * np.clip(moves, -_LONGEST_STEP, _LONGEST_STEP)
    return places.T


def _pull(places: Points, one: NDArray[np.int64], other: NDArray[np.int64], strength: Points) -> Points:
    apart = places.take(one, axis=1) - places.take(other, axis=1)
    force = -2 * _SPREAD * strength / (1 + _SPREAD * _squared(apart))
    moved = apart * force
    return _added(moved, one, places.shape[1]) - _added(moved, other, places.shape[1])


def _push(places: Points, other: NDArray[np.int64]) -> Points:
    apart = places - places.take(other, axis=1)
    squared = _squared(apart)
    force = 2 / ((0.01 + squared) * (1 + _SPREAD * squared))
    return apart * force


def _squared(apart: Points) -> Points:
    across, up = apart
    return np.asarray(across * across + up * up)


def _added(moves: Points, to: NDArray[np.int64], n_items: int) -> Points:
    return np.stack([np.bincount(to, along, minlength=n_items) for along in moves])


def _on_grid(places: Points) -> NDArray[np.uint16]:
    """Return whole steps on a square; the outermost 0.1 % of items are moved in, to leave room for the rest."""
    ordered = np.sort(places, axis=0)
    cut = len(places) // 1000
    low, high = ordered[cut], ordered[len(places) - 1 - cut]
    size = max(float((high - low).max()), 1e-9)
    corner = (low + high) / 2 - size / 2
    return np.asarray(np.clip(np.round((places - corner) / size * GRID), 0, GRID), np.uint16)

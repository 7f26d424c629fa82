"""Popularity bands with equally many items each, from most to least popular by *released* popularity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Band:
    """The reliability of the items of one band.

    Attributes:
        name: the band in words.
        short: the band as a tick label.
        end: the end of the band as an even shorter tick label.
        n_items: how many items it holds.
        popularity: median released popularity.
        typical: median reliability.
        low: lower quartile of reliability.
        high: upper quartile of reliability.
    """

    name: str
    short: str
    end: str
    n_items: int
    popularity: float
    typical: float
    low: float
    high: float


def popularity_bands(
    popularity: NDArray[np.floating[Any]], reliability: NDArray[np.floating[Any]], n_bands: int = 10
) -> list[Band]:
    """Divide items into bands. If there are fewer items than bands, make fewer bands."""
    order = np.argsort(-np.asarray(popularity, dtype=np.float64), kind="stable")
    parts = np.array_split(order, min(n_bands, len(order)))
    edges = np.linspace(0, 100, len(parts) + 1)
    return [
        _band(popularity[part], reliability[part], float(edges[k]), float(edges[k + 1])) for k, part in enumerate(parts)
    ]


def _band(
    popularity: NDArray[np.floating[Any]], reliability: NDArray[np.floating[Any]], start: float, end: float
) -> Band:
    low, typical, high = (float(q) for q in np.quantile(reliability, [0.25, 0.5, 0.75]))
    return Band(
        name=f"items ranked {start:.0f} to {end:.0f} %",
        short=f"{start:.0f}–{end:.0f} %",
        end=f"{end:.0f}",
        n_items=len(popularity),
        popularity=float(np.median(popularity)),
        typical=typical,
        low=low,
        high=high,
    )

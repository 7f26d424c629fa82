"""The news data of table 1 as far as they are at hand, and a generated stand-in of the same shape.

UCI "News Popularity in Multiple Social Media Platforms": how popular an item was in each of 144 slices of 20 minutes.
The paper predicts the popularity after 48 hours from the first ten hours, 10 features, for 3452 items of 297 sources
with 1 to 878 items each, popularity from 0 to 71; it does not say which topic, platform or items that is.

Here: the topic Palestine on Google+, whose number of rows is the nearest; the popularity after each of the first ten
hours (TS3, TS6, ..., TS30) and after 48 (TS144). −1 means that the item was not yet seen; an item that was not seen
within the first hour is left out, and all others have all ten. **Sources are not in these files**, so the groups are
drawn: 297 of them, of sizes that fall by a power law from 878 to 1, rows assigned at random. The table shows what such
sizes do with such features, not the paper's data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.claim import data_folder, need
from papers.user_contributions.linear import Floats, Problem

N_SOURCES, LARGEST_SOURCE = 297, 878
HOURS = range(1, 11)
SLICES_PER_HOUR, LAST_SLICE = 3, 144
SEED = 0


def load_news() -> Problem:
    """Items on Google+ with drawn sources; needs the data folder."""
    from pyarrow import parquet

    path = need(data_folder() / "news" / "GooglePlus_Palestine.parquet", "the news data")
    names = [f"TS{SLICES_PER_HOUR * hour}" for hour in HOURS]
    columns = parquet.read_table(path, columns=[*names, f"TS{LAST_SLICE}"])
    table = np.column_stack([columns[name].to_numpy() for name in columns.column_names]).astype(np.float64)
    seen = table[(table >= 0).all(axis=1)]
    groups = drawn_sources(len(seen), N_SOURCES, LARGEST_SOURCE)
    return Problem("news, drawn sources", seen[:, :-1], seen[:, -1], groups)


def standin_news(n_rows: int = 600, n_sources: int = 60, largest: int = 150) -> Problem:
    """Generated popularity: long-tailed levels that items reach by growing in bursts, most of them none at all."""
    rng = np.random.default_rng(SEED)
    levels = np.minimum(rng.pareto(1.2, n_rows), 20.0) * (rng.random(n_rows) < 0.6)
    growth = rng.poisson(0.6 * levels[:, None], (n_rows, len(HOURS)))
    features: Floats = np.cumsum(growth, axis=1).astype(np.float64)
    labels: Floats = features[:, -1] + rng.poisson(2.0 * levels)
    return Problem("generated news", features, labels, drawn_sources(n_rows, n_sources, largest))


def drawn_sources(n_rows: int, n_sources: int, largest: int) -> NDArray[np.int64]:
    """A source for each row, at random; sizes are about largest/k^β for the k-th source and at least 1."""
    ranks = np.arange(1, n_sources + 1)
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        many = int(np.maximum(np.floor(largest * ranks**-middle), 1).sum()) > n_rows
        low, high = (middle, high) if many else (low, middle)
    sizes = np.maximum(np.floor(largest * ranks**-high), 1).astype(np.int64)
    sizes[1 : 1 + n_rows - int(sizes.sum())] += 1
    return np.random.default_rng(SEED).permutation(np.repeat(ranks - 1, sizes))

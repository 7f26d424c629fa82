"""MovieLens 1M if it is available, and a generated stand-in of the same shape that always is."""

from __future__ import annotations

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_clicks, long_tailed_ratings
from benchmarks.claim import data_folder, need

EPSILONS = (1.0, 5.0, 20.0)
DELTA = 1e-5
NOISE_SEEDS = range(5)


def ratings() -> Interactions:
    """Return all 1,000,209 ratings of MovieLens 1M. The list of its movies is public."""
    return Interactions.read(need(data_folder() / "ml-1m" / "ratings.parquet", "MovieLens 1M")).with_public_tasks()


def clicks() -> Interactions:
    """Return its ratings of 4 and 5 as clicks. The item list is that of all rated movies."""
    rated = ratings()
    return rated.where(rated.values >= 4)


def generated_ratings(n_users: int = 1500) -> Interactions:
    """Return smaller long-tailed ratings with the proportions of MovieLens 1M."""
    rng = np.random.default_rng(1)
    data, _ = long_tailed_ratings(n_users, n_users // 3, 60 * n_users, rank=4, rng=rng)
    return data


def generated_clicks(n_users: int = 2000) -> Interactions:
    """Return smaller long-tailed clicks with the proportions of MovieLens 1M."""
    rng = np.random.default_rng(1)
    data, _ = long_tailed_clicks(n_users, n_users // 3, 40 * n_users, rank=4, rng=rng, skew=0.7, taste_strength=2.5)
    return data

"""Clicks of many kinds, on which adaptive fits are measured: real ones if available, and always generated ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from apportion.data import Interactions, UserSplit
from apportion.data.synthetic import long_tailed_clicks
from benchmarks import movielens, rating_sets
from benchmarks.claim import data_folder, need

MOST_HELD_OUT = 2500
SPLIT_SEED = 0


def liked(load: Callable[[], rating_sets.Ratings], least: float) -> Interactions:
    """Return the pairs whose value is at least this."""
    data, _ = load()
    return data.where(data.values >= least)


def beauty() -> Interactions:
    """Return Amazon Beauty, all pairs."""
    pairs = np.loadtxt(need(data_folder() / "amazon-beauty" / "beauty.txt", "Amazon Beauty"), dtype=np.int64)
    pairs = np.unique(pairs, axis=0)
    return Interactions.from_arrays(pairs[:, 0], pairs[:, 1])


def generated(seed: int, sizes: tuple[int, int, int], **made: Any) -> Interactions:
    """Return long-tailed clicks of users who mix some tastes."""
    return long_tailed_clicks(*sizes, rng=np.random.default_rng(seed), **made)[0]


def drawn(seed: int) -> Interactions:
    """Return clicks of a random shape: 500 to 16,000 users with 2 to 30 clicks each on 160 to 8,000 items."""
    rng = np.random.default_rng(1000 + seed)
    n_users, n_tasks = int(10 ** rng.uniform(2.7, 4.2)), int(10 ** rng.uniform(2.2, 3.9))
    rows = min(10 ** rng.uniform(0.3, 1.5), n_tasks / 8)
    shape: dict[str, Any] = {
        "rank": int(rng.integers(1, 30)),
        "skew": rng.uniform(0.2, 1.3),
        "activity_spread": rng.uniform(0.5, 1.5),
        "taste_strength": rng.uniform(0.2, 2.5),
        "concentration": 10 ** rng.uniform(-1.3, 0),
    }
    return generated(seed, (n_users, n_tasks, int(n_users * rows)), **shape)


def split(data: Interactions) -> UserSplit:
    """A fifth of the users who have five clicks or more, for validation and as many for test, 2500 at most."""
    data = data.with_public_tasks()
    able = int((data.by_user.counts >= 5).sum())
    held_out = min(MOST_HELD_OUT, able // 5)
    return data.split_by_users(np.random.default_rng(SPLIT_SEED), n_validation=held_out, n_test=held_out)


_USUAL = (3000, 600, 60_000)
_NO_TASTE: dict[str, Any] = {"rank": 1, "taste_strength": 0.0}

REAL: dict[str, Callable[[], Interactions]] = {
    "MovieLens 100K": partial(liked, rating_sets.ml100k, 4.0),
    "MovieLens small": partial(liked, rating_sets.mlsmall, 4.0),
    "FilmTrust": partial(liked, rating_sets.filmtrust, 3.0),
    "InstEval": partial(liked, rating_sets.insteval, 4.0),
    "MovieLens 1M": movielens.clicks,
    "Amazon Beauty": beauty,
}

GENERATED: dict[str, Callable[[], Interactions]] = {
    "few tastes": partial(generated, 1, (2000, 700, 80_000), rank=4, skew=0.7, taste_strength=2.5),
    "many tastes": partial(generated, 2, (3000, 700, 90_000), rank=40, skew=0.7, taste_strength=2.5),
    "one to two clicks": partial(generated, 3, (20_000, 2000, 32_000), rank=4, activity_spread=0.7),
    "one to two clicks, few items": partial(generated, 4, (6000, 300, 9000), rank=8, activity_spread=0.8),
    "heavy users": partial(generated, 5, (1000, 800, 60_000), rank=4, activity_spread=2.0),
    "100 users": partial(generated, 6, (100, 50, 1500), rank=2),
    "300 users": partial(generated, 7, (300, 500, 6000), rank=3),
    "flat": partial(generated, 8, _USUAL, rank=3, skew=0.0),
    "flat, strong tastes": partial(generated, 9, _USUAL, rank=5, skew=0.0, taste_strength=2.5, concentration=0.1),
    "steep": partial(generated, 10, (3000, 1000, 60_000), rank=4, skew=1.5),
    "no taste": partial(generated, 11, (3000, 1000, 60_000), **_NO_TASTE),
    "no taste, flatter": partial(generated, 12, (3000, 1000, 60_000), skew=0.5, **_NO_TASTE),
    "large catalogue": partial(generated, 13, (5000, 10_000, 50_000), rank=10),
    "weak tastes": partial(generated, 14, _USUAL, rank=4, taste_strength=0.5),
    "more items than users": partial(generated, 15, (1000, 5000, 20_000), rank=6, skew=0.8, taste_strength=2.0),
    **{f"drawn {seed}": partial(drawn, seed) for seed in range(1, 16)},
}

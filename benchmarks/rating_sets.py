"""Ratings of many kinds, real where they are at hand and generated always: what adaptive fits are measured on."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from benchmarks import movielens
from benchmarks.claim import data_folder, need

Ratings = tuple[Interactions, tuple[float, float]]
"""The data, and the public scale of its values."""

_MOSTLY_FIVES = (0.12, 0.06, 0.08, 0.18, 0.56)
_NO_ONES = (0.02, 0.03, 0.10, 0.25, 0.60)


def _last_of_pairs(rows: Iterable[tuple[int, int, float]]) -> Interactions:
    """One rating for each pair of user and item, the last."""
    found = {(user, item): value for user, item, value in rows}
    users, items = zip(*found, strict=True)
    return Interactions.from_arrays(users, items, list(found.values()))


def filmtrust() -> Ratings:
    """FilmTrust: 0.5 to 4."""
    lines = need(data_folder() / "filmtrust" / "ratings.tab", "FilmTrust").read_text(encoding="utf-8").splitlines()[3:]
    rows = (line.split("\t") for line in lines)
    return _last_of_pairs((int(user), int(item), float(value)) for user, item, value in rows), (0.5, 4.0)


def insteval() -> Ratings:
    """Lecture evaluations: 1 to 5."""
    path = need(data_folder() / "insteval" / "InstEval.csv", "InstEval")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return _last_of_pairs((int(row["s"]), int(row["d"]), float(row["y"])) for row in rows), (1.0, 5.0)


def ml100k() -> Ratings:
    """MovieLens 100K: 1 to 5."""
    rows = np.loadtxt(need(data_folder() / "ml-100k" / "u.data", "MovieLens 100K"), dtype=np.int64)
    return Interactions.from_arrays(rows[:, 0], rows[:, 1], rows[:, 2].astype(np.float32)), (1.0, 5.0)


def mlsmall() -> Ratings:
    """MovieLens small: 0.5 to 5."""
    path = need(data_folder() / "ml-latest-small" / "ratings.csv", "MovieLens small")
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    users, items = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    return Interactions.from_arrays(users, items, rows[:, 2]), (0.5, 5.0)


def ml1m() -> Ratings:
    """MovieLens 1M: 1 to 5."""
    return movielens.ratings(), (1.0, 5.0)


def generated(seed: int, sizes: tuple[int, int, int], levels: tuple[float, ...] | None = None, **made: Any) -> Ratings:
    """Long-tailed ratings in stars, or with the given fractions of each star from 1 to 5."""
    rng = np.random.default_rng(seed)
    stars = None if levels else "whole"
    data, _ = long_tailed_ratings(*sizes, rng=rng, **{"rank": 2, "stars": stars, **made})
    if levels is None:
        return data, (1.0, 5.0)
    ranks = (data.values.argsort().argsort() + 0.5) / data.n_observations
    values = 1.0 + np.minimum(np.searchsorted(np.cumsum(levels), ranks), len(levels) - 1)
    users, tasks = data.user_ids.ids[data.users], data.task_ids.ids[data.tasks]
    return Interactions.from_arrays(users, tasks, values, task_ids=data.task_ids.ids), (1.0, 5.0)


def drawn(seed: int) -> Ratings:
    """Ratings of a shape drawn at random: 500 to 16,000 users with 1.5 to 30 ratings each, every second set skewed."""
    rng = np.random.default_rng(2000 + seed)
    n_users, n_tasks = int(10 ** rng.uniform(2.7, 4.2)), int(10 ** rng.uniform(2.0, 3.6))
    rows = min(10 ** rng.uniform(0.2, 1.5), n_tasks / 8)
    shape: dict[str, Any] = {
        "rank": int(rng.integers(1, 10)),
        "skew": rng.uniform(0.2, 1.3),
        "activity_spread": rng.uniform(0.5, 1.5),
        "user_bias_stddev": rng.uniform(0.1, 0.9),
        "task_bias_stddev": rng.uniform(0.1, 0.6),
        "taste_stddev": rng.uniform(0.05, 0.7),
        "noise_stddev": rng.uniform(0.5, 1.2),
    }
    levels = tuple(rng.dirichlet((0.6, 0.5, 0.8, 1.5, 4.0))) if seed % 2 else None
    return generated(seed, (n_users, n_tasks, int(n_users * rows)), levels, **shape)


_USUAL = (3000, 400, 60_000)
_NO_TASTE: dict[str, Any] = {"rank": 1, "taste_stddev": 1e-3}

REAL: dict[str, Callable[[], Ratings]] = {
    "MovieLens 100K": ml100k,
    "MovieLens small": mlsmall,
    "FilmTrust": filmtrust,
    "InstEval": insteval,
    "MovieLens 1M": ml1m,
}

GENERATED: dict[str, Callable[[], Ratings]] = {
    "few tastes": partial(generated, 1, _USUAL, taste_stddev=0.7),
    "many tastes": partial(generated, 2, _USUAL, rank=12, taste_stddev=0.7),
    "no taste": partial(generated, 3, _USUAL, **_NO_TASTE),
    "no taste, no user bias": partial(generated, 4, _USUAL, user_bias_stddev=0.01, **_NO_TASTE),
    "no taste, no item bias": partial(generated, 5, _USUAL, task_bias_stddev=0.01, **_NO_TASTE),
    "nothing but noise": partial(
        generated, 6, (3000, 400, 30_000), task_bias_stddev=0.01, user_bias_stddev=0.01, **_NO_TASTE
    ),
    "skewed": partial(generated, 7, (5000, 800, 50_000), _MOSTLY_FIVES, rank=3, noise_stddev=1.0),
    "skewed, two rows a user": partial(
        generated, 8, (12_000, 1000, 24_000), _MOSTLY_FIVES, rank=3, noise_stddev=1.2, activity_spread=0.7
    ),
    "skewed, one to two rows": partial(
        generated, 9, (20_000, 1500, 28_000), _MOSTLY_FIVES, noise_stddev=1.2, activity_spread=0.5
    ),
    "two rows a user": partial(generated, 10, (12_000, 600, 24_000), rank=3, activity_spread=0.7),
    "heavy users": partial(generated, 11, (1500, 1000, 90_000), rank=5, activity_spread=2.0),
    "120 users": partial(generated, 12, (120, 60, 1500)),
    "400 users": partial(generated, 13, (400, 200, 8000), rank=3),
    "skewed, three rows, strong users": partial(
        generated, 14, (15_000, 2500, 45_000), _NO_ONES, activity_spread=0.8, user_bias_stddev=0.8
    ),
    "strong users": partial(generated, 15, (4000, 500, 60_000), user_bias_stddev=1.2, noise_stddev=0.6),
    "many items": partial(generated, 16, (8000, 6000, 80_000), rank=3, skew=0.8),
    "half stars": partial(generated, 17, (2500, 500, 50_000), rank=4, stars="half", noise_stddev=0.4, taste_stddev=0.4),
    **{f"drawn {seed}": partial(drawn, seed) for seed in range(1, 14)},
}

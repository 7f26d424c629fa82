"""Claim: worthless public features cost ratings next to nothing.

On real and generated ratings at ε = 0.5, 1, 5 and 20 (δ = 1e-5) a fit gets features that have nothing to do with its
items: a word and a number drawn at random, or, for MovieLens, the genres and years of other movies (shuffled). RMSE
is at most 0.2 % above that of the fit without features, in the mean over noise seeds; a case is refuted where it is
above by more than two standard errors. MovieLens 1M with its own features is at least as good as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender
from benchmarks.adaptive_floor import EPSILONS, FEW_SEEDS, LARGE, parts_of
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.features_movielens import movies
from benchmarks.in_processes import in_processes
from benchmarks.movielens import DELTA

SEEDS = range(6)
ALLOWED = 1.002
SETS = (
    "MovieLens 100K", "MovieLens small", "FilmTrust", "InstEval", "MovieLens 1M", "few tastes", "no taste", "skewed",
    "skewed, two rows a user", "two rows a user", "heavy users", "many items",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One data set at one ε: RMSE without features and with worthless ones, and the error of their ratio."""

    name: str
    epsilon: float
    alone: float
    ours: float
    error: float

    @property
    def ratio(self) -> float:
        """The RMSE with worthless features divided by that without features."""
        return self.ours / self.alone

    @property
    def holds(self) -> bool:
        """Whether the ratio is within what is allowed."""
        return self.ratio <= ALLOWED

    @property
    def refuted(self) -> bool:
        """Whether the ratio is above the allowed one by more than two standard errors."""
        return self.ratio - 2 * self.error > ALLOWED


def random_features(ids: np.ndarray, seed: int) -> ItemFeatures:
    """Return a random word and a random number for every item."""
    rng = np.random.default_rng(1000 + seed)
    words = [f"word {k}" for k in rng.integers(0, 20, len(ids))]
    return ItemFeatures.from_frame(pa.table({"item": ids, "kind": words, "price": rng.lognormal(size=len(ids))}))


def shuffled_movies(ids: np.ndarray, seed: int) -> ItemFeatures:
    """Return genres and years of movies, with each movie getting those of another."""
    known = movies()
    rows = np.random.default_rng(seed).integers(0, len(known), len(ids))
    frame = known.select(["genres", "year"]).take(pa.array(rows)).append_column("item", pa.array(ids))
    return ItemFeatures.from_frame(frame, item="item", kinds={"year": "binned"})


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure every case."""
    if quick:
        (case,) = cases(["skewed, two rows a user"], (1.0,), range(1))
        return Rehearsal({"ratio": case.ratio}, {"random features cost less than 1 %": case.ratio < 1.01})
    found = cases(SETS, EPSILONS, SEEDS)
    rows = [[c.name, c.epsilon, c.alone, c.ours, f"{c.ratio - 1:+.2%} ± {c.error:.2%}"] for c in found]
    print_table(["data", "epsilon", "RMSE", "with worthless features", "cost"], rows)
    held, refuted, worst = sum(c.holds for c in found), sum(c.refuted for c in found), max(found, key=lambda c: c.ratio)
    mean = float(np.mean([c.ratio for c in found])) - 1
    return Outcome(
        value={
            "cases": len(found),
            "within": held,
            "refuted": refuted,
            "worst": round(worst.ratio - 1, 4),
            "mean": round(mean, 5),
        },
        target={"within": "all", "refuted": 0, "worst": round(ALLOWED - 1, 4)},
        holds=held == len(found),
        headline=f"worthless features in ratings: {held} of {len(found)} cases within 0.2 % of the fit without them, "
        f"{refuted} above by more than two standard errors; mean cost {mean:+.2%}, worst {worst.ratio - 1:+.2%} ± "
        f"{worst.error:.2%} ({worst.name}, ε = {worst.epsilon:g})",
        settings={
            "split": "80/10/10 by rating, seed 0; test part",
            "features": "a random word of 20 and a random number; for MovieLens genres and years of other movies",
            "noise_seeds": f"{len(SEEDS)}, of large sets {len(FEW_SEEDS)}",
            "delta": DELTA,
            "costs": {f"{c.name}, {c.epsilon:g}": round(c.ratio - 1, 4) for c in found},
        },
    )


def cases(names: Sequence[str], epsilons: Sequence[float], seeds: range) -> list[Case]:
    """Return all cases of these data sets, fits in several processes."""
    cells = [
        (name, epsilon, seed, featured)
        for name in names
        for epsilon in epsilons
        for seed in (FEW_SEEDS if name in LARGE else seeds)
        for featured in (False, True)
    ]
    found = dict(zip(cells, in_processes(error_of, cells), strict=True))
    return [_case(name, e, [found[c] for c in cells if c[:2] == (name, e)]) for name in names for e in epsilons]


def _case(name: str, epsilon: float, found: list[float]) -> Case:
    """Average over seeds. Errors without features and with them take turns."""
    pairs = np.reshape(found, (-1, 2))
    ratios = pairs[:, 1] / pairs[:, 0]
    spread = float(np.std(ratios, ddof=1) / np.sqrt(len(ratios))) if len(ratios) > 1 else float("nan")
    alone, ours = pairs.mean(axis=0).tolist()
    return Case(name, epsilon, alone, ours, spread)


def error_of(name: str, epsilon: float, seed: int, featured: bool) -> float:
    """Return the RMSE on the test part of one private fit, with worthless features or without."""
    train, test, scale = parts_of(name)
    made = shuffled_movies if name.startswith("MovieLens") else random_features
    return _error(train, test, scale, epsilon, seed, made(train.task_ids.ids, seed) if featured else None)


def _error(
    train: Interactions,
    test: Interactions,
    scale: tuple[float, float],
    epsilon: float,
    seed: int,
    features: ItemFeatures | None,
) -> float:
    made = PrivateRatingRecommender(
        epsilon, DELTA, value_range=scale, features=features, noise=SeededNoise(seed), random_state=seed
    )
    apart = made.fit(train).model_.predict(train, test).astype(np.float64) - test.values
    return float(np.sqrt(np.mean(np.square(apart))))

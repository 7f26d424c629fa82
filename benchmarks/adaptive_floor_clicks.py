"""Claim: a private click model is not worse than private popularity with the same budget, whatever the data.

On every development set at hand and on generated ones, at ε = 0.5, 1, 5 and 20 (δ = 1e-5): test Recall@20 with defaults
is at least 0.98 of that of popularity, whose weighted counts get the noise of the whole budget. Means over noise seeds;
a case whose shortfall is within two standard errors of 0.98 is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, UserSplit
from apportion.evaluation import RankingModel, recall_at_k
from apportion.privacy import Budget, SeededNoise
from apportion.recommend import PrivateClickRecommender
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.click_sets import GENERATED, REAL, SPLIT_SEED, split
from benchmarks.in_processes import in_processes
from benchmarks.movielens import DELTA

EPSILONS = (0.5, 1.0, 5.0, 20.0)
SEEDS = {20_000: (24, 60), 100_000: (6, 16), 10**12: (2, 3)}
"""Noise seeds of the fits and of popularity, by the largest number of clicks: small sets need more, and cost less."""
ALLOWED = 0.98


class NoisyCounts:
    """Popularity: weighted counts with the noise of a whole budget."""

    def __init__(self, train: Interactions, epsilon: float, seed: int) -> None:
        weights = 1 / np.sqrt(np.maximum(train.by_user.counts, 1))[train.users]
        exact = np.bincount(train.tasks, weights, minlength=train.n_tasks)
        self._counts = exact + np.random.default_rng(seed).standard_normal(len(exact)) / Budget(epsilon, DELTA).mu

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the same scores for every user."""
        return np.repeat(self._counts[None], len(users), axis=0)


@dataclass(frozen=True)
class Case:
    """One data set at one ε: mean Recall@20 of the defaults and of popularity, and the standard error of the ratio."""

    name: str
    epsilon: float
    ours: float
    popularity: float
    error: float

    @property
    def ratio(self) -> float:
        """The recall of the defaults divided by that of popularity."""
        return self.ours / self.popularity

    @property
    def holds(self) -> bool:
        """Whether the ratio is at least the allowed one."""
        return self.ratio >= ALLOWED

    @property
    def refuted(self) -> bool:
        """Whether the ratio is below the allowed one by more than two standard errors."""
        return self.ratio + 2 * self.error < ALLOWED


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure every case."""
    if quick:
        (case,) = cases(["weak tastes"], (5.0,))
        return Rehearsal({"ratio": case.ratio}, {"not worse than private popularity": case.holds})
    found = cases([*REAL, *GENERATED], EPSILONS)
    rows = [[c.name, c.epsilon, c.ours, c.popularity, f"{c.ratio:.3f} ± {c.error:.3f}"] for c in found]
    print_table(["data", "epsilon", "test Recall@20", "private popularity", "ratio"], rows)
    held, refuted = sum(c.holds for c in found), [c for c in found if c.refuted]
    worst = min(found, key=lambda c: c.ratio)
    beauty = next(c.ours for c in found if c.name == "Amazon Beauty" and c.epsilon == 5.0)
    return Outcome(
        value={"cases": len(found), "within": held, "refuted": len(refuted), "amazon_beauty_at_5": round(beauty, 4)},
        target={"within": "all", "refuted": 0, "amazon_beauty_at_5": 0.055},
        holds=held == len(found),
        headline=f"clicks: {held} of {len(found)} cases at least 0.98 of private popularity, {len(refuted)} below it "
        f"by more than two standard errors; worst {worst.ratio:.3f} ± {worst.error:.3f} ({worst.name}, "
        f"ε = {worst.epsilon:g})",
        settings={
            "split": f"a fifth of the users with five clicks each for validation and test, 80/20, seed {SPLIT_SEED}",
            "noise_seeds": "fits 24, popularity 60 up to 20,000 clicks; 6 and 16 up to 100,000; 2 and 3 above",
            "delta": DELTA,
            "ratios": {f"{c.name}, {c.epsilon:g}": round(c.ratio, 3) for c in found},
            "errors": {f"{c.name}, {c.epsilon:g}": round(c.error, 3) for c in found},
        },
    )


def cases(names: Sequence[str], epsilons: Sequence[float]) -> list[Case]:
    """Return all cases of these data sets, fits in several processes."""
    seeds = {name: _seeds(load()) for name, load in {**REAL, **GENERATED}.items() if name in names}
    cells = [(name, e, seed) for name in names for e in epsilons for seed in range(seeds[name][0])]
    found = dict(zip(cells, in_processes(recall_at, cells), strict=True))
    return [
        _case(name, e, np.array([found[cell] for cell in cells if cell[:2] == (name, e)]), seeds[name][1])
        for name in names
        for e in epsilons
    ]


def _case(name: str, epsilon: float, ours: NDArray[np.float64], draws: int) -> Case:
    """Average over seeds, and over draws of noisy popularity."""
    parts = parts_of(name)
    plain = np.array([recall_of(NoisyCounts(parts.train, epsilon, seed), parts) for seed in range(draws)])
    relative = [np.std(made, ddof=1) / np.sqrt(len(made)) / np.mean(made) for made in (ours, plain)]
    error = float(np.hypot(*relative) * ours.mean() / plain.mean())
    return Case(name, epsilon, float(ours.mean()), float(plain.mean()), error)


@lru_cache(maxsize=2)
def parts_of(name: str) -> UserSplit:
    """Return the parts of a data set."""
    return split({**REAL, **GENERATED}[name]())


def recall_at(name: str, epsilon: float, seed: int) -> float:
    """Return the test Recall@20 of one private fit with defaults."""
    return recall_of_fit(parts_of(name), epsilon, seed)


def _seeds(data: Interactions) -> tuple[int, int]:
    return next(seeds for most, seeds in SEEDS.items() if data.n_observations <= most)


def recall_of_fit(parts: UserSplit, epsilon: float, seed: int) -> float:
    """Return the test Recall@20 of one private fit with defaults."""
    made = PrivateClickRecommender(epsilon, DELTA, noise=SeededNoise(seed), random_state=seed).fit(parts.train)
    return recall_of(made.model_, parts)


def recall_of(model: RankingModel, parts: UserSplit) -> float:
    """Return the test Recall@20 of a model."""
    return recall_at_k(model, parts.test.history, parts.test.target, k=20).overall

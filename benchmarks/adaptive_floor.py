"""Claim: a private fit is not worse than the simple thing, whatever the data.

On every development set at hand and on generated ones, at ε = 0.5, 1, 5 and 20 (δ = 1e-5): test RMSE with defaults is
at most that of private damped means, which spend the same budget on one round for item biases, and that of the global
mean (not private), plus 0.2 %. The mean error on held-out rows is at most 0.01 of the scale; where it is above by more
than two standard errors of a mean of so many rows, that is refuted. Means over noise seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from apportion.data import Interactions
from apportion.evaluation import GlobalMean
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender, RatingSettings
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.in_processes import in_processes
from benchmarks.movielens import DELTA
from benchmarks.rating_sets import GENERATED, REAL

EPSILONS = (0.5, 1.0, 5.0, 20.0)
SEEDS = range(8)
"""With two, the error of an excess was 0.2 % on usual sets and 1 % on 120 users: as large as what is to be seen."""
FEW_SEEDS = range(2)
LARGE = ("MovieLens 1M",)
"""Sets with few seeds; their errors hardly depend on the seed."""
ALLOWED = 1.002
MOST_OFFSET = 0.01
MEANS = RatingSettings(rounds=0)
"""One round for item biases with all that rounds may spend: private damped means."""


@dataclass(frozen=True)
class Case:
    """One data set at one ε: RMSE of the defaults, of private means and of the global mean, and the mean error.

    Mean errors and their standard errors are in units of the scale.
    """

    name: str
    epsilon: float
    ours: float
    means: float
    global_mean: float
    offset: float
    offset_error: float

    @property
    def shifted(self) -> bool:
        """Whether the mean error is above 0.01 by more than two standard errors."""
        return abs(self.offset) - 2 * self.offset_error > MOST_OFFSET

    @property
    def excess(self) -> float:
        """How far the error is above that of the best simple method, as a fraction."""
        return self.ours / min(self.means, self.global_mean) - 1

    @property
    def holds(self) -> bool:
        """Whether the excess is within what is allowed."""
        return self.ours <= ALLOWED * min(self.means, self.global_mean)


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure every case."""
    if quick:
        (case,) = rating_cases(["skewed, two rows a user"], (5.0,), range(1))
        return Rehearsal({"excess": case.excess}, {"not worse than private means and the global mean": case.holds})
    cases = rating_cases([*REAL, *GENERATED], EPSILONS, SEEDS)
    header = ["data", "epsilon", "RMSE", "private means", "global mean", "excess", "mean error / scale"]
    rows = [
        [
            c.name,
            c.epsilon,
            c.ours,
            c.means,
            c.global_mean,
            f"{c.excess:+.2%}",
            f"{c.offset:+.4f} ± {c.offset_error:.4f}",
        ]
        for c in cases
    ]
    print_table(header, rows)
    kept, worst = sum(c.holds for c in cases), max(cases, key=lambda c: c.excess)
    above, shifted = sum(abs(c.offset) > MOST_OFFSET for c in cases), sum(c.shifted for c in cases)
    return Outcome(
        value={
            "cases": len(cases),
            "within": kept,
            "worst_excess": round(worst.excess, 4),
            "offset": above,
            "offset_refuted": shifted,
        },
        target={"within": "all", "worst_excess": round(ALLOWED - 1, 4), "offset_refuted": 0},
        holds=kept == len(cases) and not shifted,
        headline=f"ratings: {kept} of {len(cases)} cases within 0.2 % of the best of private means and global mean; "
        f"worst {worst.excess:+.1%} ({worst.name}, ε = {worst.epsilon:g}); "
        f"mean error above 0.01 of the scale in {above}, by more than two standard errors in {shifted}",
        settings={
            "split": "80/10/10 by rating, seed 0; test part",
            "noise_seeds": f"{len(SEEDS)}, of large sets {len(FEW_SEEDS)}",
            "delta": DELTA,
            "failing": [f"{c.name}, ε = {c.epsilon:g}: {c.excess:+.2%}" for c in cases if not c.holds],
        },
    )


def rating_cases(names: Sequence[str], epsilons: Sequence[float], seeds: range) -> list[Case]:
    """Return all cases of these data sets, fits in several processes."""
    cells = [
        (name, epsilon, seed, means)
        for name in names
        for epsilon in epsilons
        for seed in (FEW_SEEDS if name in LARGE else seeds)
        for means in (False, True)
    ]
    found = dict(zip(cells, in_processes(errors_of, cells), strict=True))
    return [
        _case(name, e, [(found[c], c[-1]) for c in cells if c[:2] == (name, e)]) for name in names for e in epsilons
    ]


def _case(name: str, epsilon: float, found: list[tuple[tuple[float, float], bool]]) -> Case:
    """Average over seeds."""
    train, test, scale = parts_of(name)
    constant = float(np.sqrt(np.mean(np.square(GlobalMean().fit(train).predict(train, test) - test.values))))
    error, offset = np.mean([each for each, means in found if not means], axis=0)
    private_means = float(np.mean([each[0] for each, means in found if means]))
    width = scale[1] - scale[0]
    sampled = float(error) / width / np.sqrt(test.n_observations)
    return Case(name, epsilon, float(error), private_means, constant, float(offset / width), float(sampled))


@lru_cache(maxsize=2)
def parts_of(name: str) -> tuple[Interactions, Interactions, tuple[float, float]]:
    """Return the training part of a data set, its test part and its scale."""
    data, scale = {**REAL, **GENERATED}[name]()
    train, _, test = data.with_public_tasks().split_by_value(np.random.default_rng(0))
    return train, test, scale


def errors_of(name: str, epsilon: float, seed: int, means: bool = False) -> tuple[float, float]:
    """Return RMSE and mean error on the test part of one private fit with defaults, or of private means."""
    return errors(*parts_of(name), epsilon, seed, MEANS if means else None)


def errors(
    train: Interactions,
    test: Interactions,
    scale: tuple[float, float],
    epsilon: float,
    seed: int,
    settings: RatingSettings | None,
) -> tuple[float, float]:
    """Return RMSE and mean error of one private fit on the test part."""
    made = PrivateRatingRecommender(
        epsilon, DELTA, value_range=scale, settings=settings, noise=SeededNoise(seed), random_state=seed
    )
    apart = made.fit(train).model_.predict(train, test).astype(np.float64) - test.values
    return float(np.sqrt(np.mean(np.square(apart)))), float(np.mean(apart))

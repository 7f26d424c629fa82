"""Claim: what fits gain by settings of their own, over those that were found with MovieLens 1M in view.

For each development set and ε the gain is (best simple error - private error) / best simple error on the test part; of
clicks, (private recall - simple recall) / simple recall. The best simple thing is not private: the better of damped
means and the global mean, or popularity. Before: the defaults of commit 59d24db, with the same splits and noise seeds
(four of MovieLens 1M and Amazon Beauty). At ε = 5, FilmTrust and InstEval are to be at or below their damped means, and
Amazon Beauty is to have a Recall@20 of 0.055.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.evaluation import BiasModel, GlobalMean, Popularity
from benchmarks import adaptive_floor, adaptive_floor_clicks
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.in_processes import in_processes
from benchmarks.movielens import DELTA, EPSILONS

SEEDS = range(10)
BELOW_MEANS = ("FilmTrust", "InstEval")
BEAUTY = 0.055
Figures = tuple[tuple[float, float], ...]
"""The mean over noise seeds and its standard error, at each ε."""

RATINGS_BEFORE: dict[str, Figures] = {
    "MovieLens 100K": ((1.00337, 0.00137), (0.94251, 0.00049), (0.91765, 0.00072)),
    "MovieLens small": ((0.95826, 0.00059), (0.92491, 0.0006), (0.89535, 0.00036)),
    "FilmTrust": ((0.83578, 0.00152), (0.82289, 0.00074), (0.81748, 0.00055)),
    "InstEval": ((1.24239, 0.00054), (1.21751, 0.00031), (1.21445, 0.00048)),
    "MovieLens 1M": ((0.92417, 0.00034), (0.88378, 0.00045), (0.86154, 0.00026)),
}
"""Test RMSE with the defaults of commit 59d24db."""
CLICKS_BEFORE: dict[str, Figures] = {
    "MovieLens 100K": ((0.15573, 0.00319), (0.30104, 0.00217), (0.34651, 0.0027)),
    "MovieLens small": ((0.04421, 0.00635), (0.15381, 0.00267), (0.2175, 0.00295)),
    "FilmTrust": ((0.69543, 0.0038), (0.71227, 0.00245), (0.6914, 0.00298)),
    "InstEval": ((0.27958, 0.00467), (0.53805, 0.002), (0.64252, 0.00193)),
    "MovieLens 1M": ((0.20965, 0.00359), (0.28531, 0.00095), (0.32554, 0.00099)),
    "Amazon Beauty": ((0.02659, 0.00065), (0.04174, 0.00047), (0.05867, 0.00079)),
}
"""Test Recall@20 with the defaults of commit 59d24db."""


@dataclass(frozen=True)
class Gains:
    """One data set: the best simple figure, and ours now and before, at each ε. `sign` is 1 where more is better."""

    name: str
    simple: float
    now: Figures
    before: Figures
    sign: int

    def of(self, figures: Figures) -> Figures:
        """Return gains over the best simple figure, and their standard errors."""
        return tuple((self.sign * (mean - self.simple) / self.simple, error / self.simple) for mean, error in figures)

    def row(self) -> list[Any]:
        """Return one line of the table."""
        return [self.name, self.simple, *map(_shown, self.now), *map(_shown, self.before)]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure every set."""
    if quick:
        name = "skewed, two rows a user"
        found = rating_gains([name], (5.0,), range(2), {name: ()})[0]
        gain = found.of(found.now)[0][0]
        return Rehearsal({"gain": gain}, {"within 1 % of the best simple error": gain > -0.01})
    ratings = rating_gains(list(RATINGS_BEFORE), EPSILONS, SEEDS, RATINGS_BEFORE)
    clicks = click_gains(list(CLICKS_BEFORE), EPSILONS, SEEDS, CLICKS_BEFORE)
    for title, sets in (("RMSE", ratings), ("Recall@20", clicks)):
        shown = (*(f"ε = {e:g}" for e in EPSILONS), *(f"before, {e:g}" for e in EPSILONS))
        print_table([f"test {title}", "best simple", *shown], [each.row() for each in sets])
    now, before = ({"ratings": _mean(ratings, when), "clicks": _mean(clicks, when)} for when in ("now", "before"))
    below = {each.name: each.now[1][0] <= each.simple for each in ratings if each.name in BELOW_MEANS}
    beauty = next(each.now[1][0] for each in clicks if each.name == "Amazon Beauty")
    gained = all(now[kind][e][0] >= before[kind][e][0] for kind in now for e in now[kind])
    return Outcome(
        value={"gain": now, "below_means_at_5": below, "amazon_beauty_at_5": round(beauty, 4)},
        target={"gain": before, "below_means_at_5": dict.fromkeys(below, True), "amazon_beauty_at_5": BEAUTY},
        holds=gained and all(below.values()) and beauty >= BEAUTY,
        headline="mean gain over the best simple thing, not private, at ε = 1 / 5 / 20: "
        + "; ".join(f"{kind} {_in_line(now[kind])}, before {_in_line(before[kind])}" for kind in now)
        + f"; Amazon Beauty at ε = 5 {beauty:.4f} ({BEAUTY} asked)",
        settings={
            "data": {"ratings": list(RATINGS_BEFORE), "clicks": list(CLICKS_BEFORE)},
            "split": "ratings 80/10/10 by rating, clicks by user as in adaptive-floor-clicks; seed 0; test part",
            "noise_seeds": list(SEEDS),
            "errors": "standard errors over noise seeds",
            "delta": DELTA,
            "before": "defaults of commit 59d24db",
            "sets": {
                kind: {each.name: {"simple": round(each.simple, 5), "now": each.now} for each in sets}
                for kind, sets in (("ratings", ratings), ("clicks", clicks))
            },
        },
    )


def rating_gains(
    names: Sequence[str], epsilons: Sequence[float], seeds: range, before: Mapping[str, Figures]
) -> list[Gains]:
    """Measure ratings: RMSE on the test part."""
    found = _figures(rmse_at, names, epsilons, seeds)
    gains = []
    for name in names:
        train, test, _ = adaptive_floor.parts_of(name)
        simple = min(_error(model, train, test) for model in (BiasModel().fit(train), GlobalMean().fit(train)))
        gains.append(Gains(name, simple, found[name], before[name], -1))
    return gains


def click_gains(
    names: Sequence[str], epsilons: Sequence[float], seeds: range, before: Mapping[str, Figures]
) -> list[Gains]:
    """Measure clicks: Recall@20 of test users."""
    found = _figures(adaptive_floor_clicks.recall_at, names, epsilons, seeds)
    gains = []
    for name in names:
        parts = adaptive_floor_clicks.parts_of(name)
        simple = adaptive_floor_clicks.recall_of(Popularity().fit(parts.train), parts)
        gains.append(Gains(name, simple, found[name], before[name], 1))
    return gains


def rmse_at(name: str, epsilon: float, seed: int) -> float:
    """Return the test RMSE of one private fit with defaults."""
    return adaptive_floor.errors_of(name, epsilon, seed)[0]


def _figures(
    measure: Callable[[str, float, int], float], names: Sequence[str], epsilons: Sequence[float], seeds: range
) -> dict[str, Figures]:
    """Fit in several processes; return the mean over seeds and its standard error, for each set at each ε."""
    cells = [(name, epsilon, seed) for name in names for epsilon in epsilons for seed in seeds]
    found = np.reshape(in_processes(measure, cells), (len(names), len(epsilons), len(seeds)))
    return {name: tuple(map(_figure, made)) for name, made in zip(names, found, strict=True)}


def _figure(made: NDArray[np.float64]) -> tuple[float, float]:
    return round(float(np.mean(made)), 5), round(float(np.std(made, ddof=1) / np.sqrt(len(made))), 5)


def _mean(sets: list[Gains], when: str) -> dict[str, tuple[float, float]]:
    """Average gains over the sets, with the standard error of that average."""
    gains = np.array([each.of(getattr(each, when)) for each in sets])  # set, ε, figure and error
    means, spreads = gains[..., 0].mean(axis=0), np.linalg.norm(gains[..., 1], axis=0) / len(sets)
    return {
        f"{e:g}": (round(float(mean), 4), round(float(spread), 4))
        for e, mean, spread in zip(EPSILONS, means, spreads, strict=True)
    }


def _shown(figure: tuple[float, float]) -> str:
    return f"{figure[0]:.4f} ± {figure[1]:.4f}"


def _in_line(gains: Mapping[str, tuple[float, float]]) -> str:
    return " / ".join(f"{100 * mean:+.1f} ± {100 * error:.1f} %" for mean, error in gains.values())


def _error(model: BiasModel | GlobalMean, train: Interactions, test: Interactions) -> float:
    return float(np.sqrt(np.mean(np.square(model.predict(train, test) - test.values))))

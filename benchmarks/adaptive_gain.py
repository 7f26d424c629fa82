"""Claim: what fits gain by settings of their own, over those that were found with MovieLens 1M in view.

For each development set and ε the gain is (best simple error - private error) / best simple error, on the test part;
the best simple thing is the better of damped means and the global mean, neither private. Before: the defaults of commit
59d24db, measured in the same way. FilmTrust and InstEval at ε = 5 are to be at or below their damped means.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from apportion.data import Interactions
from apportion.evaluation import BiasModel, GlobalMean
from benchmarks.adaptive_floor import errors
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.movielens import DELTA, EPSILONS
from benchmarks.rating_sets import GENERATED, REAL, Ratings

SEEDS = range(10)
FEW_SEEDS = range(4)
"""Of MovieLens 1M, whose errors hardly depend on the seed."""
BEFORE: dict[str, tuple[float, float, float]] = {
    "MovieLens 100K": (1.00337, 0.94251, 0.91765),
    "FilmTrust": (0.83578, 0.82289, 0.81748),
    "InstEval": (1.24239, 1.21751, 1.21445),
    "MovieLens 1M": (0.92417, 0.88378, 0.86154),
}
"""Test RMSE at ε = 1, 5 and 20 with the defaults of commit 59d24db, means over the same seeds."""
BELOW_MEANS = ("FilmTrust", "InstEval")


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure every set."""
    if quick:
        name = "skewed, two rows a user"
        simple, found = gains(GENERATED[name], (5.0,), range(1))
        return Rehearsal(
            {"simple": simple, "private": found[0][0]},
            {"within 1 % of the best simple error": found[0][0] < 1.01 * simple},
        )
    rows, ours, before, below = [], [], [], {}
    for name in BEFORE:
        load = REAL[name]
        simple, found = gains(load, EPSILONS, FEW_SEEDS if load is REAL["MovieLens 1M"] else SEEDS)
        errors_now = [mean for mean, _ in found]
        ours.append([(simple - error) / simple for error in errors_now])
        before.append([(simple - error) / simple for error in BEFORE[name]])
        rows.append([name, simple, *(f"{mean:.4f} ± {spread:.4f}" for mean, spread in found), *BEFORE[name]])
        if name in BELOW_MEANS:
            below[name] = errors_now[1] <= simple
    print_table(["data", "best simple", *(f"ε = {e:g}" for e in EPSILONS), *(f"before, {e:g}" for e in EPSILONS)], rows)
    value, past = (dict(zip(map("{:g}".format, EPSILONS), np.mean(g, axis=0).round(4).tolist(), strict=True))
                   for g in (ours, before))  # fmt: skip
    return Outcome(
        value={"gain": value, "below_means_at_5": below},
        target={"gain": past, "below_means_at_5": dict.fromkeys(below, True)},
        holds=all(value[e] >= past[e] for e in value) and all(below.values()),
        headline="ratings: mean gain over the best simple error, not private, "
        + " / ".join(f"{v:+.2%}" for v in value.values())
        + " at ε = 1 / 5 / 20, before "
        + " / ".join(f"{v:+.2%}" for v in past.values()),
        settings={
            "data": list(BEFORE),
            "split": "80/10/10 by rating, seed 0; test part",
            "noise_seeds": f"{len(SEEDS)}, MovieLens 1M {len(FEW_SEEDS)}",
            "delta": DELTA,
            "before": "defaults of commit 59d24db",
        },
    )


def gains(
    load: Callable[[], Ratings], epsilons: tuple[float, ...], seeds: range
) -> tuple[float, list[tuple[float, float]]]:
    """Return the best simple error and, for each ε, the mean and the standard error of private errors."""
    data, scale = load()
    train, _, test = data.with_public_tasks().split_by_value(np.random.default_rng(0))
    simple = min(_error(model, train, test) for model in (BiasModel().fit(train), GlobalMean().fit(train)))
    found = []
    for epsilon in epsilons:
        made = np.array([errors(train, test, scale, epsilon, seed, None)[0] for seed in seeds])
        found.append((float(made.mean()), float(made.std() / np.sqrt(len(made)))))
    return simple, found


def _error(model: BiasModel | GlobalMean, train: Interactions, test: Interactions) -> float:
    return float(np.sqrt(np.mean(np.square(model.predict(train, test) - test.values))))

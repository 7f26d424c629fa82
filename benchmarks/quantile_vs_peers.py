"""Claim: medians of whole grades are exact where a noisy histogram is; on a line their ranks are off by no more.

OpenDP scores candidates by their ranks, and PipelineDP descends a tree of noisy counts; both keep at most H rows of
each user. Here a peer is the exponential mechanism on ranks of at most H rows of a user with all of ε, H the best in
hindsight, on the same candidates: grades, or 1,024 steps of the range. Ours has private sizes and no setting but the
step. What is expected of users (constants of `postprocessing.rank_bias` and `statistics.rank_weights`) was chosen on
these sets, with other seeds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.privacy import SeededNoise
from apportion.statistics import UserQuantile
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.real_rows import DIALS, EPSILONS, RealRows, generated, real_sets

RUNS, QUICK_RUNS = 100, 40
STEPS = 1024
Floats = NDArray[np.float64]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Compare how far ranks of medians are off."""
    runs = QUICK_RUNS if quick else RUNS
    sets = [generated(0.0, 600)] if quick else [*real_sets(), *map(generated, DIALS)]
    cells = {
        f"{rows.name}, eps {epsilon:g}": (own(rows, epsilon, runs), peer(rows, epsilon))
        for rows in sets
        for epsilon in (EPSILONS[1:2] if quick else EPSILONS)
    }
    print_table(["cell", "rank error", "best peer"], [[name, *cell] for name, cell in cells.items()])
    value = {name: [round(each, 4) for each in cell] for name, cell in cells.items()}
    worse = [name for name, (mine, best) in cells.items() if mine > best + 0.001]
    if quick:
        return Rehearsal(
            value, {"ranks off by at most 0.1 on one generated set": max(v[0] for v in value.values()) < 0.1}
        )
    return Outcome(
        value={"cells worse than the best peer": len(worse), **value},
        target={"cells worse than the best peer": 0},
        holds=not worse,
        headline=f"medians: mean rank error above the best sample limit's in {len(worse)} of {len(cells)} cells",
        settings={"runs": RUNS, "seeds": f"0 to {RUNS - 1}", "epsilons": EPSILONS, "dials": DIALS, "steps": STEPS},
    )


def step_of(rows: RealRows) -> float:
    """One for whole grades, else a 1,024th of the range."""
    whole = bool((rows.values == np.rint(rows.values)).all())
    return 1.0 if whole else (rows.ends[1] - rows.ends[0]) / STEPS


def own(rows: RealRows, epsilon: float, runs: int) -> float:
    """The mean rank error of the median."""
    estimator = UserQuantile(0.5, epsilon, value_range=rows.ends, step=step_of(rows))
    points = [
        estimator.set_params(noise=SeededNoise(run)).fit(rows.values, users=rows.users).quantiles_
        for run in range(runs)
    ]
    return float(np.mean(_off(rows, np.array(points))))


def peer(rows: RealRows, epsilon: float) -> float:
    """The least expected rank error of any sample limit, with a row of expected weight in place of a choice of rows."""
    low, high = rows.ends
    points = np.arange(low, high + step_of(rows) / 2, step_of(rows))
    off = _off(rows, points)
    order = np.argsort(rows.values, kind="stable")
    places = [np.searchsorted(rows.values[order], points, side=side) for side in ("left", "right")]
    found = []
    for limit in np.unique(np.minimum(2 ** np.arange(11), rows.sizes.max())):
        weights = (np.minimum(rows.sizes, limit) / rows.sizes)[rows.users][order]
        summed = np.concatenate([[0.0], np.cumsum(weights)])
        below, up_to = (summed[place] for place in places)
        away = np.maximum(np.maximum(below - summed[-1] / 2, summed[-1] / 2 - up_to), 0.0)
        chances = np.exp(-(away - away.min()) * epsilon / limit)
        found.append(float((chances * off).sum() / chances.sum()))
    return min(found)


def _off(rows: RealRows, points: Floats) -> Floats:
    """How far the ranks of points are from 1/2."""
    ordered = np.sort(rows.values)
    below, up_to = (np.searchsorted(ordered, points, side=side) / len(ordered) for side in ("left", "right"))
    return np.maximum(np.maximum(below - 0.5, 0.5 - up_to), 0.0)

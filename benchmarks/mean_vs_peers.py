"""Claim: the mean over rows has at most the error of the best sample limit, chosen in hindsight, in every cell.

PipelineDP, Tumult Analytics and OpenDP take a mean over rows by keeping at most H rows of each user. H is given by the
analyst. In every cell ours is compared with the H that is the best of all, which takes the data to know, and with
H = 8, the stated rule of an analyst who has not looked; the error of a sample limit has a closed form (`mean_peers`).
The packages themselves are run at ε = 1 and δ = 0 with the same unit and neighbours, at the best of the public limits
1, 2, 4, ..., 1,024 and at 8, in environments of their own; Tumult on sets of less than 5,000 rows. Ours is measured by
runs with private sizes (add or remove a user) and no setting.

A limit chosen in hindsight knows where the bias of the limit crosses 0, as at H = 93 for lecturers: no method without
the data does. Priors on how values go with sizes (`postprocessing.stratified_means`) were chosen on these sets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.privacy import SeededNoise
from apportion.statistics import UserMean
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.mean_peers import CAREFUL, PACKAGES, RUNS_OF_MANY_ROWS, best_limit, limit_error, package_errors
from benchmarks.mean_peers import RUNS as PEER_RUNS
from benchmarks.real_rows import DIALS, EPSILONS, RealRows, generated, real_sets

RUNS, QUICK_RUNS = 100, 40
PEER_EPSILON = 1.0
MOST, ON_AVERAGE = 1.0, 0.8


def measure(quick: bool) -> Outcome | Rehearsal:
    """Compare root mean squared errors."""
    sets = [generated(0.5, 600)] if quick else [*real_sets(), *map(generated, DIALS)]
    cells = {
        f"{rows.name}, eps {epsilon:g}": _cell(rows, epsilon, QUICK_RUNS if quick else RUNS)
        for rows in sets
        for epsilon in (EPSILONS[1:2] if quick else EPSILONS)
    }
    ratios = {name: own / best for name, (own, best, _, _) in cells.items()}
    print_table(
        ["cell", "error", "best sample limit", "its H", f"H = {CAREFUL}", "ratio"],
        [[name, *cell, ratios[name]] for name, cell in cells.items()],
    )
    value = {name: round(ratio, 3) for name, ratio in ratios.items()}
    mean = float(np.mean(list(ratios.values())))
    if quick:
        return Rehearsal(value, {"at most 1.5 of the best sample limit on one generated set": mean <= 1.5})
    packages = {package: _package(package, sets, cells) for package in PACKAGES}
    above = sum(ratio > MOST for ratio in ratios.values())
    careful = [own / other for own, _, _, other in cells.values()]
    return Outcome(
        value={
            "ratio on average": round(mean, 3),
            "cells above 1": above,
            "ratio to the careful limit on average": round(float(np.mean(careful)), 3),
            "cells above the careful limit": sum(ratio > MOST for ratio in careful),
            "packages": packages,
            **value,
        },
        target={"ratio in every cell": f"at most {MOST}", "ratio on average": f"at most {ON_AVERAGE}"},
        holds=above == 0 and mean <= ON_AVERAGE,
        headline=f"means over rows: {mean:.2f} of the error of the best sample limit in hindsight on average, "
        f"at most {max(ratios.values()):.2f}; above 1 in {above} of {len(ratios)} cells; {np.mean(careful):.2f} of "
        f"that of {CAREFUL} rows a user, the limit of who has not looked",
        settings={
            "runs": RUNS,
            "seeds": f"0 to {RUNS - 1}",
            "epsilons": EPSILONS,
            "dials": DIALS,
            "runs of packages": [PEER_RUNS, RUNS_OF_MANY_ROWS],
        },
    )


def _cell(rows: RealRows, epsilon: float, runs: int) -> tuple[float, float, int, float]:
    """Our error, that of the best limit and which it is, and that of the careful limit."""
    best = best_limit(rows, epsilon, np.unique(rows.sizes).tolist())
    return own_error(rows, epsilon, runs), *best, limit_error(rows, epsilon, CAREFUL)


def own_error(rows: RealRows, epsilon: float, runs: int) -> float:
    """Root mean squared error of the default."""
    truth = rows.values.mean()
    errors = [
        UserMean(epsilon, value_range=rows.ends, noise=SeededNoise(run)).fit(rows.values, users=rows.users).mean_
        - truth
        for run in range(runs)
    ]
    return float(np.sqrt(np.mean(np.square(errors))))


def _package(package: str, sets: list[RealRows], cells: dict[str, tuple[float, float, int, float]]) -> Any:
    """What a package was measured at, and our error over its errors; or why it was not run."""
    found = package_errors(package, sets, PEER_EPSILON)
    if found is None:
        return f"not run: APPORTION_{package.upper()}_PYTHON names no interpreter"
    rows = []
    for name, (hindsight, careful) in found.items():
        own = cells[f"{name}, eps {PEER_EPSILON:g}"][0]
        rows.append([name, own, *hindsight, *careful, own / hindsight[1], own / careful[1]])
    header = [
        "",
        "ours",
        "best H",
        "error",
        "by its form",
        "careful H",
        "error",
        "by its form",
        "ours/best",
        "/careful",
    ]
    print(package)
    print_table(header, rows)
    return {
        "ours over it at the best limit, on average": round(float(np.mean([row[-2] for row in rows])), 3),
        "sets above 1": sum(row[-2] > MOST for row in rows),
        "ours over it at the careful limit, on average": round(float(np.mean([row[-1] for row in rows])), 3),
        "by set": {row[0]: [round(row[-2], 3), round(row[-1], 3)] for row in rows},
    }

"""Claim: 95 % intervals of means, and bounds on ranks of medians, hold for these rows, also where values go with sizes.

Real sets and generated ones with a dial for the dependence of values on sizes, ε = 0.5, 1, 3. For means the truth is
the mean over rows; an oracle's interval is as wide as 95 % of the estimate's own errors ask for. For quantiles the
median's ranks among all rows must be within `rank_error_` of 1/2.
"""

from __future__ import annotations

import numpy as np

from apportion.privacy import SeededNoise
from apportion.statistics import UserMean, UserQuantile
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.real_rows import DIALS, EPSILONS, RealRows, generated, real_sets

RUNS, QUICK_RUNS = 200, 40
LEAST, WIDEST = 0.93, 2.0


def measure(quick: bool) -> Outcome | Rehearsal:
    """Count how often intervals hold the truth."""
    runs = QUICK_RUNS if quick else RUNS
    sets = [generated(0.25, 600)] if quick else [*real_sets(), *map(generated, DIALS)]
    cells = {
        f"{rows.name}, eps {epsilon:g}": (*means(rows, epsilon, runs), medians(rows, epsilon, runs))
        for rows in sets
        for epsilon in (EPSILONS[1:2] if quick else EPSILONS)
    }
    print_table(
        ["cell", "mean covered", "width, oracle's 1", "median's ranks covered"],
        [[name, *cell] for name, cell in cells.items()],
    )
    value = {name: [round(each, 3) for each in cell] for name, cell in cells.items()}
    covered = [min(cell[0], cell[2]) for cell in cells.values()]
    wide = sum(cell[1] > WIDEST for cell in cells.values())
    if quick:
        return Rehearsal(value, {"at least 85 % of 40 runs on one generated set": bool(min(covered) >= 0.85)})
    short = sum(each < LEAST for each in covered)
    return Outcome(
        value={"least covered": min(covered), "cells below 93 %": int(short), "cells wider than 2": int(wide), **value},
        target={"covered": f"at least {LEAST} in every cell", "width": f"at most {WIDEST} of an oracle's"},
        holds=bool(short == 0 and wide == 0),
        headline=f"95 % intervals of means and ranks of medians hold in {min(covered):.0%} of runs or more on real and "
        f"generated data; below 93 % in {short} of {len(cells)} cells, wider than twice an oracle's in {wide}",
        settings={"runs": RUNS, "seeds": f"0 to {RUNS - 1}", "epsilons": EPSILONS, "dials": DIALS},
    )


def means(rows: RealRows, epsilon: float, runs: int) -> tuple[float, float]:
    """How often intervals hold the mean over rows, and their median width over an oracle's."""
    truth = rows.values.mean()
    errors, widths, held = np.empty(runs), np.empty(runs), 0
    for run in range(runs):
        found = UserMean(epsilon, value_range=rows.ends, noise=SeededNoise(run)).fit(rows.values, users=rows.users)
        low, high = found.interval_
        errors[run], widths[run] = abs(found.mean_ - truth), high - low
        held += low <= truth <= high
    return float(held / runs), float(np.median(widths) / (2 * np.quantile(errors, 0.95)))


def medians(rows: RealRows, epsilon: float, runs: int) -> float:
    """How often the ranks of the median found are as near to 1/2 as is said; whole grades are declared as such."""
    held = 0
    step = 1.0 if (rows.values == np.rint(rows.values)).all() else None
    for run in range(runs):
        found = UserQuantile(0.5, epsilon, value_range=rows.ends, step=step, noise=SeededNoise(run))
        point = found.fit(rows.values, users=rows.users).quantiles_
        off = max((rows.values < point).mean() - 0.5, 0.5 - (rows.values <= point).mean(), 0.0)
        held += off <= found.rank_error_
    return float(held / runs)

"""Claim: what parties learn together is close to the best of three simpler ways, and on average not worse than alone.

Every set at every ε from 0.01 to 10: ours with its defaults against learning alone, the private mean of all parties'
models (each clipped, with a clip norm chosen by the test rows of every cell), and private EM without a mean. nMSE is
the mean squared error over the variance of the test targets, means over repetitions. Real parties are schools; each
takes its own means away. Generated sets go from "all models are equal" to "nothing in common", with much and with
little noise. δ = 1/m², replacing one task. Settings were developed on the same real data with other divisions of their
rows (seeds below 1000), and on generated sets with other seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from apportion.parties import ProtectedMultiTask
from apportion.parties.estimator import default_delta
from apportion.parties.posterior import local_side
from apportion.parties.tasks import rows_of_lists
from apportion.privacy import Budget, SeededNoise
from apportion.published.model_protection import TaskLists
from benchmarks.claim import Outcome, Rehearsal, data_folder, need, print_table
from benchmarks.in_processes import in_processes
from papers.model_protection import data
from papers.model_protection.data import Problem

Floats = NDArray[np.float64]
Make = Callable[[int], Problem]

EPSILONS, QUICK_EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (0.03, 10.0)
MOST_OVER_BEST, MOST_OVER_ALONE = 1.05, 1.002
CLIPS = (0.3, 0.6, 1.0)
FIRST_SEED, MANY, FEW = 5000, 10, 3
_LEAST_ROWS = 8

TABLES: dict[str, tuple[str, str, str, dict[str, float], dict[str, tuple[str, str]], float]] = {
    "Exam": (
        "Exam.csv", "school", "normexam", {"standLRT": 1.0},
        {"girl": ("sex", "F"), "low": ("vr", "bottom 25%"), "high": ("vr", "top 25%")}, 0.3,
    ),
    "ScotsSec": ("ScotsSec.csv", "primary", "attain", {"verbal": 10.0, "social": 10.0}, {"girl": ("sex", "F")}, 0.5),
    "egsingle": (
        "egsingle.csv", "schoolid", "math", {"year": 1.5, "black": 0.5, "hispanic": 0.5},
        {"girl": ("female", "Female"), "again": ("retained", "1")}, 0.3,
    ),
}  # fmt: skip
"""File, party, label, numbers with public units, classes, and the share of rows for training."""

GENERATED = {
    "all equal": (1.0, 0.0, 1.0),
    "nearly equal": (1.0, 0.3, 1.0),
    "half in common": (0.7, 0.7, 1.0),
    "little in common": (0.3, 1.0, 1.0),
    "nothing in common": (0.0, 1.0, 1.0),
    "nearly equal, little noise": (1.0, 0.2, 0.3),
    "nothing in common, little noise": (0.0, 1.0, 0.3),
}
"""Length of the common model, spread about it, and noise."""


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit every set at every ε."""
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    cells = _cells({name: 1 if quick else runs for name, (_, runs) in _sets(quick).items()}, epsilons, quick)
    print_table(["nMSE over the best", *map(str, epsilons)], [[k, *_column(v, "over best")] for k, v in cells.items()])
    print_table(["nMSE over alone", *map(str, epsilons)], [[k, *_column(v, "over alone")] for k, v in cells.items()])
    over_alone = {
        f"{e:g}": round(float(np.mean([c[f"{e:g}"]["over alone"] for c in cells.values()])), 4) for e in epsilons
    }
    worst_name, worst_epsilon, worst = max(
        ((name, e, cell["over best"]) for name, by in cells.items() for e, cell in by.items()), key=lambda one: one[2]
    )
    value = {"worst over best": worst, "mean over alone": over_alone, "cells": cells}
    if quick:
        return Rehearsal(value, {"at a small epsilon every party learns alone": over_alone["0.03"] == 1.0})
    beyond = sum(cell["over best"] > MOST_OVER_BEST for by in cells.values() for cell in by.values())
    return Outcome(
        value={**value, "cells beyond": beyond},
        target={"worst over best": MOST_OVER_BEST, "mean over alone": MOST_OVER_ALONE},
        holds=worst <= MOST_OVER_BEST and max(over_alone.values()) <= MOST_OVER_ALONE,
        headline=f"parties together: at most {worst:.3f}x the best of alone, private mean and EM without a mean "
        f"({worst_name} at ε = {worst_epsilon}; {beyond} of {len(cells) * len(epsilons)} cells beyond "
        f"{MOST_OVER_BEST}); over alone on average at most {max(over_alone.values()):.4f}",
        settings={"seeds": f"{FIRST_SEED} on", "repetitions": {k: runs for k, (_, runs) in _sets(False).items()},
                  "delta": "1/m^2", "neighbours": "replace one task", "clips of the private mean": list(CLIPS)},
    )  # fmt: skip


def _column(by: dict[str, dict[str, float]], name: str) -> list[float]:
    return [cell[name] for cell in by.values()]


def _sets(quick: bool) -> dict[str, tuple[Make, int]]:
    if quick:
        return {"nearly equal": (partial(_generated, 1.0, 0.3, 1.0, n_tasks=80), 1)}
    real: dict[str, tuple[Make, int]] = {"School": (data.school, FEW)}
    real |= {name: (partial(_real, name), MANY) for name in TABLES}
    paper: dict[str, tuple[Make, int]] = {
        pattern: (partial(data.synthetic, pattern), FEW) for pattern in ("low-rank", "group-sparse")
    }
    return real | paper | {name: (partial(_generated, *given), MANY) for name, given in GENERATED.items()}


def _cells(runs: dict[str, int], epsilons: Sequence[float], quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    """Mean nMSE of every way for each set at every ε, and ours over the best and over learning alone."""
    cells = [(name, seed, epsilons, quick) for name, k in runs.items() for seed in range(FIRST_SEED, FIRST_SEED + k)]
    scores: dict[str, dict[float, dict[str, list[float]]]] = {name: {e: {} for e in epsilons} for name in runs}
    for (name, *_), found in zip(cells, in_processes(scores_of, cells), strict=True):
        for epsilon, by in found.items():
            for way, score in by.items():
                scores[name][epsilon].setdefault(way, []).append(score)
    return {
        name: {f"{e:g}": _cell({way: float(np.mean(each)) for way, each in ways.items()}) for e, ways in by.items()}
        for name, by in scores.items()
    }


def scores_of(name: str, seed: int, epsilons: Sequence[float], quick: bool) -> dict[float, dict[str, float]]:
    """Return the nMSE of every way on one division of a set, at every ε."""
    make, _ = _sets(quick)[name]
    problem = make(seed)
    return {epsilon: _scores(problem, epsilon, seed) for epsilon in epsilons}


def _cell(means: dict[str, float]) -> dict[str, float]:
    ours = means["ours"]
    best = min(value for name, value in means.items() if name != "ours")
    shown = {name: round(value, 5) for name, value in means.items()}
    return {**shown, "over best": round(ours / best, 4), "over alone": round(ours / means["alone"], 4)}


def _scores(problem: Problem, epsilon: float, seed: int) -> dict[str, float]:
    rows = list(problem.train.features), list(problem.train.targets)
    ours = ProtectedMultiTask(epsilon, noise=SeededNoise(seed)).fit(*rows)
    without = ProtectedMultiTask(epsilon, share_mean=False, noise=SeededNoise(seed)).fit(*rows)
    means = {f"private mean, clip {clip}": problem.score(models) for clip, models in _means(rows, epsilon, seed)}
    alone = problem.score(ours.single_task_)
    return {"ours": problem.score(ours.coef_), "alone": alone, "EM": problem.score(without.coef_), **means}


def _means(rows: tuple[list[Floats], list[Floats]], epsilon: float, seed: int) -> list[tuple[float, Floats]]:
    """The mean of all parties' models in units of their labels and features, each clipped, with Gaussian noise."""
    local = local_side(rows_of_lists(*rows), "squared")
    lengths = local.lengths(1.0)[:, None]
    models = np.where(lengths > 0, local.learn(None).mean / np.where(lengths > 0, lengths, 1.0), 0.0)
    norms = np.maximum(np.linalg.norm(models, axis=1, keepdims=True), 1e-300)
    noise = np.random.default_rng([seed, 3]).standard_normal(local.dimension)
    stddev = 2 / Budget(epsilon, default_delta(local.n_tasks)).mu / local.n_tasks
    found = []
    for clip in CLIPS:
        mean = (models * np.minimum(1.0, clip / norms)).mean(axis=0) + clip * stddev * noise
        found.append((clip, lengths * mean))
    return found


def _real(name: str, seed: int) -> Problem:
    """Parties with at least 8 rows; a share of each one's rows is for training, and its own means are taken away."""
    file, party, label, units, classes, share = TABLES[name]
    table = pyarrow.csv.read_csv(need(data_folder() / "mlmrev" / file, f"The {name} data"))
    columns: dict[str, Any] = {one: np.asarray(table[one].to_pylist()) for one in table.column_names}
    numbers = [columns[one].astype(float) / unit for one, unit in units.items()]
    numbers += [(columns[one].astype(str) == kind).astype(float) for one, kind in classes.values()]
    features, labels, whose = np.column_stack(numbers), columns[label].astype(float), columns[party]
    rng, parts = np.random.default_rng([seed, 9]), []
    for one in np.unique(whose):
        at = rng.permutation(np.flatnonzero(whose == one))
        if len(at) >= _LEAST_ROWS:
            parts.append(_halves(features[at], labels[at], int(np.clip(round(share * len(at)), 2, len(at) - 2))))
    train, test = (TaskLists([p[k][0] for p in parts], [p[k][1] for p in parts]) for k in (0, 1))
    variance = float(np.concatenate([p[2] for p in parts]).var())
    return Problem(name, train, test, variance=variance)


def _halves(features: Floats, labels: Floats, count: int) -> tuple[Any, Any, Floats]:
    centre, mean = features[:count].mean(axis=0), labels[:count].mean()
    features = features - centre
    return (features[:count], labels[:count] - mean), (features[count:], labels[count:] - mean), labels[count:]


def _generated(
    common: float, spread: float, noise: float, seed: int, n_tasks: int = 120, n_rows: int = 15, n_features: int = 8
) -> Problem:
    """Models about a common one."""
    rng = np.random.default_rng([seed, 77])
    centre = common * rng.standard_normal(n_features) / np.sqrt(n_features)
    models = centre + spread * rng.standard_normal((n_tasks, n_features)) / np.sqrt(n_features)

    def rows(count: int) -> TaskLists:
        features = rng.standard_normal((n_tasks, count, n_features))
        targets = np.einsum("mnd,md->mn", features, models) + noise * rng.standard_normal((n_tasks, count))
        return TaskLists(list(features), list(targets))

    return Problem("generated", rows(n_rows), rows(100))

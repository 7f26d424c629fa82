"""Claim: AM-SSP reaches AM-DPSGD's best test RMSE in a hundredth of the time, and its cost follows Proposition 2.

MovieLens 1M ratings with genre and year at ε = 5, means over noise seeds, one process, one thread, processor seconds.

The rule, fixed before measuring: the opponent that decides is AM-DPSGD with the settings of the lowest RMSE on the
validation part, whatever time they take; where a faster setting is within one standard deviation over seeds, it is that
one. What was searched and what came out of it is in `papers/public_features/results/time.md`. AM-SSP has settings for
speed, chosen on the validation part too. Shown beside it, and not deciding: the few steps that served other claims,
mini-batches of users as in the paper, the recommender of this package, and larger encoders, the paper's size among
them, where a step of AM-DPSGD costs much more and a round of AM-SSP hardly does.

The cost of training on released statistics is measured against epochs (a line through 0), batch size (no matter) and
the cost c of a pass (at most proportional). The quick form measures the cost against epochs and c, and runs one
row of each on generated data.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from apportion.engines import LocalEngine
from apportion.evaluation import rmse
from apportion.privacy import SeededNoise
from apportion.published.public_features.minimisation import rows_of_tasks
from apportion.recommend import PrivateRatingRecommender
from benchmarks import movielens
from benchmarks.claim import Outcome, Rehearsal, print_table
from benchmarks.features_movielens import EVERYTHING, ml1m_features
from papers.public_features import cost, time_rows, timing
from papers.public_features import movielens as paper
from papers.public_features.stand_ins import feature_driven_ratings
from papers.public_features.time_encoders import Compared, Encoder, compare
from papers.public_features.timing import Point

FACTOR, SEEDS = 100.0, (0, 1, 2, 3, 4)
RECOMMENDER = "the package's recommender, one vector round"
Points = dict[str, list[Point]]


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure the evolution of all rows, larger encoders, the floor, then the cost law."""
    torch.set_num_threads(1)
    bench = _generated() if quick else _movielens()
    ours = time_rows.DEFAULTS if quick else time_rows.SPEED
    names = (ours, time_rows.EARLIER) if quick else time_rows.NAMES
    _warm_up(names, quick)
    points, spreads = _evolutions(bench, names, (0,) if quick else SEEDS)
    rows = [[name, f"{p.seconds:.3f}", f"{p.error:.4f}"] for name, each in points.items() for p in each]
    print_table(["method", "processor seconds", "test RMSE"], rows)
    theirs = [name for name in names if "DPSGD" in name]
    factors = {name: timing.times_less(points[ours], points[name]) for name in theirs}
    law = _law(quick)
    print_table(["cost of SSP-c against", "measured"], [[name, value] for name, value in law.items()])
    if quick:
        return Rehearsal(
            {"factors": factors, "law": law}, {"cost grows with epochs, and less than with c²": _grows(law)}
        )
    target = timing.best(points[time_rows.TUNED]).error
    larger = [compare(bench, encoder, target) for encoder in _encoders(bench)]
    _print_larger(larger)
    return _outcome(bench, points, spreads, factors, law, larger)


def _warm_up(names: tuple[str, ...], quick: bool) -> None:
    """Fit everything on little data once: what is loaded when first used is not part of a fit."""
    small = _generated()
    made = [time_rows.estimator(name, small.rows, 0) for name in names]
    if not quick:  # sparse gradients and Opacus, for larger encoders
        made.append(paper.estimator("ratings", paper.FEATURES, small.rows, time_rows.EPSILON, 0))
        made.append(time_rows.estimator(time_rows.TUNED, small.rows, 0, hidden=8, module=True, only=1))
    for each in made:
        each.fit(small.train)


def _evolutions(bench: paper.Bench, names: tuple[str, ...], seeds: tuple[int, ...]) -> tuple[Points, dict[str, float]]:
    """Averaged points of every row, and the standard deviations of their last errors; rows take turns."""
    runs: dict[str, list[list[Point]]] = {name: [] for name in names}
    for seed in seeds:
        for name in names:
            runs[name].append(timing.evolution(bench, time_rows.estimator(name, bench.rows, seed)))
    spreads = {name: float(np.std([points[-1].error for points in each])) for name, each in runs.items()}
    return {name: timing.averaged(each) for name, each in runs.items()}, spreads


def _outcome(
    bench: paper.Bench,
    points: Points,
    spreads: dict[str, float],
    factors: dict[str, float | None],
    law: dict[str, float],
    larger: list[Compared],
) -> Outcome:
    deciding = factors[time_rows.TUNED]
    shown = "; ".join(f"{name}: {value:.0f}" if value else f"{name}: never" for name, value in factors.items())
    wide = "; ".join(_words(row) for row in larger)
    rounds, steps = time_rows.steps_of(time_rows.TUNED)
    breakdown = {
        "a round of AM-SSP": timing.per_round(points[time_rows.SPEED])[0],
        "before AM-SSP's first round": timing.per_round(points[time_rows.SPEED])[1],
        "a step of AM-DPSGD": timing.per_round(points[time_rows.TUNED])[0] / steps,
        "steps of AM-DPSGD": rounds * steps,
        **timing.floors(bench, 8),
    }
    print_table(["seconds of", "measured"], [[name, f"{value:.4f}"] for name, value in breakdown.items()])
    return Outcome(
        value={"times_less": factors, "larger_encoders": {row.encoder: row.times_less for row in larger},
               "cost_law": law},
        target={"times_less": FACTOR, "cost_law": "linear in epochs, at most linear in c, flat in the batch size"},
        holds=deciding is not None and deciding >= FACTOR and _follows(law),
        headline=f"Times less for AM-SSP to reach the best RMSE of each at ε = 5 (MovieLens 1M, one thread): {shown}; "
        f"with larger encoders: {wide}; cost of SSP-c grows as epochs^{law['slope in epochs']:.2f} and "
        f"c^{law['slope in c']:.2f}",
        settings={
            "epsilon": time_rows.EPSILON,
            "noise_seeds": list(SEEDS),
            "deciding": time_rows.TUNED,
            "points": {
                **{name: [[p.seconds, p.error] for p in each] for name, each in points.items()},
                RECOMMENDER: [_recommended(bench)],
            },
            "standard_deviations": spreads,
            "seconds": breakdown,
            "larger_encoders": [row.stored() for row in larger],
        },
    )  # fmt: skip


def _words(row: Compared) -> str:
    """A larger encoder in the headline; where AM-DPSGD was not run as a whole, that is said."""
    factor = "never" if row.times_less is None else f"{row.times_less:.0f}"
    return f"{row.encoder}: {factor}" + ("" if row.whole_run else " (by the cost of a step)")


def _print_larger(larger: list[Compared]) -> None:
    header = ["encoder", "parameters", "s/round SSP", "s/step DPSGD", "SSP to target", "DPSGD", "run", "times less"]
    rows = [
        [row.encoder, row.parameters, row.round_seconds, row.step_seconds, str(row.statistics_seconds),
         row.gradient_seconds, "whole" if row.whole_run else "steps timed", str(row.times_less)]
        for row in larger
    ]  # fmt: skip
    print_table(header, rows)


def _encoders(bench: paper.Bench) -> list[Encoder]:
    """Larger encoders; the last has the paper's features: genres, finer ones, years, everyone in cast and crew."""
    wide = rows_of_tasks(ml1m_features(EVERYTHING), bench.train)
    return [
        Encoder("hidden layer of 64", bench.rows, hidden=64),
        Encoder("hidden layer of 256", bench.rows, hidden=256, timed=2),
        Encoder("own module, through Opacus", bench.rows, hidden=64, module=True, timed=1),
        Encoder(f"{wide.n_columns} features", wide, timed=1),
    ]


def _recommended(bench: paper.Bench) -> list[float]:
    """Seconds and test error of the package's recommender: features as prior mean, users' tastes for them too."""
    made = PrivateRatingRecommender(
        time_rows.EPSILON, paper.DELTA, features=ml1m_features(), dimension=1, rounds=1, noise=SeededNoise(0),
        engine=LocalEngine(threads=1),
    )  # fmt: skip
    start = time.process_time()
    model = made.fit(bench.train).model_
    seconds = time.process_time() - start
    return [seconds, float(rmse(model.predict(bench.history, bench.target), bench.target).overall)]


def _follows(law: dict[str, float]) -> bool:
    linear = 0.8 < law["slope in epochs"] < 1.2 and law["slope in c"] < 1.1
    return linear and law["largest over smallest batch"] < 2.0


def _grows(law: dict[str, float]) -> bool:
    """What a short run on a busy machine can tell of the law."""
    return 0.3 < law["slope in epochs"] < 1.7 and law["slope in c"] < 2.0


def _law(quick: bool) -> dict[str, float]:
    n_items = 3000 if quick else 20_000
    epochs = (2, 8) if quick else (1, 2, 4, 8, 16)
    taken = [cost.training_seconds(n_items, count, 1000, 8) for count in epochs]
    widths = (256, 1024) if quick else (64, 128, 256, 512, 1024)
    wide = [cost.training_seconds(n_items, 1, 1000, width) for width in widths]
    law: dict[str, Any] = {"slope in epochs": cost.slope(epochs, taken), "slope in c": cost.slope(widths, wide)}
    if not quick:
        batches = [cost.training_seconds(n_items, 2, size, 128) for size in (1000, 4000, 16_000)]
        law["largest over smallest batch"] = max(batches) / min(batches)
    return {name: round(float(value), 3) for name, value in law.items()}


def _movielens() -> paper.Bench:
    data = movielens.ratings()
    return paper.Bench.split("ratings", data, rows_of_tasks(ml1m_features(), data))


def _generated() -> paper.Bench:
    data, rows = feature_driven_ratings(500, 60, 15)
    return paper.Bench.split("ratings", data, rows)

"""Lists of keys by PipelineDP or OpenDP, for an interpreter that has the package.

`python key_peers_run.py PACKAGE FOLDER` reads counts.npz: for each limit L of keys of a user the number of users that
kept each key ("counts L"), and the weights 1/√(number of keys kept) added up ("weights L"). jobs.json has "epsilons",
"limits", "delta" and "runs". It prints, for each ε, the keys that the best strategy and limit of the package list, by
number, as places, for every run. Keys of users are drawn before, as the packages draw them or ask for.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Kept = list[int]
Strategy = tuple[str, Callable[[], Kept]]


def by_pipelinedp(held: Any, limit: int, epsilon: float, delta: float) -> Iterator[Strategy]:
    """PipelineDP's four strategies, as `DPEngine.select_partitions` asks them."""
    dp: Any = importlib.import_module("pipeline_dp")
    selection: Any = importlib.import_module("pipeline_dp.partition_selection")
    for strategy in dp.PartitionSelectionStrategy:
        if strategy.is_weighted_gaussian:
            keeps, amounts = selection.create_weighted_gaussian_thresholding(epsilon, delta, limit), "weights"
        else:
            keeps, amounts = selection.create_partition_selection_strategy(strategy, epsilon, delta, limit), "counts"
        yield strategy.value, partial(_kept, keeps, held[f"{amounts} {limit}"].tolist())


def _kept(keeps: Any, amounts: list[float]) -> Kept:
    return [k for k, amount in enumerate(amounts) if amount > 0 and keeps.should_keep(amount)]


def by_opendp(held: Any, limit: int, epsilon: float, delta: float) -> Iterator[Strategy]:
    """OpenDP's Laplace noise above a threshold, and its Gaussian noise; one more than the least threshold it allows.

    Release 0.16 states the δ of one more than its threshold: a key that one user holds is listed by Laplace noise of
    scale 0.5 above a threshold of 2 in 0.119 of 200,000 draws, where δ = 0.0161 is stated.
    """
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    counts = {k: int(n) for k, n in enumerate(held[f"counts {limit}"].tolist()) if n > 0}
    keys = dp.map_domain(dp.atom_domain(T="i32"), dp.atom_domain(T="i32"))
    space = keys, dp.l01inf_distance(dp.absolute_distance(T="i32"))

    def made(threshold: int) -> Any:
        return space >> dp.m.then_laplace_threshold(limit / epsilon * (1 + 1e-9), threshold=threshold)

    found = made(1 + _least(lambda threshold: made(threshold).map((limit, limit, 1))[1] <= delta))
    yield "Laplace", lambda: list(found(counts))
    space = keys, dp.l02inf_distance(dp.absolute_distance(T="i32"))

    def measured(scale: float, threshold: int) -> Any:
        return space >> dp.m.then_gaussian_threshold(scale, threshold=threshold)

    unit = (limit, math.ceil(math.sqrt(limit)), 1)

    def cost(scale: float) -> float:
        curve = dp.c.make_zCDP_to_approxDP(measured(scale, 1 << 20)).map(unit)
        curve = curve[0] if isinstance(curve, tuple) else curve
        return float(curve.epsilon(delta / 2))

    low, high = 0.1, 1e4
    for _ in range(22):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    best = measured(high, 1 + _least(lambda threshold: measured(high, threshold).map(unit)[1] <= delta / 2))
    yield "Gaussian", lambda: list(best(counts))


def _least(allowed: Callable[[int], bool]) -> int:
    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return high


PACKAGES = {"pipelinedp": by_pipelinedp, "opendp": by_opendp}


def main() -> None:
    """List with every strategy and limit; keep the one with most keys on average."""
    warnings.simplefilter("ignore")
    package, folder = sys.argv[1], Path(sys.argv[2])
    held, jobs = np.load(folder / "counts.npz"), json.loads((folder / "jobs.json").read_text())
    found = []
    for epsilon in jobs["epsilons"]:
        tried = [
            (f"{name}, {limit}", [listed() for _ in range(jobs["runs"])])
            for limit in jobs["limits"][package]
            for name, listed in PACKAGES[package](held, limit, epsilon, jobs["delta"])
        ]
        found.append(max(tried, key=lambda each: sum(map(len, each[1]))))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

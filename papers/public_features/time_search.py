"""The search behind the rows of the time study: trials on the validation part at ε = 5, and how to repeat them.

`results/time_search.jsonl` has one trial a line, in the order in which they were made: settings, seeds of the noise and
of the encoder's first parameters, the RMSE after the last round, and processor seconds on a busy machine.

python -m papers.public_features.time_search, which says what the rule chose and repeats a trial of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from apportion.engines import LocalEngine
from apportion.privacy import SeededNoise
from apportion.published.public_features.encoders import TwoLayerEncoder
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.minimisation import EncoderMinimisation, rows_of_tasks
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.training import Training
from benchmarks import movielens
from benchmarks.claim import print_table
from benchmarks.features_movielens import ml1m_features
from papers.public_features import timing
from papers.public_features.movielens import DELTA, Bench
from papers.public_features.time_rows import EPSILON

TRIALS = Path(__file__).parent / "results" / "time_search.jsonl"
STATISTICS, GRADIENT = "AM-SSP", "AM-DPSGD"
STARTS = 3  # trials, each from another start and with other noise, that settings are compared by at last
_OF_TRAINING = ("epochs", "batch_size", "rate")
_OF_FIT = (
    "dimension", "rounds", "growth", "user_norm", "user_ridge", "bias_ridge", "bias_scale", "start_scale",
    "counts_share",
)  # fmt: skip


def trials(path: Path = TRIALS) -> list[dict[str, Any]]:
    """All trials, in order."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def estimator(trial: dict[str, Any], bench: Bench) -> EncoderMinimisation:
    """What a trial fitted."""
    given = dict(trial["settings"])
    fit = {name: given.pop(name) for name in _OF_FIT if name in given}
    width, hidden = fit.get("dimension", 5) + 1, given.pop("hidden", None)
    torch.manual_seed(trial["start"])
    encoder = TwoLayerEncoder(bench.rows.groups, width, hidden=hidden, sparse=False)
    if trial["method"] == GRADIENT:
        update: Any = EncoderGradient(encoder, **given)
    else:
        training = Training(**{name: given.pop(name) for name in _OF_TRAINING if name in given})
        update = EncoderStatistics(encoder, training, **given)
    noise, engine = SeededNoise(trial["seed"]), LocalEngine(threads=1)
    return EncoderMinimisation(
        EPSILON, DELTA, features=bench.rows, update=update, noise=noise, engine=engine, **fit
    )  # fmt: skip


def first(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trials from the first start with the first noise."""
    return [trial for trial in found if trial["seed"] == trial["start"] == 0]


def summaries(method: str, found: list[dict[str, Any]], least: int = 1) -> list[dict[str, Any]]:
    """Settings with at least so many trials: mean and standard deviation of the RMSE, median seconds; best first.

    Trials whose noise and start have the same number count, so that all settings had the same luck.
    """
    by_settings: dict[str, list[dict[str, Any]]] = {}
    for trial in found:
        if trial["method"] == method and trial["seed"] == trial["start"]:
            by_settings.setdefault(json.dumps(trial["settings"], sort_keys=True), []).append(trial)
    made = [_summary(same) for same in by_settings.values() if len(same) >= least]
    return sorted(made, key=lambda each: float(each["rmse"]))


def _summary(same: list[dict[str, Any]]) -> dict[str, Any]:
    errors = [trial["rmse"] for trial in same]
    return {
        "settings": same[0]["settings"],
        "trials": len(same),
        "rmse": float(np.mean(errors)),
        "spread": float(np.std(errors, ddof=1)) if len(same) > 1 else None,
        "seconds": float(np.median([trial["seconds"] for trial in same])),
    }


def chosen(made: list[dict[str, Any]]) -> dict[str, Any]:
    """The rule: the lowest mean; among those within its standard deviation, the fastest."""
    lowest = made[0]
    tied = [each for each in made if each["rmse"] <= lowest["rmse"] + (lowest["spread"] or 0.0)]
    return min(tied, key=lambda each: float(each["seconds"]))


def for_speed(made: list[dict[str, Any]], error: float) -> dict[str, Any]:
    """The settings of AM-SSP with the fewest rounds of those that went below this error, and the lowest of them."""
    below = [each for each in made if each["rmse"] < error]
    return min(below, key=lambda each: (each["settings"]["rounds"], each["rmse"]))


def main() -> None:
    """Say what the rule chose, and repeat its first trial."""
    torch.set_num_threads(1)
    data = movielens.ratings()
    bench = Bench.split("ratings", data, rows_of_tasks(ml1m_features(), data), validation=True)
    rows, found = [], trials()
    opponent = chosen(summaries(GRADIENT, found, STARTS))
    ours = for_speed(summaries(STATISTICS, found, STARTS), opponent["rmse"])
    for method, settings in ((STATISTICS, ours["settings"]), (GRADIENT, opponent["settings"])):
        trial = next(each for each in found if each["method"] == method and each["settings"] == settings)
        points = timing.evolution(bench, estimator(trial, bench))
        rows.append([method, trial["rmse"], points[-1].error, f"{points[-1].seconds:.2f}", json.dumps(settings)])
    print_table(["method", "RMSE stored", "now", "seconds", "settings"], rows)


if __name__ == "__main__":
    main()

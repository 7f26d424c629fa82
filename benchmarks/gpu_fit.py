"""Claim: whole private fits on one GPU: 10M ratings in 2 s, 10M clicks at d = 64 in 1 s, 100M ratings in 20 s.

136,677 users x 20,108 items through torch (`PYTHONPATH=src python -m benchmarks gpu-fit`; NumPy and torch are all it
needs, the compiled kernel beside them); ten times as many users for 100M ratings. Ratings with the defaults, clicks
with three rounds; the data are in memory. The sums of a round on ratings are compared with the processor's, in steps of
their lattice. The quick form runs the same engine on the processor, on small data, and asks that it agree with the
NumPy engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from apportion import linalg
from apportion.data import Interactions
from apportion.engines import Engine, LocalEngine, TorchEngine
from apportion.linalg import TaskWeights
from apportion.privacy import NoiseSource, SeededNoise
from apportion.recommend import ClickModel, ClickSettings, PrivateClickRecommender, PrivateRatingRecommender
from benchmarks import scale
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table
from benchmarks.rating_rounds import told

LIMITS = {"ratings 10M": 2.0, "clicks 10M": 1.0, "ratings 100M": 20.0, "steps apart": 1}
TIMES = 10  # the data, for 100M


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit on the GPU, after small fits that start it up."""
    try:
        import torch
    except ImportError as missing:
        raise UnavailableError("torch is not installed") from missing
    if quick:
        return _quick()
    if not torch.cuda.is_available():
        raise UnavailableError("there is no GPU on this machine")
    ratings = scale.ratings()
    value: dict[str, Any] = {
        "ratings 10M": _seconds(_fit_ratings, ratings),
        "clicks 10M": _seconds(_fit_clicks, ratings.with_values(1.0)),
        "steps apart": _steps_apart(ratings),
    }
    value["ratings 100M"] = _seconds(_fit_ratings, scale.repeated(ratings, TIMES), repeats=1)
    name, memory = torch.cuda.get_device_name(), torch.cuda.max_memory_allocated() / 2**30
    print_table([name, "seconds", "limit"], [[key, value[key], limit] for key, limit in LIMITS.items()])
    return Outcome(
        value,
        LIMITS,
        all(value[key] <= limit for key, limit in LIMITS.items()),
        f"private fits on one {name}: 10M ratings in {value['ratings 10M']:.2f} s, 10M clicks (d = 64) in "
        f"{value['clicks 10M']:.2f} s, 100M ratings in {value['ratings 100M']:.1f} s",
        {"shape": [scale.USERS, scale.TASKS, scale.OBSERVATIONS], "gpu": name, "gpu_memory_gib": round(memory, 2),
         "compiled": linalg.compiled_available()},
    )  # fmt: skip


def _seconds(fit: Callable[[Interactions], None], data: Interactions, repeats: int = 3) -> float:
    """Of the fastest of several runs, after one that starts things up where there are several."""
    import torch

    def finished() -> None:
        fit(data)
        torch.cuda.synchronize()

    if repeats > 1:
        finished()
    return round(scale.best_of(repeats, finished), 3)


def _fit_ratings(data: Interactions) -> None:
    PrivateRatingRecommender(epsilon=1.0, engine=TorchEngine("cuda", np.float64)).fit(data)


def _fit_clicks(data: Interactions) -> None:
    _fit(data, TorchEngine("cuda"), 64)


def _steps_apart(data: Interactions) -> int:
    """The largest difference between sums of a round formed on the GPU and on the processor."""
    about = told(data.n_tasks)
    weights = TaskWeights(np.random.default_rng(4).uniform(0.1, 1, data.n_tasks))
    found = []
    for engine in (TorchEngine("cuda", np.float64), LocalEngine(np.float64)):
        by_task, total = np.zeros((about.n_tasks, about.width), np.int64), np.zeros(about.summary_width, np.int64)
        engine.kernels.rating_round(data.as_users, weights, about, by_task, total)
        found.append(np.concatenate([by_task.ravel(), total]))
    return int(np.abs(found[0] - found[1]).max())


def _fit(data: Interactions, engine: Engine, dimension: int, noise: NoiseSource | None = None) -> ClickModel:
    settings = ClickSettings(rounds=3, dimension=dimension)
    return PrivateClickRecommender(epsilon=5.0, settings=settings, noise=noise, engine=engine).fit(data).model_


def _quick() -> Rehearsal:
    data = scale.clicks(2_000, 400, 60_000)
    here = _fit(data, LocalEngine(np.float64), 8, SeededNoise(0)).fold_in.features
    there = _fit(data, TorchEngine("cpu", np.float64), 8, SeededNoise(0)).fold_in.features
    apart = float(np.abs(here - there).max() / np.abs(here).max())
    print_table(["largest relative difference between engines"], [[apart]])
    return Rehearsal({"difference": apart}, {"torch on the processor agrees with NumPy to 1e-4": apart <= 1e-4})

"""Claim: a whole private fit of 10 million clicks at d = 64, three rounds, takes under ten seconds on one GPU.

136,677 users x 20,108 items through torch; NumPy and torch are all it needs (`PYTHONPATH=src python -m benchmarks
gpu-fit`). The quick form runs the same engine on the processor, on small data, and asks that it agree with the NumPy
engine.
"""

from __future__ import annotations

import time

import numpy as np

from apportion.data import Interactions
from apportion.engines import Engine, LocalEngine, TorchEngine
from apportion.privacy import NoiseSource, SeededNoise
from apportion.recommend import ClickModel, ClickSettings, PrivateClickRecommender
from benchmarks import scale
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

LIMIT_SECONDS = 10.0


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit on the GPU, after a small fit that starts it up."""
    try:
        import torch
    except ImportError as missing:
        raise UnavailableError("torch is not installed") from missing
    if quick:
        return _quick()
    if not torch.cuda.is_available():
        raise UnavailableError("there is no GPU on this machine")
    _fit(scale.clicks(3_000, 500, 100_000), TorchEngine("cuda"), 64)
    data = scale.clicks()
    engine = TorchEngine("cuda")
    start = time.perf_counter()
    model = _fit(data, engine, 64)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    name = torch.cuda.get_device_name()
    memory = torch.cuda.max_memory_allocated() / 2**30
    print_table(["GPU", "seconds", "limit", "GPU memory GiB"], [[name, seconds, LIMIT_SECONDS, memory]])
    finite = bool(np.isfinite(model.fold_in.features).all())
    return Outcome(
        {"seconds": round(seconds, 2)},
        {"seconds": LIMIT_SECONDS},
        finite and seconds <= LIMIT_SECONDS,
        f"a private fit of 10M clicks, d = 64, 3 rounds, in {seconds:.1f} s on one {name}",
        {"shape": [data.n_users, data.n_tasks, data.n_observations], "gpu": name, "gpu_memory_gib": round(memory, 2)},
    )


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

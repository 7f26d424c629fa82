"""Generated data at the scale of the speed claims, kept between claims, and a clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from apportion.data import Interactions, Vocabulary
from apportion.data.synthetic import long_tailed_clicks
from benchmarks.claim import PARTIAL

USERS, TASKS, OBSERVATIONS = 136_677, 20_108, 10_000_000


def clicks(n_users: int = USERS, n_tasks: int = TASKS, n_observations: int = OBSERVATIONS) -> Interactions:
    """Long-tailed clicks of this shape; large ones are stored beside the claims and read back."""
    path = PARTIAL / f"clicks-{n_users}-{n_tasks}-{n_observations}.npz"
    if path.exists():
        with np.load(path) as stored:
            return Interactions.from_arrays(stored["users"], stored["tasks"], task_ids=np.arange(n_tasks))
    rng = np.random.default_rng(7)
    data, _ = long_tailed_clicks(n_users, n_tasks, n_observations, rank=8, rng=rng)
    if n_observations >= 5_000_000:
        PARTIAL.mkdir(exist_ok=True)
        np.savez(path, users=data.users, tasks=data.tasks)
    return data


def ratings(n_users: int = USERS, n_tasks: int = TASKS, n_observations: int = OBSERVATIONS) -> Interactions:
    """The long-tailed clicks of the other speed claims, each with a rating from 1 to 5 in halves."""
    seen = clicks(n_users, n_tasks, n_observations)
    rng = np.random.default_rng(11)
    quality, mood = rng.standard_normal(n_tasks), rng.standard_normal(n_users)
    noise = rng.standard_normal(seen.n_observations)
    values = 3.5 + 0.4 * quality[seen.tasks] + 0.4 * mood[seen.users] + 0.8 * noise
    rounded = np.clip(np.round(2 * values) / 2, 1, 5).astype(np.float32)
    return Interactions.from_arrays(seen.users, seen.tasks, rounded, task_ids=np.arange(n_tasks))


def repeated(data: Interactions, times: int) -> Interactions:
    """So many times the users, each with the ratings of one that there was."""
    n_users = data.n_users
    users = (data.users + n_users * np.arange(times, dtype=np.int32)[:, None]).ravel()
    everybody = Vocabulary.of_range(n_users * times, name="user")
    tasks, values = np.tile(data.tasks, times), np.tile(data.values, times)
    return Interactions(users, tasks, values, None, everybody, data.task_ids)


def best_of(repeats: int, run: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs, which on a shared machine is the least disturbed one."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def gemm_gflops(dtype: str = "float32", size: int = 3072) -> float:
    """The machine's own limit: GFLOP/s of a large matrix product in NumPy."""
    matrix = np.random.default_rng(0).random((size, size)).astype(dtype)
    seconds = best_of(3, lambda: matrix @ matrix)
    return 2 * size**3 / seconds / 1e9


def has_avx512() -> bool:
    """Whether the processor has AVX-512, which the targets depend on."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return "avx512f" in lines.read()
    except OSError:
        return False


def threads() -> int:
    """Threads this process may use."""
    return len(os.sched_getaffinity(0))

"""Claim: one exact ALS epoch, both sides, against `irspack` and `implicit` in the same run.

136,677 users x 20,108 items, 10 million observations, float32, all threads of the machine, no privacy: Gram and
Cholesky solve for every user, then for every item. The quick form takes a small piece of data at d = 32 and asks only
that we are not slower than `implicit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.data import Interactions
from benchmarks import peers, scale
from benchmarks.claim import Outcome, Rehearsal, print_table

TARGETS = {"avx512": {64: (0.6, 0.15), 128: (0.6, 0.15)}, "avx2": {64: (0.6, 0.15), 128: (0.75, 0.18)}}


def measure(quick: bool) -> Outcome | Rehearsal:
    """Time ourselves between the peers, so that all see the same machine."""
    if quick:
        return _quick()
    targets = TARGETS["avx512" if scale.has_avx512() else "avx2"]
    data = scale.clicks()
    matrix = peers.as_matrix(data)
    peak = scale.gemm_gflops()
    rows: list[list[float]] = []
    value: dict[str, float] = {}
    target: dict[str, float] = {}
    holds = True
    for dimension, (against_irspack, against_implicit) in targets.items():
        epoch = our_epoch(data, dimension)
        ours = scale.best_of(3, epoch)
        irspack = peers.irspack_epoch(matrix, dimension)
        implicit = peers.implicit_epoch(matrix, dimension, exact=True)
        gradient = peers.implicit_epoch(matrix, dimension, exact=False)
        ours = min(ours, scale.best_of(3, epoch))
        speed = operations(data, dimension) / ours / 1e9
        rows.append(
            [dimension, ours, irspack, implicit, gradient, ours / irspack, ours / implicit, speed, speed / peak]
        )
        value |= {f"d={dimension}/irspack": ours / irspack, f"d={dimension}/implicit": ours / implicit}
        target |= {f"d={dimension}/irspack": against_irspack, f"d={dimension}/implicit": against_implicit}
        holds &= ours / irspack <= against_irspack and ours / implicit <= against_implicit
    print_table(
        ["d", "ours s", "irspack s", "implicit s", "implicit CG s", "/ irspack", "/ implicit", "GFLOP/s", "of GEMM"],
        rows,
    )
    print(f"GEMM peak of this machine: {peak:.0f} GFLOP/s, float32, {scale.threads()} threads")
    ratios = " and ".join(
        f"{value[f'd={d}/irspack']:.2f}x irspack, {value[f'd={d}/implicit']:.3f}x implicit at d = {d}" for d in targets
    )
    return Outcome(
        {k: round(v, 4) for k, v in value.items()},
        target,
        holds,
        f"one exact ALS epoch takes {ratios} (10M observations, Cholesky, {scale.threads()} threads)",
        {"shape": [data.n_users, data.n_tasks, data.n_observations], "gemm_gflops": round(peak), "rows": rows},
    )


def our_epoch(data: Interactions, dimension: int) -> Callable[[], None]:
    """One epoch of ours, continuing from random item vectors."""
    rng = np.random.default_rng(0)
    start: NDArray[Any] = (rng.standard_normal((data.n_tasks, dimension)) / dimension).astype(np.float32)
    state = {"items": start}
    ones = np.ones(data.n_observations, np.float32)
    by_user, by_task = data.by_user, data.by_task

    def base(vectors: NDArray[Any]) -> NDArray[Any]:
        matrix: NDArray[Any] = 0.1 * (vectors.T @ vectors) + np.eye(dimension, dtype=np.float32)
        return matrix

    def epoch() -> None:
        items = state["items"]
        users = linalg.segment_solve(by_user.indptr, by_user.indices, items, labels=ones, base=base(items))
        state["items"] = linalg.segment_solve(by_task.indptr, by_task.indices, users, labels=ones, base=base(users))

    return epoch


def operations(data: Interactions, dimension: int) -> float:
    """Floating-point operations of an epoch: symmetric Grams on both sides and Cholesky factors."""
    grams = 2 * data.n_observations * dimension * (dimension + 1)
    factors = (data.n_users + data.n_tasks) * dimension**3 / 3
    return grams + factors


def _quick() -> Rehearsal:
    data = scale.clicks(8_000, 1_500, 300_000)
    ours = scale.best_of(3, our_epoch(data, 32))
    theirs = peers.implicit_epoch(peers.as_matrix(data), 32, exact=True)
    print_table(["ours s", "implicit s", "ratio"], [[ours, theirs, ours / theirs]])
    not_slower = ours <= theirs or not linalg.compiled_available()
    return Rehearsal({"d=32/implicit": ours / theirs}, {"not slower than implicit, if compiled": not_slower})

"""Claim: a private fit of ratings at the machine's limit, and no slower than `implicit` without privacy.

Parts, each a ratio in one run. *Round:* the users' side of one round on 136,677 x 20,108 with 10 million ratings, 8
latent dimensions, by the fused kernel and by the NumPy reference that it equals bit for bit. *Fit:* a whole default fit
of the same data against `implicit`'s fit with as many factors, 15 iterations and the same threads. *Before:* the same
fit against the tree at commit 59d24db, where APPORTION_OLD_PYTHON names the interpreter of an environment with it.
*LensKit:* MovieLens 1M against the fit of LensKit's `BiasedMFScorer` with as many factors, where
APPORTION_LENSKIT_PYTHON names the interpreter of an environment with it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from apportion import linalg
from apportion.data import Interactions
from apportion.recommend import PrivateRatingRecommender
from benchmarks import movielens, peers, scale
from benchmarks.claim import Outcome, UnavailableError, print_table
from benchmarks.rating_rounds import LATENT, our_round

ITERATIONS = 15
TARGET = {"round": 1 / 15, "fit": 1.0, "before": 1 / 15, "lenskit": 1.0}
QUICK_TARGET = {"round": 0.5, "fit": 20.0}


def measure(quick: bool) -> Outcome:
    """Time the round both ways, then the fit and its peer."""
    data = scale.ratings(8_000, 1_500, 300_000) if quick else scale.ratings()
    fused = scale.best_of(3, our_round(data))
    with linalg.use_backend("numpy"):
        plain = scale.best_of(1, our_round(data))
    ours = scale.best_of(3, lambda: PrivateRatingRecommender(epsilon=1.0).fit(data))
    theirs = scale.best_of(1, implicit_fit(data))
    speed = 1e9 * fused / data.n_observations * scale.threads()
    print_table(
        ["", "seconds"],
        [["round, fused", fused], ["round, NumPy", plain], ["fit, private", ours], ["fit, implicit", theirs]],
    )
    print(f"{speed:.1f} ns of one thread for a rating in a round")
    value = {"round": round(fused / plain, 4), "fit": round(ours / theirs, 4)}
    interpreter = os.environ.get("APPORTION_OLD_PYTHON")
    if interpreter and not quick:
        value["before"] = round(ours / seconds_elsewhere(interpreter, data, "fit_alone.py"), 4)
    interpreter = os.environ.get("APPORTION_LENSKIT_PYTHON")
    if interpreter and not quick:
        value["lenskit"] = round(_over_lenskit(interpreter), 4)
    target = QUICK_TARGET if quick or not linalg.compiled_available() else TARGET
    return Outcome(
        value,
        target,
        all(value[name] <= target[name] for name in value),
        f"a default private fit of 10M ratings takes {value['fit']:.2f}x of implicit's fit; the users' side of a round "
        f"{value['round']:.3f}x of its NumPy reference",
        {"shape": [data.n_users, data.n_tasks, data.n_observations], "seconds": [fused, plain, ours, theirs]},
    )


def _over_lenskit(interpreter: str) -> float:
    """The time of a default fit of MovieLens 1M, over that of LensKit."""
    data = movielens.ratings()
    ours = scale.best_of(3, lambda: PrivateRatingRecommender(epsilon=1.0).fit(data))
    theirs = seconds_elsewhere(interpreter, data, "lenskit_alone.py", str(LATENT))
    print_table(["MovieLens 1M", "seconds"], [["fit, private", ours], ["fit, LensKit", theirs]])
    return ours / theirs


def seconds_elsewhere(interpreter: str, data: Interactions, script: str, *arguments: str) -> float:
    """Seconds that a script prints of its fit of the same data, with another interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, users=data.users, tasks=data.tasks, values=data.values)
        command = [interpreter, str(Path(__file__).with_name(script)), str(path), *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


def implicit_fit(data: Interactions) -> Callable[[], None]:
    """The peer's default fit, with as many factors and threads."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError as missing:
        raise UnavailableError("the package `implicit` is not installed") from missing
    from threadpoolctl import threadpool_limits

    matrix = peers.as_matrix(data)

    def run() -> None:
        with threadpool_limits(1, "blas"):
            model = AlternatingLeastSquares(
                factors=LATENT, iterations=ITERATIONS, num_threads=scale.threads(), random_state=0
            )
            model.fit(matrix, show_progress=False)

    return run

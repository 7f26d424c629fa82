"""Claim: the 20 best of 20,108 items for 100,000 users against `implicit`'s batch `recommend`, in the same run.

Both get the same float32 vectors, d = 64, leave out what a user has, and use all threads of the machine (`implicit` its
own threads with one of BLAS each, as it advises). Ours adds every score up in one fixed order and breaks ties by the
order of the items, so that every processor recommends the same; the peer leaves both to its BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.data import Interactions
from apportion.linalg.fixed_order import top_products
from benchmarks import peers, scale
from benchmarks.claim import Outcome, UnavailableError, print_table

DIMENSION, DEPTH, USERS = 64, 20, 100_000
TARGET = 1.0


def measure(quick: bool) -> Outcome:
    """Time both in turns, so that they see the same machine."""
    data = scale.clicks(8_000, 1_500, 300_000) if quick else scale.clicks()
    n_users = min(USERS, data.n_users)
    users, items = vectors(n_users, 1), vectors(data.n_tasks, 2)
    repeats = 2 if quick else 3
    ours = scale.best_of(repeats, lambda: our_best(data, users, items))
    history = peers.as_matrix(data)[:n_users]
    theirs = scale.best_of(repeats, lambda: best_of_implicit(history, users, items))
    ours = min(ours, scale.best_of(repeats, lambda: our_best(data, users, items)))
    same = float(np.mean(our_best(data, users, items) == best_of_implicit(history, users, items)))
    print_table(["ours s", "implicit s", "ratio", "same items"], [[ours, theirs, ours / theirs, same]])
    limit = TARGET if linalg.compiled_available() else 50.0
    value = {"ratio": round(ours / theirs, 4), "same items": round(same, 5)}
    return Outcome(
        value,
        {"ratio": limit, "same items": 0.999},
        bool(ours / theirs <= limit and same >= 0.999),
        f"the 20 best items for {n_users:,} users take {ours / theirs:.2f}x of implicit's recommend (d = {DIMENSION})",
        {"users": n_users, "items": data.n_tasks, "dimension": DIMENSION, "seconds": [ours, theirs]},
    )


def vectors(n_rows: int, seed: int) -> NDArray[np.float32]:
    """Vectors of all lengths up to 1, as popularity would make them."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((n_rows, DIMENSION)) / np.sqrt(DIMENSION)
    return np.asarray(directions * rng.uniform(0, 1, (n_rows, 1)), np.float32)


def our_best(data: Interactions, users: NDArray[np.float32], items: NDArray[np.float32]) -> NDArray[np.int32]:
    """Codes of the best items of the first users."""
    indptr = data.by_user.indptr[: len(users) + 1]
    return top_products(users, items, DEPTH, excluded=(indptr, data.tasks[: indptr[-1]]))[0]


def best_of_implicit(history: Any, users: NDArray[np.float32], items: NDArray[np.float32]) -> NDArray[Any]:
    """The same by the peer."""
    try:
        from implicit.cpu.als import AlternatingLeastSquares
    except ImportError as missing:
        raise UnavailableError("the package `implicit` is not installed") from missing
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(factors=DIMENSION, num_threads=scale.threads())
        model.user_factors, model.item_factors = users, items
        found: NDArray[Any] = model.recommend(np.arange(len(users)), history, N=DEPTH)[0]
    return found

"""One round of an update, by hand: some users, some items, and a session to spend."""

from __future__ import annotations

import numpy as np

from apportion import allocation
from apportion.allocation import Expected
from apportion.engines import LocalEngine
from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.skew.updates import Round

from strategies import random_interactions

ENGINE = LocalEngine(np.float64)
N_ITEMS = 9


def some_round(seed=0, n_users=40, unobserved=0.0, **changes):
    """A round of 9 items and vectors of length 2."""
    data = random_interactions(seed, n_users=n_users)
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((data.n_users, 2))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
    given = {
        "data": data,
        "weights": allocation.equal_split(data),
        "expected": Expected(np.linspace(9.0, 1.0, N_ITEMS), np.full(N_ITEMS, 0.3)),
        "vectors": vectors,
        "norm": 1.0,
        "labels": np.clip((data.values - 3).astype(float), -2, 2),
        "items": rng.standard_normal((N_ITEMS, 2)) * 0.2,
        "unobserved": unobserved,
        "number": 1,
    }
    return Round(**{**given, **changes})


def session_for(update, epsilon=1e12, clicks=False, seed=0):
    """A session, and the shares of one round that has all of its budget."""
    session = Session(Budget(epsilon, 1e-5), noise=SeededNoise(seed))
    parts = update.shares(clicks=clicks)
    shares = session.plan(parts=list(parts.values())).several("parts")
    return session, dict(zip(parts, shares, strict=True))


def exact_statistics(about):
    """Σ_j w u uᵀ and Σ_j w y u of every item, and Σ_j u uᵀ, added up plainly."""
    weights = np.asarray(about.weights._values, float)
    vectors = about.vectors[about.data.users]
    matrices, sums = np.zeros((N_ITEMS, 2, 2)), np.zeros((N_ITEMS, 2))
    np.add.at(matrices, about.data.tasks, weights[:, None, None] * vectors[:, :, None] * vectors[:, None, :])
    np.add.at(sums, about.data.tasks, (weights * about.labels)[:, None] * vectors)
    return matrices, sums, about.vectors.T @ about.vectors

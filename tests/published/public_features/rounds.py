"""One round of an update, by hand: some users, some items, and a session to spend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from apportion.allocation import Expected
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import Budget, SeededNoise, Session
from held_values import plainly, round_of

from strategies import random_interactions

ENGINE = LocalEngine(np.float64)
N_ITEMS = 9


def some_round(seed=0, n_users=40, unobserved=0.0, **changes):
    """A round of 9 items and vectors of length 2."""
    data = random_interactions(seed, n_users=n_users)
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((data.n_users, 2))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
    labels = np.clip((data.values - 3).astype(float), -2, 2)
    expected = Expected(np.linspace(9.0, 1.0, N_ITEMS), np.full(N_ITEMS, 0.3))
    items = rng.standard_normal((N_ITEMS, 2)) * 0.2
    return replace(round_of(data, vectors, labels, expected, items, unobserved=unobserved), **changes)


def session_for(update, epsilon=1e12, clicks=False, seed=0):
    """A session, and the shares of one round that has all of its budget."""
    session = Session(Budget(epsilon, 1e-5), noise=SeededNoise(seed))
    parts = update.shares(clicks=clicks)
    shares = session.plan(parts=list(parts.values())).several("parts")
    return session, dict(zip(parts, shares, strict=True))


def exact_statistics(about):
    """Σ_j w u uᵀ and Σ_j w y u of every item, and Σ_j u uᵀ, added up plainly."""
    seen = plainly(about)
    vectors = seen.vectors[seen.users]
    matrices, sums = np.zeros((N_ITEMS, 2, 2)), np.zeros((N_ITEMS, 2))
    np.add.at(matrices, seen.tasks, seen.weights[:, None, None] * vectors[:, :, None] * vectors[:, None, :])
    np.add.at(sums, seen.tasks, (seen.weights * seen.labels)[:, None] * vectors)
    return matrices, sums, seen.vectors.T @ seen.vectors


def nobody(about, n_tasks=2000):
    """The same for two users whose vectors and labels are 0, on a long list of tasks."""
    data = Interactions.from_arrays([0, 1], [0, 0], [3.0, 3.0], task_ids=np.arange(n_tasks))
    return round_of(data, np.zeros((2, 2)), np.zeros(2), about.expected, about.items)

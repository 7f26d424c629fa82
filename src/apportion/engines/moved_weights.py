"""Weights moved to some of the tasks: what users would have spent on the others goes to these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.privacy.bounds import Weights


def moved_weights(data: Interactions, weights: Weights, tasks: NDArray[np.bool_], where: str) -> Weights:
    """Weights of 0 outside these tasks, and larger ones within: a user's squares add up to what they did before.

    A user's new weights depend on its own tasks, its own weights and on which tasks are chosen, which must be public or
    released. Who has none of the tasks has no weight.

    Args:
        data: the interactions that the weights are of.
        weights: as they were.
        tasks: for every task, whether it is chosen.
        where: the tasks in words, for the statement.
    """
    before = np.asarray(weights._values, np.float64)
    raw = np.where(tasks[data.tasks], before, 0.0)
    users, count = data.users, data.n_users
    whole, left = (np.bincount(users, np.square(held), minlength=count).astype(np.float64) for held in (before, raw))
    factors = np.sqrt(np.divide(whole, left, out=np.zeros_like(whole), where=left > 1e-200))
    return weights.moved_to(raw * factors[users], f"on {where} alone")

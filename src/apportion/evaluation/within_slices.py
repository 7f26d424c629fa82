"""Recall@k within slices: how well a ranking of only the slice's tasks predicts what users did next there.

Over the whole catalogue, everybody's top k consists of popular tasks, and recall on rare ones is 0 whatever a model
knows about them. Here each slice is ranked alone: for a user with n targets in the slice, ranked among the slice's
tasks outside the user's history, ::

    Recall@k within the slice = (targets in the slice's top k) / min(k, n)

averaged over users with targets there. Overall, a target counts as found if it is in the top k of its own slice, out of
Σ_slices min(k, targets in it). Equal scores are ranked by code. Chance finds k of the slice's unseen tasks: with 740
tasks and k = 20, a recall of 0.027 for a user with one target.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.evaluation.rankings import RankingModel, Tally, check_targets, scores_to_rank, user_blocks
from apportion.evaluation.results import MetricValue
from apportion.evaluation.slices import PopularitySlices
from apportion.linalg.fixed_order import top_columns


def recall_within_slices(
    model: RankingModel, history: Interactions, targets: Interactions, k: int = 20, *, slices: PopularitySlices
) -> MetricValue:
    """Return Recall@k of a model on held-out users, with every slice ranked alone.

    Args:
        model: scores tasks.
        history: the rows that the model sees; these tasks are never recommended.
        targets: the rows to predict; every user with a target is evaluated.
        k: cut-off, the same for every slice.
        slices: the slices to rank.
    """
    check_targets(history, targets, [k], slices)
    tally = Tally.empty(slices.n_slices)
    members = [np.flatnonzero(slices.of_task == number) for number in range(slices.n_slices)]
    for users in user_blocks(targets):
        scores = scores_to_rank(model, history, users)
        wanted = _wanted(users, targets)
        n_targets = np.stack([wanted[:, tasks].sum(axis=1) for tasks in members], axis=1)
        result = np.stack([_found(scores[:, tasks], wanted[:, tasks], k) for tasks in members], axis=1)
        ideal = np.minimum(n_targets, k).astype(np.float64)
        tally.add(result.astype(np.float64), ideal, ideal.sum(axis=1))
    return tally.value(n_slices=slices.n_slices)


def _wanted(users: NDArray[np.int64], targets: Interactions) -> NDArray[np.bool_]:
    """Return which tasks are targets of each user; users x tasks."""
    some = targets.select_users(users)
    wanted = np.zeros((len(users), targets.n_tasks), bool)
    wanted[np.searchsorted(users, some.users), some.tasks] = True
    return wanted


def _found(scores: NDArray[np.floating], wanted: NDArray[np.bool_], k: int) -> NDArray[np.int64]:
    """Return how many targets of each user are among the k largest scores.

    Tasks of the history are scored -inf and hold no targets.
    """
    if scores.shape[1] == 0:
        return np.zeros(len(scores), np.int64)
    top = top_columns(scores, min(k, scores.shape[1]))
    counts: NDArray[np.int64] = (np.take_along_axis(wanted, np.maximum(top, 0), axis=1) & (top >= 0)).sum(axis=1)
    return counts

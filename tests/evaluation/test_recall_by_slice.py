"""Recall with a cut-off for each slice: by hand, and as with that cut-off for all."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import Interactions, Vocabulary
from apportion.errors import InputError
from apportion.evaluation import PopularitySlices, evaluate_rankings, popularity_slices
from apportion.recommend import methods
from small_studies import LIMIT


class Ranks:
    """Ranks tasks by their code for everybody, the first one first."""

    def score(self, history, users):
        return np.broadcast_to(-np.arange(history.n_tasks, dtype=float), (len(users), history.n_tasks))


def pairs(rows, n_tasks):
    users, tasks = np.array(rows).T
    ids = {"user_ids": Vocabulary.of_range(2), "task_ids": Vocabulary.of_range(n_tasks)}
    return Interactions.from_codes(users, tasks, **ids)


def test_each_slice_has_its_own_cut_off_by_hand():
    # ranks are codes (user 0 has seen task 0); slice 0, up to rank 4, holds tasks 3 and 5; slice 1, up to 2, the others
    history = pairs([(0, 0)], 6)
    targets = pairs([(0, 3), (0, 4), (0, 5), (1, 1), (1, 2), (1, 3)], 6)
    slices = PopularitySlices(np.array([1, 1, 1, 0, 1, 0]), 2)
    found = evaluate_rankings(Ranks(), history, targets, recall_at_by_slice=(4, 2), slices=slices)["recall@4/2"]
    # user 0 ranks 3, 4, 5 at 3, 4, 5: slice 0 finds task 3 of two, slice 1 finds nothing of task 4
    # user 1 ranks 1, 2, 3 at 2, 3, 4: slice 0 finds task 3, slice 1 finds task 1 of two
    assert found.by_slice == (pytest.approx((1 / 2 + 1) / 2), pytest.approx((0 + 1 / 2) / 2))
    assert found.overall == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert (found.n, found.n_by_slice) == (2, (2, 2))


def test_a_slice_is_as_with_that_cut_off_for_all(clicks):
    split = clicks.split_by_users(np.random.default_rng(0), 1, 60)
    slices = popularity_slices(split.train.by_task.counts, 3)
    model = methods.build(LIMIT, "clicks", epsilon=1.0, delta=1e-6).fit(split.train).model_
    cutoffs = (60, 7, 2)
    found = evaluate_rankings(
        model,
        split.test.history,
        split.test.target,
        recall_at=cutoffs,
        recall_at_by_slice=cutoffs,
        slices=slices,
    )
    mixed = found["recall@60/7/2"]
    assert mixed.by_slice == tuple(found[f"recall@{k}"].by_slice[number] for number, k in enumerate(cutoffs))
    assert mixed.n == 60
    same = evaluate_rankings(model, split.test.history, split.test.target, recall_at_by_slice=(9, 9, 9), slices=slices)
    assert found["recall@60"].overall != mixed.overall
    assert 0 < same["recall@9/9/9"].overall < 1


def test_cut_offs_have_to_fit_the_slices(clicks):
    split = clicks.split_by_users(np.random.default_rng(0), 1, 5)
    arguments = (Ranks(), split.test.history, split.test.target)
    with pytest.raises(InputError, match=r"one cut-off for each of 0 slices, rarest first, got \[20\]"):
        evaluate_rankings(*arguments, recall_at_by_slice=(20,))
    slices = popularity_slices(split.train.by_task.counts, 2)
    with pytest.raises(InputError, match=r"one cut-off for each of 2 slices"):
        evaluate_rankings(*arguments, recall_at_by_slice=(20, 40, 60), slices=slices)
    with pytest.raises(InputError, match="k >= 1"):
        evaluate_rankings(*arguments, recall_at_by_slice=(20, 0), slices=slices)

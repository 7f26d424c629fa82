"""Metrics against examples computed by hand and against a slow, readable reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import HeldOut, Interactions, Vocabulary
from apportion.errors import InputError
from apportion.evaluation import (
    PopularitySlices,
    evaluate_rankings,
    mae,
    ndcg_at_k,
    popularity_slices,
    recall_at_k,
    rmse,
)
from apportion.linalg.fixed_order import top_columns


class Table:
    """A model that reads its scores from a table, one row per user."""

    def __init__(self, scores):
        self.scores = np.asarray(scores)

    def score(self, history, users):
        return self.scores[users]


def interactions(pairs, n_users, n_tasks, values=None):
    users, tasks = np.array(sorted(pairs)).reshape(-1, 2).T
    ids = {"user_ids": Vocabulary.of_range(n_users), "task_ids": Vocabulary.of_range(n_tasks)}
    return Interactions.from_codes(users, tasks, values, **ids)


# -- by hand --


def test_errors_of_four_ratings_by_hand():
    targets = interactions([(0, 0), (0, 1), (1, 0), (1, 2)], 2, 3, [1.0, 2.0, 3.0, 4.0])
    slices = PopularitySlices(np.array([0, 0, 1]), 2)
    root = rmse([1.0, 4.0, 3.0, 1.0], targets, slices=slices)  # errors 0, 2, 0, -3
    assert root.overall == pytest.approx(math.sqrt(13 / 4))
    assert root.by_slice == pytest.approx((math.sqrt(4 / 3), 3.0))
    absolute = mae([1.0, 4.0, 3.0, 1.0], targets, slices=slices)
    assert absolute.overall == pytest.approx(5 / 4)
    assert absolute.by_slice == pytest.approx((2 / 3, 3.0))
    assert (absolute.n, absolute.n_by_slice) == (4, (3, 1))


def test_recall_and_ndcg_of_two_users_by_hand():
    # user 0 has seen task 0; the ranking that is left is 1, 2, 3, 4 and the targets are 1 and 4
    # user 1 has seen nothing; the ranking is 4, 3, 2, 1, 0 and the targets are 0, 2 and 3
    history = interactions([(0, 0)], 2, 5)
    targets = interactions([(0, 1), (0, 4), (1, 0), (1, 2), (1, 3)], 2, 5)
    model = Table([[9.0, 5.0, 4.0, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    recall = recall_at_k(model, history, targets, 2)
    assert recall.overall == pytest.approx((1 / 2 + 1 / 2) / 2)
    ndcg = ndcg_at_k(model, history, targets, 3)
    second, third = 1 / math.log2(3), 1 / math.log2(4)
    assert ndcg.overall == pytest.approx((1 / (1 + second) + (second + third) / (1 + second + third)) / 2)
    assert recall.n == ndcg.n == 2


def test_a_slice_counts_only_its_own_targets_and_skips_users_without_any():
    history = interactions([(0, 0)], 2, 5)
    targets = interactions([(0, 1), (0, 4), (1, 0), (1, 2), (1, 3)], 2, 5)
    model = Table([[9.0, 5.0, 4.0, 3.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    slices = PopularitySlices(np.array([0, 1, 0, 0, 1]), 3)
    recall = recall_at_k(model, history, targets, 2, slices=slices)
    # slice 0 holds user 1's three targets, of which task 3 is among the first two; slice 1 user 0's two
    assert recall.by_slice == (pytest.approx(1 / 2), pytest.approx(1 / 2), None)
    assert recall.n_by_slice == (1, 1, 0)


def test_recall_divides_by_k_where_there_are_more_targets_than_k():
    targets = interactions([(0, 0), (0, 1), (0, 2), (1, 0)], 2, 4)
    recall = recall_at_k(Table([[4.0, 3.0, 2.0, 1.0]] * 2), interactions([(0, 3)], 2, 4), targets, 2)
    assert recall.overall == 1.0


def test_what_is_in_the_history_is_never_recommended():
    history, targets = interactions([(0, 0), (1, 1)], 2, 3), interactions([(0, 1), (1, 2)], 2, 3)
    assert recall_at_k(Table([[9.0, 5.0, 1.0], [1.0, 9.0, 5.0]]), history, targets, 1).overall == 1.0


def test_a_cut_off_beyond_the_number_of_tasks_is_no_trouble():
    history, targets = interactions([(0, 0)], 2, 3), interactions([(0, 1), (1, 2)], 2, 3)
    found = evaluate_rankings(Table(np.zeros((2, 3))), history, targets, recall_at=(50,), ndcg_at=(50,))
    assert found["recall@50"].overall == 1.0


# -- against a reference --


def reference(scores, held, k, members):
    """Mean Recall@k and NDCG@k of the targets among `members`, one user and one rank at a time."""
    recalls, ndcgs = [], []
    for user in range(held.target.n_users):
        seen = set(held.history.tasks[held.history.users == user].tolist())
        wanted = set(held.target.tasks[held.target.users == user].tolist()) & members
        if not wanted:
            continue
        ranking = sorted(set(range(held.target.n_tasks)) - seen, key=lambda task: (-scores[user, task], task))
        gains = [1 / math.log2(rank + 2) for rank, task in enumerate(ranking[:k]) if task in wanted]
        ideal = [1 / math.log2(rank + 2) for rank in range(min(k, len(wanted)))]
        recalls.append(len(gains) / len(ideal))
        ndcgs.append(sum(gains) / sum(ideal))
    return (np.mean(recalls), np.mean(ndcgs), len(recalls)) if recalls else (None, None, 0)


@st.composite
def rankings(draw):
    """Scores with many ties, and held-out users of whom some have no target."""
    n_users, n_tasks = draw(st.integers(2, 6)), draw(st.integers(3, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    role = rng.choice(3, size=(n_users, n_tasks), p=[0.5, 0.2, 0.3])
    role[0, :2] = (1, 2)
    held = HeldOut(*(interactions(np.argwhere(role == r).tolist(), n_users, n_tasks) for r in (1, 2)))
    scores = rng.integers(0, 4, (n_users, n_tasks)).astype(np.float32)
    return scores, held, rng.integers(0, 5, n_tasks)


@given(rankings(), st.integers(1, 10), st.integers(1, 3))
def test_rankings_agree_with_the_reference_overall_and_by_slice(drawn, k, n_slices):
    scores, held, counts = drawn
    slices = popularity_slices(counts, n_slices)
    found = evaluate_rankings(Table(scores), held.history, held.target, recall_at=(k,), ndcg_at=(k, 2), slices=slices)
    groups = [set(range(len(counts)))] + [set(np.flatnonzero(slices.of_task == s)) for s in range(n_slices)]
    recall, ndcg = found[f"recall@{k}"], found[f"ndcg@{k}"]
    for position, members in enumerate(groups):
        expected_recall, expected_ndcg, n = reference(scores, held, k, members)
        assert (recall.overall, *recall.by_slice)[position] == pytest.approx(expected_recall)
        assert (ndcg.overall, *ndcg.by_slice)[position] == pytest.approx(expected_ndcg)
        assert (recall.n, *recall.n_by_slice)[position] == n


@given(rankings(), st.integers(1, 3))
def test_blocks_of_users_change_nothing(drawn, rows):
    scores, held, _ = drawn
    whole = evaluate_rankings(Table(scores), held.history, held.target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apportion.evaluation.rankings._CELLS_AT_ONCE", rows * held.target.n_tasks)
        blocks = evaluate_rankings(Table(scores), held.history, held.target)
    assert blocks["recall@20"].overall == pytest.approx(whole["recall@20"].overall)
    assert blocks["ndcg@100"].overall == pytest.approx(whole["ndcg@100"].overall)


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 2**32 - 1), st.data())
def test_the_top_is_the_beginning_of_a_stable_sort(n_rows, n_columns, seed, draw):
    depth = draw.draw(st.integers(1, n_columns))
    scores = np.random.default_rng(seed).integers(0, 3, (n_rows, n_columns)).astype(float)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    assert top_columns(scores, depth).tolist() == expected.tolist()


@given(rankings(), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_errors_agree_with_their_definitions_by_slice(drawn, seed, n_slices):
    _, held, counts = drawn
    rng = np.random.default_rng(seed)
    targets = held.target.with_values(rng.random(held.target.n_observations))
    predicted = rng.random(targets.n_observations)
    slices = popularity_slices(counts, n_slices)
    root, absolute = rmse(predicted, targets, slices=slices), mae(predicted, targets, slices=slices)
    for number in range(n_slices):
        errors = (predicted - targets.values)[slices.of_task[targets.tasks] == number]
        if not len(errors):
            assert root.by_slice[number] is absolute.by_slice[number] is None
            continue
        assert root.by_slice[number] == pytest.approx(np.sqrt((errors**2).mean()))
        assert absolute.by_slice[number] == pytest.approx(np.abs(errors).mean())


# -- slices --


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_slices_are_equal_in_size_and_ordered_by_popularity(counts, draw):
    n_slices = draw.draw(st.integers(1, len(counts)))
    slices = popularity_slices(counts, n_slices)
    sizes = np.bincount(slices.of_task, minlength=n_slices)
    assert sizes.max() - sizes.min() <= 1
    in_order = [task for _, task in sorted(zip(counts, range(len(counts)), strict=True))]
    assert (np.diff(slices.of_task[in_order]) >= 0).all()
    assert len(slices.labels) == n_slices


def test_slices_have_names_for_tables():
    names = ("rarest 20 %", "20-40 %", "40-60 %", "60-80 %", "most popular 20 %")
    assert popularity_slices(np.arange(10)).labels == names


# -- what is refused --


def test_what_cannot_be_evaluated_is_refused():
    history, targets = interactions([(0, 0)], 2, 3), interactions([(0, 1), (1, 2)], 2, 3)
    none = targets.where(np.zeros(2, bool))
    model = Table(np.zeros((2, 3)))
    with pytest.raises(InputError, match="Expected at least one target to evaluate on, got 0"):
        recall_at_k(model, history, none, 1)
    with pytest.raises(InputError, match="Expected at least one target to evaluate on, got 0"):
        rmse([], none)
    with pytest.raises(InputError, match=r"Expected cut-offs k >= 1, got \[0\]"):
        recall_at_k(model, history, targets, 0)
    with pytest.raises(InputError, match="scores for user code 1 hold NaN"):
        recall_at_k(Table([[0.0, 0.0, 0.0], [0.0, np.nan, 0.0]]), history, targets, 1)
    with pytest.raises(InputError, match=r"Expected scores of shape \(2, 3\), got \(2, 2\)"):
        recall_at_k(Table(np.zeros((2, 2))), history, targets, 1)
    with pytest.raises(InputError, match="Task 1 of user 0 is both in the history and among the targets"):
        recall_at_k(model, targets, targets, 1)
    with pytest.raises(InputError, match=r"Expected 2 predictions, got shape \(1,\)"):
        rmse([1.0], targets)
    with pytest.raises(InputError, match="The model predicts inf for target 1"):
        mae([1.0, np.inf], targets)
    with pytest.raises(InputError, match=r"Expected from 1 to 3 slices \(one task each\), got 4"):
        popularity_slices([1, 2, 3], 4)
    with pytest.raises(InputError, match="Expected slices of 3 tasks, got 2"):
        rmse([1.0, 1.0], targets, slices=popularity_slices([1, 2], 1))


def test_scores_are_left_as_the_model_made_them():
    history, targets = interactions([(0, 0)], 2, 3), interactions([(0, 1), (1, 2)], 2, 3)
    scores = np.ones((2, 3))

    class SharesItsArray:
        def score(self, history, users):
            return scores[:]

    recall_at_k(SharesItsArray(), history, targets, 1)
    assert (scores == 1.0).all()

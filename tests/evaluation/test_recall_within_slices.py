"""Recall within slices: by hand, against a slow reference, and against the whole catalogue."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import HeldOut, Interactions, Vocabulary
from apportion.errors import InputError
from apportion.evaluation import PopularitySlices, popularity_slices, recall_at_k, recall_within_slices


class Table:
    """A model that reads its scores from a table, one row per user."""

    def __init__(self, scores):
        self.scores = np.asarray(scores)

    def score(self, history, users):
        return self.scores[users]


def interactions(pairs, n_users, n_tasks):
    users, tasks = np.array(sorted(pairs)).reshape(-1, 2).T
    ids = {"user_ids": Vocabulary.of_range(n_users), "task_ids": Vocabulary.of_range(n_tasks)}
    return Interactions.from_codes(users, tasks, **ids)


def test_each_slice_is_ranked_alone_by_hand():
    # slice 0 holds tasks 0, 1, 2 and slice 1 tasks 3, 4, 5; scores fall with the code for both users
    history = interactions([(0, 0)], 2, 6)
    targets = interactions([(0, 1), (0, 5), (1, 1), (1, 3), (1, 4)], 2, 6)
    slices = PopularitySlices(np.array([0, 0, 0, 1, 1, 1]), 3)
    found = recall_within_slices(Table([[6.0, 5, 4, 3, 2, 1]] * 2), history, targets, 1, slices=slices)
    # user 0 has seen task 0, so task 1 is the first of slice 0 and is found; task 5 is the last of slice 1
    # user 1 misses task 1 and finds task 3, which is all that a first place can hold of two targets
    assert found.by_slice == (pytest.approx(1 / 2), pytest.approx(1 / 2), None)
    assert found.n_by_slice == (2, 2, 0)
    assert found.overall == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert found.n == 2


def reference(scores, held, k, slices):
    """Sums of found and findable targets, one user and one slice at a time."""
    shares = [[] for _ in range(slices.n_slices)]
    overall = []
    for user in range(held.target.n_users):
        seen = set(held.history.tasks[held.history.users == user].tolist())
        targets = set(held.target.tasks[held.target.users == user].tolist())
        found = findable = 0
        for number in range(slices.n_slices):
            members = set(np.flatnonzero(slices.of_task == number).tolist())
            wanted = targets & members
            ranking = sorted(members - seen, key=lambda task: (-scores[user, task], task))
            hits = len(wanted & set(ranking[:k]))
            if wanted:
                shares[number].append(hits / min(k, len(wanted)))
            found, findable = found + hits, findable + min(k, len(wanted))
        if targets:
            overall.append(found / findable)
    return [np.mean(overall), *[np.mean(each) if each else None for each in shares]]


@st.composite
def rankings(draw):
    """Scores with many ties, and held-out users of whom some have no target."""
    n_users, n_tasks = draw(st.integers(2, 6)), draw(st.integers(3, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    role = rng.choice(3, size=(n_users, n_tasks), p=[0.5, 0.2, 0.3])
    role[0, :2] = (1, 2)
    held = HeldOut(*(interactions(np.argwhere(role == r).tolist(), n_users, n_tasks) for r in (1, 2)))
    scores = rng.integers(0, 4, (n_users, n_tasks)).astype(np.float32)
    return scores, held, popularity_slices(rng.integers(0, 5, n_tasks), draw(st.integers(1, 3)))


@given(rankings(), st.integers(1, 10))
def test_it_agrees_with_the_reference(drawn, k):
    scores, held, slices = drawn
    found = recall_within_slices(Table(scores), held.history, held.target, k, slices=slices)
    assert [found.overall, *found.by_slice] == pytest.approx(reference(scores, held, k, slices))


@given(rankings(), st.integers(1, 10))
def test_a_slice_ranked_alone_finds_no_less_than_in_the_whole_catalogue(drawn, k):
    scores, held, slices = drawn
    within = recall_within_slices(Table(scores), held.history, held.target, k, slices=slices)
    whole = recall_at_k(Table(scores), held.history, held.target, k, slices=slices)
    assert within.n_by_slice == whole.n_by_slice
    for ours, theirs in zip(within.by_slice, whole.by_slice, strict=True):
        assert ours is theirs is None or ours >= theirs - 1e-12
    single = PopularitySlices.whole(held.target.n_tasks)
    alone = recall_within_slices(Table(scores), held.history, held.target, k, slices=single)
    assert alone.overall == pytest.approx(whole.overall)


@given(rankings(), st.integers(1, 3))
def test_blocks_of_users_change_nothing(drawn, rows):
    scores, held, slices = drawn
    arguments = (Table(scores), held.history, held.target, 2)
    whole = recall_within_slices(*arguments, slices=slices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apportion.evaluation.rankings._CELLS_AT_ONCE", rows * held.target.n_tasks)
        blocks = recall_within_slices(*arguments, slices=slices)
    assert blocks.overall == pytest.approx(whole.overall)
    assert blocks.by_slice == pytest.approx(whole.by_slice)


def test_what_cannot_be_judged_is_refused():
    history, targets = interactions([(0, 0)], 2, 3), interactions([(0, 1)], 2, 3)
    model, slices = Table(np.zeros((2, 3))), PopularitySlices.whole(3)
    with pytest.raises(InputError, match="k >= 1"):
        recall_within_slices(model, history, targets, 0, slices=slices)
    with pytest.raises(InputError, match="slices of 3 tasks, got 4"):
        recall_within_slices(model, history, targets, slices=PopularitySlices.whole(4))
    with pytest.raises(InputError, match="both in the history"):
        recall_within_slices(model, targets, targets, slices=slices)

"""Answers of tasks: each bucket counts once, whatever order they come in; what contradicts or is missing is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from apportion.allocation.weightings import SplitEqually
from apportion.auditing.hidden_values import raw_steps
from apportion.engines import Processors
from apportion.engines.spark.answers import Answer, complete, merged
from apportion.errors import InputError
from apportion.privacy.contributions import Channel, PartialSums, TaskCounts

from strategies import random_interactions

COUNTS = (TaskCounts(SplitEqually()),)


@pytest.fixture(scope="module")
def answers():
    """What three tasks answer, of users who were cut in three."""
    runs = random_interactions(3, n_users=20, n_tasks=5).as_users.cut(3)
    sums = [PartialSums.over(run, COUNTS, Processors()) for run in runs]
    pairs = zip(runs, sums, strict=True)
    return [Answer({k: (run.n_users, f"{k}")}, each.layout, each) for k, (run, each) in enumerate(pairs)]


def numbers(answer):
    return raw_steps(answer.sums.sealed(COUNTS)[0]).tolist()


def test_answers_add_up_to_the_same_in_any_order_and_however_often_they_come(answers):
    totals = {tuple(numbers(merged(order))) for order in itertools.permutations([*answers, answers[1]])}
    assert totals == {tuple(np.sum([numbers(each) for each in answers], axis=0).tolist())}


def test_answers_that_contradict_each_other_are_refused(answers):
    other = Answer(answers[0].roll, answers[1].layout, answers[1].sums)
    with pytest.raises(InputError, match="Two tasks answered for bucket 0 and do not agree"):
        merged([answers[0], other])
    with pytest.raises(InputError, match="Two tasks answered for bucket 1 and do not agree"):
        merged([answers[1], answers[1] + answers[2]])


def test_a_pass_without_all_buckets_is_refused(answers):
    complete([merged(answers)], 3)
    with pytest.raises(InputError, match="No task answered for bucket 2 of 3"):
        complete([answers[0] + answers[1]], 3)
    with pytest.raises(InputError, match="No task answered for bucket 3 of 4"):
        complete([merged(answers)], 4)
    with pytest.raises(InputError, match="No task answered; nothing was released"):
        complete([], 0)


def test_blocks_of_different_users_are_refused(answers):
    changed = Answer({**answers[0].roll, 0: (99, "0")}, answers[0].layout, answers[0].sums)
    with pytest.raises(InputError, match="different users"):
        complete([answers[0], changed], 1)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_blocks_put_together_again_are_the_sums(answers, size):
    blocks = answers[0].blocks(size, 1)
    assert len(blocks) == -(-5 // size)
    joined = PartialSums.joined([blocks[k].sums for k in range(len(blocks))], answers[0].layout)
    assert joined.same_as(answers[0].sums)


def test_an_answer_of_another_pass_is_refused(answers):
    wire, channel = answers[0].to_wire(Channel()), Channel()
    with pytest.raises(InputError, match="bytes that none of its workers sent"):
        Answer.from_wire(wire, channel)
    assert Answer.from_wire(answers[0].to_wire(channel), channel).same_as(answers[0])


def test_counts_of_keys_are_added_by_text(answers):
    keys = tuple("abcde"), tuple("cdefg")
    one, two = (Answer({k: (1, "")}, (), answers[k].sums, keys[k]) for k in range(2))
    total = one + two
    assert total.texts == tuple("abcdefg")
    first, second = numbers(answers[0]), numbers(answers[1])
    wanted = [*first[:2], *(a + b for a, b in zip(first[2:], second[:3], strict=True)), *second[3:]]
    assert numbers(total) == wanted
    groups = total.blocks(100, 3)
    assert sorted(text for each in groups.values() for text in each.texts) == list("abcdefg")

"""The server's side by letters: one client that disturbs is named and left out, and openings go stale."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from apportion.federated import RefusedError
from apportion.transport import LocalPost, letters, question
from apportion.transport.plain import packed, unpacked
from transport_cases import POPULARITY, Federation, asked, one_pass


class BoxesThatDoNotOpen(LocalPost):
    """A post to clients of which one seals boxes that nobody can open."""

    def __init__(self, desks, disturbing):
        super().__init__(desks)
        self.disturbing, self.asked = disturbing, []

    def exchanged(self, by_position, most):
        self.asked.append(set(by_position))
        answers = super().exchanged(by_position, most)
        plain = unpacked(answers.get(self.disturbing, letters.REFUSAL))
        if plain["stage"] == "sealed":
            boxes = [[each, os.urandom(len(box))] for each, box in plain["held"]["boxes"]]
            answers[self.disturbing] = packed({**plain, "held": {**plain["held"], "boxes": boxes}})
        return answers


def test_a_client_that_stops_a_pass_is_named_and_the_pass_goes_on_without_it(tmp_path):
    federation = Federation(tmp_path)
    post = BoxesThatDoNotOpen(federation.desks, 2)
    total, clients, by_post = one_pass(federation, asked(POPULARITY), post)
    assert clients == (0, 1, 3, 4)
    assert "masks of client 2 cannot be removed" in by_post.left_out[2]
    others = [each for number, each in enumerate(federation.users) if number != 2]
    understood = question.understood(asked(POPULARITY), federation.conditions)
    assert np.array_equal(total, sum(question.sums_over(understood.question, each)._flat() for each in others))
    assert all(2 not in each for each in post.asked[5:])  # in this pass, and in later ones


def test_a_pass_is_not_run_again_where_clients_let_the_server_read_one_sum_of_the_name(tmp_path):
    federation = Federation(tmp_path, sums={})
    post = BoxesThatDoNotOpen(federation.desks, 2)
    with pytest.raises(RefusedError, match="masks of client 2 cannot be removed"):
        one_pass(federation, asked(POPULARITY), post)
    assert len(post.asked) == 5


def test_a_pass_with_noise_of_clients_is_not_run_again_because_it_would_cost_them_twice(tmp_path):
    federation = Federation(tmp_path, noise="clients")
    post = BoxesThatDoNotOpen(federation.desks, 2)
    with pytest.raises(RefusedError, match="masks of client 2 cannot be removed"):
        one_pass(federation, asked(POPULARITY, noise={"output": 0, "multiplier": 9.0}), post)
    assert len(federation.desks[0]._account.entries) == 1


@pytest.mark.parametrize("late", [-2 * 3600, 5 * 3600])
def test_an_opening_of_another_time_is_refused_and_costs_nothing(tmp_path, late):
    """A carrier kept it, or a clock is wrong."""
    federation = Federation(tmp_path)
    opening = federation.opening(asked(POPULARITY), until=int(time.time()) + late)
    assert federation.desks[0].answered(opening) == letters.REFUSAL
    assert not federation.desks[0]._account.entries

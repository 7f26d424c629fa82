"""Where the server draws the noise, a client lets it read one sum of a name: two could differ by one client's part."""

from __future__ import annotations

import os

import numpy as np
import pytest

from apportion.federated import RefusedError
from apportion.transport import ClientAccount, LocalPost, letters, question
from apportion.transport.plain import unpacked
from transport_cases import POPULARITY, Federation, asked, one_pass

WITHOUT = {**POPULARITY, "without": {"fraction": 0.5, "most": 1, "voters": 1.0}}
MEANS = {"name": "user-means", "given": {}, "without": None}


class Leaving(LocalPost):
    """A post that leaves some clients' answers out from a stage on, and keeps the others."""

    def __init__(self, desks, leaving=(), stage=2):
        super().__init__(desks)
        self.leaving, self.first, self.came = set(leaving), stage, []

    def exchanged(self, by_position, most):
        answers = super().exchanged(by_position, most)
        gone = self.leaving if len(self.came) >= self.first else set()
        self.came.append({each: answer for each, answer in answers.items() if each not in gone})
        return self.came[-1]


def federation_of(folder, **changes):
    """Eight clients, of whom one may collude and two may leave a pass."""
    return Federation(folder, 8, 48, **{"dropping": 2, "sums": {}, **changes})


def differing(federation):
    """Read a sum over everybody, then one without client 1, which colludes, and client 3, which is left out."""
    everybody, _, _ = one_pass(federation, asked(POPULARITY))
    rest, clients, _ = one_pass(federation, asked(POPULARITY), Leaving(federation.desks, (1, 3)))
    assert clients == (0, 2, 4, 5, 6, 7)
    return everybody - rest


def part_of(federation, *clients):
    understood = question.understood(asked(POPULARITY), federation.conditions).question
    return sum(question.sums_over(understood, federation.users[each])._flat() for each in clients)


def test_two_sums_of_one_name_would_give_a_client_away_and_the_second_is_refused(tmp_path):
    for name, sums in (("two", {"popularity": 2}), ("one", {})):
        (tmp_path / name).mkdir()
        federation = federation_of(tmp_path / name, sums=sums)
        if sums:
            found = differing(federation) - part_of(federation, 1)  # the server knows what its accomplice sent
            assert np.array_equal(found, part_of(federation, 3))
        else:
            with pytest.raises(RefusedError, match="Only 0 clients are left"):
                differing(federation)


@pytest.mark.parametrize("again", [POPULARITY, WITHOUT], ids=["the same question", "other numbers"])
def test_the_limit_is_kept_after_a_restart_whatever_numbers_come_with_the_name(tmp_path, again):
    federation = federation_of(tmp_path)
    one_pass(federation, asked(POPULARITY))
    for each in range(8):
        federation.restarted(each)
        assert federation.desks[each]._account.sums == {"popularity": 1}
        assert federation.desks[each].answered(federation.opening(asked(again))) == letters.REFUSAL
    assert federation.desks[0].answered(federation.opening(asked(MEANS))) != letters.REFUSAL


def test_a_name_that_comes_twice_in_one_question_counts_twice(tmp_path):
    federation = federation_of(tmp_path)
    assert federation.desks[0].answered(federation.opening(asked(POPULARITY, WITHOUT))) == letters.REFUSAL
    assert federation.desks[0].answered(federation.opening(asked(POPULARITY, MEANS))) != letters.REFUSAL


def test_a_pass_that_ends_before_anybody_signs_does_not_count(tmp_path):
    federation = federation_of(tmp_path)
    with pytest.raises(RefusedError, match="Nothing was revealed"):
        one_pass(federation, asked(POPULARITY), Leaving(federation.desks, (1, 2, 3)))
    total, _, _ = one_pass(federation, asked(POPULARITY))
    assert np.array_equal(total, part_of(federation, *range(8)))


def test_that_a_list_is_signed_is_on_disk_before_the_signature_leaves(tmp_path):
    federation = federation_of(tmp_path)
    seen = []

    class Watching(LocalPost):
        def exchanged(self, by_position, most):
            answers = super().exchanged(by_position, most)
            stages = {unpacked(answer)["stage"] for answer in answers.values()}
            seen.append((stages.pop(), [ClientAccount.shown(federation.path(each))[0].signed for each in answers]))
            return answers

    one_pass(federation, asked(POPULARITY), Watching(federation.desks))
    kinds = ["advertised", "sealed", "masked", "confirmed", "revealed"]
    assert seen == [(kind, [number >= 3] * 8) for number, kind in enumerate(kinds)]


def test_a_disk_that_fails_keeps_the_signature_back_and_the_sum_counts(tmp_path, monkeypatch):
    federation = federation_of(tmp_path)
    post, forced = Leaving(federation.desks), os.fsync

    def fail(handle):
        if len(post.came) == 3:
            raise OSError("no space left")
        forced(handle)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RefusedError):
        one_pass(federation, asked(POPULARITY), post)
    assert set(post.came[3].values()) == {letters.REFUSAL}
    assert federation.desks[0]._account.sums == {"popularity": 1}


def test_sums_with_noise_of_clients_are_limited_by_what_they_cost_alone(tmp_path):
    federation = federation_of(tmp_path, noise="clients")
    for _ in range(3):
        one_pass(federation, asked(POPULARITY, noise={"output": 0, "multiplier": 9.0}))
    assert federation.desks[0]._account.sums == {"popularity": 3}


def test_a_server_does_not_ask_again_for_the_sum_that_it_has(tmp_path):
    """Fits release some sums twice, with new noise."""
    federation = federation_of(tmp_path)
    clients, asking = federation.clients(), asked(POPULARITY)
    understood = question.understood(asking, federation.conditions)
    terms = federation.conditions.terms(os.urandom(16), understood.length, understood.digest)
    first, second = (clients.add_up(terms, understood.question, None) for _ in range(2))
    assert np.array_equal(first.numbers - first.masks, second.numbers - second.masks)
    assert len(federation.desks[0]._account.entries) == 1

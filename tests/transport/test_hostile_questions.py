"""Questions of strangers, questions that make work, and rows that fail: refused early, in equal time, or left out."""

from __future__ import annotations

import os

import numpy as np
import pytest

from apportion.data.users import Users
from apportion.errors import InputError
from apportion.federated import Question, RefusedError
from apportion.privacy.contributions import Contribution
from apportion.transport import LocalPost, letters, question
from apportion.transport.plain import packed, unpacked
from apportion.transport.post import ClientsByPost
from federated_cases import identity
from transport_cases import N_ITEMS, Federation

POPULARITY = {"name": "popularity", "given": {}, "without": None}


def asked(*contributions, noise=None, precision="float64"):
    """A question as bytes."""
    return packed({"asked": list(contributions), "noise": noise, "precision": precision})


# Who may open a pass.


def test_a_pass_that_a_stranger_opens_is_refused_before_anything_is_read_or_charged(tmp_path, monkeypatch):
    federation = Federation(tmp_path)
    desk, content = federation.desks[0], asked(POPULARITY)
    read = []
    monkeypatch.setattr("apportion.transport.desk.offered", lambda *args: read.append(args))
    for secret in (identity(), federation.secrets[1]):
        assert desk.answered(federation.opening(content, secret=secret)) == letters.REFUSAL
    assert (read, desk._account.entries) == ([], ())


@pytest.mark.parametrize("changed", ["run", "question", "signature"])
def test_what_the_server_signed_cannot_be_changed_on_the_way(tmp_path, changed):
    federation = Federation(tmp_path)
    other = {"run": os.urandom(16), "question": asked(POPULARITY, POPULARITY), "signature": bytes(64)}
    plain = unpacked(federation.opening(asked(POPULARITY)))
    letter = packed({**plain, "held": {**plain["held"], changed: other[changed]}})
    assert federation.desks[0].answered(letter) == letters.REFUSAL
    assert federation.desks[0]._account.entries == ()
    assert federation.desks[0].answered(packed(plain)) != letters.REFUSAL


def test_a_server_without_the_key_that_clients_know_does_not_start(tmp_path):
    federation = Federation(tmp_path)
    with pytest.raises(InputError, match="key of the server that clients know"):
        ClientsByPost(LocalPost(federation.desks), federation.conditions, identity())


# What makes work is refused before.


def test_a_question_beyond_the_budget_or_the_passes_or_asked_again_makes_no_work(tmp_path, monkeypatch):
    (tmp_path / "few").mkdir()
    noisy, few = Federation(tmp_path, noise="clients", epsilon=1.0), Federation(tmp_path / "few", passes=1)
    run = os.urandom(16)
    assert few.desks[0].answered(few.opening(asked(POPULARITY), run)) != letters.REFUSAL
    evaluated = []
    monkeypatch.setattr(question, "_over", lambda *args: evaluated.append(args))
    dear = asked(POPULARITY, noise={"output": 0, "multiplier": 0.01})
    assert noisy.desks[0].answered(noisy.opening(dear)) == letters.REFUSAL
    assert few.desks[0].answered(few.opening(asked(POPULARITY))) == letters.REFUSAL
    assert few.desks[0].answered(few.opening(asked(POPULARITY), run)) == letters.REFUSAL
    assert evaluated == []


def test_an_answer_that_would_be_too_long_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    federation = Federation(tmp_path, noise="clients")
    monkeypatch.setattr(question, "_MOST_NUMBERS", N_ITEMS - 1)
    monkeypatch.setattr(question, "_over", lambda *args: pytest.fail("an answer was made"))
    with pytest.raises(RefusedError, match="at most 5 numbers in an answer, got 6"):
        question.understood(asked(POPULARITY, noise={"output": 0, "multiplier": 4.0}), federation.conditions)


def test_a_long_header_is_refused_before_it_is_parsed(monkeypatch):
    text = b'"' + b"x" * (1 << 20) + b'"'
    monkeypatch.setattr("json.loads", lambda *args, **kwargs: pytest.fail("it was parsed"))
    with pytest.raises(InputError, match="too long"):
        unpacked(len(text).to_bytes(4, "big") + text)


# Rows that fail.


class _Together(Contribution):
    """A sum that fails where a large value is among the users that it is computed for, all at once."""

    def partial(self, users, kernels):
        return (users.remembered_rows(self, self._whole).sum(axis=0, keepdims=True),)

    def _whole(self, users):
        if (users.column("values") > 9).any():
            raise ValueError("a large value")
        return users.sizes.astype(np.int64)[:, None]

    def sealed(self, sums):
        raise NotImplementedError


def test_users_who_are_asked_one_by_one_are_not_computed_together():
    columns = {"tasks": np.array([0, 1, 0, 2], np.int32), "values": np.array([1.0, 2.0, 99.0, 3.0], np.float32)}
    users = Users([0, 2, 3, 4], columns, n_tasks=3, keys=np.zeros((3, 2), np.uint64))
    sums = question.sums_over(Question((_Together(),), np.dtype(np.float64), None), users)
    assert sums._flat().tolist() == [3]  # rows of the first and the last; the one with the large value adds nothing


def _fold_in(precision):
    """A released regression under which one coordinate of a user without item 5 is 1e9 / precision."""
    features = np.zeros((N_ITEMS, 2))
    features[:, 0], features[5] = 1e9, [0, 1e9]
    return {
        "dimension": 2,
        "features": features.tobytes(),
        "observation_weights": np.zeros(N_ITEMS).tobytes(),
        "base": np.diag([1.0, precision]).tobytes(),
        "base_rhs": np.array([0.0, 1e9]).tobytes(),
    }


def test_votes_so_far_apart_that_squares_overflow_do_not_make_an_answer_slow(tmp_path, monkeypatch):
    """A server that sends such vectors would see from the time whether somebody has an item."""
    federation = Federation(tmp_path)
    votes = {"centre": 0.0, "unit": 1.0, "clip_norm": 0.5, "fraction": 0.5, "most": 1000, "voters": 1.0}
    given = {"fold_ins": [_fold_in(1.0), _fold_in(1e-60)], **votes}
    content = asked({"name": "variance-votes", "given": given, "without": None})
    understood = question.understood(content, federation.conditions).question
    monkeypatch.setattr(question, "_alone", lambda *args: pytest.fail("users were asked one by one"))
    items = federation.data.as_users.column("tasks")
    assert (items == 5).any()
    for users in federation.users:
        question.sums_over(understood, users)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused_before_the_first_letter(tmp_path, value):
    federation = Federation(tmp_path)
    federation.desks[0]._account.close()
    columns = {"tasks": np.arange(2, dtype=np.int32), "values": np.array([1.0, value], np.float32)}
    with pytest.raises(InputError, match="infinite or missing"):
        federation.opened(0, users=Users([0, 2], columns, n_tasks=N_ITEMS, keys=np.zeros((1, 2), np.uint64)))

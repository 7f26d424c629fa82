"""A client's desk against a hostile server: nothing runs, nothing leaks, everything is paid for before it is done."""

from __future__ import annotations

import contextlib
import os
from collections import Counter

import numpy as np
import pytest

from apportion.allocation.weightings import SplitEqually
from apportion.data.users import Users
from apportion.errors import InputError
from apportion.estimators.counts import number_of_users
from apportion.federated import FederatedEngine, MaskingClient, NoisyClientsEngine, RefusedError, Trust
from apportion.federated.messages import Masked
from apportion.privacy import Budget, Purpose, Session, SystemNoise
from apportion.privacy.contributions import TaskCounts
from apportion.transport import LocalPost, letters, question
from apportion.transport.conditions import Conditions
from apportion.transport.listed import PublicFacts
from apportion.transport.plain import packed, unpacked
from transport_cases import POPULARITY, Federation, asked, one_pass

LARGE = 4.5


def stages(answers):
    """The stage of each answer."""
    return {each: unpacked(answer)["stage"] for each, answer in answers.items()}


class Posts(LocalPost):
    """A post that changes letters on the way, and keeps them."""

    def __init__(self, desks, change=None, back=None):
        super().__init__(desks)
        self.change = change or (lambda stage, each, letter: letter)
        self.back = back or (lambda stage, each, answer: answer)
        self.sent = []
        self.came = []

    def exchanged(self, by_position, most):
        stage = len(self.sent)
        self.sent.append({each: self.change(stage, each, letter) for each, letter in by_position.items()})
        came = super().exchanged({each: letter for each, letter in self.sent[-1].items() if letter is not None}, most)
        self.came.append({each: self.back(stage, each, answer) for each, answer in came.items()})
        return {each: answer for each, answer in self.came[-1].items() if answer is not None}


# The right sum, whoever behaves.


def test_the_sum_is_that_of_all_rows(tmp_path):
    federation = Federation(tmp_path)
    total, clients, _ = one_pass(federation, asked(POPULARITY))
    understood = question.understood(asked(POPULARITY), federation.conditions)
    assert np.array_equal(total, question.sums_over(understood.question, federation.data.as_users)._flat())
    assert clients == (0, 1, 2, 3, 4)


SPOILED = {
    "nothing": None,
    "twice the vector": lambda answer: _changed(answer, lambda held: held | {"numbers": 2 * held["numbers"]}),
    "half the vector": lambda answer: _changed(answer, lambda held: held | {"numbers": held["numbers"][:-8]}),
    "floats that are NaN": lambda answer: _changed(answer, lambda held: held | {"numbers": [float(1)] * 6}),
    "another pass": lambda answer: _changed(answer, lambda held: held | {"run": bytes(16)}),
    "another sender": lambda answer: _changed(answer, lambda held: held | {"sender": 2}),
    "no bytes": lambda answer: b"",
    "a text": lambda answer: "late",
}


def _changed(answer, change):
    plain = unpacked(answer)
    return packed({**plain, "held": change(plain["held"])})


@pytest.mark.parametrize("how", SPOILED)
def test_a_client_that_sends_a_bad_vector_is_left_out_with_the_reason(tmp_path, how):
    federation = Federation(tmp_path)
    spoil = SPOILED[how]

    def back(stage, each, answer):
        if (stage, each) != (2, 1):
            return answer
        return spoil(answer) if spoil else None

    spoiled = Posts(federation.desks, back=back)
    total, clients, by_post = one_pass(federation, asked(POPULARITY), spoiled)
    understood = question.understood(asked(POPULARITY), federation.conditions)
    rest = sum(question.sums_over(understood.question, federation.users[each])._flat() for each in (0, 2, 3, 4))
    assert clients == (0, 2, 3, 4)
    assert np.array_equal(total, rest)
    assert set(by_post.left_out) == ({1} if spoil else set())


@pytest.mark.parametrize("stage", range(5))
def test_a_client_that_answers_with_what_it_sent_in_the_pass_before_is_left_out(tmp_path, stage):
    federation = Federation(tmp_path)
    before = Posts(federation.desks)
    one_pass(federation, asked(POPULARITY), before)
    again = Posts(
        federation.desks, back=lambda k, each, answer: before.came[k][1] if (k, each) == (stage, 1) else answer
    )
    _, clients, by_post = one_pass(federation, asked(POPULARITY), again)
    assert "another pass" in by_post.left_out[1]
    assert clients == ((0, 2, 3, 4) if stage < 3 else (0, 1, 2, 3, 4))


def test_a_bad_signature_leaves_one_client_out_and_does_not_end_the_pass(tmp_path):
    federation = Federation(tmp_path)
    forged = Posts(
        federation.desks,
        back=lambda k, each, answer: (
            _changed(answer, lambda held: held | {"signature": bytes(64)}) if each == 1 and k in (0, 3) else answer
        ),
    )
    _, clients, by_post = one_pass(federation, asked(POPULARITY), forged)
    assert clients == (0, 2, 3, 4)
    assert "signature" in by_post.left_out[1]


def test_too_many_that_drop_out_end_the_pass_and_nothing_is_revealed(tmp_path):
    federation = Federation(tmp_path)
    silent = Posts(federation.desks, back=lambda k, each, answer: None if each in (1, 2) and k == 2 else answer)
    with pytest.raises(RefusedError, match="Nothing was revealed"):
        one_pass(federation, asked(POPULARITY), silent)
    assert len(silent.came) == 3


# A1: a server names functions, classes or files.


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x95",
        packed({"object": "apportion.report.pages:Page", "fields": {}}),
        asked({**POPULARITY, "name": "apportion.cli.outputs:write_text"}),
        asked({**POPULARITY, "given": {"path": "/etc/passwd"}}),
        asked(POPULARITY, changes=["apportion.data.users:Users"]),
        asked(precision="float64"),
        asked(POPULARITY, precision="object"),
        asked(*[POPULARITY] * 9),
    ],
    ids=range(8),
)
def test_a_question_that_is_not_in_the_list_is_refused_before_anything_is_charged(tmp_path, content):
    federation = Federation(tmp_path)
    desk = federation.desks[0]
    assert desk.answered(federation.opening(content)) == letters.REFUSAL
    assert desk._account.entries == ()


def test_a_contribution_that_was_not_agreed_to_is_refused(tmp_path):
    federation = Federation(tmp_path, allowed=frozenset({"user-means"}))
    assert federation.desks[0].answered(federation.opening(asked(POPULARITY))) == letters.REFUSAL


# A2: a server understates what a pass costs.


def test_the_share_of_noise_follows_from_the_clients_own_conditions(tmp_path):
    federation = Federation(tmp_path, noise="clients")
    understood = question.understood(asked(POPULARITY, noise={"output": 0, "multiplier": 4.0}), federation.conditions)
    assert understood.question.noise.counted == 5 - 1 - 1 - 1
    assert understood.cost == 1 / 16


@pytest.mark.parametrize(
    "noise",
    [
        None,
        {"output": 1, "multiplier": 4.0},
        {"output": 0, "multiplier": 0.0},
        {"output": 0, "multiplier": 1e-9},
        {"output": 0, "multiplier": 1e300},
        {"output": 0, "multiplier": 4.0, "counted": 500},
        {"output": 0, "multiplier": 4.0, "l2_sensitivity": 1e-9},
        {"output": 0, "multiplier": 1e9},
    ],
    ids=range(8),
)
def test_other_noise_is_refused_before_anything_is_charged(tmp_path, noise):
    federation = Federation(tmp_path, noise="clients")
    desk = federation.desks[0]
    assert desk.answered(federation.opening(asked(POPULARITY, noise=noise))) == letters.REFUSAL
    assert desk._account.entries == ()


def test_the_budget_of_a_client_ends_whatever_the_server_says_and_after_a_restart_too(tmp_path):
    federation = Federation(tmp_path, noise="clients", epsilon=1.0)
    content = asked(POPULARITY, noise={"output": 0, "multiplier": 2 / Budget(1.0, 1e-6).mu})
    answers = []
    for _ in range(6):
        answers.append(federation.desks[0].answered(federation.opening(content)))
        federation.restarted(0)
    assert [answer == letters.REFUSAL for answer in answers] == [False] * 4 + [True] * 2
    assert federation.desks[0]._account.spent == pytest.approx(Budget(1.0, 1e-6).mu ** 2)


def test_the_number_of_passes_ends_too(tmp_path):
    federation = Federation(tmp_path, passes=2)
    answers = [federation.desks[0].answered(federation.opening(asked(POPULARITY))) for _ in range(3)]
    assert [answer == letters.REFUSAL for answer in answers] == [False, False, True]


def test_a_pass_is_on_disk_before_rows_are_looked_at_or_anything_is_sent(tmp_path, monkeypatch):
    federation = Federation(tmp_path)
    seen = []
    keys, over = MaskingClient.advertise, question.sums_over

    def on_disk():
        return federation.path(0).read_bytes().count(b"\n") - 1

    monkeypatch.setattr(MaskingClient, "advertise", lambda self: seen.append(("keys", on_disk())) or keys(self))
    monkeypatch.setattr(question, "sums_over", lambda *args: seen.append(("rows", on_disk())) or over(*args))
    one_pass(federation, asked(POPULARITY))
    assert Counter(seen) == {("keys", 1): 5, ("rows", 1): 5}


# A3 and A4: refusals and errors tell nothing about rows.


class _Failing(Users):
    """Users whose rows make every evaluation fail if a large value is among them."""

    def column(self, name):
        if name == "tasks" and (super().column("values") > LARGE).any():
            raise ValueError(f"secret row {super().column('values').tolist()}")
        return super().column(name)

    def apart(self, first, last):
        cut = super().apart(first, last)
        return _Failing(cut.indptr, cut._columns, n_tasks=cut.n_tasks, keys=cut.keys)

    def nobody(self):
        cut = super().nobody()
        return _Failing(cut.indptr, cut._columns, n_tasks=cut.n_tasks, keys=cut.keys)


def test_rows_that_fail_do_not_decide_whether_there_is_an_answer_and_their_user_alone_adds_nothing(tmp_path):
    federation = Federation(tmp_path)
    good = federation.users[0]
    failing = _Failing(good.indptr, good._columns, n_tasks=good.n_tasks, keys=good.keys)
    federation.desks[0]._users = failing
    total, clients, _ = one_pass(federation, asked(POPULARITY))
    understood = question.understood(asked(POPULARITY), federation.conditions).question
    fine = [k for k in range(good.n_users) if not (good.run(k, k + 1).column("values") > LARGE).any()]
    assert 0 < len(fine) < good.n_users
    alone = [question.sums_over(understood, good.run(k, k + 1))._flat() for k in fine]
    others = [question.sums_over(understood, each)._flat() for each in federation.users[1:]]
    assert clients == (0, 1, 2, 3, 4)
    assert np.array_equal(total, sum(alone) + sum(others))


def test_a_refusal_is_the_same_bytes_whatever_the_reason_and_the_reason_stays_in_the_clients_log(tmp_path, caplog):
    federation = Federation(tmp_path, passes=1)
    desk = federation.desks[0]
    bad = [
        b"",
        b"secret",
        federation.opening(asked({**POPULARITY, "name": "x"})),
        letters.answer(_masked(), {"length": 2, "clients": 5}),
    ]
    desk.answered(federation.opening(asked(POPULARITY)))
    answers = {desk.answered(letter) for letter in (*bad, federation.opening(asked(POPULARITY)))}
    assert answers == {letters.REFUSAL}
    assert "answers 1 passes" in caplog.text


def _masked():
    return Masked(bytes(16), 0, np.zeros(2, np.uint64))


def test_rows_that_no_pass_could_use_are_refused_before_the_first_letter(tmp_path):
    federation = Federation(tmp_path)
    users = federation.users[0]
    federation.desks[0]._account.close()
    other_list = Users(users.indptr, users._columns, n_tasks=99, keys=users.keys)
    twice = Users([0, 2], {"tasks": np.zeros(2, np.int32), "values": np.ones(2, np.float32)}, n_tasks=users.n_tasks)
    for bad, reason in ((other_list, "public list"), (twice, "each once")):
        with pytest.raises(InputError, match=reason):
            federation.opened(0, users=bad)


# A7: the name of a pass is used again.


def test_a_name_is_answered_once_also_after_a_restart(tmp_path):
    federation = Federation(tmp_path)
    run = os.urandom(16)
    first = federation.desks[0].answered(federation.opening(asked(POPULARITY), run))
    assert first != letters.REFUSAL
    assert federation.desks[0].answered(federation.opening(asked(POPULARITY), run)) == letters.REFUSAL
    assert federation.restarted(0).answered(federation.opening(asked(POPULARITY), run)) == letters.REFUSAL


def test_a_pass_does_not_go_on_after_a_restart(tmp_path):
    federation = Federation(tmp_path)

    def change(stage, each, letter):
        if stage == 2 and each == 1:
            federation.restarted(1)
            post._desks[1] = federation.desks[1]
        return letter

    post = Posts(federation.desks, change)
    _, clients, by_post = one_pass(federation, asked(POPULARITY), post)
    assert clients == (0, 2, 3, 4)
    assert "refused" in by_post.left_out[1]


@pytest.mark.parametrize("stage", range(5))
def test_a_letter_is_answered_once(tmp_path, stage):
    federation = Federation(tmp_path)
    post = Posts(federation.desks)
    answers = []
    post.back = lambda k, each, answer: (
        (answers.append(federation.desks[0].answered(post.sent[k][0])) if (k, each) == (stage, 0) else None) or answer
    )
    with contextlib.suppress(RefusedError):
        one_pass(federation, asked(POPULARITY), post)
    assert answers == [letters.REFUSAL]


# A8, A10, A11: who takes part, with whom, and how many shares recover a secret, is not the server's to say.


@pytest.mark.parametrize("further", ["identities", "position", "degree", "threshold", "least", "length", "graph"])
def test_a_server_cannot_say_who_takes_part_or_how_secrets_are_shared(tmp_path, further):
    federation = Federation(tmp_path)
    plain = unpacked(federation.opening(asked(POPULARITY)))
    plain["held"][further] = 1
    assert federation.desks[0].answered(packed(plain)) == letters.REFUSAL


@pytest.mark.parametrize("careful", [True, False])
def test_clients_that_the_server_invented_are_not_heard(tmp_path, monkeypatch, careful):
    """The server replaces two clients by its own; the others have the true roster and stop at the directory."""
    if not careful:
        monkeypatch.setattr("apportion.federated.server.verify", lambda *args: None)
    (tmp_path / "true").mkdir()
    (tmp_path / "false").mkdir()
    federation, invented = Federation(tmp_path / "true"), Federation(tmp_path / "false")
    roster = (*federation.conditions.roster[:3], *invented.conditions.roster[3:])
    false = _with_roster(federation.conditions, roster)
    desks = {**federation.desks, **{each: _moved(invented, each, false) for each in (3, 4)}}
    post = Posts(desks, _signed_for(federation, federation.conditions))
    federation.conditions = false
    with pytest.raises(RefusedError, match=f"Only {2 if careful else 0} clients are left"):
        one_pass(federation, asked(POPULARITY), post)
    assert set(stages(post.came[0]).values()) == {"advertised"}
    assert len(post.came) == (1 if careful else 2)
    assert careful or set(stages(post.came[1]).values()) == {"refused"}


def _signed_for(federation, conditions):
    """What opens the pass at the first three clients with a signature for the roster that they know."""

    def change(stage, each, letter):
        run = unpacked(letter)["held"]["run"]
        return federation.opening(asked(POPULARITY), run, conditions=conditions) if stage == 0 and each < 3 else letter

    return change


def _with_roster(conditions, roster):
    held = {name: getattr(conditions, name) for name in Conditions.__dataclass_fields__}
    return Conditions(**{**held, "roster": roster})


def _moved(federation, each, conditions):
    federation.desks[each]._account.close()
    return federation.opened(each, conditions=conditions)


def test_terms_that_a_client_derives_are_of_a_complete_graph_with_the_threshold_above_those_who_collude(tmp_path):
    conditions = Federation(tmp_path, n_clients=9, colluding=2, dropping=2).conditions
    terms = conditions.terms(bytes(16), 6, bytes(32))
    assert terms.graph.complete
    assert terms.active
    assert (terms.threshold, terms.least, terms.colluding, terms.n_clients) == (3, 7, 2, 9)


# A9: each client is asked something else.


def test_clients_who_were_asked_different_questions_reveal_nothing(tmp_path):
    federation = Federation(tmp_path)
    other = {"name": "popularity", "given": {}, "without": {"fraction": 0.5, "most": 1, "voters": 1.0}}

    def change(stage, each, letter):
        return federation.opening(asked(other), unpacked(letter)["held"]["run"]) if (stage, each) == (0, 1) else letter

    post = Posts(federation.desks, change)
    _, clients, by_post = one_pass(federation, asked(POPULARITY), post)
    assert clients == (0, 2, 3, 4)
    assert "signature" in by_post.left_out[1]


def test_a_server_that_hides_the_difference_stops_at_the_clients(tmp_path, monkeypatch):
    """The server does not check signatures itself, so clients see the keys of the one who was asked something else."""
    federation = Federation(tmp_path)
    monkeypatch.setattr("apportion.federated.server.verify", lambda *args: None)
    other = {"name": "popularity", "given": {}, "without": {"fraction": 0.5, "most": 1, "voters": 1.0}}

    def change(stage, each, letter):
        return federation.opening(asked(other), unpacked(letter)["held"]["run"]) if (stage, each) == (0, 1) else letter

    post = Posts(federation.desks, change)
    with pytest.raises(RefusedError, match="Only 0 clients are left"):
        one_pass(federation, asked(POPULARITY), post)
    assert set(stages(post.came[1]).values()) == {"refused"}


@pytest.mark.parametrize(
    "facts",
    [PublicFacts(7), PublicFacts(6, (0.0, 5.0)), PublicFacts(6, listed=b"other")],
    ids=["items", "scale", "list"],
)
def test_terms_of_other_questions_scales_and_lists_have_other_hashes(tmp_path, facts):
    conditions = Federation(tmp_path).conditions
    own = PublicFacts(6)
    digests = [facts.digest_with(b"one"), own.digest_with(b"one"), own.digest_with(b"two")]
    assert len({conditions.terms(bytes(16), 6, each).digest for each in digests}) == 3


# Whole releases.


def test_a_release_with_noise_of_clients_is_charged_by_each_of_them_as_by_the_session(tmp_path):
    federation = Federation(tmp_path, noise="clients", epsilon=2.0)
    session = Session(Budget(2.0, 1e-6), noise=SystemNoise(exact=True))
    engine = NoisyClientsEngine(federation.conditions.trust, federation.clients(), "float64")
    (total,) = engine.add_up(federation.elsewhere.as_users, [number_of_users(session)])
    session.release(Purpose.NUMBER_OF_USERS, total, session.plan(all=1.0).one("all"))
    spent = [desk._account.spent for desk in federation.desks.values()]
    assert spent == pytest.approx([Budget(2.0, 1e-6).mu ** 2] * 5, rel=1e-9)


def test_an_engine_with_other_numbers_of_clients_is_refused(tmp_path):
    federation = Federation(tmp_path)
    engine = FederatedEngine(Trust(5, 1, 2), federation.clients())
    with pytest.raises(InputError, match="numbers of clients"):
        engine.add_up(federation.elsewhere.as_users, [TaskCounts(SplitEqually())])

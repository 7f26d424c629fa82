"""A desk answers within its owner's conditions, keeps its state in bytes, and writes down what left it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion import linalg
from apportion.allocation import SplitEqually
from apportion.auditing.hidden_values import raw_steps
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.federated import FederatedEngine, NoisyClientsEngine, RefusedError, Trust
from apportion.federated.desk import Conditions, Desk, Letter, state_from
from apportion.federated.messages import Survivors
from apportion.federated.post import ClientsByPost, LocalPost
from apportion.federated.values import from_bytes, to_bytes
from apportion.privacy import Budget, Session
from apportion.privacy.contributions import TaskCounts
from federated_cases import identity, public_of, terms_of

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
COUNTS = (TaskCounts(SplitEqually()),)
USERS = random_interactions(5, n_users=20, n_tasks=6).as_users
RUNS = USERS.cut(5)
AGREED = Conditions()


def desks(conditions=AGREED, identities=(None,) * 5):
    return {
        each: Desk(lambda run=run: run, conditions, own)
        for each, (run, own) in enumerate(zip(RUNS, identities, strict=True))
    }


class ForgetfulPost(LocalPost):
    """A post to clients whose processes end after every letter: only bytes are kept."""

    def exchanged(self, letters):
        answers = super().exchanged(letters)
        for desk in self._desks.values():
            desk.state = state_from(to_bytes(desk.state))
        return answers


def counted(engine):
    (total,) = engine.add_up(USERS, COUNTS)
    return raw_steps(total)


def everybody(runs=RUNS):
    return sum(raw_steps(*LocalEngine(exact=True).add_up(run, COUNTS)) for run in runs)


@pytest.mark.parametrize("post", [LocalPost, ForgetfulPost])
def test_clients_by_post_add_up_to_the_same(post):
    engine = FederatedEngine(Trust(5), ClientsByPost(post(desks())))
    np.testing.assert_array_equal(counted(engine), everybody())


def test_clients_with_identities_add_up_to_the_same():
    secrets = [identity() for _ in RUNS]
    trust = Trust(5, identities=tuple(map(public_of, secrets)))
    engine = FederatedEngine(trust, ClientsByPost(ForgetfulPost(desks(identities=secrets))))
    np.testing.assert_array_equal(counted(engine), everybody())


class SpoilingPost(LocalPost):
    """A post on whose way one client's answers are changed."""

    def __init__(self, desks, spoil):
        super().__init__(desks)
        self._spoil, self._before = spoil, {}

    def exchanged(self, letters):
        answers = super().exchanged(letters)
        if 2 in answers:
            answers[2], self._before[2] = self._spoil(answers[2], self._before.get(2, b"")), answers[2]
        return answers


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda now, before: b"junk", "other bytes"),
        (lambda now, before: before or now, "too early or too late"),
        (lambda now, before: to_bytes(replace(from_bytes(now), sender=3)), "no message of its own"),
        (lambda now, before: to_bytes(replace(from_bytes(now), run=b"x" * 16)), "of another pass"),
        (lambda now, before: to_bytes(terms_of(6)), "no message of its own"),
    ],
    ids=["junk", "an old message", "another's name", "an old pass", "a server's message"],
)
def test_spoilt_answers_are_left_out_with_the_reason(spoil, reason):
    clients = ClientsByPost(SpoilingPost(desks(), spoil))
    np.testing.assert_array_equal(
        counted(FederatedEngine(Trust(5), clients)), everybody([run for k, run in enumerate(RUNS) if k != 2])
    )
    assert reason in clients.refused[2]


def test_a_client_whose_rows_are_wrong_is_left_out():
    broken = desks()
    broken[3].users = lambda: RUNS[3].with_columns(tasks=np.zeros(RUNS[3].n_rows, np.int32))  # one item several times
    clients = ClientsByPost(LocalPost(broken))
    wanted = everybody([run for k, run in enumerate(RUNS) if k != 3])
    np.testing.assert_array_equal(counted(FederatedEngine(Trust(5), clients)), wanted)


@pytest.mark.parametrize(
    "conditions", [Conditions(least=5), Conditions(colluding=2), Conditions(noisy=True)], ids=["few", "trust", "noise"]
)
def test_clients_refuse_what_their_owners_did_not_agree_to(conditions):
    engine = FederatedEngine(Trust(5), ClientsByPost(LocalPost(desks(conditions))))
    with pytest.raises(RefusedError, match="Only 0 clients are left"):
        counted(engine)


def test_clients_stop_at_their_own_budget_whatever_the_server_charges():
    own = desks(Conditions(noisy=True, epsilon=1.0, delta=1e-6))
    engine = NoisyClientsEngine(Trust(5), ClientsByPost(LocalPost(own)))
    (counts,) = engine.add_up(USERS, COUNTS)
    for _ in range(2):  # a server that opens a second session, as if nothing had been spent
        session = Session(Budget(0.9, 1e-6))
        share = session.plan(all=0.7).one("all")
        if own[0].state.spent:
            with pytest.raises(RefusedError, match="Only 0 clients are left"):
                session.release("counts", counts, share)
        else:
            session.release("counts", counts, share)
    assert own[0].state.spent == pytest.approx(0.7 * Budget(0.9, 1e-6).mu ** 2)


def test_noise_that_counts_too_many_clients_is_refused():
    class Boasting(ClientsByPost):
        """A server that counts noise of colluding clients and of the one protected."""

        def add_up(self, terms, question, users):
            noise = replace(question.noise, counted=terms.n_clients)
            return super().add_up(terms, replace(question, noise=noise), users)

    (counts,) = NoisyClientsEngine(Trust(5), Boasting(LocalPost(desks(Conditions(noisy=True))))).add_up(USERS, COUNTS)
    session = Session(Budget(0.5, 1e-6))
    with pytest.raises(RefusedError, match="Only 0 clients are left"):
        session.release("counts", counts, session.plan(all=0.5).one("all"))


def test_a_journal_holds_every_pass_and_what_left():
    own = desks()
    counted(FederatedEngine(Trust(5), ClientsByPost(LocalPost(own))))
    (entry,) = own[0].state.journal
    assert (entry.asked, entry.numbers, entry.noise) == (("TaskCounts",), 6, None)


def test_letters_out_of_order_and_other_bytes_are_refused():
    desk = desks()[0]
    with pytest.raises(RefusedError, match="Expected a letter, got int"):
        desk.answered(to_bytes(3))
    with pytest.raises(RefusedError, match="Expected the terms of a pass first"):
        desk.answered(to_bytes(Letter(0, Survivors(b"x" * 16, (0, 1, 2)))))
    with pytest.raises(InputError, match="Expected the state of a desk"):
        state_from(to_bytes(3))

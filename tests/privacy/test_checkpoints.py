"""A stopped fit goes on: stored releases are neither charged nor drawn again, and nothing secret is stored."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest

from apportion.allocation import SplitEqually
from apportion.engines import LocalEngine
from apportion.errors import BudgetError, InputError
from apportion.estimators.items import KEYS_PART
from apportion.estimators.resuming import in_words
from apportion.privacy import Budget, Checkpoint, Ledger, SeededNoise, Session, SystemNoise
from apportion.privacy.checkpoints import Kept
from apportion.privacy.contributions import TaskCounts
from apportion.privacy.keys import Listed
from apportion.privacy.ledger.keys import LedgerKey
from user_folders import folder_of

from private_estimators import clicks, published, ratings
from strategies import random_interactions

BUDGET = Budget(50.0, 1e-5)
WITH_LIST = Budget(200.0, 1e-5, KEYS_PART * 1e-5)


class Killed(BaseException):
    """What stands for kill -9: nothing catches it."""


@pytest.fixture
def data():
    return random_interactions(5, n_users=40)


@pytest.fixture
def key(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    return LedgerKey.create(tmp_path / "elsewhere" / "key").place


@pytest.fixture
def at(tmp_path, key):
    """A checkpoint in the same folder every time."""
    return lambda name="fit": Checkpoint(tmp_path / name, key=key)


def session(checkpoint, budget=BUDGET, noise=None):
    return Session(budget, noise=noise or SeededNoise(7), checkpoint=checkpoint)


def fitted(make, data, checkpoint, budget=BUDGET, **settings):
    made = make(**settings).fit(data, session=session(checkpoint, budget))
    checkpoint.close()
    return published(made.model_)


def same(one, two):
    return all(np.array_equal(np.asarray(one[name], object), np.asarray(two[name], object)) for name in one)


@pytest.fixture
def stop(monkeypatch):
    """Stop the program at a release, before or after it is stored."""

    def arranged(number, *, stored):
        store = Checkpoint.store

        def until(self, at, *given):
            if at == number and not stored:
                raise Killed
            store(self, at, *given)
            if at == number:
                raise Killed

        monkeypatch.setattr(Checkpoint, "store", until)

    return arranged


def counting(monkeypatch):
    """How often each release is drawn, from now on."""
    drawn, draw = Counter(), Session._draw

    def counted(self, pending):
        drawn[pending.release.name] += 1
        return draw(self, pending)

    monkeypatch.setattr(Session, "_draw", counted)
    return drawn


CASES = {
    "ratings": (ratings, BUDGET, {}),
    "clicks": (clicks, BUDGET, {}),
    "ratings, private list": (partial(ratings, items="private"), WITH_LIST, {}),
}


@pytest.mark.parametrize("stored", [True, False], ids=["after it is stored", "before it is stored"])
@pytest.mark.parametrize("number", [0, 4])
@pytest.mark.parametrize("case", CASES)
def test_a_fit_that_was_stopped_goes_on_to_the_same_model(case, number, stored, data, at, stop, monkeypatch):
    make, budget, settings = CASES[case]
    whole = fitted(make, data, at("whole"), budget, **settings)
    stop(number, stored=stored)
    interrupted = at()
    with pytest.raises(Killed):
        fitted(make, data, interrupted, budget, **settings)
    interrupted.close()
    monkeypatch.undo()
    assert at().n_stored == number + stored
    drawn = counting(monkeypatch)
    assert same(fitted(make, data, at(), budget, **settings), whole)
    assert sorted(drawn.values()) == [1] * (len(whole["statement"].releases) - number - stored)


def test_a_fit_goes_on_with_users_on_disk(data, at, stop, monkeypatch, tmp_path):
    folder = folder_of(data, tmp_path / "users")
    whole = fitted(ratings, folder, at("whole"), engine=None)
    stop(5, stored=True)
    interrupted = at()
    with pytest.raises(Killed):
        fitted(ratings, folder, interrupted, engine=None)
    interrupted.close()
    monkeypatch.undo()
    assert same(fitted(ratings, folder, at(), engine=None), whole)


def test_no_pass_is_made_for_what_is_stored(data, at, stop, monkeypatch):
    passes, add_up = [], LocalEngine.add_up
    monkeypatch.setattr(LocalEngine, "add_up", lambda self, *given: passes.append(1) or add_up(self, *given))
    fitted(ratings, data, at())
    in_all, passes[:] = len(passes), []
    fitted(ratings, data, at())
    assert (in_all > 5, passes) == (True, [])


# -- charges --


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as made:
        made.create_account("ratings", Budget(60.0, 1e-4))
        yield made


def charged(ledger):
    return Counter(entry.name for entry in ledger.account("ratings").history())


def fit_with_ledger(ledger, data, checkpoint):
    opened = ledger.account("ratings").session(BUDGET, noise=SeededNoise(7), checkpoint=checkpoint)
    statement = ratings().fit(data, session=opened).statement_
    checkpoint.close()
    return statement


@pytest.mark.parametrize(("stored", "again"), [(True, 0), (False, 1)])
def test_at_most_one_release_is_charged_a_second_time(stored, again, data, at, ledger, stop, monkeypatch):
    stop(3, stored=stored)
    interrupted = at()
    with pytest.raises(Killed):
        fit_with_ledger(ledger, data, interrupted)
    interrupted.close()
    monkeypatch.undo()
    statement = fit_with_ledger(ledger, data, at())
    counts = charged(ledger)
    assert sum(counts.values()) == len(statement.releases) + again
    assert set(counts) == {release.name for release in statement.releases}
    assert statement.ledger.entries == len(statement.releases)


def test_a_fit_that_is_stored_whole_is_charged_nothing(data, at, ledger):
    first = fit_with_ledger(ledger, data, at())
    before = charged(ledger)
    assert fit_with_ledger(ledger, data, at()).releases == first.releases
    assert charged(ledger) == before


@pytest.mark.parametrize("then", ["ratings", "others", None])
@pytest.mark.parametrize("first", ["ratings", None])
def test_a_checkpoint_goes_on_with_the_account_that_was_charged_alone(first, then, data, at, ledger):
    ledger.create_account("others", Budget(60.0, 1e-4))

    def fit(account):
        checkpoint = at()
        held = None if account is None else ledger.account(account)
        opened = Session(BUDGET, noise=SeededNoise(7), checkpoint=checkpoint, ledger=held)
        try:
            ratings().fit(data, session=opened)
        finally:
            checkpoint.close()

    fit(first)
    if first == then:
        fit(then)
    else:
        with pytest.raises(InputError, match="other settings"):
            fit(then)


def test_a_stored_release_without_a_charge_is_refused_where_a_ledger_is_charged(at, ledger):
    for account in (None, ledger.account("ratings")):
        checkpoint = at()
        checkpoint.bind("data", "settings")
        made = Session(BUDGET, noise=SeededNoise(7), checkpoint=checkpoint, ledger=account)
        share = made.plan(counts=1.0).one("counts")
        if account is None:
            made.release("counts", summed(), share)
        else:
            with pytest.raises(BudgetError, match="not charged"):
                made.release("counts", summed(), share)
        checkpoint.close()


@pytest.mark.usefixtures("quickly_planned")
@pytest.mark.parametrize(
    ("account", "probability", "said"), [("others", 0.5, "to account 'sampled'"), ("sampled", 0.25, "another plan")]
)
def test_a_plan_is_charged_once_to_one_account(account, probability, said, at, ledger):
    for name in ("sampled", "others"):
        ledger.create_account(name, Budget(60.0, 1e-4), kind="renyi")

    def plan(account, probability):
        checkpoint = at()
        checkpoint.bind("data", "settings")
        opened = Session(Budget(1.0, 1e-5), checkpoint=checkpoint, ledger=ledger.account(account))
        try:
            opened.plan_sampled(3, probability)
        finally:
            checkpoint.close()

    plan("sampled", 0.5)
    plan("sampled", 0.5)
    assert len(ledger.account("sampled").history()) == 1
    with pytest.raises(BudgetError, match=said):
        plan(account, probability)
    path = at().folder / "plan.json"
    path.write_text(path.read_text().replace('"number": 1', '"number": 2'))
    with pytest.raises(InputError, match="not what was stored"):
        plan("sampled", 0.5)


@pytest.fixture
def quickly_planned(monkeypatch):
    """Plans whose noise is not calibrated, which takes long and does not matter here."""
    monkeypatch.setattr("apportion.privacy.session.noise_beside", lambda *_: 5.0)


def small_plan(checkpoint):
    made = session(checkpoint, Budget(1.0, 1e-5))
    checkpoint.bind("data", "settings")
    _, share = made.plan_sampled(3, 0.5)
    return made, share


def summed(sample=None):
    users = random_interactions(1).as_users
    return LocalEngine(exact=True).add_up(users, [TaskCounts(SplitEqually())])[0]


@pytest.mark.usefixtures("quickly_planned")
def test_a_planned_release_that_may_have_been_drawn_is_not_drawn_again(at):
    first = at()
    made, share = small_plan(first)
    one = made.release_sampled("one", summed, share)
    first.begin(1)  # and then the program is killed
    first.close()
    made, share = small_plan(at())
    assert np.array_equal(made.release_sampled("one", summed, share), one)
    with pytest.raises(BudgetError, match="charged only once"):
        made.release_sampled("two", summed, share)


@pytest.mark.usefixtures("quickly_planned")
def test_a_gaussian_release_of_a_plan_is_not_drawn_again_either(at):
    def planned(checkpoint):
        checkpoint.bind("data", "settings")
        made = session(checkpoint, Budget(1.0, 1e-5))
        return made, made.plan_sampled(3, 0.5, counts=0.5)[0].one("counts")

    first = at()
    planned(first)
    first.begin(0)  # and then the program is killed
    first.close()
    made, share = planned(at())
    with pytest.raises(BudgetError, match="charged only once"):
        made.release("counts", summed(), share)


def test_threads_of_one_session_have_a_place_each(at, monkeypatch):
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made, draw = session(checkpoint), Session._draw
    monkeypatch.setattr(Session, "_draw", lambda self, pending: time.sleep(0.02) or draw(self, pending))
    shares = made.plan(counts=[0.25] * 4).several("counts")
    asked = [(f"counts {k}", summed(), share) for k, share in enumerate(shares)]
    threads = [threading.Thread(target=made.release, args=each) for each in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    releases = made.statement().releases
    assert checkpoint.n_stored == len(releases) == 4
    assert all(checkpoint.find(k, record, planned=False) for k, record in enumerate(releases))


# -- what is stored --


def test_a_value_that_cannot_be_stored_reaches_nobody(at, monkeypatch):
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made = session(checkpoint)

    def full(*given):
        raise OSError("no space left")

    monkeypatch.setattr("apportion.privacy.checkpoints.replace_file", full)
    with pytest.raises(OSError, match="no space"):
        made.release("counts", summed(), made.plan(counts=1.0).one("counts"))
    assert made.spent == pytest.approx(1.0)  # it was charged


def test_a_release_is_on_disk_before_it_is_seen(at, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *given: steps.append("fsync") or fsync(*given))
    monkeypatch.setattr(os, "replace", lambda *given: steps.append("replace") or replace(*given))
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made = session(checkpoint)
    steps.clear()
    made.release("counts", summed(), made.plan(counts=1.0).one("counts"))
    assert steps == ["fsync", "replace", "fsync"] * 2  # that it is begun, and the value: the file, its name, the folder


@pytest.mark.usefixtures("quickly_planned")
def test_no_key_of_noise_and_no_secret_of_a_sample_is_stored(at, monkeypatch):
    keys, urandom = [], os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: keys.append(urandom(size)) or keys[-1])
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made = session(checkpoint, Budget(1.0, 1e-5), SystemNoise())
    _, share = made.plan_sampled(1, 0.5)
    made.release_sampled("one", summed, share)
    stored = b"".join(path.read_bytes() for path in checkpoint.folder.iterdir())
    assert len(keys) >= 2
    assert not any(each in stored or each.hex().encode() in stored for each in keys)


def test_the_digest_of_the_data_is_not_stored(data, at):
    fitted(ratings, data, at())
    stored = b"".join(path.read_bytes() for path in at().folder.iterdir())
    assert data.digest.encode() not in stored
    assert bytes.fromhex(data.digest) not in stored


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        3,
        [0.25, 0.5],
        Listed(("a", "ö"), np.array([3.5, 4.0]), np.array([True, False]), 3.25, 0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_released_values_come_back_as_they_were(value, at):
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made = session(checkpoint)
    made.release("counts", summed(), made.plan(counts=1.0).one("counts"))
    (record,) = made.statement().releases
    checkpoint.store(5, record, value, None)
    back = checkpoint.find(5, record, planned=False)
    assert isinstance(back, Kept)
    assert type(back.value) is type(value)
    pairs = zip(vars(value).values(), vars(back.value).values(), strict=True) if isinstance(value, Listed) else ()
    assert all(np.array_equal(one, two) for one, two in pairs)
    assert isinstance(value, Listed) or np.array_equal(back.value, value)


# -- what is refused --


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": random_interactions(6, n_users=40)}, "other data"),
        ({"rounds": 2}, "other settings"),
        ({"random_state": 1}, "other settings"),
        ({"engine": LocalEngine(np.float32)}, "other settings"),
    ],
    ids=["data", "rounds", "seed", "precision"],
)
def test_other_data_or_settings_are_refused(change, said, data, at):
    fitted(ratings, data, at())
    other = at()
    with pytest.raises(InputError, match=said):
        fitted(ratings, **{"data": data, "checkpoint": other, **change})
    other.close()


def test_another_key_is_refused(data, at, tmp_path):
    fitted(ratings, data, at())
    (tmp_path / "other").mkdir()
    other = LedgerKey.create(tmp_path / "other" / "key").place
    with pytest.raises(InputError, match="another key"):
        fitted(ratings, data, Checkpoint(tmp_path / "fit", key=other))


def test_a_stored_release_that_was_changed_is_refused(data, at):
    fitted(ratings, data, at())
    path = at().folder / "000002.release"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="not what was stored"):
        fitted(ratings, data, at())


def test_two_processes_cannot_go_on_with_one_fit(at):
    first = at()
    first.bind("data", "settings")
    with pytest.raises(InputError, match="Another process"):
        at().bind("data", "settings")


def test_the_newer_session_of_one_checkpoint_goes_on_alone(at):
    checkpoint = at()
    older, newer = session(checkpoint), session(checkpoint)
    checkpoint.bind("data", "settings")
    shares = older.plan(counts=[0.5, 0.5]).several("counts")
    older.release("one", summed(), shares[0])
    checkpoint.bind("data", "settings")
    newer.release("one", summed(), shares[0])
    with pytest.raises(InputError, match="Another session"):
        older.release("two", summed(), shares[1])
    with pytest.raises(InputError, match="Another session"):
        session(checkpoint).release("one", summed(), shares[0])
    newer.release("two", summed(), shares[1])


def test_a_child_process_cannot_go_on_with_the_fit(at, monkeypatch):
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made = session(checkpoint)
    shares = made.plan(counts=[0.5, 0.5]).several("counts")
    made.release("one", summed(), shares[0])
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(InputError, match="process"):
        made.release("two", summed(), shares[1])
    assert made.spent == pytest.approx(0.5)


def test_a_stored_release_in_the_place_of_another_or_of_other_data_is_refused(at):
    checkpoint = at()
    checkpoint.bind("data", "settings")
    made = session(checkpoint)
    made.release("counts", summed(), made.plan(counts=1.0).one("counts"))
    (record,) = made.statement().releases
    stored = (checkpoint.folder / "000000.release").read_bytes()
    other = at("other")
    other.bind("other data", "settings")
    for place, number in ((checkpoint, 1), (other, 0)):
        (place.folder / f"{number:06d}.release").write_bytes(stored)
        with pytest.raises(InputError, match="not what was stored"):
            place.find(number, record, planned=False)


def test_a_checkpoint_beside_its_key_is_refused(tmp_path, key):
    with pytest.raises(InputError, match="another folder"):
        Checkpoint(tmp_path / "elsewhere", key=key)


def test_an_estimator_that_cannot_be_resumed_says_so(at):
    made = session(at())
    with pytest.raises(InputError, match="cannot be resumed"):
        made.release("counts", summed(), made.plan(counts=1.0).one("counts"))


def test_settings_in_words_tell_settings_apart():
    one, two = (np.zeros(3), {"a": [1, None]}), (np.zeros(3), {"a": [1, 0]})
    assert in_words(one) == in_words((np.zeros(3), {"a": [1, None]}))
    assert in_words(one) != in_words(two)
    assert in_words(np.zeros(3)) != in_words(np.zeros((3, 1)))

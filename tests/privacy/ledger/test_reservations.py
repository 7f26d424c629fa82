"""Reservations: a run is refused when it begins or not at all, and nothing that was charged is ever taken back."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest

from apportion.errors import BudgetError, InputError
from apportion.privacy import BoundedSum, Budget, Checkpoint, Ledger, LedgerError, Rows, SeededNoise
from apportion.privacy.ledger import (
    GaussianRelease,
    GivenBack,
    LedgerKey,
    PureRelease,
    Reserved,
    SampledRun,
    chain,
    reservations,
)
from apportion.privacy.ledger.events import ListedRelease, from_json, to_json

BUDGET = Budget(2.0, 1e-6)
FORK = multiprocessing.get_context("fork")

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def a_sum(size=3):
    return BoundedSum.user_total(np.zeros(size), Rows.clipped(np.zeros((1, size)), 1.0))


def half():
    """The budget of which an account of BUDGET bears two."""
    mu = BUDGET.mu * 0.5**0.5
    from apportion.privacy.gaussian import epsilon_of

    made = Budget(epsilon_of(mu, 1e-6) * (1 - 1e-9), 1e-6)
    assert made.mu <= mu
    return made


@pytest.fixture
def account(ledger):
    return ledger.create_account("visits", BUDGET)


def spend(session, parts=3):
    for k, share in enumerate(session.plan(all=[1 / parts] * parts).several("all")):
        session.release(f"release {k}", a_sum(), share)


# -- what is set aside --


def test_a_second_run_is_refused_when_it_begins_and_the_first_can_spend_all(ledger, account):
    with account.reserve(BUDGET) as mine:
        for other in (ledger.account("visits"), account):
            with pytest.raises(BudgetError, match=r"does not fit in account 'visits': .* by entry 1; .* give-back"):
                other.reserve(half())
            with pytest.raises(BudgetError, match="does not fit"):
                other.session(half())
            with pytest.raises(BudgetError, match=r"set aside for runs that have not ended: epsilon 2 by entry 1"):
                other.charge("more", GaussianRelease(0.01))
        spend(mine.session(noise=SeededNoise(0)))
    status = account.verify()
    assert status.spent_epsilon == pytest.approx(2.0)
    assert status.reserved == ()
    assert [entry.against for entry in account.history()] == [None, 1, 1, 1, None]


def test_what_a_run_did_not_use_is_given_back_and_what_it_charged_stays_spent(ledger, account):
    with account.reserve(BUDGET) as mine:
        mine.charge("a part", GaussianRelease(0.25))
        (held,) = account.status().reserved
        assert held.number == 1
        assert Fraction(held.left[0]) == Fraction(BUDGET.mu) ** 2 - Fraction(1, 16)
        assert account.status().left_mu == 0
    status = account.status()
    assert status.spent == ("1/16",)
    assert status.left_mu**2 == pytest.approx(BUDGET.mu**2 - 1 / 16)
    with ledger.account("visits").reserve(half()) as other:
        spend(other.session(noise=SeededNoise(0)))


def test_it_is_given_back_after_an_error_too(account):
    with pytest.raises(ZeroDivisionError), account.reserve(BUDGET):
        raise ZeroDivisionError
    assert account.status().left_mu == pytest.approx(BUDGET.mu)
    assert [entry.event for entry in account.history()][-1] == GivenBack(1)


def test_two_runs_that_fit_together_do_not_disturb_each_other(ledger, account):
    with account.reserve(half()) as one, ledger.account("visits").reserve(half()) as two:
        sessions = [one.session(noise=SeededNoise(0)), two.session(noise=SeededNoise(1))]
        shares = [each.plan(all=[1 / 4] * 4).several("all") for each in sessions]
        for k in range(4):
            for session, share in zip(sessions, shares, strict=True):
                session.release(f"release {k}", a_sum(), share[k])
    assert account.verify().spent_epsilon <= 2.0


def test_beyond_what_is_set_aside_a_run_is_charged_what_is_free_and_no_more(ledger, account):
    with account.reserve(half()) as one, ledger.account("visits").reserve(Budget(0.1, 1e-6)):
        one.charge("all of it", GaussianRelease(half().mu))
        one.charge("and more", GaussianRelease(0.05))
        with pytest.raises(BudgetError, match="by entry 2"):
            one.charge("what the other has", GaussianRelease(account.status().left_mu * 1.0001))
    account.verify()


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_whose_reservation_was_given_back_under_it_goes_on_with_what_is_free(ledger, account, times):
    mine = account.reserve(half())
    mine.charge("one", GaussianRelease(0.01))
    assert ledger.account("visits").give_back(1) == (Fraction(0.01) ** 2,)
    with pytest.raises(LedgerError, match="no open reservation with number 1"):
        ledger.account("visits").give_back(1)
    for _ in range(times):
        mine.charge("two", GaussianRelease(0.01))
    assert account.history()[-1].against is None
    with ledger.account("visits").reserve(), pytest.raises(BudgetError, match="more than account 'visits' has left"):
        mine.charge("three", GaussianRelease(0.01))
    assert mine.end(finished=True)
    account.verify()


def test_a_fraction_of_what_is_left_is_of_what_is_neither_spent_nor_set_aside(account):
    with account.reserve(0.5) as one, account.reserve(0.5) as two, account.reserve(1.0) as three:
        spent = sum(Fraction(each.budget.mu) ** 2 for each in (one, two, three))
        assert float(spent) == pytest.approx(BUDGET.mu**2)
        assert spent <= Fraction(BUDGET.mu) ** 2
        with pytest.raises(BudgetError, match="Too little is left"):
            account.reserve(0.5)


def test_every_kind_of_account_sets_aside_what_its_sessions_add_up(ledger):
    pure = ledger.create_account("pure", Budget(1.0, 0.0))
    with pure.reserve(Budget(0.75, 0.0)) as mine:
        mine.charge("x", PureRelease(0.5))
        with pytest.raises(BudgetError, match=r"epsilon 0\.25 of 1 is left; set aside .* epsilon 0\.25 by entry 1"):
            pure.reserve(Budget(0.5, 0.0))
    gaussian = ledger.create_account("gaussian", BUDGET)
    with gaussian.reserve(Budget(0.25, 0.0)) as mine:
        for _ in range(8):
            mine.charge("x", PureRelease(0.25 / 8))
        assert Fraction(gaussian.status().reserved[0].left[0]) > 0
    listed = ledger.create_account("listed", Budget(1.0, 1e-6, 5e-7))
    with listed.reserve() as mine:
        mine.charge("keys", ListedRelease(GaussianRelease(0.1), 2e-7))
        assert Fraction(listed.status().reserved[0].left[-1]) == Fraction(mine.budget.keys_delta) - Fraction(2e-7)
        with pytest.raises(BudgetError, match="set aside"):
            ledger.account("listed").charge("keys", ListedRelease(GaussianRelease(0.01), 4e-7))


def test_on_a_renyi_account_nothing_is_set_aside_and_runs_on_samples_are_charged_whole(ledger):
    account = ledger.create_account("sampled", BUDGET, kind="renyi")
    with account.reserve(Budget(1.0, 1e-6)) as mine:
        assert mine.number is None
        mine.charge("a run", SampledRun((), 20.0, 0.01, 10))
    assert [entry.event for entry in account.history()] == [SampledRun((), 20.0, 0.01, 10)]


def test_a_failure_to_give_back_is_a_warning_and_not_the_end_of_a_fit_that_was_paid_for(account, monkeypatch):
    def unreachable(*_, **__):
        raise LedgerError("The ledger cannot be reached.")

    mine = account.reserve()
    mine.charge("x", GaussianRelease(0.01))
    monkeypatch.setattr(account, "give_back", unreachable)
    with pytest.warns(reservations.ReservationWarning, match="was not given back: The ledger cannot"), mine:
        pass
    assert len(account.status().reserved) == 1


def test_a_reservation_that_another_handle_gives_back_at_the_same_moment_ends_without_a_warning(
    ledger, account, monkeypatch
):
    mine, written = account.reserve(), account._written

    def somebody_is_first(*arguments):
        monkeypatch.setattr(account, "_written", written)
        ledger.account("visits").give_back(1)
        return written(*arguments)

    monkeypatch.setattr(account, "_written", somebody_is_first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine.end(finished=True)
    assert not account.status().reserved
    monkeypatch.setattr(account, "_written", somebody_is_first)
    with pytest.raises(LedgerError, match="no open reservation with number 1"):
        account.give_back(1)


def test_a_session_that_divides_delta_otherwise_than_its_account_is_told_so(ledger):
    account = ledger.create_account("listed", Budget(1.0, 1e-6, 1e-7))
    for reserve in (account.reserve, account.session):
        with pytest.raises(BudgetError, match=r"keeps 1e-07 of delta for lists .*1e-07 is left., the session 2\.5e-07"):
            reserve(Budget(1.0, 1e-6, 2.5e-7))


# -- entries, formats, forgeries --


def test_notes_are_entries_that_cost_nothing(account):
    with account.reserve(half()) as mine:
        mine.charge("x", GaussianRelease(0.01))
    exported = account.export()["entries"]
    assert [entry["event"]["kind"] for entry in exported] == ["reserved", "gaussian", "given back"]
    assert [entry["cost"] for entry in exported] == [["0"], [str(Fraction(0.01) ** 2)], ["0"]]
    assert [entry["dp_event"]["class_name"] for entry in exported] == ["NoOpDpEvent", "GaussianDpEvent", "NoOpDpEvent"]
    assert account.export()["account"]["reserved"] == ()
    for event in (Reserved((Fraction(1, 3), Fraction(0)), 0.5), GivenBack(7)):
        assert from_json(json.loads(json.dumps(to_json(event)))) == event
    for wrong in ((), (Fraction(0),), (Fraction(1), Fraction(-1, 9))):
        with pytest.raises(InputError, match="at least 0"):
            Reserved(wrong, 1.0)


def test_a_ledger_has_its_old_format_and_entries_until_something_is_set_aside(ledger, account):
    account.charge("x", GaussianRelease(0.01))
    assert ledger._store.format() == chain.FORMAT == 2
    assert not any("against" in row.body for row in ledger._store.rows("visits"))
    with account.reserve(half()):
        assert ledger._store.format() == chain.WITH_RESERVATIONS == 3
    with pytest.raises(LedgerError, match="install a newer apportion"):  # what a program of before says
        chain.require_ledger_format("The ledger", ledger._store.format())


def test_a_ledger_with_reservations_keeps_its_format_when_it_is_prepared_again(url):
    with Ledger.open(url) as ledger:
        with ledger.create_account("visits", BUDGET).reserve():
            pass
        ledger._store.prepare()
        assert ledger._store.format() == chain.WITH_RESERVATIONS


def forge(sql, account, number, **fields):
    """Rewrite an entry with the hash that fits, as somebody would who knows the format."""
    (body,) = [row.body for row in account._store.rows("visits") if row.number == number]
    text = json.dumps(json.loads(body) | fields, sort_keys=True, separators=(",", ":"))
    hashed = hashlib.sha256(text.encode()).hexdigest()
    sql("UPDATE apportion_entries SET body = ?, hash = ? WHERE number = ?", text, hashed, number)


ALL_OF_IT = {"kind": "reserved", "amounts": ["1/1000000"], "epsilon": 1.0}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"against": 2}, "does not fit the reservations before it"),
        ({"against": 9}, "does not fit the reservations before it"),
        ({"event": {"kind": "given back", "reservation": 1}, "cost": ["0"], "against": 1}, "does not fit"),
        ({"event": {"kind": "given back", "reservation": 2}, "cost": ["0"]}, "does not fit"),
        ({"event": {"kind": "given back", "reservation": 1}}, "cost that does not match"),
        ({"event": ALL_OF_IT}, "cost that does not match"),
        ({"event": ALL_OF_IT | {"amounts": ["1", "1"]}, "cost": ["0"]}, "does not fit"),
        ({"event": ALL_OF_IT | {"amounts": ["1"]}, "cost": ["0"], "spent": [str(Fraction(1, 128**2))]}, "beyond"),
        ({"event": ALL_OF_IT | {"amounts": ["-1"]}, "cost": ["0"]}, "cannot be read"),
        ({"event": ALL_OF_IT | {"amounts": []}, "cost": ["0"]}, "cannot be read"),
        ({"event": ALL_OF_IT | {"more": 1}, "cost": ["0"]}, "cannot be read"),
    ],
)
def test_a_forged_note_or_a_charge_against_what_is_not_open_is_refused(url, unguarded, fields, said):
    with Ledger.open(url) as ledger:
        account = ledger.create_account("visits", BUDGET)
        account.reserve(half()).charge("x", GaussianRelease(1 / 128))
        account.charge("x", GaussianRelease(1 / 128))
        forge(unguarded, account, 3, **fields)
    with Ledger.open(url) as ledger, pytest.raises(LedgerError, match=f"Entry 3 of account 'visits' .*{said}"):
        ledger.account("visits").verify()


def test_a_reservation_is_under_key_and_head_like_any_entry(url, unguarded, tmp_path):
    where = {"key": LedgerKey.create(tmp_path / "key").place, "head": tmp_path / "head"}
    with Ledger.open(url, **where) as ledger:
        account = ledger.create_account("visits", BUDGET)
        mine = account.reserve(half())
        mine.charge("x", GaussianRelease(0.01))
    with Ledger.open(url) as ledger, pytest.raises(LedgerError, match="was opened with key"):
        ledger.account("visits").reserve(half())
    unguarded("DELETE FROM apportion_entries WHERE number > 0")
    with Ledger.open(url, **where) as ledger:
        for use in (Ledger.account(ledger, "visits").reserve, lambda: ledger.account("visits").give_back(1)):
            with pytest.raises(LedgerError, match="cut off or rolled back"):
                use()


# -- processes --


def reserve_and_spend(url, told, at):
    time.sleep(max(0.0, at - time.time()))
    with Ledger.open(url, create=False) as ledger:
        account = ledger.account("visits")
        try:
            reserved = account.reserve(Budget(0.25, 0.0))
        except BudgetError:
            told.put("refused at once")
            return
        try:
            for _ in range(8):
                reserved.charge("x", PureRelease(2.0**-5))
        except BudgetError:
            told.put("refused half-way")
            return
        told.put("spent all")
        time.sleep(2)  # so that nothing is given back before all have asked


def test_of_processes_that_begin_at_once_as_many_as_fit_spend_all_and_the_others_are_refused_at_once(url):
    with Ledger.open(url) as ledger:
        ledger.create_account("visits", Budget(1.0, 0.0))
    told = FORK.Queue()
    at = time.time() + 0.1
    processes = [FORK.Process(target=reserve_and_spend, args=(url, told, at)) for _ in range(7)]
    for process in processes:
        process.start()
    answers = sorted(told.get(timeout=90) for _ in processes)
    for process in processes:
        process.join()
    assert answers == ["refused at once"] * 3 + ["spent all"] * 4
    with Ledger.open(url, create=False) as ledger:
        assert ledger.account("visits").verify().spent == ("1",)


def run_for_ever(url, log, seed):
    """Runs that reserve, charge and give back; a line for every charge that was acknowledged."""
    rng, out = random.Random(seed), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with Ledger.open(url, create=False) as ledger:
        while True:
            account = ledger.account("visits")
            try:
                with account.reserve(Budget(rng.uniform(0.001, 0.02), 0.0)) as mine:
                    for _ in range(rng.randrange(4)):
                        receipt = mine.charge("x", PureRelease(mine.budget.epsilon / 4))
                        os.write(out, f"{receipt.number} {receipt.hash} {mine.number}\n".encode())
            except BudgetError as error:
                if "does not fit in account" not in str(error):
                    os.write(out, b"half-way\n")


def test_a_kill_at_any_point_leaves_every_charge_and_at_most_one_reservation_to_be_given_back(url, tmp_path):
    rng, n_kills = random.Random(0), 40
    with Ledger.open(url) as ledger:
        ledger.create_account("visits", Budget(2.0, 0.0))
    for turn in range(n_kills):
        process = FORK.Process(target=run_for_ever, args=(url, tmp_path / f"{turn % 2}.log", turn))
        process.start()
        time.sleep(0.05 + rng.expovariate(20))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    said = [line for log in tmp_path.glob("*.log") for line in log.read_text().splitlines()]
    assert "half-way" not in said
    with Ledger.open(url, create=False) as ledger:
        account = ledger.account("visits")
        entries = {entry.number: entry for entry in account.history()}
        status = account.verify()
        acknowledged = [line.split() for line in said]
        assert len(acknowledged) > n_kills / 2
        for number, hashed, against in acknowledged:
            assert (entries[int(number)].hash, entries[int(number)].against) == (hashed, int(against))
        charged = [entry.cost[0] for entry in entries.values() if isinstance(entry.event, PureRelease)]
        assert sum(charged) == Fraction(status.spent[0]) <= 2
        assert len(acknowledged) <= len(charged) <= len(acknowledged) + n_kills
        assert 0 < len(status.reserved) <= n_kills
        for each in status.reserved:
            account.give_back(each.number)
        after = account.verify()
        assert after.spent == status.spent
        assert after.left_epsilon == pytest.approx(2 - after.spent_epsilon)


def test_the_end_of_a_forked_copy_gives_nothing_back(account):
    with account.reserve(half()) as mine:
        child = os.fork()
        if child == 0:
            os._exit(7 if not mine.end(finished=True) else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert [each.number for each in account.status().reserved] == [1]
    assert account.status().reserved == ()


# -- fits that go on --


@pytest.fixture
def at(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    key = LedgerKey.create(tmp_path / "elsewhere" / "key").place
    return lambda: Checkpoint(tmp_path / "fit", key=key)


def fit(account, checkpoint, stop_after=None, parts=4):
    """Releases of equal shares; stops after some of them."""
    with account.reserve(BUDGET, checkpoint=checkpoint) as mine:
        checkpoint.bind("data", "settings")
        try:
            session = mine.session(noise=SeededNoise(0))
            for k, share in enumerate(session.plan(all=[1 / parts] * parts).several("all")):
                if k == stop_after:
                    raise KeyboardInterrupt
                session.release(f"release {k}", a_sum(), share)
        finally:
            checkpoint.close()
    return mine


def test_a_fit_that_stopped_half_way_keeps_its_reservation_and_goes_on_with_it(ledger, account, at):
    with pytest.raises(KeyboardInterrupt):
        fit(account, at(), stop_after=2)
    with pytest.raises(BudgetError, match="does not fit"):
        ledger.account("visits").reserve(half())
    assert fit(ledger.account("visits"), at()).number == 1
    assert [entry.against for entry in account.history()] == [None, 1, 1, 1, 1, None]
    assert account.status().reserved == ()


def test_a_fit_that_stopped_before_its_first_release_gives_all_back(account, at):
    with pytest.raises(KeyboardInterrupt):
        fit(account, at(), stop_after=0)
    assert account.status().reserved == ()
    fit(account, at())


def test_a_fit_that_was_killed_before_its_first_release_goes_on_with_its_reservation(ledger, account, at):
    account.reserve(BUDGET, checkpoint=at())  # and no more
    assert fit(ledger.account("visits"), at()).number == 1


def test_a_fit_whose_reservation_was_given_back_sets_aside_what_it_still_needs(ledger, account, at):
    for stop, number in ((2, 1), (3, 5)):
        with pytest.raises(KeyboardInterrupt):
            fit(account, at(), stop_after=stop)
        account.give_back(number)
    needed = Fraction(BUDGET.mu) ** 2 - Fraction(account.status().spent[0])
    fit(ledger.account("visits"), at())
    made = [entry for entry in account.history() if isinstance(entry.event, Reserved)]
    assert made[-1].event.amounts == (needed,)
    assert account.verify().spent_epsilon <= 2.0


def test_a_fit_that_is_stored_whole_sets_nothing_aside_and_needs_nothing(ledger, account, at):
    fit(account, at())
    entries = account.status().entries
    rest = account.status().left_mu
    ledger.account("visits").charge("all that is left", GaussianRelease(rest))
    assert fit(ledger.account("visits"), at()).finished
    assert account.status().entries == entries + 1


def test_a_fit_that_was_started_anew_in_the_same_folder_sets_its_budget_aside(ledger, account, at):
    with account.reserve(half(), checkpoint=at()):
        pass  # it ends well, and nothing is stored
    with ledger.account("visits").reserve(half(), checkpoint=at()) as again:
        assert not again.finished
        assert again.number == 3


def test_a_fit_whose_rest_was_taken_by_others_is_refused_before_it_goes_on(ledger, account, at):
    with pytest.raises(KeyboardInterrupt):
        fit(account, at(), stop_after=2)
    account.give_back(1)
    with ledger.account("visits").reserve(), pytest.raises(BudgetError, match="does not fit"):
        fit(ledger.account("visits"), at())
    fit(ledger.account("visits"), at())

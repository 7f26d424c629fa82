"""`ledger` opens, shows, exports and checks accounts; commands that fit charge them first."""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
from fractions import Fraction

import pytest

from apportion.privacy import Budget, Checkpoint, Ledger
from apportion.privacy.gaussian import epsilon_of
from apportion.privacy.ledger import GaussianRelease
from apportion.privacy.statement import rounded_up

LEDGER = "visits.db"
COSTS = ("--user", "patient", "--value", "cost", "--range", 0, 5, "--epsilon", 1, "--delta", "1e-6")
CHARGED = ("--ledger", LEDGER, "--account", "visits")


@pytest.fixture
def opened(run):
    """A ledger with one account of epsilon 2 at delta 1e-6."""
    options = ("--epsilon", 2, "--delta", "1e-6", "--window", "2025", "--owner", "data office")
    run("ledger", "init", LEDGER, "--account", "visits", *options)


@pytest.fixture
def visits(write):
    lines = [(user, value, value > 3) for user in range(40) for value in range(user % 5 + 1)]
    return write("visits.csv", "patient,cost,late", [(user, cost, int(late)) for user, cost, late in lines])


def charge(*mus):
    with Ledger.open(LEDGER, create=False) as ledger:
        account = ledger.account("visits", run="by hand")
        for k, mu in enumerate(mus):
            account.charge(f"release {k + 1}", GaussianRelease(mu))
        return account.status()


def tamper(statement):
    connection = sqlite3.connect(LEDGER)
    with connection:
        for action in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER apportion_entries_{action}")
        connection.execute(statement)
    connection.close()


def test_init_opens_an_account_and_says_where_it_stands(run, folder):
    options = ("--account", "labels", "--epsilon", 1, "--delta", 0, "--neighbours", "replace-labels", "--json")
    (answer,) = run("ledger", "init", LEDGER, *options).json
    assert (answer["kind"], answer["epsilon"], answer["delta"], answer["entries"]) == ("pure", 1.0, 0.0, 0)
    assert "replace the labels" in answer["neighbours"]
    printed = run("ledger", "init", "sqlite:///other.db", "--account", "a", "--epsilon", 1, "--delta", "1e-6").stdout
    assert "Left:  epsilon 1 at delta 1e-06 (mu 0.2367)" in printed
    assert (folder / "other.db").exists()


def test_status_shows_what_was_spent_and_left_and_the_head(run, opened):
    status = charge(0.1, 0.2)
    (answer,) = run("ledger", "status", LEDGER, "--json").json
    assert answer["head"] == status.head
    assert answer["spent_mu"] == pytest.approx(0.05**0.5)
    assert answer["spent_mu"] ** 2 + answer["left_mu"] ** 2 == pytest.approx(Budget(2.0, 1e-6).mu ** 2)
    printed = run("ledger", "status", LEDGER, "--account", "visits").stdout
    cost = rounded_up(epsilon_of(0.05**0.5, 1e-6))
    assert f"Spent: epsilon {cost:g} at delta 1e-06 (mu 0.2237), in 2 entries." in printed
    assert f"Head: {status.head}" in printed
    assert "Time window: 2025. Owner: data office." in printed


def test_history_lists_every_charge(run, opened):
    assert "Nothing has been charged" in run("ledger", "history", LEDGER).stdout
    charge(0.1, 0.2)
    lines = run("ledger", "history", LEDGER).stdout.splitlines()
    assert len(lines) == 4
    assert lines[3].split()[0] == "2"
    assert "release 2" in lines[3]
    assert "mu 0.2" in lines[3]
    entries = run("ledger", "history", LEDGER, "--json").json
    assert [entry["event"] for entry in entries] == [{"kind": "gaussian", "mu": 0.1}, {"kind": "gaussian", "mu": 0.2}]


def test_export_writes_events_in_the_words_of_dp_accounting(run, opened, folder):
    head = charge(0.5 * Budget(2.0, 1e-6).mu).head
    printed = json.loads(run("ledger", "export", LEDGER).stdout)
    assert printed["entries"][0]["dp_event"]["class_name"] == "GaussianDpEvent"
    assert printed["head"] == head
    assert head in run("ledger", "export", LEDGER, "--out", "kept.json").stdout
    assert json.loads((folder / "kept.json").read_text(encoding="utf-8")) == printed


def test_verify_names_the_first_bad_entry_and_ends_with_one(run, opened):
    head = charge(0.1, 0.1, 0.1).head
    assert f"visits: all 3 entries are intact; head {head}" in run("ledger", "verify", LEDGER).stdout
    assert run("ledger", "verify", LEDGER, "--account", "visits", "--kept", head, "--json").json[0]["holds"]
    tamper("UPDATE apportion_entries SET body = REPLACE(body, 'release 2', 'release 9') WHERE number = 2")
    result = run("ledger", "verify", LEDGER, code=1)
    assert result.stderr == "visits: Entry 2 of account 'visits' was altered: its hash does not match.\n"
    answer = json.loads(run("ledger", "verify", LEDGER, "--json", code=1).stdout)
    assert answer == [{"account": "visits", "holds": False, "why": answer[0]["why"]}]


def test_verify_sees_a_cut_tail_against_a_head_that_was_kept(run, opened):
    head = charge(0.1, 0.1).head
    tamper("DELETE FROM apportion_entries WHERE number = 2")
    run("ledger", "verify", LEDGER)
    refused = run("ledger", "verify", LEDGER, "--account", "visits", "--kept", head, code=1)
    assert "removed from the end" in refused.stderr


def test_fit_charges_every_release_first_and_is_refused_when_the_account_is_spent(run, opened, ratings, folder):
    options = ("--dimension", 2, "--rounds", 2, "--out", "model", *CHARGED)
    statement = run("fit", ratings, "--epsilon", 1.5, *options, "--json").json["statement"]
    (status,) = run("ledger", "status", LEDGER, "--json").json
    entries = run("ledger", "history", LEDGER, "--json").json
    assert statement["ledger"]["head"] == entries[-2]["hash"]  # the last entry gives back what was set aside
    assert statement["ledger"]["entries"] == status["entries"] - 2 == len(statement["releases"])
    assert statement["window"] == "2025"
    assert status["spent_epsilon"] == pytest.approx(1.5)
    refused = run("fit", ratings, "--epsilon", 1.5, *options, "--out", "second", code=3)
    assert "does not fit in account 'visits'" in refused.stderr
    assert "is left" in refused.stderr
    assert not (folder / "second").exists()
    run("fit", ratings, "--epsilon", 1, *options)  # but a smaller one does
    assert run("ledger", "verify", LEDGER, "--json").json[0]["entries"] == 2 * status["entries"]


ALL = Budget(2.0, 1e-6)


def set_aside(part=ALL):
    """As a fit does that is still at work, or died."""
    with Ledger.open(LEDGER, create=False) as ledger:
        reserved = ledger.account("visits").reserve(part)
        reserved.charge("release", GaussianRelease(0.1))


def test_a_fit_beside_another_is_refused_before_anything_is_read_or_charged(run, opened, visits, folder):
    set_aside()
    for command in (("fit", visits, "--epsilon", 1), ("mean", visits, *COSTS)):
        refused = run(*command, *CHARGED, code=3)
        assert "does not fit in account 'visits'" in refused.stderr
        assert "set aside for runs that have not ended: epsilon 1.9" in refused.stderr
    assert not list(folder.glob("*model*"))
    status = run("ledger", "status", LEDGER).stdout
    assert "Spent: epsilon 0.3969 at delta 1e-06 (mu 0.1), in 2 entries." in status
    assert "Set aside: epsilon 1.9" in status
    assert "by entry 1 of run" in status
    assert "Left:  epsilon 0 at delta 1e-06 (mu 0)" in status


def test_what_a_dead_run_set_aside_is_given_back_by_hand_and_its_charges_stay(run, opened, visits):
    set_aside()
    said = run("ledger", "give-back", LEDGER, "--reservation", 1).stdout
    assert "Reservation 1 is closed. Charged against it, and spent: epsilon 0.3969." in said
    assert "Set aside" not in said
    assert "no open reservation with number 1" in run("ledger", "give-back", LEDGER, "--reservation", 1, code=2).stderr
    run("mean", visits, *COSTS, *CHARGED)
    set_aside(0.25)
    ((held,),) = [each["reserved"] for each in run("ledger", "status", LEDGER, "--json").json]
    answer = run("ledger", "give-back", LEDGER, "--reservation", held["number"], "--json").json
    assert answer["charged"] == [str(Fraction(0.1) ** 2)]
    assert answer["account"]["reserved"] == []
    assert "given back" in run("ledger", "history", LEDGER).stdout
    tamper("UPDATE apportion_entries SET body = REPLACE(body, '0.1', '0.2') WHERE number = 2")
    assert "Entry 2" in run("ledger", "give-back", LEDGER, "--reservation", 1, code=2).stderr


def test_a_command_that_fails_gives_back_all_that_it_set_aside(run, opened, visits):
    run("mean", visits, "--user", "nobody", *COSTS[2:], *CHARGED, code=2)
    (status,) = run("ledger", "status", LEDGER, "--json").json
    assert (status["entries"], status["reserved"], status["left_epsilon"]) == (2, [], 2.0)


def test_a_command_that_is_terminated_gives_back_all_that_it_did_not_charge(run, opened, ratings, monkeypatch):
    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("apportion.cli.training.fit_private", terminated)
    run("fit", ratings, "--epsilon", 1, *CHARGED, code=143)
    assert run("ledger", "status", LEDGER, "--json").json[0]["reserved"] == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_command_sets_its_budget_aside_once(run, opened, visits):
    run("mean", visits, *COSTS, *CHARGED)
    kinds = [entry["event"]["kind"] for entry in run("ledger", "history", LEDGER, "--json").json]
    assert kinds.count("reserved") == kinds.count("given back") == 1
    assert (kinds[0], kinds[-1]) == ("reserved", "given back")


def test_a_fit_that_stops_says_that_its_reservation_stays_and_goes_on_with_it(run, opened, ratings, monkeypatch):
    options = ("--epsilon", 2, "--dimension", 2, "--rounds", 2, "--checkpoint", "kept", *CHARGED)
    stored = Checkpoint.store

    def stop(self, number, *given):
        stored(self, number, *given)
        if number == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "store", stop)
    said = run("fit", ratings, *options, code=130).stderr
    assert "Reservation 1 of account 'visits' stays for when this fit goes on" in said
    monkeypatch.setattr(Checkpoint, "store", stored)
    gc.collect()  # as the end of the process would, this frees the checkpoint
    assert run("ledger", "status", LEDGER, "--json").json[0]["left_epsilon"] == 0
    run("fit", ratings, *options)
    entries = run("ledger", "history", LEDGER, "--json").json
    assert {entry["against"] for entry in entries[1:-1]} == {1}
    assert run("ledger", "verify", LEDGER, "--json").json[0]["holds"]


def test_on_a_renyi_account_a_fit_says_that_nothing_is_set_aside(run, ratings):
    options = ("--epsilon", 3, "--delta", "1e-6", "--kind", "renyi")
    run("ledger", "init", LEDGER, "--account", "visits", *options)
    said = run("fit", ratings, "--epsilon", 1, "--dimension", 2, "--rounds", 2, *CHARGED).stderr
    assert "Nothing of account 'visits' is set aside for this run" in said
    assert "reserved" not in {entry["event"]["kind"] for entry in run("ledger", "history", LEDGER, "--json").json}


def test_statistics_charge_accounts_of_their_own_relation(run, opened, visits):
    about = ("--user", "patient", "--value", "cost", "--range", 0, 5, "--epsilon", 0.5)
    public = ("--sizes", "public", "--weights", "paper")
    refused = run("mean", visits, *about, "--delta", "1e-6", *public, *CHARGED, code=2)
    assert 'those of this estimator "replace the contents' in refused.stderr
    private = run("mean", visits, *about, "--delta", "1e-6", "--sizes", "private", *CHARGED, "--json").json
    assert private["statement"]["ledger"]["account"] == "visits"
    init = ("--account", "values", "--epsilon", 2, "--delta", 0, "--neighbours", "replace-values")
    run("ledger", "init", LEDGER, *init)
    values = ("--ledger", LEDGER, "--account", "values")
    run("mean", visits, *about, *values, "--window", "spring", *public)
    answer = run("quantile", visits, *about, "--at", 0.5, *values, *public, "--json").json
    assert answer["statement"]["spent_epsilon"] == pytest.approx(0.5)
    _, status = sorted(run("ledger", "status", LEDGER, "--json").json, key=lambda each: each["kind"])
    assert status["spent_epsilon"] == pytest.approx(1.0)
    assert "epsilon 1.5" in run("mean", visits, *about[:-1], 1.5, *values, *public, code=3).stderr


def test_a_pure_session_that_does_not_fit_is_told_of_one_with_a_delta_that_does(run, opened, visits):
    asked = ("mean", visits, "--user", "patient", "--value", "cost", "--range", 0, 5, *CHARGED, "--epsilon")
    epsilon = run("ledger", "status", LEDGER, "--json").json[0]["epsilon"]
    fits = f"; one of epsilon {epsilon:g} with Gaussian noise, at delta 1e-06, fits."
    assert run(*asked, epsilon, code=3).stderr.strip().endswith(fits)
    assert run(*asked, 2 * epsilon, code=3).stderr.strip().endswith("at delta 0.")
    assert run(*asked, epsilon, "--delta", "1e-06").exit_code == 0


def test_regressions_charge_too(run, visits):
    for name, relation in (("labels", "replace-labels"), ("values", "replace-values")):
        options = ("--epsilon", 8, "--delta", "1e-5", "--neighbours", relation)
        run("ledger", "init", LEDGER, "--account", name, *options)
    about = ("--user", "patient", "--epsilon", 4, "--delta", "1e-5", "--ledger", LEDGER, "--json")
    label = ("--label", "cost", "--features", "late", "--label-range", 0, 5, "--account", "labels")
    first = run("regress", visits, *about, *label).json["statement"]
    yes = ("--label", "late", "--features", "cost", "--feature-norm", 5, "--account", "values", "--sizes", "public")
    second = run("logistic", visits, *about, *yes).json["statement"]
    for statement, name in ((first, "labels"), (second, "values")):
        assert statement["ledger"]["account"] == name
        assert statement["ledger"]["entries"] == len(statement["releases"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("init", LEDGER, "--account", "a", "--epsilon", -1, "--delta", 0), "-1"),
        (("init", LEDGER, "--account", "a", "--epsilon", 1, "--delta", 2), "2"),
        (("init", LEDGER, "--account", "a", "--epsilon", 1, "--delta", 0, "--kind", "renyi"), "delta above 0"),
        (
            ("init", LEDGER, "--account", "a", "--epsilon", 1, "--delta", "1e-6", "--order", 3),
            "only for an account of kind 'renyi'",
        ),
        (("init", LEDGER, "--account", " ", "--epsilon", 1, "--delta", "1e-6"), "printable"),
        (("init", "mysql://host/db", "--account", "a", "--epsilon", 1, "--delta", 0), "'mysql://host/db'"),
        (("init", "nowhere/x.db", "--account", "a", "--epsilon", 1, "--delta", 0), "no folder 'nowhere'"),
        (("status", "missing.db"), "no ledger at 'missing.db'"),
        (("verify", "text.csv"), "file is not a database"),
    ],
)
def test_bad_input_is_one_sentence(run, write, folder, arguments, words):
    write("text.csv", "a,b", [(1, 2)] * 300)
    result = run("ledger", *arguments, code=2)
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "missing.db").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("status", LEDGER, "--account", "visit"), "This ledger has no account 'visit'; it has: 'visits'"),
        (("init", LEDGER, "--account", "visits", "--epsilon", 9, "--delta", "1e-6"), "already exists"),
        (("verify", LEDGER, "--kept", "abc"), "--kept needs --account"),
        (("export", LEDGER, "--out", "."), "it is a folder"),
    ],
)
def test_what_an_open_ledger_cannot_do_is_said(run, opened, arguments, words):
    assert words in run("ledger", *arguments, code=2).stderr


def test_several_accounts_have_to_be_named(run, opened):
    run("ledger", "init", LEDGER, "--account", "more", "--epsilon", 1, "--delta", "1e-6", "--kind", "renyi")
    assert "--account; the ledger has: more, visits" in run("ledger", "history", LEDGER, code=2).stderr
    assert len(run("ledger", "status", LEDGER, "--json").json) == 2


def test_a_fit_names_both_or_neither(run, opened, ratings):
    assert "must be given together" in run("fit", ratings, "--epsilon", 1, "--ledger", LEDGER, code=2).stderr
    assert "must be given together" in run("fit", ratings, "--epsilon", 1, "--account", "visits", code=2).stderr


KEYED = ("--key", "keys/visits.key")
HEADED = ("--head", "visits.head")


@pytest.fixture
def guarded(run, folder):
    """The same account with a key and a head."""
    (folder / "keys").mkdir()
    options = ("--account", "visits", "--epsilon", 2, "--delta", "1e-6", *KEYED, *HEADED)
    result = run("ledger", "init", LEDGER, *options)
    assert "Wrote a new key to keys/visits.key" in result.stderr
    assert (folder / "keys" / "visits.key").stat().st_mode & 0o777 == 0o600
    second = run("ledger", "init", LEDGER, "--account", "second", "--epsilon", 1, "--delta", 0, *KEYED, *HEADED)
    assert second.stderr == ""  # the key is there already


@pytest.mark.parametrize("by", ["options", "environment"])
def test_a_fit_charges_a_guarded_account_and_the_next_one_sees_that_it_was_rolled_back(
    run, guarded, ratings, monkeypatch, by
):
    where = ("--ledger-key", "keys/visits.key", "--ledger-head", "visits.head")
    if by == "environment":
        where = ()
        monkeypatch.setenv("APPORTION_LEDGER_KEY", "keys/visits.key")
        monkeypatch.setenv("APPORTION_LEDGER_HEAD", "visits.head")
    options = ("--dimension", 2, "--rounds", 2, *CHARGED, *where)
    statement = run("fit", ratings, "--epsilon", 1, *options, "--json").json["statement"]
    answers = run("ledger", "verify", LEDGER, *KEYED, *HEADED, "--json").json
    assert [(each["holds"], each["unseen"]) for each in answers] == [(True, [])] * 2
    assert run(
        "ledger", "verify", LEDGER, "--account", "visits", "--kept", statement["ledger"]["head"], *KEYED, *HEADED
    )
    last = answers[1]["entries"]
    tamper(f"DELETE FROM apportion_entries WHERE number = {last}")
    words = f"is at entry {last}, but the ledger ends at entry {last - 1}."
    assert words in run("fit", ratings, "--epsilon", 0.1, *options, code=2).stderr
    assert words in run("ledger", "verify", LEDGER, *KEYED, *HEADED, code=1).stderr
    assert words in run("ledger", "status", LEDGER, *KEYED, *HEADED, code=2).stderr


def test_a_guarded_account_is_not_charged_without_its_guards(run, guarded, ratings, monkeypatch):
    monkeypatch.delenv("APPORTION_LEDGER_KEY", raising=False)
    options = ("fit", ratings, "--epsilon", 1, "--dimension", 2, "--rounds", 2, *CHARGED)
    assert "give the ledger's key file to charge it" in run(*options, code=2).stderr
    refused = run(*options, "--ledger-key", "keys/visits.key", code=2).stderr
    assert "was opened with a head: say where the head is" in refused


def test_verify_says_in_plain_words_what_it_cannot_see(run, guarded):
    printed = run("ledger", "verify", LEDGER, "--account", "visits").stderr
    assert printed.splitlines() == [
        "visits: No head was given: removed entries at the end, or an older copy of the ledger, cannot be detected.",
        "visits: The account's key was not given: codes were not checked.",
        "visits: Neither key nor head was given: a chain rewritten from the start cannot be detected.",
    ]
    assert run("ledger", "verify", LEDGER, *KEYED, *HEADED).stderr == ""


def test_verify_reports_an_account_that_only_the_head_knows(run, guarded):
    connection = sqlite3.connect(LEDGER)
    with connection:
        connection.execute("DROP TRIGGER apportion_accounts_DELETE")
        connection.execute("DELETE FROM apportion_accounts WHERE name = 'visits'")
    connection.close()
    result = run("ledger", "verify", LEDGER, *KEYED, *HEADED, code=1)
    assert "visits: Account 'visits' is not in the ledger" in result.stderr
    assert "second: all 0 entries are intact" in result.stdout


def test_a_first_head_is_written_for_an_account_that_had_none(run, opened, ratings):
    status = charge(0.1)
    refused = run("ledger", "verify", LEDGER, *HEADED, code=1).stderr
    assert "Account 'visits' has no head at 'visits.head'; `apportion ledger head` writes" in refused
    printed = run("ledger", "head", LEDGER, *HEADED).stdout
    assert printed == f"Wrote the head of 'visits': entry 1, {status.head}.\n"
    assert run("ledger", "verify", LEDGER, *HEADED).stderr == ""


def test_a_second_data_set_on_one_account_is_a_warning_on_stderr(run, guarded, visits, write):
    other = write("other.csv", "patient,cost,late", [(user, 1, 0) for user in range(50)])
    where = ("--ledger-key", "keys/visits.key", "--ledger-head", "visits.head", "--ledger-fingerprints", "seen.json")
    about = ("--user", "patient", "--value", "cost", "--range", 0, 5, "--epsilon", 0.1, "--delta", "1e-6")
    options = (*about, "--sizes", "private", *CHARGED, *where)
    for data, warned in ((visits, False), (visits, False), (other, True)):
        result = run("mean", data, *options)
        assert ("Warning: Account 'visits' was charged for other data before" in result.stderr) is warned
        assert "charged for other data" not in result.stdout

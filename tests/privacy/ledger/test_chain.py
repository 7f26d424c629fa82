"""Entries are only ever added, and what was altered, taken out or put elsewhere shows."""

from __future__ import annotations

import hashlib
import json
import sqlite3

import pytest

from apportion.privacy import Budget, LedgerError
from apportion.privacy.ledger import GaussianRelease

BUDGET = Budget(2.0, 1e-6)


@pytest.fixture
def account(ledger):
    made = ledger.create_account("visits", BUDGET, owner="data office")
    for k in range(5):
        made.charge(f"release {k + 1}", GaussianRelease(0.05 * (k + 1)))
    return made


def altered(account, number, /, **fields):
    """The text and hash of an entry with some fields changed, as somebody would forge it who knows the format."""
    entry = account.export()["entries"][number - 1]
    kept = ("number", "at", "run", "name", "event", "cost", "spent", "previous")
    body = {"account": account.name, **{key: entry[key] for key in kept}, **fields}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return text, hashlib.sha256(text.encode()).hexdigest()


def overwrite(run, number, text, hashed):
    run("UPDATE apportion_entries SET body = ?, hash = ? WHERE number = ?", text, hashed, number)


def test_an_untouched_chain_verifies_and_its_head_covers_all_before(account):
    status = account.verify()
    assert status.entries == 5
    heads = [entry.hash for entry in account.history()]
    assert status.head == heads[-1]
    assert account.export()["head"] == status.head
    for head in (account.export()["genesis"], *heads):
        assert account.verify(head) == status
    with pytest.raises(LedgerError, match="removed from the end"):
        account.verify("0" * 64)


def test_the_forger_of_these_tests_writes_what_the_ledger_would(account, unguarded):
    text, hashed = altered(account, 5)
    assert hashed == account.status().head
    overwrite(unguarded, 5, text, hashed)
    assert account.verify().entries == 5


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE apportion_entries SET body = 'x' WHERE number = 3",
        "DELETE FROM apportion_entries WHERE number = 5",
        "UPDATE apportion_accounts SET body = 'x'",
        "DELETE FROM apportion_accounts",
    ],
)
def test_the_tables_forbid_change(account, sql, statement):
    before = account.export()
    with pytest.raises(Exception, match="only ever added to"):
        sql(statement)
    assert account.export() == before


def test_sqlite_forbids_to_replace_and_to_leave_gaps(account, url, sql):
    if url.startswith("postgres"):
        with pytest.raises(Exception, match="only ever added to"):
            sql("TRUNCATE apportion_entries")
        return
    for number in (3, 7):
        with pytest.raises(sqlite3.IntegrityError, match="numbered in order"):
            sql("INSERT OR REPLACE INTO apportion_entries VALUES ('visits', ?, 'x', 'y', '')", number)
    with pytest.raises(sqlite3.IntegrityError, match="of that name exists"):
        sql("INSERT OR REPLACE INTO apportion_accounts VALUES ('visits', 'x', 'y', '')")
    assert account.verify().entries == 5


@pytest.mark.parametrize("number", [1, 3, 5])
def test_an_edited_entry_is_named(account, unguarded, number):
    text, _ = altered(account, number, cost=["1/1000000"])
    unguarded("UPDATE apportion_entries SET body = ? WHERE number = ?", text, number)
    with pytest.raises(LedgerError, match=f"Entry {number} of account 'visits' was altered: its hash does not match"):
        account.verify()


@pytest.mark.parametrize(
    ("fields", "first_bad", "words"),
    [
        ({"name": "harmless"}, 4, "does not follow the one before"),  # the hash was made anew, the next one tells
        ({"cost": ["1/1000000"]}, 3, "a cost that does not match its event"),
        ({"event": {"kind": "gaussian", "mu": 0.001}}, 3, "a cost that does not match its event"),
        ({"event": {"kind": "free"}}, 3, "cannot be read"),
        (
            {"event": {"kind": "sampled", "mus": [], "noise_multiplier": 9.0, "probability": 1.0, "steps": 1}},
            3,
            "a cost",
        ),
        ({"spent": ["1/1000000"]}, 3, "a sum that does not add up"),
        ({"previous": "0" * 64}, 3, "does not follow the one before"),
        ({"number": 2}, 3, "belongs elsewhere"),
        ({"account": "other"}, 3, "belongs elsewhere"),
        ({"further": 1}, 3, "belongs elsewhere"),
    ],
)
def test_a_forged_entry_with_a_fitting_hash_is_found_too(account, unguarded, fields, first_bad, words):
    overwrite(unguarded, 3, *altered(account, 3, **fields))
    with pytest.raises(LedgerError, match=f"Entry {first_bad} of account 'visits' .*{words}"):
        account.verify()


def test_an_entry_beyond_the_total_is_found(account, unguarded):
    mu = BUDGET.mu
    from fractions import Fraction

    cost = Fraction(mu) ** 2
    spent = Fraction(account.export()["entries"][3]["spent"][0]) + cost
    event = {"kind": "gaussian", "mu": mu}
    overwrite(unguarded, 5, *altered(account, 5, event=event, cost=[str(cost)], spent=[str(spent)]))
    with pytest.raises(LedgerError, match=r"Entry 5 .* goes beyond the account's total"):
        account.verify()


@pytest.mark.parametrize("number", [1, 3])
def test_an_entry_taken_out_of_the_middle_is_named(account, unguarded, number):
    unguarded("DELETE FROM apportion_entries WHERE number = ?", number)
    with pytest.raises(LedgerError, match=f"Entry {number} of account 'visits' is missing"):
        account.verify()


def test_entries_that_changed_places_are_named(account, unguarded):
    unguarded("UPDATE apportion_entries SET number = 100 WHERE number = 2")
    unguarded("UPDATE apportion_entries SET number = 2 WHERE number = 3")
    unguarded("UPDATE apportion_entries SET number = 3 WHERE number = 100")
    with pytest.raises(LedgerError, match="Entry 2 of account 'visits' was altered: it belongs elsewhere"):
        account.verify()


def test_entries_renumbered_to_hide_one_are_named(account, unguarded):
    unguarded("DELETE FROM apportion_entries WHERE number = 4")
    *_, entry = account._store.rows("visits")
    fields = json.loads(entry.body) | {"number": 4}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    unguarded("DELETE FROM apportion_entries WHERE number = 5")
    hashed = hashlib.sha256(text.encode()).hexdigest()
    unguarded("INSERT INTO apportion_entries VALUES ('visits', 4, ?, ?, '')", text, hashed)
    with pytest.raises(LedgerError, match="Entry 4 of account 'visits' does not follow the one before"):
        account.verify()


def test_a_tail_that_was_cut_shows_only_against_a_head_that_was_kept(ledger, account, unguarded):
    kept = account.status().head
    unguarded("DELETE FROM apportion_entries WHERE number >= 4")
    anew = ledger.account("visits")
    assert anew.verify().entries == 3  # nothing in the ledger itself can tell
    assert any("removed entries at the end" in sentence for sentence in anew.unseen())
    with pytest.raises(LedgerError, match="entries were removed from the end, or the whole chain was rewritten"):
        anew.verify(kept)
    for refused in (account.verify, account.status, lambda: account.charge("more", GaussianRelease(0.01))):
        with pytest.raises(LedgerError, match="its first 5 entries differ from those that this process has seen"):
            refused()


def test_an_account_whose_total_was_raised_is_refused(ledger, account, unguarded):
    body = ledger._store.account("visits").body
    raised = json.dumps(json.loads(body) | {"epsilon": 20.0}, sort_keys=True, separators=(",", ":"))
    unguarded("UPDATE apportion_accounts SET body = ?", raised)
    with pytest.raises(LedgerError, match="'visits' was altered: it differs from the account that was opened"):
        ledger.account("visits")
    # with a new hash its own words still contradict one another, and then the first entry does not follow it
    unguarded("UPDATE apportion_accounts SET body = ?, hash = ?", raised, hashlib.sha256(raised.encode()).hexdigest())
    with pytest.raises(LedgerError, match="was altered"):
        ledger.account("visits")
    owner = json.dumps(json.loads(body) | {"owner": "me"}, sort_keys=True, separators=(",", ":"))
    unguarded("UPDATE apportion_accounts SET body = ?, hash = ?", owner, hashlib.sha256(owner.encode()).hexdigest())
    with pytest.raises(LedgerError, match="Entry 1 of account 'visits' does not follow"):
        ledger.account("visits").verify()


def test_nothing_is_charged_on_top_of_an_altered_entry(account, unguarded):
    text, _ = altered(account, 5, spent=["0"])
    unguarded("UPDATE apportion_entries SET body = ? WHERE number = 5", text)
    with pytest.raises(LedgerError, match="Entry 5 of account 'visits' was altered"):
        account.charge("more", GaussianRelease(0.01))
    with pytest.raises(LedgerError, match="Entry 5"):
        account.status()

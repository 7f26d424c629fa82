"""Whoever can write to the store, but has neither key nor head, is found out at the next charge, and by `verify`."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest

from apportion.errors import InputError
from apportion.privacy import Budget, Ledger, LedgerError
from apportion.privacy.ledger import GaussianRelease, LedgerKey, PureRelease
from benchmarks.ledger_attacks import ATTACKS, Held, redefined, tamper

BUDGET = Budget(2.0, 1e-6)
GUARDS = {"none": (), "key": ("key",), "head": ("head",), "both": ("key", "head")}


class Guarded:
    """A ledger with some guards; every `open` is a process that starts anew."""

    def __init__(self, url, folder, guards):
        self.url = url
        self.where = {guard: str(folder / guard) for guard in guards}
        self.opened = []
        if "key" in self.where:
            LedgerKey.create(self.where["key"])

    def open(self, **other):
        self.opened.append(Ledger.open(self.url, **(self.where | other)))
        return self.opened[-1]

    def close(self):
        for ledger in self.opened:
            ledger.close()

    def charge(self, **other):
        with self.open(**other) as ledger:
            return ledger.account("visits").charge("more", GaussianRelease(0.01))

    def verify(self, **other):
        with self.open(**other) as ledger:
            account = ledger.account("visits")
            return account.verify(), account.unseen()


@pytest.fixture
def make(url, tmp_path):
    made = []

    def guarded(*guards, url=url):
        made.append(Guarded(url, tmp_path, guards))
        return made[-1]

    yield guarded
    for each in made:
        each.close()


@pytest.fixture(params=GUARDS)
def guarded(request, make):
    return make(*GUARDS[request.param])


@pytest.fixture
def both(make):
    return make("key", "head")


def filled(guarded):
    """A handle on an account with five entries, all different."""
    account = guarded.open().create_account("visits", BUDGET, owner="data office")
    for k in range(5):
        account.charge(f"release {k + 1}", GaussianRelease(0.05 * (k + 1)))
    return account


def entries(guarded):
    with Ledger.open(guarded.url) as ledger:
        return list(ledger._store.rows("visits"))


@contextmanager
def tampered(guarded, change):
    """The ledger as an attack leaves it; put back afterwards."""
    before = tamper(guarded.url, "visits", change)
    left = entries(guarded)
    yield
    assert entries(guarded) == left  # nothing was charged on top
    tamper(guarded.url, "visits", lambda _: before)


def test_a_new_process_refuses_to_charge_what_its_guards_let_it_see(guarded):
    kept = filled(guarded).status().head  # as a statement carries it
    for name, attack in ATTACKS.items():
        with tampered(guarded, attack.change):
            if attack.is_seen(key="key" in guarded.where, head="head" in guarded.where):
                for use in (guarded.charge, guarded.verify):
                    with pytest.raises(LedgerError, match="'visits'"):
                        raise AssertionError(f"{name} was not seen: {use()}")
                continue
            _, unseen = guarded.verify()  # it cannot see this, and says so
            words = "an older copy of the ledger" if attack.seen_by == "head" else "rewritten from the start"
            assert any(words in sentence for sentence in unseen), name
            with (
                guarded.open() as ledger,
                pytest.raises(LedgerError, match="No entry of account 'visits' has the hash"),
            ):
                raise AssertionError(f"{name} was not seen: {ledger.account('visits').verify(kept)}")
    assert guarded.charge().number == 6


def test_a_process_that_charged_before_refuses_every_change_whatever_its_guards(guarded):
    account = filled(guarded)
    for name, attack in ATTACKS.items():
        with tampered(guarded, attack.change):
            for use in (lambda: account.charge("more", GaussianRelease(0.01)), account.verify, account.status):
                with pytest.raises(LedgerError, match="'visits'"):
                    raise AssertionError(f"{name} was not seen: {use()}")
    assert account.charge("more", GaussianRelease(0.01)).number == 6


def test_with_both_guards_every_attack_is_seen_and_each_guard_is_needed_for_some():
    for attack in ATTACKS.values():
        assert attack.is_seen(key=True, head=True)
        assert attack.is_seen(key=False, head=True)  # what is below a head cannot be rewritten without it
    assert {name for name, attack in ATTACKS.items() if not attack.is_seen(key=True, head=False)} == {
        "last entry deleted",
        "all entries deleted",
        "rolled back",
    }


def test_the_last_row_rewritten_to_nothing_spent_no_longer_buys_another_budget(url, make):
    """The hole that there was: `charge` read the last row alone, and its hash has no key."""
    guarded = make()
    account = guarded.open().create_account("visits", BUDGET)
    for _ in range(4):
        account.charge("quarter", GaussianRelease(BUDGET.mu / 2))
    tamper(url, "visits", ATTACKS["spend of the last entry set to 0"].change)
    with pytest.raises(LedgerError, match="Entry 4 of account 'visits' has a sum that does not add up"):
        guarded.charge()


def test_a_restored_copy_of_the_whole_file_is_refused(tmp_path):
    guarded = Guarded(str(tmp_path / "ledger.db"), tmp_path, ("key", "head"))
    filled(guarded)
    guarded.close()
    shutil.copy(guarded.url, tmp_path / "older.db")
    guarded.charge()
    for beside in ("", "-wal", "-shm"):
        (tmp_path / f"ledger.db{beside}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "older.db", guarded.url)
    with pytest.raises(
        LedgerError, match=r"was cut off or rolled back: its head at .* is at entry 6, but the ledger ends at entry 5"
    ):
        guarded.charge()


def test_a_renamed_account_is_refused_under_either_name(guarded):
    filled(guarded)
    with Ledger.open(guarded.url) as ledger:
        stored = ledger._store.account("visits")
        rows = list(ledger._store.rows("visits"))
        for name, text in (("as it was", stored), ("renamed", redefined(stored, name="renamed"))):
            ledger._store.add_account(name, text)
            with ledger._store.transaction(name) as held:
                for row in rows:
                    held.add(row)
    with guarded.open() as ledger:
        for name in ("as it was", "renamed"):
            with pytest.raises(LedgerError, match=f"'{name}'"):
                ledger.account(name).charge("more", GaussianRelease(0.01))


def test_a_budget_raised_before_the_first_charge_is_refused_with_a_key_or_a_head(guarded):
    with guarded.open() as ledger:
        ledger.create_account("visits", Budget(1.0, 0.0))

    def change(held):
        return replace(held, stored=redefined(held.stored, epsilon=8.0, totals=["8"]))

    tamper(guarded.url, "visits", change)
    with guarded.open() as ledger:
        if not guarded.where:
            assert ledger.account("visits").verify().epsilon == 8.0  # nothing in the ledger itself can tell
            return
        with pytest.raises(LedgerError, match=r"'visits' was (altered|rewritten)"):
            ledger.account("visits").charge("x", PureRelease(0.1))


def test_an_account_that_was_removed_is_missed_by_its_head(make, unguarded):
    only_head = make("head")
    filled(only_head)
    unguarded("DELETE FROM apportion_entries")
    unguarded("DELETE FROM apportion_accounts")
    with only_head.open() as ledger:
        assert ledger.removed() == ["visits"]
        for use in (lambda: ledger.account("visits"), lambda: ledger.create_account("visits", BUDGET)):
            with pytest.raises(
                LedgerError, match=r"'visits' is not in the ledger .* at entry 5: the account was removed"
            ):
                use()


def test_a_chain_signed_with_another_key_is_refused(both, tmp_path):
    filled(both)
    mine = LedgerKey.create(tmp_path / "mine")

    def signed_anew(held):
        stored = redefined(held.stored, key=mine.name)
        rows = [row._replace(code=mine.code("entry", row.hash)) for row in held.rows]
        return Held(replace(stored, code=mine.code("account", stored.hash)), tuple(rows))

    for change in (signed_anew, lambda held: replace(held, stored=redefined(held.stored, key=mine.name))):
        before = tamper(both.url, "visits", change)
        with pytest.raises(LedgerError, match=f"'visits' has key {mine.name}, but .* opened with another key, or"):
            both.charge()
        tamper(both.url, "visits", lambda _, before=before: before)
    assert both.charge().number == 6  # put back as it was


def test_a_key_that_was_replaced_is_refused(both, tmp_path):
    filled(both)
    LedgerKey.create(tmp_path / "other")
    (tmp_path / "other").replace(both.where["key"])
    with pytest.raises(LedgerError, match=r"The head of account 'visits' .* does not have the code of key"):
        both.charge()
    del both.where["head"]
    with pytest.raises(LedgerError, match=r"Account 'visits' has key \w{16}, but .* is key \w{16}"):
        both.charge()


def test_codes_belong_to_one_row_and_one_use(both):
    account = filled(both)

    def exchanged(held):
        first, second, *rest = held.rows
        return replace(held, rows=(first._replace(code=second.code), second._replace(code=first.code), *rest))

    def of_the_account(held):
        return replace(held, rows=(*held.rows[:-1], held.rows[-1]._replace(code=held.stored.code)))

    for change, number in ((exchanged, 1), (of_the_account, 5)):
        before = tamper(both.url, "visits", change)
        with pytest.raises(LedgerError, match=f"Entry {number} .* its code was not made with the ledger's key"):
            both.charge()
        tamper(both.url, "visits", lambda _, before=before: before)
    key = LedgerKey.read(both.where["key"])
    assert key.code("entry", "x") != key.code("account", "x")
    assert account.charge("more", GaussianRelease(0.01)).number == 6


def test_a_guard_that_an_account_was_opened_with_is_needed_to_charge_it_and_not_to_read_it(both):
    filled(both)
    key, head = both.where["key"], both.where["head"]
    both.where = {}
    with pytest.raises(LedgerError, match=r"Account 'visits' was opened with key .* give the ledger's key file"):
        both.charge()
    status, unseen = both.verify()
    assert status.entries == 5
    assert ["No head" in unseen[0], "key was not given" in unseen[1], "Neither" in unseen[2]] == [True] * 3
    with pytest.raises(LedgerError, match="'visits' was opened with a head: say where the head is"):
        both.charge(key=key)
    with pytest.raises(LedgerError, match="was made with a key, but none was given"):
        both.charge(head=head)
    assert both.charge(key=key, head=head).number == 6
    assert both.verify(key=key, head=head)[1] == ()


def test_an_account_without_a_key_is_refused_where_one_is_configured(make, tmp_path, monkeypatch):
    plain = make()
    filled(plain)
    LedgerKey.create(tmp_path / "key")
    monkeypatch.setenv("APPORTION_LEDGER_KEY", str(tmp_path / "key"))
    with pytest.raises(LedgerError, match=r"Account 'visits' has no key, but .* opened with another key, or rewritten"):
        plain.charge()


@pytest.mark.parametrize("value", [None, 5, b"{}", "\x00"])
def test_columns_that_hold_anything_are_named(tmp_path, value):
    guarded = Guarded(str(tmp_path / "ledger.db"), tmp_path, ())
    account = filled(guarded)

    def change(held):
        return replace(held, rows=(held.rows[0]._replace(body=value), *held.rows[1:]))

    if value is None:  # the column does not take it
        with pytest.raises(Exception, match="NOT NULL"):
            tamper(guarded.url, "visits", change)
        guarded.close()
        return
    tamper(guarded.url, "visits", change)
    for charge in (guarded.charge, lambda: account.charge("more", GaussianRelease(0.01))):
        with pytest.raises(LedgerError, match="Entry 1 of account 'visits' cannot be read"):
            charge()
    guarded.close()


@pytest.mark.parametrize("version", [1, 4])
def test_a_ledger_of_another_format_is_refused_in_one_sentence(url, sql, version):
    Ledger.open(url).close()
    if url.startswith("postgres"):
        sql("UPDATE apportion_ledger SET format = ?", version)
    else:
        sql(f"PRAGMA user_version = {version}")
    with pytest.raises(
        LedgerError, match=rf"has format {version}, but this version of apportion reads formats 2 to 3: .*\.$"
    ):
        Ledger.open(url)


def test_an_account_of_another_format_is_refused(url, make):
    guarded = make()
    filled(guarded)
    tamper(url, "visits", lambda held: replace(held, stored=redefined(held.stored, format=3)))
    with pytest.raises(LedgerError, match="'visits' has format 3, but this version of apportion reads format 2"):
        guarded.charge()


def test_a_key_file_is_new_random_and_its_owners_alone(tmp_path):
    path = tmp_path / "key"
    made = LedgerKey.create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(path.read_text())) == 32
    assert LedgerKey.read(path).name == made.name != LedgerKey.create(tmp_path / "second").name
    assert made.name not in path.read_text()
    with pytest.raises(InputError, match="already exists; a key is never replaced"):
        LedgerKey.create(path)
    for mode, fine in ((0o400, True), (0o440, True), (0o604, False), (0o620, False)):
        path.chmod(mode)
        if fine:
            LedgerKey.read(path)
            continue
        with pytest.raises(InputError, match=f"is readable or writable by others .mode {mode:04o}"):
            LedgerKey.read(path)
    path.chmod(0o600)
    for text in ("", "abc", "ab" * 31, "zz" * 32):
        path.write_text(text)
        with pytest.raises(InputError, match="Expected 64 hexadecimal digits"):
            LedgerKey.read(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        LedgerKey.read(tmp_path / "missing")


def test_two_accounts_that_were_opened_alike_have_chains_of_their_own(url):
    with Ledger.open(url) as ledger:
        accounts = [ledger.create_account(name, BUDGET) for name in ("one", "two")]
        marks = [json.loads(ledger._store.account(each.name).body)["mark"] for each in accounts]
    assert marks[0] != marks[1]

"""Fingerprints of data: a warning when an account is charged for other data, and nothing about the data elsewhere."""

from __future__ import annotations

import json
import warnings

import pytest

from apportion.errors import InputError
from apportion.privacy import Budget, Ledger
from apportion.privacy.ledger import GaussianRelease, LedgerKey, OtherDataWarning
from apportion.privacy.ledger.fingerprints import digest_of

SMALL = GaussianRelease(0.01)


@pytest.fixture
def where(tmp_path):
    """The guards of a ledger, each in a folder of its own, and two data sets that differ in one row."""
    for name in ("keys", "marks", "data"):
        (tmp_path / name).mkdir()
    LedgerKey.create(tmp_path / "keys" / "key")
    (tmp_path / "data" / "a.csv").write_text("ann,1\nbob,2\n")
    (tmp_path / "data" / "b.csv").write_text("ann,1\n")
    return tmp_path


@pytest.fixture
def ledger(url, where):
    guards = {"key": where / "keys" / "key", "head": where / "head", "fingerprints": where / "marks" / "seen"}
    with Ledger.open(url, **guards) as opened:
        opened.create_account("visits", Budget(2.0, 1e-6))
        yield opened


def charge(ledger, data):
    """Charge through a new handle; returns the receipt and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        account = ledger.account("visits").for_data(data)
        receipts = [account.charge("x", SMALL), account.charge("y", SMALL)]
    return receipts, [(str(each.message), each.category) for each in caught]


def test_other_data_are_warned_of_and_charged_all_the_same(ledger, where):
    said = "Account 'visits' was charged for other data before. Check that this is the account for these data."
    assert charge(ledger, where / "data" / "a.csv")[1] == []
    assert charge(ledger, where / "data" / "a.csv")[1] == []
    receipts, caught = charge(ledger, where / "data" / "b.csv")
    assert caught == [(said, OtherDataWarning)]  # once for each handle
    assert receipts[-1].number == 6
    assert charge(ledger, where / "data" / "b.csv")[1] == [(said, OtherDataWarning)]
    assert charge(ledger, where / "data" / "a.csv")[1] == []  # the first data stay the account's


def test_nothing_that_depends_on_the_data_stands_outside_the_file_of_fingerprints(ledger, where):
    charge(ledger, where / "data" / "a.csv")
    marks = json.loads((where / "marks" / "seen").read_text())["accounts"]
    (fingerprint,) = marks.values()
    assert (where / "marks" / "seen").stat().st_mode & 0o777 == 0o600
    exported = json.dumps(ledger.account("visits").export())
    for text in (exported, (where / "head").read_text()):
        assert fingerprint not in text
        assert digest_of(where / "data" / "a.csv") not in text
    assert fingerprint != digest_of(where / "data" / "a.csv")  # without the key it says nothing


def test_fingerprints_of_the_same_data_differ_between_accounts(ledger, where):
    ledger.create_account("more", Budget(1.0, 1e-6)).for_data(where / "data" / "a.csv").charge("x", SMALL)
    charge(ledger, where / "data" / "a.csv")
    marks = json.loads((where / "marks" / "seen").read_text())["accounts"]
    assert len(set(marks.values())) == 2


def test_a_charge_that_was_refused_leaves_no_fingerprint(ledger, where):
    from apportion.errors import BudgetError

    with pytest.raises(BudgetError):
        ledger.account("visits").for_data(where / "data" / "a.csv").charge("x", GaussianRelease(99.0))
    assert not (where / "marks" / "seen").exists()
    assert charge(ledger, where / "data" / "b.csv")[1] == []


def test_a_folder_is_its_files_and_their_names(where):
    before = digest_of(where / "data")
    assert digest_of(where / "data") == before
    (where / "data" / "b.csv").rename(where / "data" / "c.csv")
    assert digest_of(where / "data") != before


def test_fingerprints_need_a_key_and_another_folder_than_it(url, where, monkeypatch):
    with pytest.raises(InputError, match="need the ledger's key"):
        Ledger.open(url, fingerprints=where / "marks" / "seen")
    monkeypatch.setenv("APPORTION_LEDGER_FINGERPRINTS", str(where / "keys" / "seen"))
    with pytest.raises(InputError, match="in another folder than the ledger's key"):
        Ledger.open(url, key=where / "keys" / "key")

"""The account of a client: on disk before anything is answered, each name once, one process at a time."""

from __future__ import annotations

import os

import pytest

from apportion.errors import InputError
from apportion.federated import RefusedError
from apportion.transport.account import ClientAccount, Entry

KEY = bytes(range(32))


def entry(number, cost=0.25):
    return Entry(bytes([number] * 16).hex(), ("popularity",), 6, cost, 4)


@pytest.fixture
def path(tmp_path):
    ClientAccount.created(tmp_path / "account", KEY)
    return tmp_path / "account"


def test_what_was_charged_is_there_after_a_restart_and_its_name_is_refused(path):
    first = ClientAccount(path, KEY)
    first.charge(entry(1))
    first.charge(entry(2, 0.5))
    first.close()
    second = ClientAccount(path, KEY)
    assert second.spent == 0.75
    assert second.entries == (entry(1), entry(2, 0.5))
    with pytest.raises(RefusedError, match="answered before"):
        second.charge(entry(1))


def test_a_charge_is_forced_to_disk_before_it_returns(path, monkeypatch):
    forced = []
    account = ClientAccount(path, KEY)
    monkeypatch.setattr(os, "fsync", lambda handle: forced.append(path.read_bytes().count(b"\n")))
    account.charge(entry(1))
    assert forced == [2]


def test_a_charge_counts_even_if_the_disk_fails(path, monkeypatch):
    account = ClientAccount(path, KEY)

    def fail(handle):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        account.charge(entry(1))
    with pytest.raises(RefusedError, match="answered before"):
        account.charge(entry(1))


def test_an_account_is_not_made_twice_and_not_made_by_opening(tmp_path, path):
    with pytest.raises(FileExistsError):
        ClientAccount.created(path, KEY)
    with pytest.raises(InputError, match="There is no account"):
        ClientAccount(tmp_path / "other", KEY)


def test_one_process_has_it_open_and_others_do_not_read_it(path):
    held = ClientAccount(path, KEY)
    with pytest.raises(InputError, match="open in another process"):
        ClientAccount(path, KEY)
    held.close()
    assert (path.stat().st_mode & 0o077) == 0


def test_an_account_belongs_to_one_key(path):
    with pytest.raises(InputError, match="another's"):
        ClientAccount(path, bytes(32))


def test_a_line_that_was_cut_off_is_no_pass_and_a_changed_one_is_refused(path):
    account = ClientAccount(path, KEY)
    account.charge(entry(1))
    account.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"run": "00')
    again = ClientAccount(path, KEY)
    again.charge(entry(2))
    again.close()
    assert ClientAccount(path, KEY).entries == (entry(1), entry(2))
    path.write_bytes(whole.replace(b"0.25", b"-9.5"))
    with pytest.raises(InputError, match="other lines"):
        ClientAccount(path, KEY)

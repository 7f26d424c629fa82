"""The head of an account, stored outside the ledger: the number of entries and the hash of the last one.

A charge writes its head after the entry is on disk, and only then does the session draw noise. So a head is never ahead
of an honest chain, and nothing was drawn for entries beyond the head. A chain that does not reach its head was cut off
or rolled back. A chain with another hash there was rewritten.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from apportion.errors import InputError
from apportion.privacy.ledger import kept_files
from apportion.privacy.ledger.chain import LedgerError
from apportion.privacy.ledger.keys import LedgerKey

VARIABLE = "APPORTION_LEDGER_HEAD"
_FIELDS = {"account": str, "entries": int, "hash": str, "code": str}


@dataclass(frozen=True)
class Head:
    """The head of one account.

    Attributes:
        account: the account's name.
        entries: the number of entries.
        hash: the hash of the last entry, or of the account if there is none.
        code: authenticates all of this under the ledger's key; empty without a key.
    """

    account: str
    entries: int
    hash: str
    code: str = ""

    def signed(self, key: LedgerKey | None) -> Head:
        """Return the head with its code, if there is a key."""
        return self if key is None else replace(self, code=key.code("head", self._text))

    def is_signed(self, key: LedgerKey | None) -> bool:
        """Whether its code is the one that this key (or no key) gives."""
        return self.code == "" if key is None else key.made(self.code, "head", self._text)

    @property
    def _text(self) -> str:
        return json.dumps([self.account, self.entries, self.hash])


class HeadPlace(ABC):
    """A place that stores heads."""

    place: str
    """Where it is, without any password."""

    @abstractmethod
    def read(self, account: str) -> Head | None:
        """Return the head of an account as it is stored."""

    @abstractmethod
    def write(self, head: Head) -> None:
        """Replace the head of an account; return once it is safely stored."""

    def accounts(self) -> list[str]:
        """Return the accounts that have a head here, if the place can list them."""
        return []


class FileHeads(HeadPlace):
    """The heads of all accounts in one JSON file; processes that share it take turns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.place = repr(os.fspath(path))

    def read(self, account: str) -> Head | None:
        """Read it from the file; None if the file, or the account in it, is missing."""
        records = kept_files.read_records(self._path, "head file") or {}
        return head_of(account, records, self.place)

    def write(self, head: Head) -> None:
        """Write it to the file, which is replaced as a whole."""
        kept_files.change_records(self._path, "head file", lambda records: records | {head.account: asdict(head)})

    def accounts(self) -> list[str]:
        """Return all accounts in the file."""
        return sorted(kept_files.read_records(self._path, "head file") or {})


class KeptHead:
    """The stored head of one account. It never changes the ledger."""

    def __init__(self, place: HeadPlace, account: str, key: LedgerKey | None) -> None:
        self._place, self._account, self._key = place, account, key

    @property
    def place(self) -> str:
        """Where the head is stored."""
        return self._place.place

    def stored(self) -> Head | None:
        """Return the stored head. Refuse one that was not written under the ledger's key."""
        head = self._place.read(self._account)
        if head is not None and not head.is_signed(self._key):
            how = "does not have the code of" if head.code else "has no code of"
            words = f"{how} key {self._key.place!r}" if self._key else "was made with a key, but none was given"
            raise LedgerError(f"The head of account {self._account!r} at {self.place} {words}.")
        return head

    def expected(self) -> Head:
        """Return the stored head. Refuse if it is missing."""
        head = self.stored()
        if head is None:
            raise LedgerError(
                f"Account {self._account!r} has no head at {self.place}; `apportion ledger head` writes the first one."
            )
        return head

    def write(self, entries: int, last_hash: str) -> None:
        """Replace the head."""
        self._place.write(Head(self._account, entries, last_hash).signed(self._key))

    def compare(self, expected: Head, entries: int, hash_there: str | None) -> None:
        """Refuse a chain that does not start as the head says.

        Args:
            expected: the head, read before the chain.
            entries: number of entries in the chain.
            hash_there: the hash of the entry with the head's number, if it exists.
        """
        if entries < expected.entries:
            raise LedgerError(
                f"Account {self._account!r} was cut off or rolled back: its head at {self.place} is at entry "
                f"{expected.entries}, but the ledger ends at entry {entries}."
            )
        if hash_there != expected.hash:
            raise LedgerError(
                f"Account {self._account!r} was rewritten: the hash of entry {expected.entries} differs from its "
                f"head at {self.place}."
            )


def open_heads(where: str | os.PathLike[str] | None) -> HeadPlace | None:
    """Return the place named by a path or URL, or by the environment; None if neither is given. Reads nothing yet."""
    text = os.fspath(where) if where else os.environ.get(VARIABLE)
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme in ("http", "https"):
        from apportion.privacy.ledger.http_heads import HttpHeads

        return HttpHeads(text)
    if parts.scheme == "file" and not parts.netloc and parts.path:
        return FileHeads(unquote(parts.path))
    if "://" in text:
        raise InputError(
            f"Expected a path, file:///path, http://... or https://... for the head, got {text!r}.", argument="head"
        )
    return FileHeads(text)


def head_of(account: str, records: dict[str, Any], place: str) -> Head | None:
    """Return one account's head from the records of a document."""
    fields = records.get(account)
    if fields is None:
        return None
    if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _FIELDS:
        raise LedgerError(f"The head of account {account!r} at {place} cannot be read: it has unexpected fields.")
    if fields["account"] != account:
        raise LedgerError(
            f"The head stored for account {account!r} at {place} belongs to account {fields['account']!r}."
        )
    return Head(**fields)

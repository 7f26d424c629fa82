"""The head of an account, kept outside the ledger: how many entries there were, and the hash of the last one.

A charge writes its head after the entry is on disk, and only then does the session draw. So a head is never ahead of an
honest chain, and entries beyond the head were never drawn on. A chain that does not reach its head was cut off or
rolled back; one that has another hash there was rewritten.
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
    """Of one account.

    Attributes:
        account: its name.
        entries: how many there were.
        hash: of the last one, or of the account where there was none.
        code: authenticates all this under the ledger's key; empty without one.
    """

    account: str
    entries: int
    hash: str
    code: str = ""

    def signed(self, key: LedgerKey | None) -> Head:
        """The same, authenticated where there is a key."""
        return self if key is None else replace(self, code=key.code("head", self._text))

    def is_signed(self, key: LedgerKey | None) -> bool:
        """Whether it is as this key, or no key, would have it."""
        return self.code == "" if key is None else key.made(self.code, "head", self._text)

    @property
    def _text(self) -> str:
        return json.dumps([self.account, self.entries, self.hash])


class HeadPlace(ABC):
    """Where heads are kept."""

    place: str
    """In words that hold no password."""

    @abstractmethod
    def read(self, account: str) -> Head | None:
        """The head of an account, as it is there."""

    @abstractmethod
    def write(self, head: Head) -> None:
        """Replace the head of an account; returns when it is safe."""

    def accounts(self) -> list[str]:
        """Accounts that have a head here, where the place can list them."""
        return []


class FileHeads(HeadPlace):
    """The heads of all accounts in one JSON file; processes that share it take turns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.place = repr(os.fspath(path))

    def read(self, account: str) -> Head | None:
        """From the file; None where it, or the account in it, is missing."""
        records = kept_files.read_records(self._path, "head file") or {}
        return head_of(account, records, self.place)

    def write(self, head: Head) -> None:
        """To the file, which is replaced whole."""
        kept_files.change_records(self._path, "head file", lambda records: records | {head.account: asdict(head)})

    def accounts(self) -> list[str]:
        """All that are in the file."""
        return sorted(kept_files.read_records(self._path, "head file") or {})


class KeptHead:
    """The head of one account at its place; None of its work changes the ledger."""

    def __init__(self, place: HeadPlace, account: str, key: LedgerKey | None) -> None:
        self._place, self._account, self._key = place, account, key

    @property
    def place(self) -> str:
        """Where it is kept, in words."""
        return self._place.place

    def found(self) -> Head | None:
        """The head that is there; one that was not written under the ledger's key is refused."""
        head = self._place.read(self._account)
        if head is not None and not head.is_signed(self._key):
            how = "does not have the code of" if head.code else "has no code of"
            words = f"{how} key {self._key.place!r}" if self._key else "was made with a key, and none was given"
            raise LedgerError(f"The head of account {self._account!r} at {self.place} {words}.")
        return head

    def expected(self) -> Head:
        """The head that is there; a missing one is refused."""
        head = self.found()
        if head is None:
            raise LedgerError(
                f"There is no head of account {self._account!r} at {self.place}; `apportion ledger head` writes a "
                "first one."
            )
        return head

    def write(self, entries: int, last_hash: str) -> None:
        """Replace it."""
        self._place.write(Head(self._account, entries, last_hash).signed(self._key))

    def compare(self, expected: Head, entries: int, hash_there: str | None) -> None:
        """Refuse a chain that is not one that began as the head says.

        Args:
            expected: the head, read before the chain.
            entries: of the chain.
            hash_there: the hash of the entry that has the head's number, if there is one.
        """
        if entries < expected.entries:
            raise LedgerError(
                f"Account {self._account!r} was cut off or rolled back: its head at {self.place} is at entry "
                f"{expected.entries}, and the ledger ends at entry {entries}."
            )
        if hash_there != expected.hash:
            raise LedgerError(
                f"Account {self._account!r} was rewritten: entry {expected.entries} has another hash than its head at "
                f"{self.place}."
            )


def open_heads(where: str | os.PathLike[str] | None) -> HeadPlace | None:
    """The place that a path or URL names, or the environment; None where neither does. Nothing is read yet."""
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
        raise InputError(f"Expected a path, file:///path, http://... or https://... for the head, got {text!r}.")
    return FileHeads(text)


def head_of(account: str, records: dict[str, Any], place: str) -> Head | None:
    """One account's head among the records of a document."""
    fields = records.get(account)
    if fields is None:
        return None
    if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _FIELDS:
        raise LedgerError(f"The head of account {account!r} at {place} cannot be read: its fields are others.")
    if fields["account"] != account:
        raise LedgerError(f"The head of account {account!r} at {place} is that of {fields['account']!r}.")
    return Head(**fields)

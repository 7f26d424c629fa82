"""Fingerprints of the data that an account was charged for, so that a charge for other data is noticed.

A fingerprint is a code of the data's digest under the ledger's key. It depends on who is in the data. It is therefore
never released, and never put in the chain, a head, a statement or a card. It is stored in a file of its own, away from
the key: neither of the two alone reveals anything about the data.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from apportion.errors import InputError
from apportion.privacy.ledger import kept_files
from apportion.privacy.ledger.keys import LedgerKey

VARIABLE = "APPORTION_LEDGER_FINGERPRINTS"
_WHAT = "file of fingerprints"


class OtherDataWarning(UserWarning):
    """An account was charged for other data than before."""


class Fingerprints:
    """A file with the fingerprint of the first data that each account was charged for."""

    def __init__(self, path: str | os.PathLike[str], key: LedgerKey | None) -> None:
        if key is None:
            raise InputError(
                f"Fingerprints of data ({os.fspath(path)!r}) need the ledger's key; give the key file too.",
                argument="key",
            )
        if Path(path).resolve().parent == key.folder:
            raise InputError(
                "Expected the file of fingerprints in another folder than the ledger's key, got "
                f"{os.fspath(path)!r}: whoever has both can test guesses about the data.",
                argument="fingerprints",
            )
        self._path, self._key = Path(path), key

    @classmethod
    def find(cls, path: str | os.PathLike[str] | None, key: LedgerKey | None) -> Fingerprints | None:
        """Return the fingerprints in this file, or in the one named by the environment; None if neither is given."""
        named = path or os.environ.get(VARIABLE)
        return cls(named, key) if named else None

    def note(self, account_hash: str, digest: str) -> bool:
        """Store the data's fingerprint if the account has none yet. Return whether it matches the stored one."""
        fingerprint = self._key.code("data", f"{account_hash} {digest}")
        known = (kept_files.read_records(self._path, _WHAT) or {}).get(account_hash)
        if known is None:
            kept_files.change_records(self._path, _WHAT, lambda records: {account_hash: fingerprint} | records)
            known = (kept_files.read_records(self._path, _WHAT) or {}).get(account_hash)
        return bool(known == fingerprint)


def digest_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes, or of the names and bytes of all files in a folder."""
    place = Path(path)
    if place.is_dir():
        files = sorted(each for each in place.rglob("*") if each.is_file())
        named = [f"{file_digest(each)} {each.relative_to(place).as_posix()}" for each in files]
        return hashlib.sha256("\n".join(named).encode("utf-8", "surrogatepass")).hexdigest()
    return file_digest(place)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

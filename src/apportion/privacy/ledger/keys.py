"""The key of a ledger: 32 random bytes in a separate file. They authenticate every row, head and fingerprint.

Every use has a label of its own, so a code made for one purpose never passes for another:

    code = HMAC-SHA256(key, label ‖ 0 ‖ text)
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Self

from apportion.errors import InputError

VARIABLE = "APPORTION_LEDGER_KEY"
_BYTES = 32
_TOO_OPEN = stat.S_IRWXO | stat.S_IWGRP


class LedgerKey:
    """A key read from a file."""

    def __init__(self, secret: bytes, place: str) -> None:
        self._secret = secret
        self.place = place
        self.name = self.code("key name", "")[:16]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a key file. Refuse one that others can read or write."""
        try:
            with open(path, encoding="ascii") as stream:
                mode = os.fstat(stream.fileno()).st_mode
                secret = bytes.fromhex(stream.read(1024))
        except OSError as error:
            raise InputError(
                f"The ledger's key {os.fspath(path)!r} cannot be read: {error.strerror}.", argument="key"
            ) from error
        except ValueError:
            secret, mode = b"", 0
        if len(secret) != _BYTES:
            raise InputError(
                f"Expected {2 * _BYTES} hexadecimal digits in the ledger's key file {os.fspath(path)!r}.",
                argument="key",
            )
        if os.name == "posix" and mode & _TOO_OPEN:
            raise InputError(
                f"The ledger's key {os.fspath(path)!r} is readable or writable by others (mode "
                f"{stat.S_IMODE(mode):04o}); restrict it to its owner (chmod 600).",
                argument="key",
            )
        return cls(secret, os.fspath(path))

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Write a new random key to a new file that only its owner can read (mode 0600)."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(
                f"The file {os.fspath(path)!r} already exists; a key is never replaced.", argument="key"
            ) from None
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(secrets.token_hex(_BYTES) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        return cls.read(path)

    @classmethod
    def find(cls, path: str | os.PathLike[str] | None) -> Self | None:
        """Return the key in this file, or in the one named by the environment; None if neither is given."""
        named = path or os.environ.get(VARIABLE)
        return cls.read(named) if named else None

    @property
    def folder(self) -> Path:
        """The folder of the key file."""
        return Path(self.place).resolve().parent

    def code(self, label: str, text: str) -> str:
        """Return the authentication code of a text, for one use."""
        message = f"apportion ledger {label}\0{text}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()

    def made(self, code: str, label: str, text: str) -> bool:
        """Whether this key made the code."""
        return code.isascii() and hmac.compare_digest(code, self.code(label, text))

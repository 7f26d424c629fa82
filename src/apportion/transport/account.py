"""A client's account: the passes that it answered and what they cost, on disk before anything is evaluated or sent.

A line is added for every pass, and forced to disk, before the pass begins. A pass is answered at most once: its name
is in the account whatever happens afterwards. A second line of the pass is added before its survivors are signed: from
then on the server may read the sum. The file belongs to one identity, and one process at a time has it open.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from apportion.errors import InputError
from apportion.federated import RefusedError

_FIRST: Final = "apportion client account 1"


@dataclass(frozen=True)
class Entry:
    """One pass.

    Attributes:
        run: its name, in hexadecimal digits.
        names: the contributions that were asked for.
        numbers: how many numbers left the client, all of them masked.
        cost: μ² of it, counted by the client; 0 where the server draws the noise.
        least: clients that had to finish it.
        signed: whether the client signed who finished it, after which the server may read the sum.
    """

    run: str
    names: tuple[str, ...]
    numbers: int
    cost: float
    least: int
    signed: bool = False

    @classmethod
    def of(cls, line: str) -> Self:
        """Read a line of the file; refuse any other."""
        try:
            held = json.loads(line)
            entry = cls(**{**held, "names": tuple(held["names"])})
            good = len(bytes.fromhex(entry.run)) == 16 and math.isfinite(entry.cost) and entry.cost >= 0
            good = good and type(entry.signed) is bool
        except (ValueError, TypeError, KeyError):
            good = False
        if not good:
            raise InputError("Expected the account of a client, got a file with other lines.", argument="account")
        return entry


class ClientAccount:
    """The passes of one client.

    Args:
        path: of the file, which `created` made.
        identity: the client's public key.

    Attributes:
        close: gives the file back; done as well when nobody holds the account any more.
    """

    def __init__(self, path: Path, identity: bytes) -> None:
        if not path.exists():
            raise InputError(
                f"There is no account {path.name}. It is made once, with the key; never make a second one for a key.",
                argument="account",
            )
        self._file = path.open("r+b")
        self.close = weakref.finalize(self, self._file.close)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise InputError(
                f"{path.name} is open in another process; a client runs once.", argument="account"
            ) from None
        self._entries = self._read(identity)

    @classmethod
    def created(cls, path: Path, identity: bytes) -> None:
        """Make an empty account for a new identity; refuse to replace one."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps([_FIRST, identity.hex()]).encode() + b"\n")
            _force(file)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every pass, in order."""
        return tuple(self._entries.values())

    @property
    def spent(self) -> float:
        """Σ μ² of all passes."""
        return math.fsum(each.cost for each in self.entries)

    @property
    def sums(self) -> Counter[str]:
        """How many sums of each name the server may have read: those of passes whose survivors were signed."""
        return Counter(name for each in self.entries if each.signed for name in each.names)

    @staticmethod
    def shown(path: Path) -> tuple[Entry, ...]:
        """Return the passes in a file, while the client may be running."""
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return tuple(_by_name(line for line in lines[1:] if line.endswith("\n")).values())

    def refuse_again(self, run: str) -> None:
        """Refuse the name of a pass that was answered before."""
        if run in self._entries:
            raise RefusedError("Expected a pass of a new name, got one that was answered before.")

    def charge(self, entry: Entry) -> None:
        """Add a pass and force it to disk; refuse a name that was seen before."""
        self.refuse_again(entry.run)
        self._write(entry)

    def sign(self, run: str) -> None:
        """Add that the survivors of a pass are signed, and force it to disk."""
        self._write(replace(self._entries[run], signed=True))

    def _write(self, entry: Entry) -> None:
        self._entries[entry.run] = entry  # counts even if the disk fails
        self._file.write(json.dumps(asdict(entry)).encode() + b"\n")
        _force(self._file)

    def _read(self, identity: bytes) -> dict[str, Entry]:
        """Return the entries; a last line that was cut off belongs to a pass that was never answered."""
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        first, *lines = whole.decode().splitlines() or [""]
        if first != json.dumps([_FIRST, identity.hex()]):
            raise InputError("Expected the account of this client's key, got another's.", argument="account")
        self._file.seek(len(whole))
        self._file.truncate()
        return _by_name(lines)


def _by_name(lines: Iterable[str]) -> dict[str, Entry]:
    """Return passes by their names, in order; of two lines of one pass the later counts."""
    return {entry.run: entry for entry in map(Entry.of, lines)}


def _force(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())

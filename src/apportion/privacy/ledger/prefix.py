"""The part of a chain that a handle has checked already, so that charging does not recompute all of it every time.

Entries are read anew before every charge. Those that were checked before are only compared, byte for byte, by one
digest over all their columns; those that came since are recomputed in full. So a handle sees every change of an entry,
however old, and entries that it has seen cannot go away. Nothing of this is stored: another process begins at nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from apportion.privacy.ledger import chain
from apportion.privacy.ledger.chain import Definition, LedgerError, Row, Standing
from apportion.privacy.ledger.keys import LedgerKey

if TYPE_CHECKING:
    from hashlib import _Hash

Rows = Callable[[], Iterator[Row]]


@dataclass(frozen=True)
class _Known:
    standing: Standing
    digest: _Hash  # of all rows up to there


class CheckedPrefix:
    """What one handle knows of the chain of an account. Threads may share it."""

    def __init__(self, definition: Definition, key: LedgerKey | None) -> None:
        self._definition, self._key = definition, key
        self._known = _Known(definition.start, hashlib.sha256())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was checked yet."""
        return self._known.standing.number == 0

    def follow(self, rows: Rows, watched: int = 0) -> tuple[Standing, str | None]:
        """Check the chain up to its end.

        Args:
            rows: reads all rows, as of one moment that is not before this call.
            watched: number of an entry.

        Returns:
            Where the chain stands, and the hash of the watched entry; None if there is no such entry.
        """
        known, read = self._known, rows()  # in this order: what is known was there before the rows are read
        hashes = {0: self._definition.hash}
        digest = hashlib.sha256()
        for row in islice(read, known.standing.number):
            digest.update(_bytes(row))
            if row.number == watched:
                hashes[watched] = row.hash
        if digest.digest() != known.digest.digest():
            self._refuse(rows, known.standing.number)
        standing = known.standing

        def fed() -> Iterator[Row]:
            for row in read:
                digest.update(_bytes(row))
                yield row

        for entry in chain.check(self._definition, fed(), self._key, standing):
            standing = Standing(entry.number, entry.hash, entry.spent)
            if entry.number == watched:
                hashes[watched] = entry.hash
        self._known = _Known(standing, digest)
        return standing, hashes.get(watched)

    def extend(self, row: Row, standing: Standing) -> None:
        """Know an entry that this handle has just written, and that is on disk."""
        known = self._known
        if known.standing.number == row.number - 1:  # else another thread knows more already
            digest = known.digest.copy()
            digest.update(_bytes(row))
            self._known = _Known(standing, digest)

    def _refuse(self, rows: Rows, number: int) -> None:
        """Name the entry that is bad in itself, if there is one; else others were put in place of those known."""
        for _ in chain.check(self._definition, rows(), self._key):
            pass
        raise LedgerError(
            f"Account {self._definition.name!r} was cut off, rolled back or rewritten: the first {number} entries are "
            "not those that this process has seen."
        )


def _bytes(row: Row) -> bytes:
    return repr(row[:]).encode("utf-8")  # says unambiguously what each column holds, whatever it is

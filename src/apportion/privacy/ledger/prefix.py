"""The part of a chain that a handle has already checked, so that a charge need not recompute all of it.

Entries are read again before every charge. Those checked before are only compared, byte for byte, by one digest over
all columns. New ones are recomputed in full. So a handle notices any change to any entry, and the removal of entries it
has seen. Nothing of this is stored: another process starts from scratch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from apportion.privacy.ledger import chain
from apportion.privacy.ledger.chain import Definition, LedgerError, Row
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.standing import Standing

if TYPE_CHECKING:
    from hashlib import _Hash

Rows = Callable[[], Iterator[Row]]


@dataclass(frozen=True)
class _Known:
    standing: Standing
    digest: _Hash  # digest of all rows up to there


class CheckedPrefix:
    """What one handle knows about an account's chain. Threads may share it."""

    def __init__(self, definition: Definition, key: LedgerKey | None) -> None:
        self._definition, self._key = definition, key
        self._known = _Known(definition.start, hashlib.sha256())

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been checked yet."""
        return self._known.standing.number == 0

    def follow(self, rows: Rows, watched: int = 0) -> tuple[Standing, str | None]:
        """Check the chain up to its end.

        Args:
            rows: reads all rows as of one moment, not before this call.
            watched: number of an entry.

        Returns:
            The state of the chain, and the hash of the watched entry; None if there is no such entry.
        """
        known, read = self._known, rows()  # in this order: what is known existed before the rows are read
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

        for entry, after in chain.check(self._definition, fed(), self._key, standing):
            standing = after
            if entry.number == watched:
                hashes[watched] = entry.hash
        self._known = _Known(standing, digest)
        return standing, hashes.get(watched)

    def extend(self, row: Row, standing: Standing) -> None:
        """Add an entry that this handle has just written to disk."""
        known = self._known
        if known.standing.number == row.number - 1:  # otherwise another thread already knows more
            digest = known.digest.copy()
            digest.update(_bytes(row))
            self._known = _Known(standing, digest)

    def _refuse(self, rows: Rows, number: int) -> None:
        """Name the entry that is invalid in itself, if any; otherwise say that known entries were replaced."""
        for _ in chain.check(self._definition, rows(), self._key):
            pass
        raise LedgerError(
            f"Account {self._definition.name!r} was cut off, rolled back or rewritten: its first {number} "
            "entries differ from those that this process has seen."
        )


def _bytes(row: Row) -> bytes:
    return repr(row[:]).encode("utf-8")  # unambiguous for any content of the columns

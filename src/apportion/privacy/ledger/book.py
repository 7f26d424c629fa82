"""The ledger: one account per data set. Every release is charged to its account before noise is drawn.

A key in a separate file authenticates every row. A head, stored elsewhere too, reveals removed entries. See
docs/proofs/ledger.md for what each protects against.

Example::

    with Ledger.open("visits.db", key="/etc/keys/visits.key", head="https://heads.example.org/visits") as ledger:
        ledger.create_account("visits", Budget(2.0, 1e-6), window="2025", owner="data office")
        session = ledger.account("visits").session(0.5)  # half of what is left, charged release by release
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from apportion.errors import InputError
from apportion.privacy.budget import Budget
from apportion.privacy.ledger import chain
from apportion.privacy.ledger.accounts import Account, Guards
from apportion.privacy.ledger.chain import Definition, LedgerError, Stored
from apportion.privacy.ledger.fingerprints import Fingerprints
from apportion.privacy.ledger.heads import HeadPlace, KeptHead, open_heads
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.store import Store, open_store
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours

_LONGEST_NAME = 200


class Ledger:
    """A durable record of what was spent of each data set's budget; open one with `Ledger.open`.

    Example:
        >>> import tempfile
        >>> ledger = Ledger.open(tempfile.mkdtemp() + "/visits.db")
        >>> account = ledger.create_account("visits", Budget(2.0, 1e-6), window="2025")
        >>> session = account.session(0.5)  # half of what is left, charged release by release
        >>> ledger.accounts()
        ['visits']
        >>> ledger.close()
    """

    def __init__(
        self,
        store: Store,
        key: LedgerKey | None = None,
        heads: HeadPlace | None = None,
        fingerprints: Fingerprints | None = None,
    ) -> None:
        self._store, self._key, self._heads, self._fingerprints = store, key, heads, fingerprints

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        create: bool = True,
        key: str | os.PathLike[str] | None = None,
        head: str | os.PathLike[str] | None = None,
        fingerprints: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Open a ledger.

        Args:
            url: a path or sqlite:///path for a SQLite file on a local disk, postgresql://... for a database.
            create: whether to make an empty ledger if there is none.
            key: the file of the ledger's key (`LedgerKey.create` makes one); default: $APPORTION_LEDGER_KEY.
            head: a file or http(s)://... that stores heads outside the ledger; default: $APPORTION_LEDGER_HEAD.
            fingerprints: a file for fingerprints of the data; default: $APPORTION_LEDGER_FINGERPRINTS.
        """
        result = LedgerKey.find(key)
        guards = (result, open_heads(head), Fingerprints.find(fingerprints, result))
        store = open_store(url)
        version = store.format()
        if version is None:
            if not create:
                raise LedgerError(f"There is no ledger at {store.place}; `apportion ledger init` makes one.")
            store.prepare()
        else:
            chain.require_ledger_format(f"The ledger at {store.place}", version, chain.WITH_RESERVATIONS)
        return cls(store, *guards)

    def create_account(
        self,
        name: str,
        budget: Budget,
        *,
        neighbours: Neighbours = ADD_REMOVE,
        window: str = "not declared",
        owner: str = "",
        kind: str | None = None,
        orders: Iterable[int] | None = None,
    ) -> Account:
        """Open an account. It never changes afterwards.

        Args:
            name: the name of the account. Use one account for each data set.
            budget: the whole (ε, δ) that may ever be spent.
            neighbours: which two data sets are to be indistinguishable.
            window: the time span of the data, declared.
            owner: a note on who answers for it.
            kind: "gaussian" (default for δ > 0), "pure" (for δ = 0) or "renyi" (also covers runs on samples of users).
            orders: for "renyi", the whole orders among which δ is divided; by default three, chosen from the budget.
        """
        if not (name.strip() and name.isprintable() and len(name) <= _LONGEST_NAME):
            raise InputError(
                f"Expected a name of 1 to {_LONGEST_NAME} printable characters, got {name!r}.", argument="name"
            )
        adds = chain.make_filter(budget, kind or ("pure" if budget.pure else "gaussian"), orders)
        definition = Definition(
            name, adds, neighbours, window, owner, chain.now(), secrets.token_hex(16),
            None if self._key is None else self._key.name, self._heads is not None,
        )  # fmt: skip
        stored = chain.written_definition(definition, self._key)
        self._find(name)
        if not self._store.add_account(name, stored):
            raise InputError(f"An account named {name!r} already exists; accounts are never replaced.", argument="name")
        guards = self._guards(name)
        if guards.head is not None:
            guards.head.write(0, stored.hash)
        return Account(self._store, replace(definition, hash=stored.hash), stored, _new_run(), guards)

    def account(self, name: str, *, run: str | None = None) -> Account:
        """Return a handle on an account for one run. Entries record which run made them."""
        stored = self._find(name)
        if stored is None:
            known = ", ".join(map(repr, self.accounts())) or "none"
            raise InputError(f"This ledger has no account {name!r}; it has: {known}.", argument="account")
        definition = chain.read_definition(name, stored, self._key)
        return Account(self._store, definition, stored, run or _new_run(), self._guards(name))

    def accounts(self) -> list[str]:
        """The names of all accounts."""
        return self._store.accounts()

    def removed(self) -> list[str]:
        """Return the accounts that have a head but are missing from the ledger."""
        headed = [] if self._heads is None else self._heads.accounts()
        return sorted({*headed} - {*self.accounts()})

    def close(self) -> None:
        """Close this thread's connection. The ledger reopens it when needed."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self, name: str) -> Stored | None:
        """Return the stored account; refuse one that has a head but is missing from the store."""
        kept = self._guards(name).head
        head = None if kept is None else kept.stored()
        stored = self._store.account(name)
        if stored is None and kept is not None and head is not None:
            raise LedgerError(
                f"Account {name!r} is not in the ledger at {self._store.place}, but its head at {kept.place} is at "
                f"entry {head.entries}: the account was removed or renamed, or this is another ledger."
            )
        return stored

    def _guards(self, name: str) -> Guards:
        head = None if self._heads is None else KeptHead(self._heads, name, self._key)
        return Guards(self._key, head, self._fingerprints)


def _new_run() -> str:
    return secrets.token_hex(6)

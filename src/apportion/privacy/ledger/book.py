"""The ledger: accounts per data set, which every release is charged to before its noise is drawn.

Example::

    with Ledger.open("visits.db") as ledger:
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
from apportion.privacy.ledger.accounts import Account
from apportion.privacy.ledger.chain import Definition, LedgerError
from apportion.privacy.ledger.store import Store, open_store
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours

_LONGEST_NAME = 200


class Ledger:
    """A durable record of what was spent of which data set's budget; `Ledger.open` opens one.

    Example:
        >>> import tempfile
        >>> ledger = Ledger.open(tempfile.mkdtemp() + "/visits.db")
        >>> account = ledger.create_account("visits", Budget(2.0, 1e-6), window="2025")
        >>> session = account.session(0.5)  # half of what is left, charged release by release
        >>> ledger.accounts()
        ['visits']
        >>> ledger.close()
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def open(cls, url: str | os.PathLike[str], *, create: bool = True) -> Self:
        """Open a ledger.

        Args:
            url: a path or sqlite:///path for a SQLite file on a local disk, postgresql://... for a database.
            create: whether to make an empty one where there is none.
        """
        store = open_store(url)
        if not store.is_ready():
            if not create:
                raise LedgerError(f"There is no ledger at {store.place}; `apportion ledger init` makes one.")
            store.prepare()
        return cls(store)

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
        """Open an account; it never changes afterwards.

        Args:
            name: of the account, one for each data set.
            budget: the whole (ε, δ) that may ever be spent.
            neighbours: which two data sets are to be indistinguishable.
            window: the time span of the data, declared.
            owner: a note on who answers for it.
            kind: "gaussian" (the default for δ > 0), "pure" (for δ = 0) or "renyi" (also bears runs on samples).
            orders: for "renyi", whole orders among which δ is divided; by default three, chosen from the budget.
        """
        if not (name.strip() and name.isprintable() and len(name) <= _LONGEST_NAME):
            raise InputError(f"Expected a name of 1 to {_LONGEST_NAME} printable characters, got {name!r}.")
        adds = chain.make_filter(budget, kind or ("pure" if budget.pure else "gaussian"), orders)
        definition = Definition(name, adds, neighbours, window, owner, chain.now())
        body, hashed = chain.written_definition(definition)
        if not self._store.add_account(name, body, hashed):
            raise InputError(f"An account named {name!r} exists already; accounts are never replaced.")
        return Account(self._store, replace(definition, hash=hashed), _new_run())

    def account(self, name: str, *, run: str | None = None) -> Account:
        """A handle on an account, for one run; entries say which run made them."""
        stored = self._store.account(name)
        if stored is None:
            known = ", ".join(map(repr, self.accounts())) or "none"
            raise InputError(f"There is no account {name!r} in this ledger; there are: {known}.")
        return Account(self._store, chain.read_definition(name, *stored), run or _new_run())

    def accounts(self) -> list[str]:
        """The names of all accounts."""
        return self._store.accounts()

    def close(self) -> None:
        """Close this thread's connection; the ledger opens it again when it is needed."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _new_run() -> str:
    return secrets.token_hex(6)

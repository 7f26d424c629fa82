"""An account: one data set's budget, and every charge to it.

A charge is one transaction: it reads what was spent, refuses or adds an entry, and returns when that is on disk. Then
only does the session draw. A crash between the two wastes the charge; there are no refunds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from apportion.errors import BudgetError
from apportion.privacy import gaussian
from apportion.privacy.budget import Budget
from apportion.privacy.ledger import chain, events
from apportion.privacy.ledger.chain import Definition, Entry, LedgerError, Row
from apportion.privacy.ledger.events import Event, Receipt, SampledRun
from apportion.privacy.ledger.filters import Amounts, added, below, root_below, to_text
from apportion.privacy.ledger.status import Status
from apportion.privacy.ledger.store import Store
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_EXAMPLE, Neighbours
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.session import Session


class _BeyondTotal(Exception):  # noqa: N818 - never seen by anybody
    """A charge that the account cannot bear."""

    def __init__(self, before: Amounts) -> None:
        super().__init__()
        self.before = before


class Account:
    """One data set's budget. A session takes it as `ledger=`; `session` opens one for a part of what is left."""

    def __init__(self, store: Store, definition: Definition, run: str) -> None:
        self._store = store
        self._definition = definition
        self._filter = definition.filter
        self.run = run

    @property
    def name(self) -> str:
        """Of the account."""
        return self._definition.name

    @property
    def budget(self) -> Budget:
        """The whole (ε, δ)."""
        return self._filter.budget

    @property
    def neighbours(self) -> Neighbours:
        """Which two data sets are to be indistinguishable; sessions for other ones are refused."""
        return self._definition.neighbours

    @property
    def window(self) -> str:
        """The time span of the data."""
        return self._definition.window

    def charge(self, name: str, event: Event) -> Receipt:
        """Record durably that a release is about to be drawn, or refuse.

        Args:
            name: of the release.
            event: what it is.

        Raises:
            BudgetError: if the account cannot bear it; the message says what is left, and nothing is written.
            LedgerError: if the ledger cannot be reached or was altered; the charge may or may not stand.
        """
        if isinstance(event, SampledRun) and self.neighbours not in (ADD_REMOVE, ADD_REMOVE_EXAMPLE):
            raise BudgetError(
                f"Releases on samples of the users are accounted for neighbours that differ thus: "
                f"{ADD_REMOVE.relation}; account {self.name!r} promises: {self.neighbours.relation}."
            )
        cost = self._filter.cost(event)

        def following(last: Row | None) -> Row:
            number, previous, before = self._standing(last)
            spent = added(before, cost)
            if not self._filter.allows(spent):
                raise _BeyondTotal(before)
            entry = Entry(number + 1, chain.now(), self.run, name, event, cost, spent, previous)
            return chain.written_entry(self.name, entry)

        try:
            row = self._store.append(self.name, following)
        except _BeyondTotal as refused:  # said only now, when nobody waits for the transaction any more
            raise BudgetError(
                f"Release {name!r} asks for {events.in_words(event)} of account {self.name!r}, which cannot bear it: "
                f"{self._left_in_words(refused.before)}."
            ) from None
        return Receipt(self.name, self.run, row.number, row.hash)

    def session(
        self,
        part: float | Budget = 1.0,
        *,
        noise: NoiseSource | str | None = None,
        public: Sequence[str] = (),
        tuning: str | None = None,
        window: str | None = None,
    ) -> Session:
        """Open a session that charges this account. Nothing is set aside for it: only releases are charged.

        Args:
            part: the session's budget, or the fraction of what is left that it may take.
            noise: where randomness comes from.
            public: sentences naming what is assumed public.
            tuning: how settings were chosen.
            window: the time span of the data, if it is another than the account's.
        """
        from apportion.privacy.session import Session

        _, _, spent = self._standing(self._store.last(self.name))
        if isinstance(part, Budget):
            budget = part
            if not self._filter.covers(budget, spent):
                raise BudgetError(
                    f"A session of epsilon {budget.epsilon:g} at delta {budget.delta:g} does not fit in account "
                    f"{self.name!r}: {self._left_in_words(spent)}."
                )
        elif 0 < part <= 1:
            budget = self._filter.budget_within(part, spent)
        else:
            raise BudgetError(f"Expected a fraction in (0, 1] of what is left of account {self.name!r}, got {part}.")
        return Session(
            budget,
            noise=noise,
            public=public,
            tuning=tuning,
            window=self.window if window is None else window,
            ledger=self,
            neighbours=self.neighbours,
        )

    def status(self) -> Status:
        """Where the account stands: what was spent, what is left, the head of its chain."""
        return self._status(*self._standing(self._store.last(self.name)))

    def _status(self, number: int, head: str, spent: Amounts) -> Status:
        adds, definition = self._filter, self._definition
        left_mu, left_epsilon = self._left(spent)
        return Status(
            definition.name,
            adds.kind,
            adds.budget.epsilon,
            adds.budget.delta,
            definition.neighbours.unit,
            definition.neighbours.relation,
            definition.window,
            definition.owner,
            definition.created,
            number,
            head,
            adds.spent_epsilon(spent),
            adds.spent_mu(spent),
            left_epsilon,
            left_mu,
            adds.measures,
            tuple(to_text(spent)),
            tuple(to_text(adds.totals)),
        )

    def history(self) -> list[Entry]:
        """All charges, in order; refuses a ledger that was altered."""
        return list(self._checked())

    def verify(self, head: str | None = None) -> Status:
        """Recompute every hash, cost and sum; raises at the first entry that is not as it was written.

        Args:
            head: one that was kept elsewhere. It must be that of this account or of one of its entries: else the
                tail was cut, or the whole chain rewritten, which nothing in the ledger itself can show.
        """
        standing, found = self._standing(None), head in (None, self._definition.hash)
        for entry in self._checked():
            standing, found = (entry.number, entry.hash, entry.spent), found or entry.hash == head
        if not found:
            raise LedgerError(
                f"No entry of account {self.name!r} has the hash {head!r}: entries were cut off, or all were rewritten."
            )
        return self._status(*standing)

    def export(self) -> dict[str, Any]:
        """Everything, as JSON has it: the status, and each entry with its event in dp_accounting's words too."""
        entries = self.history()
        last = entries[-1] if entries else None
        standing = self._standing(None) if last is None else (last.number, last.hash, last.spent)
        return {
            "format": chain.FORMAT,
            "account": asdict(self._status(*standing)),
            "genesis": self._definition.hash,
            "entries": [
                {
                    "number": entry.number,
                    "at": entry.at,
                    "run": entry.run,
                    "name": entry.name,
                    "event": events.to_json(entry.event),
                    "dp_event": events.as_dp_event(entry.event),
                    "cost": to_text(entry.cost),
                    "spent": to_text(entry.spent),
                    "previous": entry.previous,
                    "hash": entry.hash,
                }
                for entry in entries
            ],
            "head": standing[1],
        }

    def _checked(self) -> Iterator[Entry]:
        yield from chain.check(self._definition, self._store.rows(self.name))

    def _standing(self, last: Row | None) -> tuple[int, str, Amounts]:
        """Number and hash of the last entry, and what was spent up to it; refuses one that was altered."""
        if last is None:
            return 0, self._definition.hash, self._filter.nothing
        entry = chain.read_entry(self.name, last)
        return entry.number, entry.hash, entry.spent

    def _left(self, spent: Amounts) -> tuple[float | None, float]:
        """The μ of one more Gaussian release, and the ε of one more session, rounded down."""
        if self.budget.pure:
            return None, max(0.0, below(self._filter.totals[0] - spent[0]))
        mu = root_below(self._filter.gaussian_left(spent))
        if mu >= self.budget.mu:
            return mu, self.budget.epsilon
        return mu, gaussian.epsilon_of(mu, self.budget.delta) * (1 - 1e-11)

    def _left_in_words(self, spent: Amounts) -> str:
        mu, epsilon = self._left(spent)
        if mu is None:
            return f"epsilon {epsilon:.6g} of {self.budget.epsilon:g} is left"
        whole = root_below(self._filter.gaussian_left(self._filter.nothing))
        worth = f"worth epsilon {epsilon:.6g} at delta {self.budget.delta:g} to a session of its own"
        return f"mu {mu:.6g} of {whole:.6g} is left, {worth}"

"""An account: one data set's budget, and every charge against it.

A charge is one transaction: it checks the whole chain, then refuses or adds an entry. It returns once the entry is on
disk and its head is stored outside the ledger. Only then does the session draw noise. A crash between the two wastes
the charge; there are no refunds.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from apportion.errors import BudgetError
from apportion.privacy.budget import Budget
from apportion.privacy.ledger import chain, events
from apportion.privacy.ledger.chain import Definition, LedgerError, Row, Stored
from apportion.privacy.ledger.events import Event, GivenBack, Note, Receipt, Reserved, SampledRun
from apportion.privacy.ledger.filters import Amounts, added, no_keys, to_text
from apportion.privacy.ledger.fingerprints import Fingerprints, OtherDataWarning, digest_of
from apportion.privacy.ledger.heads import Head, KeptHead
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.left import BeyondTotalError, left_in_words, status_of
from apportion.privacy.ledger.prefix import CheckedPrefix, Rows
from apportion.privacy.ledger.reservations import Made, Reservation
from apportion.privacy.ledger.standing import Entry, Standing
from apportion.privacy.ledger.status import Status
from apportion.privacy.ledger.store import Store
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_EXAMPLE, Neighbours
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.checkpoints import Checkpoint
    from apportion.privacy.session import Session


@dataclass(frozen=True)
class Guards:
    """What protects an account from people who can write to the store.

    Attributes:
        key: authenticates every entry.
        head: the account's head, stored outside the ledger.
        fingerprints: fingerprints of the data that accounts were charged for.
    """

    key: LedgerKey | None = None
    head: KeptHead | None = None
    fingerprints: Fingerprints | None = None


class Account:
    """One data set's budget. Pass it to a session as `ledger=`, or call `session` to spend part of what is left."""

    def __init__(self, store: Store, definition: Definition, stored: Stored, run: str, guards: Guards) -> None:
        self._store = store
        self._definition = definition
        self._stored = stored
        self._filter = definition.filter
        self._guards = guards
        self._prefix = CheckedPrefix(definition, guards.key)
        self._digest: str | None = None
        self._warn: Callable[[str], None] = _warn_of_other_data
        self.run = run

    @property
    def name(self) -> str:
        """The name of the account."""
        return self._definition.name

    @property
    def identity(self) -> str:
        """A text that is the same for all handles on this account, and different for any other account."""
        return f"{self.name} {self._definition.hash}"

    @property
    def budget(self) -> Budget:
        """The whole (ε, δ)."""
        return self._filter.budget

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation that the account protects. Sessions for another relation are refused."""
        return self._definition.neighbours

    @property
    def window(self) -> str:
        """The time span of the data."""
        return self._definition.window

    def charge(self, name: str, event: Event, *, against: int | None = None) -> Receipt:
        """Record durably that a release is about to be drawn, or refuse.

        Args:
            name: the name of the release.
            event: the event that is charged.
            against: the number of the reservation that pays, as far as it is open and goes.

        Raises:
            BudgetError: if too little is left; the message says how much, and nothing is written.
            LedgerError: if the ledger cannot be reached or was altered; the charge may or may not be recorded.
        """
        if isinstance(event, SampledRun) and self.neighbours not in (ADD_REMOVE, ADD_REMOVE_EXAMPLE):
            raise BudgetError(
                f"Releases on samples of the users need the neighbours {ADD_REMOVE.relation!r}; those of account "
                f"{self.name!r} are {self.neighbours.relation!r}."
            )
        self._refuse_unguarded()
        try:
            row = self._written(name, event, self._filter.cost(event), against)
        except BeyondTotalError as refused:  # warn only now, after the transaction, so that nobody waits for it
            raise BudgetError(
                f"Release {name!r} asks for {events.in_words(event)}, which is more than account {self.name!r} has "
                f"left: {left_in_words(self._filter, refused.before)}."
            ) from None
        self._note_data()
        return Receipt(self.name, self.run, row.number, row.hash)

    def reserve(self, part: float | Budget = 1.0, *, checkpoint: Checkpoint | None = None) -> Reservation:
        """Set a run's whole budget aside, or refuse. Whatever the run does not use is given back when it ends.

        Args:
            part: the budget, or the fraction of what is left.
            checkpoint: of a fit that can be resumed: the reservation of its earlier process goes on, if it is open.

        On an account of kind "renyi" nothing is set aside, because what a run will cost there is not known beforehand;
        a run on samples is charged whole at its start anyway.

        Example::

            with account.reserve(0.5) as reserved:
                model.fit(data, session=reserved.session())
        """
        self._refuse_unguarded()
        standing = self._standing()
        made = Made() if checkpoint is None else checkpoint.reservations(self.identity)
        kept = next((number for number in made.numbers if standing.reservation(number) is not None), None)
        resumed = checkpoint is not None and checkpoint.n_stored > 0
        budget = self._budget_of(part, standing, begun=resumed or kept is not None)
        most = self._filter.most(budget)
        whole = resumed and made.finished  # then nothing will be charged
        if kept is not None or most is None or whole or (resumed and not made.numbers):
            return Reservation(self, budget, kept, checkpoint, adopted=kept is not None, finished=whole)
        charged = self._charged_against(made.numbers) if resumed else self._filter.nothing
        missing = tuple(max(a - b, Fraction(0)) for a, b in zip(most, charged, strict=True))
        number = self._set_aside(missing, budget) if any(missing) else None
        if checkpoint is not None and number is not None:
            checkpoint.keep_reservations(self.identity, replace(made, numbers=(*made.numbers, number), finished=False))
        return Reservation(self, budget, number, checkpoint)

    def give_back(self, reservation: int, *, missing_ok: bool = False) -> Amounts:
        """Give back what is left of a reservation. Return what was charged against it; that stays spent.

        Args:
            reservation: the number of its entry.
            missing_ok: whether to do nothing if it is not open.
        """
        self._refuse_unguarded()
        try:
            if self._standing().reservation(reservation) is None:
                raise LedgerError(f"Account {self.name!r} has no open reservation with number {reservation}.")
            self._written("given back", GivenBack(reservation), self._filter.nothing, None)
        except LedgerError:
            if missing_ok and self._standing().reservation(reservation) is None:  # somebody else may just have done it
                return self._filter.nothing
            raise
        return self._charged_against([reservation])

    def epsilon_of(self, amounts: Amounts) -> float:
        """Return the ε, at the account's δ, of what was charged."""
        return self._filter.spent_epsilon(amounts)

    def _set_aside(self, amounts: Amounts, budget: Budget) -> int:
        event = Reserved(amounts, self._filter.spent_epsilon(amounts))
        try:
            return self._written("set aside", event, self._filter.nothing, None).number
        except BeyondTotalError as refused:
            raise self._does_not_fit(budget, refused.before) from None

    def _charged_against(self, reservations: Sequence[int]) -> Amounts:
        total = self._filter.nothing
        for entry, _ in self._checked():
            total = added(total, entry.cost) if entry.against in reservations else total
        return total

    def _written(self, name: str, event: Event | Note, cost: Amounts, against: int | None) -> Row:
        """Write an entry and its head, or refuse."""
        if self._prefix.is_empty:
            self._standing()  # check many entries for the first time before the transaction, so that nobody waits
        row, compared = self._add(name, event, cost, against)
        self._keep_head(row, compared)
        return row

    def for_data(self, data: str | os.PathLike[str], warn: Callable[[str], None] | None = None) -> Account:
        """Name the file or folder that this handle charges for. With a fingerprint file, warn if the data changed.

        Args:
            data: the file or folder; it is read now if fingerprints are kept.
            warn: receives the warning text; by default it is issued as an `OtherDataWarning`.
        """
        if self._guards.fingerprints is not None:
            self._digest = digest_of(data)
        self._warn = warn or _warn_of_other_data
        return self

    def session(
        self,
        part: float | Budget = 1.0,
        *,
        noise: NoiseSource | str | None = None,
        public: Sequence[str] = (),
        tuning: str | None = None,
        window: str | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> Session:
        """Open a session that charges this account. Nothing is set aside for it (see `reserve`): releases are charged.

        Args:
            part: the session's budget, or the fraction of what is left that it may spend.
            noise: where randomness comes from.
            public: sentences naming what is assumed public.
            tuning: how settings were chosen.
            window: the time span of the data, if it differs from the account's.
            checkpoint: where releases are stored; those that are stored already were charged before.
        """
        from apportion.privacy.session import Session

        self._refuse_unguarded()
        resumed = checkpoint is not None and checkpoint.n_stored > 0  # a part of the budget is already spent
        budget = self._budget_of(part, self._standing(), begun=resumed)
        return Session(
            budget,
            noise=noise,
            public=public,
            tuning=tuning,
            window=self.window if window is None else window,
            ledger=self,
            neighbours=self.neighbours,
            checkpoint=checkpoint,
        )

    def _budget_of(self, part: float | Budget, standing: Standing, *, begun: bool) -> Budget:
        """Return the budget of a new session. Refuse one that does not fit, unless it has begun to spend it."""
        if not isinstance(part, Budget):
            if 0 < part <= 1:
                return self._filter.budget_within(part, standing.taken)
            raise BudgetError(f"Expected a fraction in (0, 1] of what is left of account {self.name!r}, got {part}.")
        if part.keys_delta and not self.budget.keys_delta:
            raise no_keys()
        if not (begun or self._filter.covers(part, standing.taken)):
            raise self._does_not_fit(part, standing)
        return part

    def _does_not_fit(self, budget: Budget, standing: Standing) -> BudgetError:
        return BudgetError(
            f"A session of epsilon {budget.epsilon:g} at delta {budget.delta:g} does not fit in account "
            f"{self.name!r}: {left_in_words(self._filter, standing, budget)}."
        )

    def status(self) -> Status:
        """Return the state of the account: what was spent, what is left, and the head of its chain."""
        return status_of(self._definition, self._standing())

    def history(self) -> list[Entry]:
        """Return all charges and notes in order. Refuse a ledger that was altered."""
        return [entry for entry, _ in self._checked()]

    def verify(self, kept: str | None = None) -> Status:
        """Recompute every hash, code, cost and sum, and compare the head. Raise at the first error.

        `unseen` says what it cannot detect without a key or a head.

        Args:
            kept: the hash of an entry that was stored elsewhere, for example in a statement or card. The chain must
                still contain it.
        """
        self._standing()
        standing, result = self._definition.start, kept in (None, self._definition.hash)
        for entry, standing in self._checked():  # noqa: B007 - the last one
            result = result or entry.hash == kept
        if not result:
            raise LedgerError(
                f"No entry of account {self.name!r} has the hash {kept!r}: entries were removed from the end, or "
                "the whole chain was rewritten."
            )
        return status_of(self._definition, standing)

    def unseen(self) -> tuple[str, ...]:
        """Return what `verify` cannot detect here, one sentence each."""
        sentences = []
        if self._guards.head is None:
            sentences.append(
                "No head was given: removed entries at the end, or an older copy of the ledger, cannot be detected."
            )
        if self._definition.key is not None and self._guards.key is None:
            sentences.append("The account's key was not given: codes were not checked.")
        if self._guards.key is None and self._guards.head is None:
            sentences.append("Neither key nor head was given: a chain rewritten from the start cannot be detected.")
        return tuple(sentences)

    def write_first_head(self) -> Status:
        """Write the first head of the account, after checking the chain."""
        head = self._guards.head
        if head is None:
            raise LedgerError(f"No place was given to store the head of account {self.name!r}.")
        self._refuse_unguarded()
        with self._store.transaction(self.name) as held:
            if head.stored() is not None:
                raise LedgerError(f"Account {self.name!r} already has a head at {head.place}; charges update it.")
            self._refuse_other_definition(held.account())
            standing, _ = self._prefix.follow(held.rows)
            head.write(standing.number, standing.hash)
        return status_of(self._definition, standing)

    def export(self) -> dict[str, Any]:
        """Return everything in JSON form: the status, and each entry with its event in dp_accounting's terms too."""
        checked = list(self._checked())
        standing = checked[-1][1] if checked else self._definition.start
        return {
            "format": chain.FORMAT,
            "account": asdict(status_of(self._definition, standing)),
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
                    "against": entry.against,
                }
                for entry, _ in checked
            ],
            "head": standing.hash,
        }

    def _checked(self) -> Iterator[tuple[Entry, Standing]]:
        yield from chain.check(self._definition, self._store.rows(self.name), self._guards.key)

    def _standing(self) -> Standing:
        """Check the whole chain, compare it with the head, and return its last state."""
        self._refuse_other_definition(self._store.account(self.name))
        return self._compared(self._expected_head(), lambda: self._store.rows(self.name))

    def _compared(self, expected: Head | None, rows: Rows) -> Standing:
        standing, hash_there = self._prefix.follow(rows, 0 if expected is None else expected.entries)
        if expected is not None and self._guards.head is not None:
            self._guards.head.compare(expected, standing.number, hash_there)
        return standing

    def _expected_head(self) -> Head | None:
        """Read the head before the chain: a head is never ahead of a chain that is read later."""
        return None if self._guards.head is None else self._guards.head.expected()

    def _add(self, name: str, event: Event | Note, cost: Amounts, against: int | None) -> tuple[Row, Head | None]:
        """Check, then refuse or write, in one transaction. Return the entry and the head it was compared with."""
        expected = self._expected_head()
        with self._store.transaction(self.name) as held:
            self._refuse_other_definition(held.account())
            before = self._compared(expected, held.rows)
            row, standing = self._following(before, name, event, cost, against)
            if isinstance(event, Reserved):
                held.raise_format(chain.WITH_RESERVATIONS)
            held.add(row)
        self._prefix.extend(row, standing)
        return row, expected

    def _following(
        self, before: Standing, name: str, event: Event | Note, cost: Amounts, against: int | None
    ) -> tuple[Row, Standing]:
        """Return the next entry, and the state of the chain after it. A reservation that is not open pays nothing."""
        pays = None if before.reservation(against) is None else against
        spent = added(before.spent, cost)
        entry = Entry(
            before.number + 1, chain.now(), self.run, name, event, cost, spent, before.hash, against=pays
        )  # fmt: skip
        row = chain.written_entry(self.name, entry, self._guards.key)
        standing = before.after(replace(entry, hash=row.hash))
        if standing is None:  # somebody else gave it back meanwhile
            raise LedgerError(f"Account {self.name!r} has no such open reservation any more.")
        if not self._filter.allows(standing.taken):
            raise BeyondTotalError(before)
        return row, standing

    def _keep_head(self, row: Row, compared: Head | None) -> None:
        """Write the head of an entry, unless a later one is stored. The store's lock makes processes take turns.

        If another process wrote a head meanwhile, that head is compared before it is replaced: its entries must exist.
        """
        head = self._guards.head
        if head is None:
            return
        try:
            with self._store.transaction(self.name) as held:
                result = head.expected()
                if result != compared:
                    self._compared(result, held.rows)
                    self._refuse_unless_held(row, held.rows)
                if result.entries < row.number:
                    head.write(row.number, row.hash)
        except LedgerError as error:
            raise LedgerError(f"Entry {row.number} was charged, but nothing may be drawn for it: {error}") from error

    def _refuse_unless_held(self, row: Row, rows: Rows) -> None:
        _, hash_there = self._prefix.follow(rows, row.number)
        if hash_there != row.hash:
            raise LedgerError(f"Account {self.name!r} was rewritten: another entry has its number.")

    def _note_data(self) -> None:
        if self._digest is None or self._guards.fingerprints is None:
            return
        digest, self._digest = self._digest, None  # warn once for each handle
        if not self._guards.fingerprints.note(self._definition.hash, digest):
            self._warn(
                f"Account {self.name!r} was charged for other data before. Check that this is the account for "
                "these data."
            )

    def _refuse_unguarded(self) -> None:
        """Refuse to charge without the key or the head that the account was opened with."""
        if self._definition.key is not None and self._guards.key is None:
            raise LedgerError(
                f"Account {self.name!r} was opened with key {self._definition.key}: give the ledger's key file to "
                "charge it."
            )
        if self._definition.headed and self._guards.head is None:
            raise LedgerError(
                f"Account {self.name!r} was opened with a head: say where the head is stored to charge the account."
            )

    def _refuse_other_definition(self, stored: Stored | None) -> None:
        if stored != self._stored:
            raise LedgerError(f"Account {self.name!r} was altered: it differs from what this process read before.")


def _warn_of_other_data(sentence: str) -> None:
    warnings.warn(sentence, OtherDataWarning, stacklevel=4)

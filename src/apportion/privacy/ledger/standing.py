"""Entries of an account, and where it stands after each: what was spent, and what is still set aside for runs.

A reservation sets an amount aside. Charges against it come out of that amount, and out of what is free beyond it. What
is left of it is free again when it is given back. Neither adds to what was spent: only charges do, and each is an entry
of its own before anything is drawn. So a reservation can refuse others too much, and nobody too little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from apportion.privacy.ledger.events import Event, GivenBack, Note, Reserved
from apportion.privacy.ledger.filters import Amounts, added


@dataclass(frozen=True)
class Entry:
    """One charge, or a note on what is set aside.

    Attributes:
        number: its number, from 1.
        at: when it was made, in UTC.
        run: who made it: a text that identifies one handle on the account.
        name: the name of the release.
        event: what was charged for, or the note.
        cost: what it adds to each amount; nothing for a note.
        spent: each amount after it.
        previous: hash of the entry before, or of the account.
        hash: the hash of this entry.
        against: the number of the reservation that pays for the charge, if one does.
    """

    number: int
    at: str
    run: str
    name: str
    event: Event | Note
    cost: Amounts
    spent: Amounts
    previous: str
    hash: str = ""
    against: int | None = None


@dataclass(frozen=True)
class Held:
    """An open reservation.

    Attributes:
        number: the number of the entry that made it.
        run: who made it.
        at: when, in UTC.
        left: what is still set aside of each amount.
    """

    number: int
    run: str
    at: str
    left: Amounts

    def less(self, cost: Amounts) -> Held:
        """Return what is left after a charge against it; beyond that, what is free pays."""
        return replace(self, left=tuple(max(a - b, Fraction(0)) for a, b in zip(self.left, cost, strict=True)))


@dataclass(frozen=True)
class Standing:
    """The state of a chain after an entry.

    Attributes:
        number: the number of the entry.
        hash: its hash.
        spent: each amount up to it.
        held: the reservations that are open.
    """

    number: int
    hash: str
    spent: Amounts
    held: tuple[Held, ...] = ()

    @property
    def taken(self) -> Amounts:
        """What was spent and what is set aside: what nobody else can have."""
        total = self.spent
        for each in self.held:
            total = added(total, each.left)
        return total

    def reservation(self, number: int | None) -> Held | None:
        """Return the open reservation of that number, if there is one."""
        return next((each for each in self.held if each.number == number), None)

    def after(self, entry: Entry) -> Standing | None:
        """Return the state after the next entry; None if it does not fit what is set aside."""
        held = self._held_after(entry)
        return None if held is None else Standing(entry.number, entry.hash, added(self.spent, entry.cost), held)

    def _held_after(self, entry: Entry) -> tuple[Held, ...] | None:
        event = entry.event
        if entry.against is not None and (isinstance(event, Note) or self.reservation(entry.against) is None):
            return None
        if isinstance(event, Reserved):
            made = Held(entry.number, entry.run, entry.at, event.amounts)
            return (*self.held, made) if len(event.amounts) == len(self.spent) else None
        if isinstance(event, GivenBack):
            kept = tuple(each for each in self.held if each.number != event.reservation)
            return kept if len(kept) < len(self.held) else None
        return tuple(each.less(entry.cost) if each.number == entry.against else each for each in self.held)

"""Reservations: a run's whole budget is set aside when it begins, and what it did not use is given back when it ends.

A run that begins beside others is refused at once or not at all. Every release is charged as ever, before it is drawn,
so the guarantee does not rest on reservations. A program that is killed leaves its charges, and an entry that keeps the
rest from others until somebody gives it back (docs/proofs/ledger.md).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from apportion.privacy.budget import Budget
from apportion.privacy.ledger.chain import LedgerError
from apportion.privacy.ledger.events import Event, Receipt
from apportion.privacy.neighbours import Neighbours
from apportion.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from apportion.privacy.checkpoints import Checkpoint
    from apportion.privacy.ledger.accounts import Account
    from apportion.privacy.session import Session


class ReservationWarning(UserWarning):
    """What a run did not use could not be given back."""


@dataclass(frozen=True)
class Made:
    """What a fit that can be resumed has set aside on an account.

    Attributes:
        numbers: of the reservations, in order.
        finished: whether the fit came to its end, so that all of its releases are stored.
    """

    numbers: tuple[int, ...] = ()
    finished: bool = False


class Reservation:
    """Part of an account, set aside by `Account.reserve`; use it in a `with` block, which gives the rest back.

    Args:
        account: charged.
        budget: of the run.
        number: of the entry that set it aside; None if nothing is.
        checkpoint: of a fit that can be resumed; if it stops half-way, nothing is given back.
        adopted: whether an earlier process of the same fit made the reservation.
        finished: whether the fit came to its end before, so that it needs nothing any more.
    """

    def __init__(
        self,
        account: Account,
        budget: Budget,
        number: int | None,
        checkpoint: Checkpoint | None = None,
        *,
        adopted: bool = False,
        finished: bool = False,
    ) -> None:
        self._account, self._checkpoint, self._adopted = account, checkpoint, adopted
        self.budget = budget
        self.number = number
        self.finished = finished
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """The name of the account."""
        return self._account.name

    @property
    def identity(self) -> str:
        """The identity of the account."""
        return self._account.identity

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation that the account protects."""
        return self._account.neighbours

    def charge(self, name: str, event: Event) -> Receipt:
        """Charge the account. What is set aside pays, and what is free beyond it."""
        return self._account.charge(name, event, against=self.number)

    def session(
        self,
        *,
        noise: NoiseSource | str | None = None,
        public: Sequence[str] = (),
        tuning: str | None = None,
        window: str | None = None,
    ) -> Session:
        """Open a session of this budget. The arguments are those of `Account.session`."""
        from apportion.privacy.session import Session

        return Session(
            self.budget,
            noise=noise,
            public=public,
            tuning=tuning,
            window=self._account.window if window is None else window,
            ledger=self,
            neighbours=self.neighbours,
            checkpoint=self._checkpoint,
        )

    def end(self, *, finished: bool) -> bool:
        """Give back what was not used, unless the fit stopped half-way and can be resumed. Return whether it ended."""
        stored = self._checkpoint is not None and (self._adopted or self._checkpoint.n_stored > 0)
        forked = os.getpid() != self._process  # a copy of this process that ends has not ended the run
        if self.number is None or forked or (stored and not finished):
            return False
        if self._checkpoint is not None:
            made = self._checkpoint.reservations(self.identity)
            with suppress(OSError):  # the folder may be gone, now that the fit has ended
                self._checkpoint.keep_reservations(self.identity, replace(made, finished=finished))
        try:
            self._account.give_back(self.number, missing_ok=True)
        except LedgerError as error:
            said = f"What is left of reservation {self.number} of account {self.name!r} was not given back: {error}"
            warnings.warn(said, ReservationWarning, stacklevel=3)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.end(finished=kind is None and sys.exc_info()[0] is None)

"""A durable ledger of privacy budgets, shared by all runs on a data set: SQLite by default, PostgreSQL by URL."""

from apportion.privacy.ledger.accounts import Account
from apportion.privacy.ledger.book import Ledger
from apportion.privacy.ledger.chain import LedgerError
from apportion.privacy.ledger.events import (
    Event,
    GaussianRelease,
    GivenBack,
    Note,
    PureRelease,
    Receipt,
    Reserved,
    SampledRun,
    SelectionRun,
)
from apportion.privacy.ledger.fingerprints import OtherDataWarning
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.reservations import Reservation
from apportion.privacy.ledger.standing import Entry
from apportion.privacy.ledger.status import ReservedPart, Status

__all__ = [
    "Account",
    "Entry",
    "Event",
    "GaussianRelease",
    "GivenBack",
    "Ledger",
    "LedgerError",
    "LedgerKey",
    "Note",
    "OtherDataWarning",
    "PureRelease",
    "Receipt",
    "Reservation",
    "Reserved",
    "ReservedPart",
    "SampledRun",
    "SelectionRun",
    "Status",
]

"""A durable ledger of privacy budgets, shared by all runs on a data set: SQLite by default, PostgreSQL by URL."""

from apportion.privacy.ledger.accounts import Account
from apportion.privacy.ledger.book import Ledger
from apportion.privacy.ledger.chain import Entry, LedgerError
from apportion.privacy.ledger.events import Event, GaussianRelease, PureRelease, Receipt, SampledRun, SelectionRun
from apportion.privacy.ledger.fingerprints import OtherDataWarning
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.status import Status

__all__ = [
    "Account",
    "Entry",
    "Event",
    "GaussianRelease",
    "Ledger",
    "LedgerError",
    "LedgerKey",
    "OtherDataWarning",
    "PureRelease",
    "Receipt",
    "SampledRun",
    "SelectionRun",
    "Status",
]

"""The page of a client: what was asked of it, what left it, and what is promised to the person who owns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from apportion.federated import Trust
from apportion.privacy.budget import Budget
from apportion.privacy.gaussian import epsilon_of
from apportion.report.rendering import render
from apportion.transport.catalogue import CATALOGUE

if TYPE_CHECKING:
    from apportion.transport import Entry
    from apportion.transport.configuration import Federation


def client_page(federation: Federation, n_clients: int, journal: Sequence[Entry]) -> str:
    """Return the page as self-contained HTML.

    Args:
        federation: the agreed settings of the federation.
        n_clients: the number of clients on the roster.
        journal: every pass that the client's account records.
    """
    spent = sum(entry.cost for entry in journal)
    return render(
        "client.html",
        federation=federation,
        trust=Trust(n_clients, federation.colluding, federation.dropping),
        journal=journal,
        words=_words,
        spent_epsilon=epsilon_of(spent**0.5, Budget(federation.epsilon, federation.delta).delta) if spent else 0.0,
        numbers=sum(entry.numbers for entry in journal),
        noisy=federation.noise == "clients",
    )


def _words(entry: Entry) -> list[str]:
    return [CATALOGUE[name].words if name in CATALOGUE else name for name in entry.names]

"""The page of a client: what was asked of it, what left it, and what is promised to the person who owns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from apportion.privacy.budget import Budget
from apportion.privacy.gaussian import epsilon_of
from apportion.report.rendering import render

if TYPE_CHECKING:
    from apportion.federated.configuration import Federation
    from apportion.federated.desk import Entry


def client_page(federation: Federation, journal: Sequence[Entry], spent: float) -> str:
    """Return the page as self-contained HTML.

    Args:
        federation: what was agreed on.
        journal: every pass that the client answered.
        spent: Σ μ² of the passes in which it drew a share of the noise.
    """
    budget = Budget(federation.epsilon, federation.delta)
    return render(
        "client.html",
        federation=federation,
        trust=federation.trust,
        journal=journal,
        spent_epsilon=epsilon_of(spent**0.5, budget.delta) if spent else 0.0,
        numbers=sum(entry.numbers for entry in journal),
        noisy=federation.noise == "clients",
    )

"""The audit of a private list of keys on data that it was, or might be, made from: replay, and canary users.

A key is the item of a row. Replay leaves out users, builds the data again without them, and takes a user alone and
nobody at all; given the same noisy counts, every list must be the same. Canary users bring a key of their own each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.auditing.fits import AuditReport, own_canaries, replayed
from apportion.data import Interactions
from apportion.data.encoding import EncodedIds
from apportion.privacy import Budget, Session
from apportion.statistics import UserKeys


def audit_keys(
    name: str, data: Interactions, budget: Budget, *, users: int = 3, canaries: bool = True, seed: int = 0
) -> AuditReport:
    """Replay a list of keys without each of a few users, then add canary users.

    Args:
        name: the name of what is audited.
        data: who holds which key.
        budget: the claimed budget, a part of δ for the list.
        users: how many users to leave out, one at a time: the one with the most keys, then random ones.
        canaries: whether to add canary users.
        seed: the seed of everything random.
    """
    rng = np.random.default_rng(seed)
    checks, tried, crossed = replayed(published_keys, data, users, budget, rng, seed)
    if canaries:
        checks.append(own_canaries(_listed, data, budget, 1.0, rng, "keys"))
        tried.append("canary users put in, with a key of their own each: is any of these listed?")
    return AuditReport(name, budget.epsilon, budget.delta, tuple(checks), None, 0.0, tuple(tried), tuple(crossed))


def published_keys(data: Interactions, session: Session) -> dict[str, Any]:
    """Return everything that is published with a list of keys, by name."""
    found = _fitted(data, session)
    return {"keys": found.keys_, "keys of the first round": found.first_, "statement": found.statement_.to_json()}


def _listed(data: Interactions, session: Session) -> set[str]:
    return set(_fitted(data, session).keys_)


def _fitted(data: Interactions, session: Session) -> UserKeys:
    users = EncodedIds("users", data.users, data.user_ids)
    return UserKeys().fit(users=users, by=EncodedIds("keys", data.tasks, data.task_ids), session=session)

"""A statistic: for each user the share of its rows above a public limit, added up. This file is all that it takes.

A user's part is (1, its share), of norm at most √2; the quotient of the two released sums is the mean share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import Budget, Session
from apportion.privacy.contributions import ClippedParts, Output


@dataclass(frozen=True)
class ShareAbove:
    limit: float

    def __call__(self, users, weights):
        above = np.bincount(users.owner, users.column("values") > self.limit, minlength=users.n_users)
        share = above / np.maximum(users.sizes, 1)
        return (np.stack([np.ones_like(share), share], axis=1),)


def mean_share_above(users, limit, epsilon, delta, *, session=None, engine=None):
    """The mean over users of the share of their rows above the limit, and the privacy statement."""
    opened = session or Session(Budget(epsilon, delta))
    contribution = ClippedParts(ShareAbove(limit), (Output(2, np.sqrt(2), False, "one, and a share of rows"),))
    total = add_up_one(engine or LocalEngine(), users, contribution)
    number, above = opened.release("shares", total, opened.plan(shares=1.0).one("shares"))
    return float(np.clip(above / max(number, 1.0), 0, 1)), opened.statement()

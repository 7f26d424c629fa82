"""Claim: a fit over clients releases what a fit in memory does, for the same noise, bit for bit.

In simulation, 500 clients with a few people each run secure aggregation on the sparse graph for every pass of a rating
and a click recommender, whose server has no rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.users import UserParts, Users
from apportion.engines import LocalEngine
from apportion.federated import DataElsewhere, FederatedEngine, Question, SimulatedClients, Terms, Total, Trust
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from benchmarks.claim import Outcome, Rehearsal, print_table

CLIENTS, QUICK_CLIENTS = 500, 12
ESTIMATORS = {"ratings": PrivateRatingRecommender, "clicks": PrivateClickRecommender}


def measure(quick: bool) -> Outcome | Rehearsal:
    """Fit twice, over clients and in memory."""
    if quick:
        few = _simulated(Trust(QUICK_CLIENTS))
        return Rehearsal({"unequal": few}, {"fits over a few clients agree with memory": not any(few.values())})
    trust = Trust(CLIENTS, colluding=CLIENTS // 10, dropping=CLIENTS // 10)
    differing = _simulated(trust)
    return Outcome(
        value={"unequal": differing, "clients": CLIENTS},
        target={"unequal": 0},
        holds=not any(differing.values()),
        headline=f"fits over {CLIENTS} simulated clients: {sum(differing.values())} numbers differ from fits in memory",
        settings={"neighbours": trust.degree.neighbours, "threshold": trust.degree.threshold, "seed": 1},
    )


def _simulated(trust: Trust) -> dict[str, int]:
    """Return how many numbers differ for each estimator, over simulated clients."""
    unequal = {name: _unequal(make, trust) for name, make in ESTIMATORS.items()}
    print_table(["fit", "released and published numbers that differ"], [list(each) for each in unequal.items()])
    return unequal


class _ClientsWithRows:
    """Simulated clients that hold the rows."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        return SimulatedClients().add_up(terms, question, self._users)


def _unequal(estimator: Any, trust: Trust) -> int:
    """How many numbers of the model differ, and how many releases."""
    made, _ = long_tailed_ratings(2 * trust.n_clients, 20, 12 * trust.n_clients, rank=2, rng=np.random.default_rng(1))
    listed = DataElsewhere.of_items(made.task_ids.ids)
    data = Interactions.from_codes(
        made.users, made.tasks, made.values, user_ids=made.user_ids, task_ids=listed.task_ids
    )
    settings = {"epsilon": 5.0, "dimension": 2, "rounds": 1}
    engine = FederatedEngine(trust, _ClientsWithRows(data.as_users), np.float64)
    here, there = (
        estimator(**settings, noise=SeededNoise(1, exact=True), engine=used).fit(given)
        for used, given in ((LocalEngine(np.float64, exact=True), data), (engine, listed))
    )
    releases = sum(
        int(one != two) for one, two in zip(here.statement_.releases, there.statement_.releases, strict=True)
    )
    arrays = ((getattr(fit.model_, name) for fit in (here, there)) for name in ("vectors", "popularity", "reliability"))
    return releases + sum(int(np.count_nonzero(one != two)) for one, two in arrays)

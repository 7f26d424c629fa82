"""Claim: whoever drops out and when, a result is the sum over those who finished, or the pass is refused.

In each run about 30 % of the clients leave at one of the five stages. Terms allow 30 %; where chance takes more, the
pass must be refused, without a result. Refused passes are charged as the proof says: nothing where the server draws the
noise, because nothing is drawn; the whole share where clients draw it, because the charge comes first.
"""

from __future__ import annotations

import os

import numpy as np

from apportion.allocation import SplitEqually
from apportion.data.synthetic import long_tailed_ratings
from apportion.federated import (
    FederatedEngine,
    Graph,
    NoisyClientsEngine,
    RefusedError,
    SimulatedClients,
    Stage,
    Terms,
    Trust,
    aggregated,
    planned,
)
from apportion.privacy import Budget, Session
from apportion.privacy.contributions import TaskCounts
from benchmarks.claim import Outcome, print_table

CLIENTS, DROPPING, COLLUDING, LENGTH = 20, 6, 2, 50
RUNS, QUICK_RUNS = 200, 10
STAGES = [each for each in Stage if each is not Stage.DONE]


def measure(quick: bool) -> Outcome:
    """Run passes with clients leaving at every stage, then passes that must be charged."""
    runs, rng = QUICK_RUNS if quick else RUNS, np.random.default_rng(17)
    tally = {stage: [0, 0, 0] for stage in STAGES}
    for number in range(runs):
        stage = STAGES[number % len(STAGES)]
        tally[stage][_result(stage, rng)] += 1
    rows = [[stage.name.lower(), *found] for stage, found in tally.items()]
    print_table(["stage", "right sums", "refused", "wrong sums"], rows)
    wrong, refused = (sum(found[kind] for found in tally.values()) for kind in (2, 1))
    charged = _charges()
    return Outcome(
        value={"runs": runs, "wrong": wrong, "refused": refused, "charged": charged},
        target={"wrong": 0, "charged": {"server": 0.0, "clients": 0.5}},
        holds=wrong == 0 and charged == {"server": 0.0, "clients": 0.5},
        headline=f"{runs} passes with about 30 % of {CLIENTS} clients leaving: {runs - refused - wrong} right sums, "
        f"{refused} refused, {wrong} wrong",
        settings={"clients": CLIENTS, "dropping": DROPPING, "colluding": COLLUDING, "numbers": LENGTH, "seed": 17},
    )


def _result(stage: Stage, rng: np.random.Generator) -> int:
    """Run one pass: 0 for the right sum, 1 for a refusal, 2 for anything else."""
    degree = planned(CLIENTS, COLLUDING, DROPPING)
    graph = Graph(CLIENTS, degree.neighbours, os.urandom(32))
    terms = Terms(os.urandom(16), graph, degree.threshold, CLIENTS - DROPPING, COLLUDING, LENGTH)
    numbers = rng.integers(-(2**40), 2**40, (CLIENTS, LENGTH))
    leaving = dict.fromkeys(np.flatnonzero(rng.random(CLIENTS) < 0.3).tolist(), stage)
    parts = {k: (lambda mask, own=own: own.view(np.uint64) + mask) for k, own in enumerate(numbers)}
    try:
        total = aggregated(terms, parts, leaving)
    except RefusedError:
        return 1 if len(leaving) > DROPPING else 2
    finished = [k for k in range(CLIENTS) if k not in leaving or stage > Stage.MASK]
    right = np.array_equal((total.numbers - total.masks).view(np.int64), numbers[finished].sum(axis=0))
    return 0 if right and list(total.clients) == finished else 2


def _charges() -> dict[str, float]:
    """Return what a refused pass costs, by who draws the noise."""
    data, _ = long_tailed_ratings(40, 6, 200, rank=1, rng=np.random.default_rng(0))
    clients = SimulatedClients(dict.fromkeys(range(3), Stage.MASK))
    found = {}
    for name, make in (("server", FederatedEngine), ("clients", NoisyClientsEngine)):
        session = Session(Budget(1.0, 1e-6))
        share = session.plan(all=0.5).one("all")
        try:
            (total,) = make(Trust(8, dropping=2), clients).add_up(data.as_users, [TaskCounts(SplitEqually())])
            session.release("popularity", total, share)
        except RefusedError:
            found[name] = round(session.spent, 9)
    return found

"""Claim: what one client that lies can do to a federated fit, under masks and where a server checks silos one by one.

One of 50 clients, with 20 of 1,000 users, lies in each pass of a rating recommender. Inside its bound it answers from
invented rows, high where its users gave low ratings and low where they gave high ones: no check can tell. Outside its
bound it multiplies its sums by a negative factor. Under masks nobody sees that. Where the server sees the sums of
silos, it leaves out what 20 users cannot add up to, so a lie can be no larger than that. The lies are simple ones: what
is shown is that one client can ruin a fit under masks, not the most that it can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.evaluation import rmse
from apportion.federated import FederatedEngine, PlainSilos, SilosEngine, SimulatedClients, Trust
from apportion.federated.engine import Lie
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateRatingRecommender
from benchmarks.claim import Outcome, print_table

CLIENTS, USERS, ITEMS, RATINGS, LIAR = 50, 1000, 40, 20_000, 7
FACTORS = (-1.0, -2.0, -4.0, -30.0, -1000.0)
EPSILON, SEED = 5.0, 3
CLOSE = 1.02  # error over that of honest clients, which counts as unharmed


def measure(quick: bool) -> Outcome:
    """Fit with honest clients, with invented rows, and with sums outside their bound."""
    train, test = _data()
    honest = _errors(train, test, {})
    rows = [("honest", honest), ("invented rows", _errors(train, test, {}, _inverted(train)))]
    for factor in FACTORS[-1:] if quick else FACTORS:
        rows.append((f"times {factor:g}", _errors(train, test, {LIAR: partial(_times, factor=factor)})))
    print_table(["one liar", "RMSE under masks", "RMSE, silos checked"], [[name, *each] for name, each in rows])
    found = {name: {"masks": masks, "checked": checked} for name, (masks, checked) in rows}
    worst = max(each["checked"] for each in found.values()) / honest[1]
    ruined = found[f"times {FACTORS[-1]:g}"]["masks"] / honest[0]
    return Outcome(
        value={"rmse": found, "worst_checked": worst, "ruined": ruined},
        target={"worst_checked": CLOSE, "ruined": 1.2},
        holds=worst <= CLOSE and ruined >= 1.2,
        headline=f"one of {CLIENTS} clients sends {FACTORS[-1]:g} times its sums: error x {ruined:.2f} under masks, at "
        f"most x {worst:.3f} where silos are checked",
        settings={"clients": CLIENTS, "users": USERS, "ratings": RATINGS, "epsilon": EPSILON, "seed": SEED},
    )


def _data() -> tuple[Interactions, Interactions]:
    rng = np.random.default_rng(SEED)
    made, _ = long_tailed_ratings(USERS, ITEMS, RATINGS, rank=2, rng=rng)
    train, test = made.split_by_value(rng, (0.9, 0.1))
    return train, test


def _inverted(train: Interactions) -> Interactions:
    """Return rows in which the users of one client have the opposite ratings."""
    size = USERS // CLIENTS
    theirs = train.users // size == LIAR
    values = np.where(theirs, 6 - train.values.clip(1, 5), train.values)
    return Interactions.from_codes(
        train.users, train.tasks, values, user_ids=train.user_ids, task_ids=train.task_ids
    )  # fmt: skip


def _times(numbers: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    return np.asarray(np.rint(numbers * factor), np.int64)


def _errors(
    train: Interactions, test: Interactions, lies: Mapping[int, Lie], told: Interactions | None = None
) -> tuple[float, float]:
    """Return the errors of fits under masks and with silos that are checked, on the rows that clients tell."""
    masks = FederatedEngine(Trust(CLIENTS, 1, 1), SimulatedClients(lies=lies), np.float64)
    checked = SilosEngine(CLIENTS, dropping=1, silos=PlainSilos(USERS // CLIENTS, lies))
    rows = train if told is None else told
    return _error(train, test, rows, masks), _error(train, test, rows, checked)


def _error(train: Interactions, test: Interactions, told: Interactions, engine: FederatedEngine) -> float:
    fitted = PrivateRatingRecommender(
        EPSILON, dimension=2, items="from-data", noise=SeededNoise(SEED, exact=True), engine=engine
    ).fit(told)
    return float(rmse(fitted.model_.predict(train, test), test).overall)

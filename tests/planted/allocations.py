"""Bugs of weights that everybody's tasks decide: who the neighbours are, and how far one of them moves a sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from unittest import mock

import numpy as np

from apportion.data import Interactions
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES_PUBLIC_GRAPH, Budget
from apportion.privacy.contributions import base
from apportion.published.skew import Exact, ExactJoint
from apportion.regression import Observations
from planted.cases import Case, replayed_on

from private_estimators import ridge, with_features
from strategies import random_interactions

BUDGET = Budget(50.0, 1e-5)


@dataclass(frozen=True)
class ForgottenGraph(Exact):
    """Says that its sums are for adding or removing a user, whose tasks decide everybody's weights."""

    neighbours = ADD_REMOVE


def fit(policy, rows, session):
    model = ridge(allocation=policy)().fit_observations(rows, session=session)
    return {"releases": len(model.statement_.releases)}


def on_added_user(policy):
    """One user has all tasks, every other one: without the first, the weights of all others grow."""
    star = Interactions.from_arrays([0] * 20 + list(range(1, 21)), [*range(20), *range(20)], np.full(40, 5.0))
    rows, fewer = (with_features(some, logistic=False) for some in (star, star.without(0)))
    return replayed_on(partial(fit, policy), rows, fewer, BUDGET, ADD_REMOVE)


def on_replaced_values(policy):
    rows = with_features(random_interactions(0), logistic=False)
    own = rows.data.users == 2
    other = Observations(rows.data, rows.features, np.where(own, -rows.labels, rows.labels))
    return replayed_on(partial(fit, policy), rows, other, BUDGET, REPLACE_VALUES_PUBLIC_GRAPH)


def as_if_added(policy):
    """The norm of one part, where two of them are between the sums."""
    with mock.patch.object(base, "moved_by_user", return_value=1.0):
        return on_replaced_values(policy)


def cases():
    """Both, with policies as they are for twins."""
    yield Case(
        "weights of everybody's tasks, stated for adding a user", "habit", "replay",
        partial(on_added_user, ForgottenGraph()), partial(on_replaced_values, Exact()),
    )  # fmt: skip
    yield Case(
        "replaced values at the sensitivity of a user who comes or goes", "habit", "replay",
        partial(as_if_added, ExactJoint()), partial(on_replaced_values, ExactJoint()),
    )  # fmt: skip

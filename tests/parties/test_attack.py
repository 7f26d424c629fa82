"""The best attacker on whole fits: everybody else together, who knows all other tasks and both versions of one."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.auditing import audit_likelihood
from apportion.privacy import ADD_REMOVE_TASK, REPLACE_TASK, Budget, SeededNoise

from party_cases import one_direction, published, small, stacked

RUNS = 150


def _audited(make, relation, data, neighbour, epsilon):
    def fit(some, session):
        return published(make(neighbours=relation, n_tasks=6).fit(*some, session=session))

    arguments = {"budget": Budget(epsilon, 1e-3), "neighbours": relation}
    return audit_likelihood(fit, data, neighbour, arguments, noise=SeededNoise, draws=RUNS)


def _grouped(features, labels, ids):
    rows, column, at = stacked(features, labels)
    return rows, column, np.asarray(ids)[at]


@pytest.mark.parametrize(
    ("make", "relation"),
    [(small(), REPLACE_TASK), (small(structure="low-rank", rounds=2), ADD_REMOVE_TASK)],
    ids=["em, replace", "low-rank, two rounds, add or remove"],
)
def test_the_best_attacker_gets_what_is_stated_and_no_more(make, relation):
    """The bound is wrong with probability 1e-3; the worst case of a task is there, so it must come near the claim."""
    features, labels = one_direction(6, 3, axis=0)
    data = _grouped(features, labels, np.arange(6))
    if relation == REPLACE_TASK:
        neighbour = _grouped(features, [features[0][:, 1], *labels[1:]], np.arange(6))
    else:
        neighbour = _grouped(features[1:], labels[1:], np.arange(1, 6))
    found = _audited(make, relation, data, neighbour, 15.0)
    assert found.lower_bound <= 15.0
    assert found.lower_bound >= 5.0, f"the audit has no power: {found}"

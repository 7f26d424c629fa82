"""The errors of the skew paper and its code, planted: the audit must catch each and pass what repairs them."""

from __future__ import annotations

import pytest

from apportion.auditing import AuditError

from paper_errata import PLANTED, REPAIRED
from private_estimators import at_the_bound, audit_estimator
from strategies import random_interactions


def verdict(make):
    """The largest ratio of a move to its declared sensitivity, or infinity where runs disagree or do not add up."""
    worst = 0.0
    bound_data, extreme = at_the_bound()
    cases = [(bound_data, user, seed) for seed, user in enumerate(extreme)]
    cases += [(random_interactions(seed), seed % 12, seed) for seed in range(6)]
    for data, user, seed in cases:
        try:
            findings = audit_estimator(make, data, user, epsilon=50.0, seed=seed)
        except AuditError:
            return float("inf")
        worst = max([worst, *(float("inf") if f.gap > 1e-7 else f.ratio for f in findings)])
    return worst


@pytest.mark.parametrize("make", PLANTED.values(), ids=PLANTED)
def test_a_planted_error_is_caught(make):
    assert verdict(make) > 1.5


@pytest.mark.parametrize("make", REPAIRED.values(), ids=REPAIRED)
def test_the_repaired_algorithm_passes(make):
    assert verdict(make) <= 1 + 1e-9

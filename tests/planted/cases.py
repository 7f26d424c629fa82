"""What a planted bug is, and the three ways in which the auditor looks at one.

Replay never accuses a right mechanism: it compares numbers. The likelihood and tester audits accuse one with
probability at most `ALPHA` each, by exact binomial bounds; the rate of the whole suite is their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from unittest import mock

import numpy as np

from apportion.auditing import AuditError, audit_likelihood, audit_neighbour
from apportion.auditing.tester import audit_outputs as judge_outputs
from apportion.privacy import ADD_REMOVE, Budget, SeededNoise, gaussian

from private_estimators import at_the_bound, audit_estimator
from strategies import random_interactions

ALPHA = 1e-5
DATA_SETS = 6  # random ones for every replay; a longer audit sets more
TOLERANCE = 1e-9  # of a ratio to the declared sensitivity: rounding
GAP = 1e-7  # by how much sums over users may miss adding up


@dataclass(frozen=True)
class Verdict:
    """What the auditor says of one mechanism.

    Attributes:
        caught: whether it finds fault.
        evidence: why, or what it saw instead.
        false_alarm: probability with which it would find fault with a mechanism that has its guarantee.
    """

    caught: bool
    evidence: str
    false_alarm: float = 0.0


@dataclass(frozen=True)
class Case:
    """A mechanism with a bug, and the same without it.

    Attributes:
        name: of the bug.
        source: where it was seen: an erratum of a paper, or a habit.
        method: replay, likelihood, tester, noise or bytes.
        wrong: audits the bug.
        honest: audits the twin.
    """

    name: str
    source: str
    method: str
    wrong: Callable[[], Verdict]
    honest: Callable[[], Verdict]


def replayed(make, epsilons=(0.5, 5.0, 100.0), audit=audit_estimator):
    """Record and replay an estimator on data built to reach the bounds and on random data; `audit` does it once."""
    worst, where = 0.0, "nothing"
    at_bound, extreme = at_the_bound()
    data_sets = [(at_bound, user, epsilons[-1], seed) for seed, user in enumerate(extreme)]
    for seed in range(DATA_SETS):
        data = random_interactions(seed)
        data_sets.append((data, seed % data.n_users, epsilons[seed % len(epsilons)], seed))
    for data, user, epsilon, seed in data_sets:
        try:
            findings = audit(make, data, user, epsilon=epsilon, seed=seed)
        except AuditError as error:
            return Verdict(True, str(error)[:120])
        for found in findings:
            if found.gap > GAP:
                return Verdict(True, f"{found.name!r} is not a sum over users")
            if found.ratio > worst:
                worst, where = found.ratio, found.name
        if worst > 1.05:
            break
    return Verdict(worst > 1 + TOLERANCE, f"{where!r} moved by {worst:.3g} declared sensitivities")


@cache
def replayed_as_it_is(make, epsilons=(0.5, 5.0, 100.0), audit=audit_estimator):
    """The same for an estimator of the library that several bugs are planted in."""
    return replayed(make, epsilons, audit)


def patched(make, owner, name, make_wrong, epsilons=(0.5, 5.0, 100.0), audit=audit_estimator):
    """Replay an estimator with one function of the library replaced by a wrong one."""
    with mock.patch.object(owner, name, make_wrong(getattr(owner, name))):
        return replayed(make, epsilons, audit)


def replayed_on(fit, data, neighbour, budget, neighbours=ADD_REMOVE, seed=0):
    """Record and replay anything on two neighbouring data sets."""
    arguments = {"budget": budget, "neighbours": neighbours, "noise": SeededNoise(seed)}
    try:
        ratios = audit_neighbour(fit, data, neighbour, arguments)
    except AuditError as error:
        return Verdict(True, str(error)[:120])
    worst = max(ratios, key=ratios.__getitem__)
    return Verdict(ratios[worst] > 1 + TOLERANCE, f"{worst!r} moved by {ratios[worst]:.3g} declared sensitivities")


def likelihood(fit, data, neighbour, budget, neighbours, draws=1500):
    """Likelihood-ratio audit of a fit."""
    arguments = {"budget": budget, "neighbours": neighbours}
    found = audit_likelihood(
        fit, data, neighbour, arguments, noise=SeededNoise, draws=draws, confidence=1 - ALPHA
    )  # fmt: skip
    return _of_bound(found.lower_bound, budget.epsilon, budget.delta, ALPHA)


def judged(mechanism, data, neighbour, epsilon, delta=0.0, *, draws=40_000, statistic=None, seed=0):
    """The tester on a mechanism that draws many outputs at once: `mechanism(data, rng, draws)`."""
    one, two = (np.random.default_rng([seed, k]) for k in (0, 1))
    here, there = mechanism(data, one, draws), mechanism(neighbour, two, draws)
    found = judge_outputs(here, there, epsilon, delta, statistic=statistic, confidence=1 - ALPHA)
    return _of_bound(found.lower_bound, epsilon, delta, ALPHA)


def exactly(p, q, epsilon, delta):
    """The whole δ of a mechanism with few outputs, from their probabilities on two neighbouring data sets."""
    true = max(float(np.maximum(one - np.exp(epsilon) * two, 0).sum()) for one, two in ((p, q), (q, p)))
    return Verdict(
        true > delta * (1 + TOLERANCE), f"delta is {true:.4g} where {delta:.4g} is claimed at epsilon {epsilon:g}"
    )


def stddev_for(epsilon, delta):
    """Of Gaussian noise on a sum of sensitivity 1."""
    return 1 / gaussian.mu_of(epsilon, delta)


def _of_bound(bound, epsilon, delta, alpha):
    at = f" at delta {delta:g}" if delta else ""
    return Verdict(bound > epsilon, f"epsilon is at least {bound:.3g} where {epsilon:.3g} is claimed{at}", alpha)


PURE = Budget(1.0, 0.0)

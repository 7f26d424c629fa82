"""Likelihood-ratio audits: how well the best attacker separates two neighbouring data sets by what a fit releases.

The attacker knows both data sets. For every run it computes the likelihood ratio of the releases: the run on one data
set is recorded, then replayed on the other with the same released values, so the hidden values of both are known at
every release, even if later releases depend on earlier ones. Thresholds on the ratio are the best possible tests. Exact
binomial bounds turn the rates of right answers into a lower bound on the mechanism's ε (or μ). Any statistic would give
a valid bound, whatever the code really draws. This one gives the largest.

A threshold is chosen on one half of the runs and judged on the other, so choosing it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.replay import AuditError, Fit, RecordingSession, ReplayingSession
from apportion.privacy import Gaussian, NoiseSource, gaussian

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LikelihoodFinding:
    """The result of a likelihood-ratio audit.

    Attributes:
        claimed: the ε of the budget.
        lower_bound: a lower bound on the mechanism's ε at the budget's δ, at `confidence`. If all releases are
            Gaussian, it is the ε of a Gaussian mechanism that is as hard to distinguish. Otherwise it holds for any
            mechanism.
        confidence: the confidence of the bound.
        draws: number of runs on each of the two data sets.
    """

    claimed: float
    lower_bound: float
    confidence: float
    draws: int


def audit_likelihood(
    fit: Fit,
    data: Any,
    neighbour: Any,
    session_arguments: Mapping[str, Any],
    *,
    noise: Callable[[int], NoiseSource],
    draws: int,
    confidence: float = 0.999,
) -> LikelihoodFinding:
    """Run a fit many times on a data set and on a neighbour, and bound its ε from below.

    Args:
        fit: runs the estimator on (data, session).
        data: one data set.
        neighbour: the other.
        session_arguments: the budget and the relation.
        noise: returns the noise source of a run, given its number.
        draws: the number of runs on each data set.
        confidence: the confidence of the bound.
    """
    budget = session_arguments["budget"]

    def runs(one: Any, other: Any, first: int) -> tuple[Floats, bool]:
        result = [_log_ratio(fit, one, other, session_arguments, noise(first + run)) for run in range(draws)]
        return np.array([ratio for ratio, _ in result]), all(gaussian_only for _, gaussian_only in result)

    (here, all_gaussian), (elsewhere, also) = runs(data, neighbour, 0), runs(neighbour, data, draws)
    there, alpha = -elsewhere, 1 - confidence
    if all_gaussian and also:
        bound = gaussian.epsilon_of(max(mu_from_statistics(here, there, alpha), 0.0), budget.delta)
    else:
        one_way = epsilon_from_statistics(here, there, alpha / 2, budget.delta)
        bound = max(one_way, epsilon_from_statistics(-there, -here, alpha / 2, budget.delta), 0.0)
    return LikelihoodFinding(budget.epsilon, bound, confidence, draws)


def epsilon_from_statistics(larger: Floats, smaller: Floats, alpha: float, delta: float = 0.0) -> float:
    """Return a lower bound on ε at δ from one statistic's values on two data sets; it tends to be larger on the first.

    The bound fails with probability at most alpha.
    """

    def bound(hits: int, false_hits: int, n: int, m: int, risk: float) -> float:
        likely, unlikely = lower_proportion(hits, n, risk / 2), upper_proportion(false_hits, m, risk / 2)
        return math.log((likely - delta) / unlikely) if likely > delta else -math.inf

    return _best_on_half(larger, smaller, alpha, bound)


def mu_from_statistics(larger: Floats, smaller: Floats, alpha: float) -> float:
    """Return a lower bound on the Gaussian-DP parameter in the same way: Φ⁻¹ of true minus Φ⁻¹ of false alarms."""

    def bound(hits: int, false_hits: int, n: int, m: int, risk: float) -> float:
        likely, unlikely = lower_proportion(hits, n, risk / 2), upper_proportion(false_hits, m, risk / 2)
        if not (0 < likely < 1 and 0 < unlikely < 1):
            return -math.inf
        return NormalDist().inv_cdf(likely) - NormalDist().inv_cdf(unlikely)

    return _best_on_half(larger, smaller, alpha, bound)


def lower_proportion(hits: int, n: int, alpha: float) -> float:
    """Return the Clopper-Pearson lower bound on a probability; it fails with probability at most alpha."""
    from scipy.stats import beta

    return float(beta.ppf(alpha, hits, n - hits + 1)) if hits else 0.0


def upper_proportion(hits: int, n: int, alpha: float) -> float:
    """Return the Clopper-Pearson upper bound on a probability; it fails with probability at most alpha."""
    from scipy.stats import beta

    return float(beta.ppf(1 - alpha, hits + 1, n - hits)) if hits < n else 1.0


def _best_on_half(
    larger: Floats, smaller: Floats, alpha: float, bound: Callable[[int, int, int, int, float], float]
) -> float:
    """Choose a threshold on even runs by the bound it would give, and return the bound on odd runs."""

    def at(threshold: float, start: int) -> float:
        one, two = larger[start::2], smaller[start::2]
        return bound(int((one >= threshold).sum()), int((two >= threshold).sum()), len(one), len(two), alpha)

    candidates = np.unique(np.quantile(np.concatenate([larger[::2], smaller[::2]]), np.linspace(0.01, 0.99, 99)))
    best = max(candidates.tolist(), key=lambda threshold: at(threshold, 0))
    return at(best, 1)


def _log_ratio(fit: Fit, one: Any, other: Any, arguments: Mapping[str, Any], noise: NoiseSource) -> tuple[float, bool]:
    """Return log p(released | one) − log p(released | other) of a run on `one`, and whether all of it was Gaussian."""
    first = RecordingSession(**arguments, noise=noise)
    fit(one, first)
    second = ReplayingSession(first, **arguments, noise=noise)
    fit(other, second)
    pairs = zip(first.records, second.hidden, strict=True)
    ratio = math.fsum(record.log_density(record.hidden) - record.log_density(hidden) for record, hidden in pairs)
    if math.isnan(ratio):
        raise AuditError("The likelihood ratio of a run is not a number, so the audit has no result.")
    return ratio, all(isinstance(record.mechanism, Gaussian) for record in first.records)

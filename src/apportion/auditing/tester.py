"""A stochastic tester for any mechanism: run it often on two neighbouring data sets and bound its ε from below.

Only the outputs of the mechanism are used. For every set S of outputs, an (ε, δ)-DP mechanism has P(S) ≤ e^ε Q(S) + δ,
in both directions, so ε ≥ log((P(S) − δ) / Q(S)). The sets are those where a statistic exceeds a threshold; the
probabilities are bounded exactly, by Clopper and Pearson. The statistic is the caller's, or one that is trained on half
of the draws and judged on the other half. A bound above the claim proves a violation, up to the stated confidence; a
bound below it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing import distinguisher
from apportion.auditing.likelihood import epsilon_from_statistics
from apportion.errors import InputError

Floats = NDArray[np.float64]
# Runs on (data, rng) and returns what it would publish: numbers, arrays, mappings and sequences of these.
Mechanism = Callable[[Any, np.random.Generator], Any]
Statistic = Callable[[Any], float]
Outputs = Sequence[Any] | NDArray[Any]


@dataclass(frozen=True)
class TesterFinding:
    """The result of testing a mechanism.

    Attributes:
        claimed: the ε under test.
        delta: the δ under test.
        lower_bound: a lower bound on the mechanism's ε at that δ, at `confidence`.
        confidence: the confidence of the bound.
        draws: number of runs on each of the two data sets.
        statistic: the statistic of the outputs.
    """

    claimed: float
    delta: float
    lower_bound: float
    confidence: float
    draws: int
    statistic: str

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower_bound > self.claimed


def audit_mechanism(
    mechanism: Mechanism,
    data: Any,
    neighbour: Any,
    epsilon: float,
    delta: float = 0.0,
    draws: int = 10_000,
    statistic: Statistic | None = None,
    confidence: float = 0.999,
    seed: int = 0,
) -> TesterFinding:
    """Run a mechanism on a data set and on a neighbour, and bound its ε from below.

    Args:
        mechanism: runs on (data, rng); all its randomness must come from `rng`.
        data: one data set.
        neighbour: a neighbour under the guarantee's relation. The more the two differ, the sharper the test.
        epsilon: the ε that is claimed.
        delta: the δ that is claimed.
        draws: the number of runs on each data set.
        statistic: a number for each output, fixed beforehand; None to train one.
        confidence: the confidence of the bound.
        seed: the seed of all runs.

    >>> result = audit_mechanism(lambda x, rng: x + rng.laplace(scale=0.5), 0.0, 1.0, epsilon=1.0, draws=4000)
    >>> result.violated  # its epsilon is 2
    True
    """
    streams = np.random.SeedSequence(seed).spawn(2)
    here, there = (
        [mechanism(one, np.random.default_rng(child)) for child in stream.spawn(draws)]
        for one, stream in zip((data, neighbour), streams, strict=True)
    )
    return audit_outputs(here, there, epsilon, delta, statistic=statistic, confidence=confidence)


def audit_outputs(
    here: Outputs,
    there: Outputs,
    epsilon: float,
    delta: float = 0.0,
    *,
    statistic: Statistic | None = None,
    confidence: float = 0.999,
) -> TesterFinding:
    """Test outputs that were already drawn: independent runs on each of two neighbouring data sets.

    Args:
        here: outputs on one data set; in an array, along its first axis.
        there: outputs on its neighbour.
        epsilon: the ε that is claimed.
        delta: the δ that is claimed.
        statistic: a number for each output, fixed beforehand; None to train one.
        confidence: the confidence of the bound.
    """
    _check(here, there, epsilon, delta, confidence)
    one, two = _trained(here, there, delta) if statistic is None else _computed(here, there, statistic)
    alpha = 1 - confidence
    forwards = epsilon_from_statistics(one, two, alpha / 2, delta)
    bound = max(forwards, epsilon_from_statistics(-two, -one, alpha / 2, delta), 0.0)
    judged_by = "a trained distinguisher" if statistic is None else getattr(statistic, "__name__", "a statistic")
    return TesterFinding(epsilon, delta, bound, confidence, min(len(here), len(there)), judged_by)


def _trained(here: Outputs, there: Outputs, delta: float) -> tuple[Floats, Floats]:
    """Score the second half of the draws with what was learned from the first half."""
    half = min(len(here), len(there)) // 2
    one, two = distinguisher.as_matrix(here[:half]), distinguisher.as_matrix(there[:half])
    width = max(one.shape[1], two.shape[1])
    one, two = distinguisher.as_matrix(here[:half], width), distinguisher.as_matrix(there[:half], width)
    score = distinguisher.train(one, two, delta)
    later = [score(distinguisher.as_matrix(part[half:], width)) for part in (here, there)]
    return later[0], later[1]


def _computed(here: Outputs, there: Outputs, statistic: Statistic) -> tuple[Floats, Floats]:
    """Return the caller's statistic, with the sign that makes it tend to be larger on the first data set.

    The sign is chosen on the even runs, like thresholds.
    """
    one, two = (np.array([float(statistic(output)) for output in part]) for part in (here, there))
    if np.isnan(one).any() or np.isnan(two).any():
        raise InputError("Expected a statistic that is a number for every output, got NaN.", argument="statistic")
    ranks = np.concatenate([one[::2], two[::2]]).argsort().argsort()
    split = len(one[::2])
    turned = ranks[:split].mean() < ranks[split:].mean()
    return (-one, -two) if turned else (one, two)


def _check(here: Outputs, there: Outputs, epsilon: float, delta: float, confidence: float) -> None:
    if not epsilon >= 0 or not 0 <= delta < 1:
        raise InputError(f"Expected epsilon >= 0 and 0 <= delta < 1, got {epsilon} and {delta}.", argument=None)
    if not 0 < confidence < 1:
        raise InputError(f"Expected a confidence between 0 and 1, got {confidence}.", argument="confidence")
    if min(len(here), len(there)) < 100:
        raise InputError(
            f"Expected at least 100 draws on each data set, got {len(here)} and {len(there)}.", argument="draws"
        )

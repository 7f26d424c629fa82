"""Recompute a statement: do its releases fit the budget, and does each have the noise that its charge requires?

Only the statement is used. It cannot show that a sensitivity is right; replay can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from apportion.privacy import PlannedMechanism, Release, Statement, gaussian
from apportion.privacy.keys import Law, chance_of_own_keys
from apportion.privacy.mechanisms import mechanism_class

_ROUNDING = 1e-9
_NO_WEIGHT = 10**12  # number of keys of one user at which each has practically no weight


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        name: what was checked.
        passed: whether the check passed.
        words: the result in words.
    """

    name: str
    passed: bool
    words: str


def check_statement(statement: Statement) -> list[Check]:
    """Check everything that can be recomputed from a statement alone."""
    return [_shares(statement), _noise(statement), _spent(statement), _slack(statement)]


def _shares(statement: Statement) -> Check:
    total = math.fsum(release.share for release in statement.releases)
    words = f"the shares of {len(statement.releases)} releases add up to {total:.6g} of the budget"
    return Check("shares of the budget", 0 < total <= 1 + _ROUNDING, words)


def _noise(statement: Statement) -> Check:
    """Check that noise over sensitivity is what the μ or ε of each release requires."""
    wrong = [release.name for release in statement.releases if _noise_ratio(release) < 1 - _ROUNDING]
    words = f"too little in {', '.join(map(repr, wrong))}" if wrong else "at least what each release is charged for"
    return Check("noise of each release", not wrong, words)


def _noise_ratio(release: Release) -> float:
    """Return the actual noise over what the charge requires; 1 if a statement cannot tell."""
    least = mechanism_class(release.mechanism).least_stddev(release)
    return 1.0 if least is None else release.stddev / least


def _spent(statement: Statement) -> Check:
    """Check the ε of all releases, recomposed if there is a closed form."""
    planned = [each for each in statement.releases if issubclass(mechanism_class(each.mechanism), PlannedMechanism)]
    if planned:
        result = statement.spent_epsilon
        how = f"as stated; releases by {planned[0].mechanism_words} are not recomposed here"
    elif statement.noise_delta == 0:
        result, how = math.fsum(release.epsilon or math.inf for release in statement.releases), "recomposed"
    else:
        mu = math.sqrt(math.fsum((release.mu or math.inf) ** 2 for release in statement.releases))
        result, how = gaussian.epsilon_of(mu, statement.noise_delta), "recomposed"
    passed = result <= min(statement.epsilon, statement.spent_epsilon) * (1 + 1e-6)
    words = f"epsilon {result:.6g} ({how}); the statement says {statement.spent_epsilon:.6g} of {statement.epsilon:g}"
    return Check("epsilon of all releases", passed, words)


def _slack(statement: Statement) -> Check:
    taken = math.fsum(release.delta for release in statement.releases)
    words = f"delta is {statement.delta:g}; it should be well below 1 / number of users"
    if statement.keys_delta:
        words += f"; lists of private keys took {taken:g} of the {statement.keys_delta:g} kept for them"
    kept = taken <= statement.keys_delta * (1 + _ROUNDING) and _thresholds(statement)
    return Check("delta", 0 <= statement.delta < 1e-2 and kept, words)


def _thresholds(statement: Statement) -> bool:
    """Whether every threshold is high enough: a key that only one user has must pass it with at most its part of δ."""
    lists = [release for release in statement.releases if release.delta or release.threshold is not None]
    return all(_own_key_passes(release) <= release.delta for release in lists)


def _own_key_passes(release: Release) -> float:
    """Return a lower bound on the chance that noise alone lists a key.

    A statement does not say how keys are weighed, so the key has no weight here.
    """
    law: Law = "laplace" if release.epsilon is not None else "gaussian"
    scale = release.stddev / (math.sqrt(2) if law == "laplace" else 1.0)
    return 1.0 if release.threshold is None else chance_of_own_keys(release.threshold, scale, 1, law, _NO_WEIGHT)

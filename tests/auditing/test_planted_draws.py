"""Mechanisms with a bug each, judged by what they draw: every bug is found, and the twin without it is not accused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from planted import ALPHA, CASES
from planted.cases import exactly
from planted.releases import MODEL, discrete_gaussian, plus_wishart, wishart_delta

DRAWN = {case.name: case for case in CASES if case.method != "replay"}


@pytest.mark.parametrize("case", DRAWN.values(), ids=DRAWN)
def test_a_planted_bug_is_caught_and_its_twin_is_not_accused(case):
    wrong, honest = case.wrong(), case.honest()
    assert wrong.caught, wrong.evidence
    assert not honest.caught, honest.evidence  # each accuses with probability at most 1e-5


def test_there_are_more_than_twenty_bugs_and_few_false_alarms():
    assert len(CASES) >= 27
    assert len({case.name for case in CASES}) == len(CASES)
    assert ALPHA * len(DRAWN) <= 1e-3
    sources = {case.source for case in CASES}
    assert {"E1", "E2", "E4", "E6", "E8", "E9", "E14", "E15"} <= sources


def test_the_twin_with_wishart_noise_has_the_delta_that_it_claims():
    """By its own likelihood ratio: of one more or less, only the determinant along the model counts."""
    rng = np.random.default_rng(0)
    degrees, scale, epsilon, draws = 6, 1.0, 0.5, 200_000
    noise = plus_wishart(np.zeros((0, 3)), rng, draws, degrees=degrees, scale=scale)
    along = 1 / np.linalg.inv(noise)[:, 0, 0] / scale
    assert kstest(along, chi2(degrees - 2).cdf).pvalue > 1e-6  # false alarms: 1e-6
    left = np.linalg.det(noise - np.outer(MODEL, MODEL))
    inside = (left > 0) & (along * scale > 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(
            inside, 0.5 * (degrees - 4) * np.log(np.linalg.det(noise) / np.where(inside, left, 1)) - 0.5 / scale, np.inf
        )
    estimate = np.maximum(1 - np.exp(epsilon - loss), 0)
    claimed = wishart_delta(epsilon, degrees, scale)
    assert abs(estimate.mean() - claimed) < 6 * estimate.std() / np.sqrt(draws)  # false alarms: 1e-8


def test_an_exact_audit_sees_a_delta_that_is_a_little_too_small():
    p, q = discrete_gaussian()
    true = float(np.maximum(p - np.e * q, 0).sum())
    assert not exactly(p, q, 1.0, true).caught
    assert exactly(p, q, 1.0, 0.999 * true).caught

"""The page on choosing ε shows what the accounting says and what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from scipy.stats import norm

from apportion.privacy import Budget

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "choosing-epsilon.md").read_text(encoding="utf-8")
POWERS = re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", PAGE, re.MULTILINE)


def measured(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", POWERS, ids=lambda row: row[0])
def test_the_best_attack_is_that_of_the_accounting(row):
    epsilon, right, at_five, at_tenth = map(float, row)
    mu = Budget(epsilon, 1e-6).mu
    exact = (norm.cdf(mu / 2), norm.cdf(norm.ppf(0.05) + mu), norm.cdf(norm.ppf(0.001) + mu))
    assert [right, at_five, at_tenth] == pytest.approx([100 * each for each in exact], abs=0.06)


def test_there_is_a_row_for_every_usual_epsilon():
    assert [float(row[0]) for row in POWERS] == [0.1, 0.5, 1, 2, 5, 10, 20]


@pytest.mark.parametrize(
    ("name", "words", "plain", "other"),
    [("ml1m-ratings", "RMSE", "als", "damped_means"), ("ml1m-clicks", "Recall@20", "als", "popularity")],
)
def test_the_cost_is_what_was_measured(name, words, plain, other):
    (line,) = (line for line in PAGE.splitlines() if line.startswith("|") and f"({words})" in line)
    shown = [float(cell) for cell in re.findall(r"\b0\.\d+", line)]
    result = measured(name)
    without = result["settings"]["non_private"]
    expected = [*(result["value"][epsilon] for epsilon in ("1", "5", "20")), without[plain], without[other]]
    assert shown == pytest.approx(expected, abs=0.0006)

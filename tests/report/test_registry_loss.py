"""The loss in a record: μ first, points on the true trade-off curve, and an event that dp_accounting can build."""

from __future__ import annotations

import math
import re

import pytest
from dp_accounting import dp_event as events
from scipy.stats import norm

from apportion.privacy import gaussian
from apportion.report.card import privacy_card
from apportion.report.registry_loss import dp_event, loss_in_words
from report.test_card import SELECTION, make_statement

MU = gaussian.mu_of(1.0, 1e-6)


def rows_of(text, heading):
    """Rows of numbers of the table with a heading, up to the next empty line."""
    table = text.split(heading)[1].split("\n\n")[0]
    return [tuple(map(float, row)) for row in re.findall(r"^\| ([\d.e-]+) \| ([\d.e-]+) \|$", table, re.MULTILINE)]


def test_mu_comes_first_and_the_curve_is_that_of_mu():
    said = loss_in_words(privacy_card(make_statement()))
    assert said.startswith("Gaussian-DP μ = 0.2368, which is the same as (ε, δ) = (1, 1e-06); spent: ε = 0.9731.")
    for epsilon, delta in rows_of(said, "δ at most |"):
        assert gaussian.delta_of(epsilon, MU) * (1 - 1e-9) <= delta <= gaussian.delta_of(epsilon, MU) * 1.01 + 1e-300
    detections = rows_of(said, "detections at most |")
    assert len(detections) == 6
    for alarms, found in detections:
        true = norm.cdf(norm.ppf(alarms) + MU)
        assert true <= found <= 1.01 * true


def test_a_pure_loss_is_bounded_by_its_odds():
    said = loss_in_words(privacy_card(make_statement(delta=0.0, spent_mu=None)))
    assert said.startswith("Gaussian-DP μ = 1.233, which follows from ε = 1, pure")
    detections = dict(rows_of(said, "detections at most |"))
    assert detections[0.01] == pytest.approx(0.0272)
    assert detections[0.5] == pytest.approx(1 - 0.5 / 2.718281828, rel=1e-2)


def test_a_loss_without_mu_says_so_and_gives_the_curve_of_the_pair():
    said = loss_in_words(privacy_card(make_statement(spent_mu=None)))
    assert said.startswith("No single Gaussian-DP μ describes this composition; what holds is (ε, δ) = (1, 1e-06)")
    assert "δ at most" not in said


def test_events_are_those_of_dp_accounting():
    def inside(selection=None, **changes):
        return dp_event(privacy_card(make_statement(**changes), selection))

    composed = inside()
    assert composed["class_name"] == "ComposedDpEvent"
    first, second = composed["events"]
    assert first["noise_multiplier"] == pytest.approx(1 / 0.15)
    assert second["class_name"] == "RandomizedResponseDpEvent"
    numerical = inside(spent_mu=None)
    pure, failing = numerical["events"]
    assert pure["noise_parameter"] == pytest.approx(2 / (1 + math.exp(0.9731)))
    assert (failing["sampling_probability"], failing["event"]) == (1e-6, {"class_name": "NonPrivateDpEvent"})
    chosen = inside(SELECTION, spent_mu=None)
    assert (chosen["class_name"], chosen["mean"]) == ("RepeatAndSelectDpEvent", 10.0)
    assert all(hasattr(events, each["class_name"]) for each in (composed, first, second, failing, chosen))

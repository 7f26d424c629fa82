"""The time study in short: its rows fit, its rule is applied, larger encoders are compared, its report has it all."""

from __future__ import annotations

import pytest
import torch

from papers.public_features import movielens, time_report, time_rows, time_search, timing
from papers.public_features.stand_ins import feature_driven_ratings
from papers.public_features.time_encoders import Encoder, compare
from papers.public_features.timing import Point

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bench():
    data, rows = feature_driven_ratings(150, 40, 10)
    return movielens.Bench.split("ratings", data, rows)


@pytest.mark.parametrize("name", time_rows.NAMES)
def test_every_row_fits_and_has_as_many_points_as_rounds(bench, name):
    chosen = time_rows.estimator(name, bench.rows, 0)
    points = timing.evolution(bench, chosen)
    assert len(points) == chosen.rounds
    assert all(0.3 < point.error < 2 for point in points)


def test_times_less_is_theirs_to_their_best_over_ours_to_that_error():
    ours = [Point(0.1, 1.0), Point(0.2, 0.9), Point(0.3, 0.8)]
    theirs = [Point(5.0, 1.1), Point(10.0, 0.9), Point(15.0, 0.95)]
    assert timing.times_less(ours, theirs) == pytest.approx(10.0 / 0.2)
    assert timing.times_less(theirs, ours) is None
    each, before = timing.per_round(ours)
    assert (each, before) == pytest.approx((0.1, 0.0))
    averaged = timing.averaged([ours, theirs, theirs])
    assert averaged[1] == Point(10.0, pytest.approx(0.9))


def test_a_pass_of_the_kernel_takes_time_and_less_than_a_fit(bench):
    floors = timing.floors(bench, 4)
    fit = timing.evolution(bench, time_rows.estimator(time_rows.SPEED, bench.rows, 0))[-1].seconds
    assert all(0 < seconds < fit for seconds in floors.values())


def of(settings, errors, seconds, method=time_search.GRADIENT):
    return [
        {"method": method, "settings": settings, "seed": k, "start": k, "rmse": error, "seconds": seconds}
        for k, error in enumerate(errors)
    ]


def test_the_rule_takes_the_lowest_mean_and_of_what_is_within_its_standard_deviation_the_fastest():
    slow = of({"steps": 9}, [0.900, 0.902, 0.904], 9.0)
    near = of({"steps": 3}, [0.902, 0.903, 0.904], 3.0)
    far = of({"steps": 1}, [0.910, 0.911, 0.912], 1.0)
    other_luck = [{**trial, "start": 9} for trial in of({"steps": 1}, [0.5], 0.1)]
    made = time_search.summaries(time_search.GRADIENT, slow + near + far + other_luck, 3)
    assert [each["rmse"] for each in made] == pytest.approx([0.902, 0.903, 0.911])
    assert time_search.chosen(made)["settings"] == {"steps": 3}
    assert time_search.chosen(made[:1])["settings"] == {"steps": 9}


def test_the_rows_are_what_the_rules_chose_from_the_trials():
    found = time_search.trials()
    opponent = time_search.chosen(time_search.summaries(time_search.GRADIENT, found, time_search.STARTS))
    ours = time_search.for_speed(
        time_search.summaries(time_search.STATISTICS, found, time_search.STARTS), opponent["rmse"]
    )
    data, rows = feature_driven_ratings(50, 20, 5)
    small = movielens.Bench.split("ratings", data, rows)
    for name, method, chosen in (
        (time_rows.TUNED, time_search.GRADIENT, opponent),
        (time_rows.SPEED, time_search.STATISTICS, ours),
    ):
        trial = {"method": method, "settings": chosen["settings"], "seed": 0, "start": 0}
        one, two = time_rows.estimator(name, rows, 0), time_search.estimator(trial, small)
        assert one.fit(small.train).model_.settings == two.fit(small.train).model_.settings


def test_trials_can_be_repeated(bench):
    found = time_search.first(time_search.trials())
    for method in (time_search.GRADIENT, time_search.STATISTICS):
        trial = next(each for each in found if each["method"] == method)
        assert len(timing.evolution(bench, time_search.estimator(trial, bench))) == trial["settings"]["rounds"]


def test_a_larger_encoder_makes_steps_dearer_and_whole_runs_are_told_from_timed_steps(bench):
    whole = compare(bench, Encoder("small", bench.rows), 0.0)
    timed = compare(bench, Encoder("module", bench.rows, hidden=16, module=True, timed=1), 10.0)
    rounds, steps = time_rows.steps_of(time_rows.TUNED)
    assert whole.whole_run
    assert whole.times_less is None  # nobody gets to an error of 0
    assert not timed.whole_run
    assert timed.gradient_error is None
    assert timed.gradient_seconds == pytest.approx(rounds * steps * timed.step_seconds)
    assert timed.times_less > 1
    assert timed.step_seconds > whole.step_seconds


def test_the_report_shows_rows_seconds_encoders_and_the_search(bench):
    row = compare(bench, Encoder("module", bench.rows, hidden=16, module=True, timed=1), 10.0)
    text = time_report.report(
        {
            "value": {"times_less": {time_rows.TUNED: None}, "cost_law": {"slope in epochs": 1.0}},
            "settings": {
                "points": {time_rows.SPEED: [[0.1, 0.9]], time_rows.TUNED: [[4.0, 0.9]]},
                "noise_seeds": [0], "deciding": time_rows.TUNED, "larger_encoders": [row.stored()],
                "seconds": {
                    "a round of AM-SSP": 0.05, "before AM-SSP's first round": 0.03, "a step of AM-DPSGD": 0.08,
                    "steps of AM-DPSGD": 48, **timing.floors(bench, 2),
                },
            },
        }
    )  # fmt: skip
    for words in ("| AM-SSP, set for speed | 0.100 | 0.9000 |", "| AM-DPSGD, tuned | never | decides |", "| timed |"):
        assert words in text
    assert "48 steps of 80 ms, 4.00 s\nin all. A hundredth of that is 40 ms. AM-SSP takes 100 ms" in text
    assert text.count("\n## ") == 5

"""Studies: every unit is fitted once and measured right, tuning keeps off the test, and failures are reported."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from apportion.errors import ApportionError, InputError
from apportion.evaluation import evaluate_rankings, evaluate_ratings, popularity_slices, run_study
from apportion.privacy import SeededNoise
from apportion.recommend import methods
from small_studies import EXPONENTS, LIMIT, OURS, STATISTICS, Counting, figures, study, unit_files

# -- figures --


def test_figures_of_ratings_are_those_of_the_same_fit_by_hand(ratings, tmp_path):
    results = run_study(study(), ratings, tmp_path / "s")
    train, _, test = ratings.split_by_value(np.random.default_rng(0), (0.8, 0.1, 0.1))
    slices = popularity_slices(train.by_task.counts)
    by_hand = [
        evaluate_ratings(
            methods.build(OURS, "ratings", epsilon=8.0, delta=1e-6, noise=SeededNoise(seed)).fit(train).model_,
            train,
            test,
            slices=slices,
        )
        for seed in (0, 1)
    ]
    cell = results.cell("ours", 8.0)
    assert cell.evaluations == tuple(by_hand)
    figure = cell.figure("rmse")
    values = [each["rmse"].overall for each in by_hand]
    assert (figure.mean, figure.stddev, figure.n) == pytest.approx((np.mean(values), np.std(values, ddof=1), 2))
    assert cell.figure("mae", 4).mean == pytest.approx(np.mean([each["mae"].by_slice[4] for each in by_hand]))
    assert results.cell("non-private", 1.0) is results.cell("non-private", 8.0)
    assert results.cell("non-private", 1.0).figure("rmse").stddev is None
    assert results.failures == ()


def test_clicks_are_measured_on_held_out_users_with_a_cut_off_for_each_slice(clicks, tmp_path):
    asked = study(data={"kind": "clicks", "test": 40, "validation": 10}, budgets={"epsilon": [8]}, methods=[LIMIT])
    results = run_study(asked, clicks, tmp_path / "s")
    split = clicks.split_by_users(np.random.default_rng(0), 10, 40)
    model = methods.build(LIMIT, "clicks", epsilon=1.0, delta=1e-6).fit(split.train).model_
    slices = popularity_slices(split.train.by_task.counts)
    by_hand = evaluate_rankings(
        model, split.test.history, split.test.target, recall_at_by_slice=(100, 80, 60, 40, 20), slices=slices
    )
    assert results.cells[0].evaluations == (by_hand,)
    assert by_hand["recall@20"].n == 40


def test_everything_that_is_stored_says_that_it_is_not_for_release(ratings, tmp_path):
    run_study(study(), ratings, tmp_path / "s")
    stored = [json.loads(file.read_text()) for file in unit_files(tmp_path / "s")]
    assert len(stored) == 2 * 2 + 1
    assert all("NOT FOR RELEASE" in each["marking"] for each in stored)
    private = [each["statement"] for each in stored if each["unit"]["epsilon"] is not None]
    assert len(private) == 4
    assert not any(statement["releasable"] for statement in private)
    assert "NOT FOR RELEASE" in run_study(study(), ratings, tmp_path / "s").to_dict()["marking"]


# -- going on where it stopped --


def test_an_interrupted_study_keeps_what_is_finished_and_fits_the_rest(ratings, tmp_path):
    first = Counting(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        run_study(study(), ratings, tmp_path / "s", build=first)
    assert len(unit_files(tmp_path / "s")) == 3
    second = Counting()
    resumed = run_study(study(), ratings, tmp_path / "s", build=second)
    assert len(second.fits) == 2
    assert not set(first.fits) & set(second.fits)
    assert figures(resumed) == figures(run_study(study(), ratings, tmp_path / "whole"))
    third = Counting()
    assert figures(run_study(study(), ratings, tmp_path / "s", build=third)) == figures(resumed)
    assert third.fits == []


def test_a_file_that_is_not_whole_is_fitted_again_and_no_other(ratings, tmp_path):
    whole = figures(run_study(study(), ratings, tmp_path / "s"))
    damaged = unit_files(tmp_path / "s")[2]
    damaged.write_bytes(damaged.read_bytes()[:100])
    again = Counting()
    assert figures(run_study(study(), ratings, tmp_path / "s", build=again)) == whole
    assert len(again.fits) == 1


def test_only_what_a_change_touches_is_fitted_again(ratings, tmp_path):
    def fits(data=ratings, **changes):
        counting = Counting()
        options = {"fresh": changes.pop("fresh", False)}
        run_study(study(**changes), data, tmp_path / "s", build=counting, **options)
        return counting.fits

    assert len(fits()) == 5
    assert fits(methods=[{**OURS, "name": "another name"}, LIMIT]) == []
    assert fits(methods=[OURS, {**LIMIT, "epochs": 3}]) == [("non-private", 1.0, None)]
    assert fits(budgets={"epsilon": [1, 8], "seeds": [0, 1, 2]}) == [("ours", 1.0, 2), ("ours", 8.0, 2)]
    assert len(fits(budgets={"epsilon": [1, 8], "seeds": [0, 1], "delta": 1e-5})) == 4  # the limit has no δ
    assert len(fits(data=ratings.without(3))) == 5
    assert len(fits(fresh=True)) == 5
    assert fits() == []


# -- tuning --


def test_tuning_never_touches_the_test_part_and_takes_the_best_on_validation(ratings, tmp_path):
    events = []

    class Watched:
        def __init__(self, model):
            self.model = model
            self.statement = model.statement

        def predict(self, history, targets):
            events.append((job[0], history, targets))
            return self.model.predict(history, targets)

    def build(spec, kind, **arguments):
        estimator = methods.build(spec, kind, **arguments)

        def fit(data):
            events.append((job[0], data, None))
            return SimpleNamespace(model_=Watched(estimator.fit(data).model_))

        return SimpleNamespace(fit=fit)

    job = [""]
    asked = study(
        methods=[OURS, {**STATISTICS, "grid": EXPONENTS}],
        tuning={"rule": "best on validation", "seeds": [7, 8]},
    )
    results = run_study(asked, ratings, tmp_path / "s", build=build, show=lambda now, *_: job.__setitem__(0, now))
    train, validation, test = ratings.split_by_value(np.random.default_rng(0), (0.8, 0.1, 0.1))
    measured = {name: [targets for now, _, targets in events if now == name and targets] for name in ("tuning", "test")}
    assert len(measured["tuning"]) == 3 * 2 * 2  # exponents x ε x tuning seeds; a single setting is not tuned
    assert all(targets == validation for targets in measured["tuning"])
    assert len(measured["test"]) == 2 * 2 * 2
    assert all(targets == test for targets in measured["test"])
    assert all(seen == train for _, seen, _ in events)
    for epsilon in (1.0, 8.0):
        scores = {
            cell.combination.settings["allocation.exponent"]: cell.figure("rmse").mean
            for cell in results.explored
            if cell.epsilon == epsilon
        }
        chosen = results.cell("ssp", epsilon).combination.settings["allocation.exponent"]
        assert scores[chosen] == min(scores.values())
    assert results.labels == ("ours", "ssp")
    assert "12 fits looked at that part" in results.tuning_in_words
    assert "not private" in results.tuning_in_words
    assert "Nothing was tuned" in run_study(study(), ratings, tmp_path / "s").tuning_in_words


def test_higher_is_better_when_recall_is_tuned(clicks, tmp_path):
    asked = study(
        data={"kind": "clicks"},
        budgets={"epsilon": [20]},
        methods=[{"method": "non-private", "epochs": 3, "grid": {"dimension": [1, 8], "ridge": [1.0, 1e5]}}],
        tuning={"rule": "best on validation"},
    )
    results = run_study(asked, clicks, tmp_path / "s")
    best = max(results.explored, key=lambda cell: cell.figure("recall@20").mean)
    assert [cell.combination for cell in results.cells] == [best.combination]
    assert len(results.explored) == 4
    assert "4 fits looked" in results.tuning_in_words


# -- what fails --


def test_a_fit_that_fails_is_reported_and_the_others_go_on(ratings, tmp_path):
    def fail(spec, epsilon, seed):
        if spec["method"] == "ours" and epsilon == 1.0:
            raise InputError("Expected better luck, got none.")

    said = []
    results = run_study(study(), ratings, tmp_path / "s", build=Counting(fail=fail), say=said.append)
    expected = [(f"ours, epsilon = 1, seed {seed}, on test", "Expected better luck, got none.") for seed in (0, 1)]
    assert list(results.failures) == expected
    assert said == [f"Failed: {words}: {reason}" for words, reason in expected]
    assert results.cell("ours", 1.0).figure("rmse") is None
    assert results.cell("ours", 8.0).figure("rmse").n == 2
    again = Counting()
    assert run_study(study(), ratings, tmp_path / "s", build=again).failures == ()
    assert again.fits == [("ours", 1.0, 0), ("ours", 1.0, 1)]


def test_settings_that_fail_with_one_of_the_seeds_are_not_chosen(ratings, tmp_path):
    asked = study(
        methods=[{**STATISTICS, "grid": EXPONENTS}],
        budgets={"epsilon": [8]},
        tuning={"rule": "best on validation", "seeds": [7, 8]},
    )

    def chosen(folder, **options):
        results = run_study(asked, ratings, tmp_path / folder, build=Counting(**options))
        return results.cells[0].combination.settings["allocation.exponent"], results

    best, whole = chosen("all")
    (winner,) = (cell for cell in whole.explored if cell.combination.settings["allocation.exponent"] == best)
    worse = 7 + int(np.argmax([each["rmse"].overall for each in winner.evaluations]))  # without it, still the best

    def fail(spec, epsilon, seed):
        if spec["allocation"]["exponent"] == best and seed == worse:
            raise ZeroDivisionError("oh")

    second, results = chosen("some", fail=fail)
    assert second != best
    assert [reason for _, reason in results.failures] == ["ZeroDivisionError: oh"]


def test_a_private_method_has_to_come_with_a_statement_of_its_budget(ratings, tmp_path):
    def without(spec, kind, **arguments):
        return methods.build(LIMIT, kind, **arguments)

    def spends_too_much(spec, kind, **arguments):
        return methods.build(spec, kind, **(arguments | {"epsilon": 3.0}))

    asked = study(budgets={"epsilon": [1]}, methods=[OURS])
    for build, words in ((without, "no privacy statement"), (spends_too_much, "epsilon = 3")):
        ((_, reason),) = run_study(asked, ratings, tmp_path / "s", build=build).failures
        assert reason == f"Expected a model with epsilon = 1, got one with {words}."


def test_bad_methods_bad_data_and_bad_places_are_refused_before_anything_is_written(ratings, tmp_path):
    def refused(words, folder="s", processes=1, **changes):
        with pytest.raises(ApportionError, match=words):
            run_study(study(**changes), ratings, tmp_path / folder, processes=processes)
        assert not (tmp_path / "s").exists()

    refused("Method 'magic': Expected one of the methods .*, got 'magic'", methods=[{"method": "magic"}])
    refused("Method 'ssp: colour 2': .* got 'colour'", methods=[{**STATISTICS, "grid": {"colour": [2]}}])
    refused("Method 'ssp': Expected a table for .* got 3", methods=[{**STATISTICS, "allocation": 3}])
    refused("Cannot hold out", data={"kind": "clicks", "test": 100_000})
    refused("from 1 to 30 slices", evaluation={"slices": 31})
    refused("processes >= 1, got 0", processes=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused("not empty and does not hold an earlier study", folder="mine")
    refused("it is a file", folder="mine/thesis.txt")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]

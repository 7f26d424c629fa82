"""Studies: what a table may say, every unit is fitted once and measured right, and tuning keeps off the test."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from apportion.data import Interactions, Vocabulary, synthetic
from apportion.errors import ApportionError, InputError
from apportion.evaluation import (
    PopularitySlices,
    Study,
    evaluate_rankings,
    evaluate_ratings,
    popularity_slices,
    read_study,
    run_study,
)
from apportion.evaluation import grid as studies
from apportion.privacy import SeededNoise
from apportion.recommend import methods

OURS = {"method": "ours", "dimension": 2, "rounds": 2}
STATISTICS = {"name": "ssp", "method": "statistics", "dimension": 2, "rounds": 1}
EXPONENTS = {"allocation.exponent": [0.0, 0.25, 0.5]}
LIMIT = {"method": "non-private", "epochs": 2, "dimension": 2}


def table(**changes):
    """A small study of ratings; a table that is None is left out."""
    whole = {
        "data": {"kind": "ratings"},
        "budgets": {"epsilon": [1, 8], "seeds": [0, 1]},
        "methods": [OURS, LIMIT],
    } | changes
    return {name: part for name, part in whole.items() if part is not None}


def study(**changes):
    return Study.from_table(table(**changes))


@pytest.fixture(scope="module")
def ratings():
    data, _ = synthetic.long_tailed_ratings(200, 30, 2500, rank=2, rng=np.random.default_rng(1), stars="whole")
    return data


@pytest.fixture(scope="module")
def clicks():
    data, _ = synthetic.long_tailed_clicks(300, 150, 6000, rank=2, rng=np.random.default_rng(2))
    return data


class Counting:
    """The library's builder, which notes every fit, and can fail or be interrupted at one."""

    def __init__(self, *, interrupt_at=None, fail=lambda spec, epsilon, seed: None):
        self.fits = []
        self.interrupt_at = interrupt_at
        self.fail = fail

    def __call__(self, spec, kind, *, epsilon, delta, noise=None, value_range=(1.0, 5.0)):
        arguments = {"epsilon": epsilon, "delta": delta, "noise": noise, "value_range": value_range}
        estimator = methods.build(spec, kind, **arguments)
        return SimpleNamespace(fit=lambda data: self.fit(estimator, data, spec, epsilon, noise))

    def fit(self, estimator, data, spec, epsilon, noise):
        if len(self.fits) == self.interrupt_at:
            raise KeyboardInterrupt
        self.fits.append((spec["method"], epsilon, None if noise is None else noise.seed))
        self.fail(spec, *self.fits[-1][1:])
        return estimator.fit(data)


def figures(results):
    return {(cell.label, cell.epsilon): [e.to_dict() for e in cell.evaluations] for cell in results.cells}


def unit_files(folder):
    return sorted((folder / "units").glob("*.json"))


# -- what a table may say --


def test_a_grid_is_every_combination_of_its_lists_under_dotted_keys():
    method = {**STATISTICS, "allocation": {"policy": "adaptive"}, "grid": {**EXPONENTS, "dimension": [4, 8]}}
    method.pop("dimension")
    (found,) = study(methods=[method]).methods
    combinations = found.combinations()
    assert len(combinations) == 6
    assert combinations[3].spec == {
        "method": "statistics",
        "rounds": 1,
        "allocation": {"policy": "adaptive", "exponent": 0.25},
        "dimension": 8,
    }
    assert combinations[3].label == "ssp: exponent 0.25, dimension 8"
    assert found.spec["allocation"] == {"policy": "adaptive"}


def test_dotted_keys_may_be_written_as_tables_in_tables(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        '[data]\nkind = "ratings"\n[budgets]\nepsilon = [1]\n[[methods]]\nmethod = "statistics"\n'
        "grid = { allocation.exponent = [0.0, 0.5] }\n"
    )
    assert [each.settings for each in read_study(path).methods[0].combinations()] == [
        {"allocation.exponent": 0.0},
        {"allocation.exponent": 0.5},
    ]


def test_the_study_in_the_guide_is_one(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
    (tmp_path / "study.toml").write_text(re.search(r"```toml\n(.*?)```", guide, re.DOTALL)[1], encoding="utf-8")
    found = read_study(tmp_path / "study.toml")
    assert [len(method.combinations()) for method in found.methods] == [1, 6, 3, 1]
    studies._refuse_bad_methods(found, methods.build)


def test_what_is_left_out_has_a_default():
    found = study(data={"kind": "clicks"}, budgets={"epsilon": [1]}, tuning={"rule": "best on validation"})
    assert found.metrics == ("recall@20", "ndcg@100", "recall@100/80/60/40/20")
    assert found.budgets == studies.Budgets((1.0,), 1e-6, (0,))
    assert found.split == studies.SplitPlan(0, 0.1, 0.1, 0.8)
    assert found.tuning == studies.Tuning((1,), "recall@20")  # noise that the test does not use
    four = study(data={"kind": "clicks"}, evaluation={"slices": 4})
    assert four.measures.recall_at_by_slice == (80, 60, 40, 20)
    assert study().metrics == ("rmse", "mae")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": None}, r"Expected data in the study \(a table\), got none"),
        ({"data": {}}, r'Expected kind in \[data\] \("ratings" or "clicks"\), got none'),
        ({"data": {"kind": "stars"}}, "got 'stars'"),
        ({"data": {"kind": "ratings", "pth": "x"}}, r"Expected only kind, .* in \[data\], got 'pth'"),
        ({"data": {"kind": "ratings", "test": 3}}, r"Expected test in \[data\] to be a fraction from 0 to 1, got 3"),
        ({"data": {"kind": "ratings", "test": 0.6, "validation": 0.5}}, r"below 1 together, got 0\.5 and 0\.6"),
        ({"data": {"kind": "ratings", "value_range": [5, 1]}}, r"low below high, got \[5, 1\]"),
        ({"data": {"kind": "ratings", "min_value": 3}}, "only with clicks, got 3"),
        ({"budgets": {"epsilon": []}}, r"different numbers above 0, got \[\]"),
        ({"budgets": {"epsilon": [1, -1]}}, r"got \[1, -1\]"),
        ({"budgets": {"epsilon": [1, 1]}}, r"got \[1, 1\]"),
        ({"budgets": {"epsilon": 1}}, "got 1"),
        ({"budgets": {"epsilon": [1], "delta": 1}}, "Expected delta .* between 0 and 1, got 1"),
        ({"budgets": {"epsilon": [1], "seeds": [0.5]}}, r"got \[0\.5\]"),
        ({"budgets": {"epsilon": [1], "seeds": [True]}}, r"got \[True\]"),
        ({"methods": []}, r"one or more \[\[methods\]\] tables, got \[\]"),
        ({"methods": [{"name": "x"}]}, r"Expected method in \[\[methods\]\] number 1"),
        ({"methods": [OURS, OURS]}, "got 'ours' 2 times"),
        ({"methods": [{**OURS, "grid": {"rounds": [1]}}]}, "either as a setting or in its grid, got both"),
        ({"methods": [{**OURS, "grid": {"growth": 2.0}}]}, r"to be a list of values, got 2\.0"),
        ({"methods": [{**OURS, "grid": {"rounds.a": [1]}}]}, "Expected rounds to be a table, .* got 2"),
        ({"evaluation": {"recall_at": [5]}}, "got 'recall_at'"),  # not for ratings
        ({"tuning": {"rule": "best on test"}}, "got 'best on test'"),
        ({"tuning": {"rule": "best on validation", "metric": "recall@20"}}, "one of rmse, mae, got 'recall@20'"),
        (
            {"data": {"kind": "ratings", "validation": 0}, "tuning": {"rule": "best on validation"}},
            "validation .* above 0",
        ),
        ({"inspection": {"reference": "ours"}}, r"non-private method \(non-private\), got 'ours'"),
        ({"methods": [OURS], "inspection": {}}, "there is none"),
        ({"colour": "red"}, "in the study, got 'colour'"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_with_its_place_and_value(changes, words):
    with pytest.raises(InputError, match=words):
        study(**changes)


def test_a_file_that_is_no_study_is_refused_by_name(tmp_path):
    path = tmp_path / "s.toml"
    for content, words in ((b"[data\n", "s.toml is not valid TOML"), (b"\xff", "not valid TOML"), (b"", "s.toml: Exp")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=words):
            read_study(path)


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


def test_two_processes_give_the_same_figures_as_one(ratings, tmp_path):
    one = run_study(study(), ratings, tmp_path / "one")
    two = run_study(study(), ratings, tmp_path / "two", processes=2)
    assert figures(one) == figures(two)
    assert [file.name for file in unit_files(tmp_path / "one")] == [file.name for file in unit_files(tmp_path / "two")]


INTERRUPTED = """
import sys, numpy as np
from apportion.data import synthetic
from apportion.evaluation import Study, run_study
data, _ = synthetic.long_tailed_ratings(200, 30, 2500, rank=2, rng=np.random.default_rng(1), stars="whole")
table = {"data": {"kind": "ratings"}, "budgets": {"epsilon": [8], "seeds": list(range(200))},
         "methods": [{"method": "ours", "dimension": 2, "rounds": 2}, {"method": "non-private", "epochs": 10**9}]}
run_study(Study.from_table(table), data, sys.argv[1], processes=2)
"""


def test_ctrl_c_ends_all_processes_and_leaves_whole_files(ratings, tmp_path):
    """One of the fits would take days: it has to be ended, not waited for."""
    folder = tmp_path / "s"
    command = [sys.executable, "-c", INTERRUPTED, str(folder)]
    running = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + 60
    while len(unit_files(folder)) < 3 and running.poll() is None and time.monotonic() < give_up:
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    try:
        assert running.wait(timeout=30) != 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    finished = unit_files(folder)
    assert 3 <= len(finished) < 200
    assert all("evaluation" in json.loads(file.read_text()) for file in finished)
    time.sleep(0.2)
    assert unit_files(folder) == finished  # nobody works on
    counting = Counting()
    asked = study(budgets={"epsilon": [8], "seeds": list(range(len(finished) + 5))}, methods=[OURS])
    run_study(asked, ratings, folder, build=counting)
    seeds = {json.loads(file.read_text())["unit"]["seed"] for file in finished}
    assert {seed for _, _, seed in counting.fits} == set(range(len(finished) + 5)) - seeds


def test_processes_together_use_no_more_threads_than_there_are_processors():
    before = dict(os.environ)
    for processes in range(1, studies.processors() + 1):
        with studies._threads_for(processes):
            assert 1 <= int(os.environ["APPORTION_THREADS"]) * processes <= studies.processors()
    assert dict(os.environ) == before


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

    refused("Method 'magic': Expected a method among .*, got 'magic'", methods=[{"method": "magic"}])
    refused("Method 'ssp: colour 2': .* got 'colour'", methods=[{**STATISTICS, "grid": {"colour": [2]}}])
    refused("Method 'ssp': Expected a table for .* got 3", methods=[{**STATISTICS, "allocation": 3}])
    refused("Cannot hold out", data={"kind": "clicks", "test": 100_000})
    refused("from 1 to 30 slices", evaluation={"slices": 31})
    refused("processes >= 1, got 0", processes=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused("not empty and holds no earlier study", folder="mine")
    refused("it is a file", folder="mine/thesis.txt")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


# -- recall with a cut-off for each slice --


class Ranks:
    """Ranks tasks by their code for everybody, the first one first."""

    def score(self, history, users):
        return np.broadcast_to(-np.arange(history.n_tasks, dtype=float), (len(users), history.n_tasks))


def pairs(rows, n_tasks):
    users, tasks = np.array(rows).T
    ids = {"user_ids": Vocabulary.of_range(2), "task_ids": Vocabulary.of_range(n_tasks)}
    return Interactions.from_codes(users, tasks, **ids)


def test_each_slice_has_its_own_cut_off_by_hand():
    # ranks are codes (user 0 has seen task 0); slice 0, up to rank 4, holds tasks 3 and 5; slice 1, up to 2, the others
    history = pairs([(0, 0)], 6)
    targets = pairs([(0, 3), (0, 4), (0, 5), (1, 1), (1, 2), (1, 3)], 6)
    slices = PopularitySlices(np.array([1, 1, 1, 0, 1, 0]), 2)
    found = evaluate_rankings(Ranks(), history, targets, recall_at_by_slice=(4, 2), slices=slices)["recall@4/2"]
    # user 0 ranks 3, 4, 5 at 3, 4, 5: slice 0 finds task 3 of two, slice 1 finds nothing of task 4
    # user 1 ranks 1, 2, 3 at 2, 3, 4: slice 0 finds task 3, slice 1 finds task 1 of two
    assert found.by_slice == (pytest.approx((1 / 2 + 1) / 2), pytest.approx((0 + 1 / 2) / 2))
    assert found.overall == pytest.approx((1 / 3 + 2 / 3) / 2)
    assert (found.n, found.n_by_slice) == (2, (2, 2))


def test_a_slice_is_as_with_that_cut_off_for_all(clicks):
    split = clicks.split_by_users(np.random.default_rng(0), 1, 60)
    slices = popularity_slices(split.train.by_task.counts, 3)
    model = methods.build(LIMIT, "clicks", epsilon=1.0, delta=1e-6).fit(split.train).model_
    cutoffs = (60, 7, 2)
    found = evaluate_rankings(
        model,
        split.test.history,
        split.test.target,
        recall_at=cutoffs,
        recall_at_by_slice=cutoffs,
        slices=slices,
    )
    mixed = found["recall@60/7/2"]
    assert mixed.by_slice == tuple(found[f"recall@{k}"].by_slice[number] for number, k in enumerate(cutoffs))
    assert mixed.n == 60
    same = evaluate_rankings(model, split.test.history, split.test.target, recall_at_by_slice=(9, 9, 9), slices=slices)
    assert found["recall@60"].overall != mixed.overall
    assert 0 < same["recall@9/9/9"].overall < 1


def test_cut_offs_have_to_fit_the_slices(clicks):
    split = clicks.split_by_users(np.random.default_rng(0), 1, 5)
    arguments = (Ranks(), split.test.history, split.test.target)
    with pytest.raises(InputError, match=r"one cut-off for each of 0 slices, rarest first, got \[20\]"):
        evaluate_rankings(*arguments, recall_at_by_slice=(20,))
    slices = popularity_slices(split.train.by_task.counts, 2)
    with pytest.raises(InputError, match=r"one cut-off for each of 2 slices"):
        evaluate_rankings(*arguments, recall_at_by_slice=(20, 40, 60), slices=slices)
    with pytest.raises(InputError, match="k >= 1"):
        evaluate_rankings(*arguments, recall_at_by_slice=(20, 0), slices=slices)


def test_methods_that_draw_from_the_same_lists_draw_the_same_settings():
    lists = {"dimension": [2, 4, 8], "rounds": [1, 2, 3], "user_ridge": [0.1, 1.0]}
    with_more = {**lists, "allocation.exponent": [0.0, 0.5]}
    some, more = (
        studies.Method(name, {"method": "statistics"}, {k: tuple(v) for k, v in grid.items()}, draws=12)
        for name, grid in (("some", lists), ("more", with_more))
    )
    drawn = [combination.settings for combination in some.combinations()]
    assert 8 <= len(drawn) <= 12  # of 18
    assert len({repr(settings) for settings in drawn}) == len(drawn)
    assert all(settings[key] in lists[key] for settings in drawn for key in lists)
    assert {len({repr(settings[key]) for settings in drawn}) for key in lists} == {2, 3}
    common = [{key: combination.settings[key] for key in lists} for combination in more.combinations()]
    assert [settings for settings in common if settings in drawn] == common
    assert some.combinations() == some.combinations()


def test_draws_need_a_grid_to_draw_from():
    table = {"data": {"kind": "ratings"}, "budgets": {"epsilon": [1]}, "methods": [{"method": "ours", "draws": 3}]}
    with pytest.raises(InputError, match="a grid for the 3 draws of method 'ours'"):
        Study.from_table(table)

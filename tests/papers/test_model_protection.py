"""The reproduction of the model-protection paper: its data, its metrics, and its studies in their short forms."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from apportion.published.model_protection import TaskLists
from benchmarks.claim import UnavailableError, data_folder
from papers.model_protection import data, leakage, methods, studies, tradeoff
from papers.model_protection.__main__ import main

SMALL = {"n_tasks": 40, "n_rows": 12, "n_features": 6}


def small(seed):
    return data.synthetic("low-rank", seed, **SMALL)


def test_generated_tasks_have_the_sizes_and_structures_of_the_paper():
    problem = data.synthetic("low-rank", 0)
    assert (problem.train.n_tasks, problem.train.n_features) == (320, 30)
    assert set(problem.train.sizes) == {30}
    assert set(problem.test.sizes) == {270}
    assert np.linalg.matrix_rank(problem.truth) == 3
    np.testing.assert_allclose(np.linalg.norm(problem.train.features[5], axis=1), 1.0)
    assert problem.score(problem.truth) == pytest.approx(1 / (1 + data.SIGNAL_VARIANCE), rel=0.05)
    sparse = data.synthetic("group-sparse", 0).truth
    assert (sparse[:, 4:] == 0).all()
    assert (np.abs(sparse[:, :4]) >= 1).all()
    assert (np.abs(sparse[:, :4]) <= 50).all()
    assert {-1.0, 1.0} == set(np.sign(sparse[:, :4]).ravel())


def test_repetitions_differ_and_seeds_repeat():
    one, again, other = small(1), small(1), small(2)
    np.testing.assert_array_equal(one.train.targets[0], again.train.targets[0])
    assert not np.array_equal(one.train.targets[0], other.train.targets[0])


def test_the_stand_in_for_outcomes_has_gaps_and_two_classes():
    problem = data.outcomes_standin(0, n_subjects=400)
    assert (problem.train.n_tasks, problem.train.n_features) == (41, 295)
    seen = (problem.train.sizes + problem.test.sizes) / 400
    assert seen.mean() == pytest.approx(1 - data.MISSING, abs=0.02)
    assert len(set(seen)) > 5
    assert all(set(labels) == {0.0, 1.0} for labels in problem.train.targets)


def test_the_error_is_one_for_the_mean_and_the_auc_is_scikit_learns():
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((60, 3)).round(1) for _ in range(4)]
    labels = [(rng.random(60) < 0.4).astype(float) for _ in range(4)]
    models = rng.standard_normal((4, 3)).round()
    rows = TaskLists(features, labels)
    theirs = [roc_auc_score(y, x @ w) for x, y, w in zip(features, labels, models, strict=True)]
    assert data.average_auc(rows, models) == pytest.approx(np.mean(theirs))
    targets = [y - np.mean(np.concatenate(labels)) for y in labels]
    assert data.normalised_error(TaskLists(features, targets), np.zeros((4, 3))) == pytest.approx(1.0)


def test_school_is_asked_for_by_name_where_it_is_not(tmp_path):
    with pytest.raises(UnavailableError, match="APPORTION_DATA"):
        data.school(0, folder=tmp_path)


@pytest.mark.skipif(not (data_folder() / "school").exists(), reason="needs the School data under APPORTION_DATA")
def test_school_has_the_tasks_and_students_that_are_documented():
    problem = data.school(0)
    assert problem.train.n_tasks == 139
    assert int((problem.train.sizes + problem.test.sizes).sum()) == 15_362
    assert problem.train.sizes.sum() == pytest.approx(0.3 * 15_362, rel=0.02)
    assert problem.score(problem.alone) < 0.85


def test_without_noise_one_model_shows_in_all_others_and_with_it_not():
    leaks = [leakage.measure(seed) for seed in range(20)]
    mean = leakage.mean_of(leaks)
    assert mean.unprotected > 0.999
    assert abs(mean.protected - mean.before) < 0.02
    assert mean.shared < 0.1
    assert leakage.measure(0, epsilon=1e4).shared > mean.shared


def test_comparisons_are_paired_and_one_sided():
    rng = np.random.default_rng(1)
    base = rng.random(20)
    scores = tradeoff.Scores(
        "made up",
        (1.0, 2.0, 3.0),
        {"a": np.stack([base + 0.01 + 1e-4 * rng.random(20), base - 0.2, base - 0.4]), "b": np.full((3, 20), 2.0)},
        {"alone": base, methods.TRACE: base - 0.4, methods.GROUP: base, methods.RELATIONS: base},
    )
    assert scores.worse_by("a", "alone")[0] < 1e-9
    assert not scores.never_worse("a", "alone")
    assert (scores.worse_by("a", "alone")[1:] > 0.99).all()
    assert scores.beats("a", "b")
    assert not scores.beats("b", "a")
    assert scores.best_joint == methods.TRACE
    np.testing.assert_allclose(scores.way_gone("a", "alone")[1:], [0.5, 1.0])


def test_the_trade_off_of_every_method_is_measured_and_written():
    scores = tradeoff.measure(small, 2, (1.0, 10.0), n_penalties=4)
    assert set(scores.private) == {*methods.OURS, *methods.RIVALS}
    assert set(scores.fixed) == {*methods.ALONE, *methods.NOT_PRIVATE}
    assert all(np.isfinite(each).all() for each in (*scores.private.values(), *scores.fixed.values()))
    assert scores.beats(methods.EM, methods.MEAN)
    text = tradeoff.to_markdown(scores, "Title", "About.")
    assert text.count("| ε = 1 | ε = 10 |") == 1
    assert "not for\n" in text or "not for release" in text
    for name in (*scores.private, *scores.fixed):
        assert f"| {name} | " in text


def test_schedules_noise_and_numbers_of_tasks_have_a_number_for_every_setting():
    table = studies.schedules(small, 2, 10.0, 3, (0.0, 1.0))
    assert table.columns == ("α = 0", "α = 1")
    assert set(table.rows) == {"accelerated", "plain"}
    noise = studies.noise_to_signal(small, 2, (1.0, 100.0), 2)
    assert (noise.mean("ε = 100") < noise.mean("ε = 1")).all()
    numbers = studies.numbers_of_tasks(small, 2, (10.0,), (20, 40))
    alone = numbers.rows[methods.ALONE_L2]
    np.testing.assert_allclose(alone[0], alone[1])
    assert all(found.shape == (2, 2) for found in numbers.rows.values())
    assert "| α = 0 | α = 1 |" in studies.to_markdown(table, "Title", "About.")


@pytest.mark.parametrize("name", ["leak", "noise", "numbers", "outcomes"])
def test_short_forms_run_from_the_command_line(name, capsys):
    assert main([name, "--quick"]) == 0
    assert "not for release" in capsys.readouterr().out.replace("\n", " ")

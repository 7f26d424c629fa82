"""The logistic study on drug reviews: its data, its rows, and what it says of an order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from apportion.allocation.users import SampleLimit, Smooth, Unbounded
from apportion.errors import InputError
from apportion.privacy import REPLACE_VALUES
from benchmarks.claim import UnavailableError, data_folder
from papers.user_contributions import drugs, logistic
from papers.user_contributions.logistic import Losses, Study

REAL = pytest.mark.skipif(
    not (data_folder() / "drugs" / "drugLibTrain_raw.tsv").exists(),
    reason="needs the drug reviews: drugs/drugLibTrain_raw.tsv in the folder named by APPORTION_DATA",
)
HEADER = "\turlDrugName\trating\teffectiveness\tsideEffects\tcondition\tbenefitsReview\n"


def test_reviews_are_read_with_line_breaks_in_their_texts(tmp_path):
    file = tmp_path / "reviews.tsv"
    file.write_text(
        HEADER
        + '1\tone\t4\tHighly Effective\tMild Side Effects\tflu\t"first line\nsecond\tline"\n'
        + "2\ttwo\t10\tConsiderably Effective\tExtremely Severe Side Effects\tflu\tnone\n",
        encoding="utf-8",
    )
    features, ratings, groups = drugs.load_drugs(file)
    assert features.tolist() == [[1, 0, 0, 0, 1, 0, 0, 0], [0] * 8]
    assert ratings.tolist() == [4.0, 10.0]
    assert groups.tolist() == ["one", "two"]


def test_a_category_that_is_not_public_and_a_missing_file_get_one_sentence(tmp_path, monkeypatch):
    file = tmp_path / "reviews.tsv"
    file.write_text(HEADER + "1\tone\t4\tSomewhat Effective\tMild Side Effects\tflu\tnone\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"category among .*, got 'Somewhat Effective'"):
        drugs.load_drugs(file)
    monkeypatch.setenv("APPORTION_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UnavailableError, match="set APPORTION_DATA"):
        logistic.drug_reviews()


@REAL
def test_the_reviews_have_the_sizes_that_the_paper_states():
    features, ratings, groups = drugs.load_drugs()
    sizes = np.unique(groups, return_counts=True)[1]
    assert features.shape == (3107, 8)
    assert (len(sizes), sizes.min(), sizes.max()) == (502, 1, 63)
    assert set(ratings) == set(range(1, 11))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_stand_in_has_the_same_shape(seed):
    features, ratings, groups = drugs.standin_drugs(seed)
    sizes = np.unique(groups, return_counts=True)[1]
    assert features.shape[1] == 8
    assert len(sizes) == 502
    assert 3000 <= len(ratings) == len(groups) == len(features) <= 3200
    assert sizes.min() == 1
    assert 50 <= sizes.max() <= 63
    assert np.bincount(sizes)[1] > 150
    assert set(ratings) <= set(range(1, 11))
    assert np.linalg.norm(features, axis=1).max() <= drugs.FEATURE_NORM
    assert len(np.unique(groups[:400])) > 100  # in random order


def test_the_loss_without_privacy_is_that_of_an_independent_solver():
    problem = logistic.generated_reviews(1)
    signs = 2 * problem.labels - 1
    found = minimize(lambda theta: np.logaddexp(0, -signs * (problem.features @ theta)).mean(), np.zeros(8))
    assert problem.least_loss == pytest.approx(found.fun, abs=1e-6)
    assert problem.loss(np.zeros(len(signs))) == pytest.approx(np.log(2))
    assert 0.3 < problem.labels.mean() < 0.5


def test_methods_are_what_they_are_called():
    made = {name: bounding(7) for name, bounding in Study(thresholds=(1, 4)).methods().items()}
    assert made == {
        "weights, h = 1": Smooth(1.0),
        "weights, h = 4": Smooth(4.0),
        "sample limit, h = 1": SampleLimit(1, 7),
        "sample limit, h = 4": SampleLimit(4, 7),
        "no bound": Unbounded(),
        "weights, h by formula": Smooth(),
        "sample limit, h by formula": SampleLimit(None, 7),
    }


def test_a_fit_has_the_papers_setting_and_says_what_is_promised():
    problem = logistic.generated_reviews()
    model = logistic.fitted(problem, 30.0, 0.1, Smooth(2.0), seed=0)
    assert model.intercept_ == 0.0
    assert (model.statement_.epsilon, model.statement_.delta) == (30.0, 0.1)
    assert model.statement_.neighbours is REPLACE_VALUES
    expected = 2 * 2 / np.minimum(np.unique(problem.groups, return_counts=True)[1], 2).sum()
    assert model.statement_.releases[0].sensitivity == pytest.approx(expected, rel=1e-6)


def losses_of(**runs):
    named = {name.replace("_", ", h = "): np.array(values) for name, values in runs.items()}
    return Losses("x", 1.0, 1e-6, 0.1, {name.replace("limit", "sample limit"): v for name, v in named.items()}, {})


def test_the_best_of_each_family_is_compared_run_by_run():
    found = losses_of(weights_1=[3.0, 4.0], weights_2=[1.0, 2.0], limit_1=[2.0, 4.0], limit_3=[5.0, 5.0])
    found.by_method["no bound"] = np.array([4.0, 6.0])
    assert found.compared == ("weights, h = 2", "sample limit, h = 1", "no bound")
    assert found.means == (1.5, 3.0, 5.0)
    assert found.in_order
    assert found.t_statistics[0] == pytest.approx(1.5 / (np.std([1, 2], ddof=1) / np.sqrt(2)))
    found.by_method["no bound"] = np.array([2.0, 3.9])
    assert not found.in_order


def test_a_small_study_runs_at_every_budget_and_writes_its_tables(tmp_path):
    study = Study(budgets=((30.0, 0.1), (3.0, None)), thresholds=(1,), runs=2)
    problem = logistic.generated_reviews()
    found = list(logistic.losses(problem, study))
    assert [(each.epsilon, each.delta) for each in found] == [(30.0, 0.1), (3.0, 1 / 502**2)]
    assert all(runs.shape == (2,) and (runs > problem.least_loss).all() for runs in found[0].by_method.values())
    again = next(logistic.losses(problem, study))
    np.testing.assert_array_equal(again.by_method["no bound"], found[0].by_method["no bound"])
    logistic.write(study, found, tmp_path)
    text = (tmp_path / "table-2.md").read_text(encoding="utf-8")
    assert "δ = 0.1: no guarantee worth the name" in text
    assert "## generated drugs, δ = 4e-06\n" in text
    assert "| weights, h by formula |" in text

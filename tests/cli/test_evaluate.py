"""`evaluate` compares the private model with its twin and the baselines on an internal page."""

from __future__ import annotations

import re

import pytest

from apportion.cli import training

SMALL = ("--dimension", "2", "--rounds", "2")


@pytest.mark.parametrize(
    ("kind", "metrics", "models"),
    [
        (
            "ratings",
            {"rmse", "mae"},
            ["private, ε = 8", "private means, ε = 8", "without privacy", "global mean", "item and user means"],
        ),
        (
            "clicks",
            {"recall@20", "ndcg@100"},
            ["private, ε = 8", "private popularity, ε = 8", "without privacy", "popularity ranking"],
        ),
    ],
)
def test_all_models_are_measured_overall_and_by_slice(run, ratings, folder, kind, metrics, models):
    answer = run("evaluate", ratings, f"--{kind}", "--epsilon", 8, *SMALL, "--json").json
    assert answer["marking"] == "computed from raw data, not covered by epsilon"
    assert list(answer["models"]) == models
    page = (folder / "ratings-evaluation.html").read_text(encoding="utf-8")
    assert "not covered by ε" in page
    for measured in answer["models"].values():
        assert set(measured["metrics"]) == metrics
        for value in measured["metrics"].values():
            assert len(value["by_slice"]) == 5
            assert f"{value['overall']:.4f}" in page


def test_the_twin_learns_more_than_the_weakest_baseline(run, ratings):
    models = run("evaluate", ratings, "--epsilon", 8, *SMALL, "--json").json["models"]
    rmse = {name: measured["metrics"]["rmse"]["overall"] for name, measured in models.items()}
    assert rmse["without privacy"] < rmse["global mean"]


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_the_model_without_privacy_is_the_best_on_the_validation_part(run, ratings, kind, monkeypatch):
    """Among an absurd penalty and the default, in either order, the default is chosen; of three, the best is named."""
    asked = ("evaluate", ratings, f"--{kind}", "--epsilon", 8, *SMALL, "--json")
    assert "the best of 3 on the validation part" in run(*asked).json["facts"]["Model without privacy"]
    for penalties in ((1e6, 1.0), (1.0, 1e6)):
        monkeypatch.setattr(training, "TWIN_PENALTIES", penalties)
        assert run(*asked).json["facts"]["Model without privacy"].startswith("penalty 1 times the default")


def test_the_figures_are_printed_under_a_warning(run, ratings):
    result = run("evaluate", ratings, "--epsilon", 8, "--out", "pages/e.html", *SMALL)
    assert result.stdout.startswith("INTERNAL: computed from raw data, not covered by epsilon.")
    assert "Internal page: pages/e.html" in result.stdout
    assert "non-private model: epoch" in result.stderr


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_saved_model_can_be_evaluated(run, fitted, ratings, folder, kind):
    answer = run("evaluate", ratings, "--model", fitted / kind, "--out", "e.html", "--json").json
    assert answer["private"] == "private, ε = 8"
    assert any("too good" in remark for remark in answer["remarks"])
    assert "too good" in (folder / "e.html").read_text(encoding="utf-8")


def test_the_same_seeds_give_the_same_figures(run, ratings):
    arguments = ("evaluate", ratings, "--epsilon", 8, "--seed", 4, *SMALL, "--json")
    first, again, other = (run(*arguments, *more).json["models"] for more in ((), (), ("--split-seed", 1)))
    assert first == again
    assert first != other


def test_a_declared_number_of_users_is_brought_down_to_the_training_users(run, ratings, monkeypatch):
    from apportion.cli import training

    declared = []
    fit = training.fit_private
    monkeypatch.setattr(training, "fit_private", lambda *a, **k: declared.append(a[2].n_users) or fit(*a, **k))
    split = run("evaluate", ratings, "--clicks", "--epsilon", 8, "--n-users", 300, "--json", *SMALL).json["facts"][
        "Split"
    ]
    held_out = int(re.search(r"(\d+) for test", split)[1])
    run("evaluate", ratings, "--ratings", "--epsilon", 8, "--n-users", 300, *SMALL)
    assert declared == [300 - 2 * held_out, 300, 300]  # the last one fits private means


def test_too_few_users_to_hold_out_are_refused(run, write):
    few = write("few.csv", "user,item", [[1, 1], [1, 2], [2, 1], [2, 3]])
    assert "Cannot hold out" in run("evaluate", few, "--epsilon", 1, code=2).stderr


def test_several_runs_have_standard_errors(run, ratings, folder):
    asked = ("evaluate", ratings, "--epsilon", 8, *SMALL, "--json")
    alone = [run(*asked, "--split-seed", seed).json["models"]["global mean"]["metrics"]["rmse"] for seed in (3, 4)]
    both = run(*asked, "--split-seed", 3, "--runs", 2).json
    found = both["models"]["global mean"]["metrics"]["rmse"]
    first, second = (each["overall"] for each in alone)
    assert found["overall"] == pytest.approx((first + second) / 2)
    assert found["error"] == pytest.approx(abs(first - second) / 2)
    assert alone[0]["error"] is None
    assert both["facts"]["Runs"].startswith("2, each with its own noise")
    assert f"{found['overall']:.4f} ± {found['error']:.4f}" in (folder / "ratings-evaluation.html").read_text("utf-8")


def test_the_latest_rows_are_held_out_if_asked(run, refused, folder):
    rows = [f"{user},{item},{1 + (user + item) % 5},{1000 * item + user}" for user in range(60) for item in range(12)]
    (folder / "timed.csv").write_text("\n".join(["user,item,rating,when", *rows]), encoding="utf-8")
    asked = ("evaluate", "timed.csv", "--epsilon", 8, *SMALL, "--items", "from-data", "--split", "time")
    found = run(*asked, "--timestamp", "when", "--json").json
    assert found["facts"]["Split"] == "by time: the first 80 % for training, 10 % for validation, 10 % for test"
    assert "--split time needs a time column" in refused(*asked)

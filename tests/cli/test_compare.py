"""`compare` runs a study from one TOML file, goes on where it stopped, and says what is wrong in one sentence."""

from __future__ import annotations

import csv
import json

import pytest

STUDY = """
[data]
path = "{path}"
kind = "{kind}"

[budgets]
epsilon = [2, 8]
seeds = [0, 1]

[[methods]]
method = "ours"
dimension = 2
rounds = 2

[[methods]]
name = "statistics"
method = "statistics"
rounds = 1
allocation = {{ policy = "adaptive" }}
grid = {{ "allocation.exponent" = [0.0, 0.25], dimension = [2] }}

[[methods]]
method = "non-private"
dimension = 2
epochs = 2
{more}
"""
TUNED = '[tuning]\nrule = "best on validation"\n'


@pytest.fixture
def studied(folder):
    """Write a study file; what is in `changes` is replaced in its text."""

    def written(path="ratings.csv", kind="ratings", more="", name="s.toml", changes=()):
        text = STUDY.format(path=path, kind=kind, more=more)
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
        return name

    return written


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [("ratings", ["rmse", "mae"]), ("clicks", ["recall@20", "ndcg@100", "recall@100/80/60/40/20"])],
)
def test_a_study_leaves_a_page_a_table_and_json_that_agree(run, ratings, studied, folder, kind, metrics):
    answer = run("compare", studied(kind=kind, more=TUNED), "--json").json
    assert answer["marking"].startswith("INTERNAL, NOT FOR RELEASE")
    assert {(row["method"], row["epsilon"]) for row in answer["rows"]} == {
        ("ours", 2.0),
        ("ours", 8.0),
        ("statistics", 2.0),
        ("statistics", 8.0),
        ("non-private", None),
    }
    stored = json.loads((folder / "s-study" / "results.json").read_text(encoding="utf-8"))
    assert stored["rows"] == answer["rows"]
    assert len(stored["validation"]) == 2 * 2
    page = (folder / answer["page"]).read_text(encoding="utf-8")
    with (folder / answer["table"]).open(encoding="utf-8", newline="") as stream:
        table = {(row["metric"], row["slice"], row["method"]): row for row in csv.DictReader(stream)}
    for row in answer["rows"]:
        assert list(row["metrics"]) == metrics
        for metric, found in row["metrics"].items():
            assert f"{found['overall']['mean']:.4f}" in page
            assert len(found["by_slice"]) == 5
            if row["epsilon"] == 8:
                cells = table[metric, "overall", row["method"]]
                assert float(cells["epsilon=8 mean"]) == found["overall"]["mean"]
                assert found["overall"]["n"] == 2
    assert {path.name for path in (folder / "s-study").iterdir()} == {
        "comparison.html",
        "results.json",
        "table.csv",
        "units",
    }


def test_the_terminal_gets_tables_under_a_warning_and_progress_goes_to_stderr(run, ratings, studied):
    result = run("compare", studied(), "--out", "here/study")
    assert result.stdout.startswith("INTERNAL, NOT FOR RELEASE: computed from raw data, not covered by epsilon")
    assert "RMSE, overall (lower is better)" in result.stdout
    assert "RMSE, rarest 20 % (lower is better)" in result.stdout
    assert "statistics: exponent 0.25, dimension 2" in result.stdout
    assert "Nothing was tuned" in result.stdout
    assert "Internal page: here/study/comparison.html" in result.stdout
    assert "test: fit 13 of 13 done" in result.stderr


def test_a_second_run_fits_only_what_is_new(run, ratings, studied):
    first = run("compare", studied(), "--json").json
    again = run("compare", studied(), "--json")
    assert "13 of 13 fits were already finished and are kept" in again.stderr
    assert again.json["rows"] == first["rows"]
    more = run("compare", studied(changes=[("[0, 1]", "[0, 1, 2]")]))
    assert "13 of 19 fits were already finished" in more.stderr
    assert "test: fit 13 of 13 done" in run("compare", studied(), "--fresh").stderr


def test_two_processes_give_the_same_as_one(run, ratings, studied):
    one = run("compare", studied(), "--out", "one", "--json").json
    two = run("compare", studied(), "--out", "two", "--processes", 2, "--json").json
    assert one["rows"] == two["rows"]
    assert (
        "instead of 4000, because there are no more processors"
        in run("compare", studied(), "--out", "two", "--processes", 4000).stderr
    )


def test_paths_are_relative_to_the_study_and_columns_are_named_in_it(run, write, rows, folder, studied):
    (folder / "inner").mkdir()
    write("inner/r.csv", "who,what,stars", rows)
    said = [
        ('kind = "ratings"', 'kind = "ratings"\nuser = "who"\nitem = "what"\nvalue = "stars"\nvalue_range = [1, 5]')
    ]
    studied("r.csv", name="inner/s.toml", changes=said)
    assert run("compare", "inner/s.toml", "--json").json["kind"] == "ratings"


def test_neighbours_are_shown_by_title_and_models_are_kept(run, ratings, write, studied, folder):
    write("titles.csv", "id,title", [[k, f"The film {k}."] for k in range(40)])
    titled = [('kind = "ratings"', 'kind = "ratings"\ntitles = "titles.csv"')]
    study = studied(more='[inspection]\nitems = ["film 3.", 11]\nk = 5\n', changes=titled)
    rows = run("compare", study, "--json").json["rows"]
    page = (folder / "s-study" / "comparison.html").read_text(encoding="utf-8")
    assert "The film 3.: nearest neighbours at ε = 2" in page
    assert "The film 11.: nearest neighbours at ε = 8" in page
    inspection = json.loads((folder / "s-study" / "results.json").read_text(encoding="utf-8"))["inspection"]
    assert {each["item"] for each in inspection["neighbours"]} == {3, 11}
    assert len(inspection["overlaps"]) == 2 * 3
    models = {row["method"]: folder / "s-study" / row["model"] for row in rows}
    assert run("similar", models["ours"], 3, "--beside", models["non-private"], "--json").json["item"] == 3


def test_fits_that_fail_are_named_and_the_exit_code_says_so(run, ratings, studied, folder):
    broken = studied(changes=[("rounds = 2", "rounds = -1")])
    result = run("compare", broken, code=1)
    assert result.stderr.count("Failed: ours, epsilon = ") == 4
    assert "Failed: ours, epsilon = 2, seed 0, on test: " in result.stdout
    assert "–" in result.stdout
    assert "4 fits failed" in (folder / "s-study" / "comparison.html").read_text(encoding="utf-8")
    assert "9 of 13 fits were already finished" in run("compare", studied()).stderr


def test_an_interrupted_study_goes_on(run, ratings, studied, folder, monkeypatch):
    from apportion.evaluation.study.bench import Bench

    real, left = Bench.run, [5]

    def interrupted(self, unit):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(self, unit)

    with monkeypatch.context() as patch:
        patch.setattr(Bench, "run", interrupted)
        result = run("compare", studied(), code=130)
    assert "Finished fits are kept in s-study" in result.stderr
    assert len(list((folder / "s-study" / "units").iterdir())) == 5
    assert "5 of 13 fits were already finished" in run("compare", studied()).stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[data]", "[data", "s.toml is not valid TOML: "),
        ("epsilon = [2, 8]", "epsilon = [2, 0]", "s.toml: Expected epsilon in [budgets] to be a list of different"),
        ('kind = "ratings"', "", 's.toml: Expected kind in [data] ("ratings" or "clicks"), got none.'),
        ('path = "ratings.csv"', "", "s.toml: Expected path in [data] (the data file), got none."),
        ("ratings.csv", "missing.csv", "s.toml: Expected path in [data] to be a file, got 'missing.csv'."),
        ('method = "ours"', 'method = "theirs"', "s.toml: Method 'theirs': Expected one of the methods ours"),
        ("rounds = 2", "turns = 2", "s.toml: Method 'ours': Expected only"),
        ('kind = "ratings"', 'kind = "ratings"\nuser = "who"', "no column 'who'"),
        ('kind = "ratings"', 'kind = "ratings"\nvalue_range = [2, 5]', "declare the scale with value_range = [LO, HI]"),
        ('kind = "ratings"', 'kind = "clicks"\ntest = 5000', "s.toml: Cannot hold out"),
        ('kind = "ratings"', 'kind = "ratings"\ntitles = "t.csv"', "titles in [data] to be a file, got 't.csv'"),
        ("epochs = 2", 'epochs = 2\n[inspection]\nitems = ["Alien"]', "s.toml: This model has no item 'Alien'"),
    ],
)
def test_a_study_that_makes_no_sense_gets_a_sentence_and_leaves_nothing(refused, ratings, studied, old, new, words):
    said = refused("compare", studied(changes=[(old, new)]))
    assert said.startswith("Error: ")
    assert words in said


def test_a_folder_with_something_else_in_it_is_left_alone(refused, ratings, studied, folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "letter.txt").write_text("dear")
    assert "does not hold an earlier study" in refused("compare", studied(), "--out", "mine")
    assert "does not exist" in refused("compare", "missing.toml")


def test_a_missing_column_is_asked_for_in_the_words_of_the_study(refused, write, rows, studied):
    write("r.csv", "who,item,rating", rows)
    assert "name it with user in [data]" in refused("compare", studied("r.csv"))


def test_the_command_explains_itself(run):
    assert "compare" in run("--help").stdout
    assert "Usage:" in run("compare", "--help").stdout

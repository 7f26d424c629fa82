"""`evaluate`, `compare` and `tune` with public features: read alike, refused alike, named wherever figures are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion.cli.main import program
from apportion.data.synthetic_features import clicks_with_features, ratings_with_features
from apportion.recommend import load

SMALL = ("--dimension", "2", "--rounds", "2")
NAMED = "words (multivalent), year (number)"
STUDY = """
[data]
path = "ratings.csv"
kind = "ratings"
{data}
[budgets]
epsilon = [8]
[[methods]]
method = "ours"
dimension = 2
rounds = 2
{ours}
[[methods]]
method = "non-private"
dimension = 2
epochs = 2
"""


@pytest.fixture
def items(write):
    """Features of 38 of the 40 items of the ratings file."""
    return write("items.csv", "item,words,year", [(i, f"w{i % 3}|w{i % 5}", 1980 + i % 7) for i in range(38)])


@pytest.fixture
def studied(folder):
    def written(data="", ours=""):
        (folder / "s.toml").write_text(STUDY.format(data=data, ours=ours), encoding="utf-8")
        return "s.toml"

    return written


def test_the_commands_that_fit_have_the_same_options_of_features():
    listed = [
        [
            (each.opts, each.help, each.metavar)
            for each in program.commands[name].params
            if each.opts[0].startswith("--feature")
        ]
        for name in ("fit", "tune", "evaluate", "compare")
    ]
    assert len(listed[0]) == 4
    assert all(each == listed[0] for each in listed)


# -- evaluate --


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_an_evaluation_shows_the_private_model_with_and_without_features(run, request, items, folder, kind):
    data = request.getfixturevalue(kind)
    result = run(
        "evaluate", data, "--epsilon", 8, *SMALL, "--seed", 1, "--features", items, "--out", "e.html", "--json"
    )
    with_features, by_id, *_ = result.json["models"]
    assert (with_features, by_id) == ("private, ε = 8, with features", "private, ε = 8, without features")
    figures = [result.json["models"][name]["metrics"] for name in (with_features, by_id)]
    assert figures[0] != figures[1]
    alone = run("evaluate", data, "--epsilon", 8, *SMALL, "--seed", 1, "--out", "a.html", "--json").json
    assert alone["models"]["private, ε = 8"]["metrics"] == figures[1]
    assert result.json["facts"]["Public features"].startswith(f"of 38 items: {NAMED}; only the private model")
    assert "2 of the 40 items have no features" in result.stderr
    page = (folder / "e.html").read_text(encoding="utf-8")
    for words in (with_features, by_id, NAMED):
        assert words in page
    assert result.json["new_items"] is None
    assert "not in training" not in page


@pytest.mark.parametrize(
    ("kind", "others", "better"),
    [
        ("ratings", ["user's own mean"], lambda found, other: found < other),
        ("clicks", ["predicted popularity", "random order", "true popularity"], lambda found, other: found > other),
    ],
)
def test_items_held_out_of_training_are_served_from_features(run, write, folder, kind, others, better):
    make = ratings_with_features if kind == "ratings" else clicks_with_features
    data, features, _ = make(600, 120, 18_000, rng=np.random.default_rng(0))
    header, columns = "user,item", [data.users, data.task_ids.ids[data.tasks]]
    if kind == "ratings":
        header, columns = "user,item,rating", [*columns, np.clip(data.values, 1, 5)]
    file = write("d.csv", header, zip(*(column.tolist() for column in columns), strict=True))
    described = write("f.csv", "item,words", _as_words(features))
    arguments = ("--features", described, "--hold-out-items", 0.2, "--seed", 0)
    result = run("evaluate", file, f"--{kind}", "--epsilon", 20, *arguments, "--out", "e.html", "--json")
    found = {name: next(iter(each["metrics"].values()))["overall"] for name, each in result.json["new_items"].items()}
    assert list(found) == ["from features", *others]
    assert better(found["from features"], found[others[-2] if len(others) > 1 else others[0]])
    page = (folder / "e.html").read_text(encoding="utf-8")
    assert "Items that were not in training" in page
    assert f"{found['from features']:.4f}" in page


def _as_words(features):
    """Items with the names of their features, as a file has them."""
    rows = features.rows
    return [
        (item, "|".join(f"w{column}" for column in rows.indices[first:last]))
        for item, first, last in zip(features.item_ids.ids.tolist(), rows.indptr, rows.indptr[1:], strict=False)
    ]


# -- tune --


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_search_with_features_names_them_and_costs_the_same(run, request, items, folder, kind):
    data = request.getfixturevalue(kind)
    common = ("tune", data, "--epsilon", 6, "--try", "dimension=1,2", "--try", "rounds=1,2", "--tries", 2, "--seed", 5)
    known = run(*common, "--features", items, "--out", "known", "--json").json
    plain = run(*common, "--out", "plain", "--json").json
    sentence = "the features of items: words, year"
    assert sentence in known["statement"]["public"]
    assert sentence not in plain["statement"]["public"]
    assert known["selection"]["epsilon"] == plain["selection"]["epsilon"]
    assert known["selection"]["one_try"] == plain["selection"]["one_try"]
    assert known["statement"]["spent_epsilon"] == plain["statement"]["spent_epsilon"]
    assert sentence in json.loads((folder / "known/privacy-card.json").read_text())["assumptions"]["public"]
    assert sentence in (folder / "known/report.html").read_text(encoding="utf-8")
    assert load(folder / "known").feature_map is not None
    assert load(folder / "plain").feature_map is None


def test_settings_of_features_are_tuned_only_with_features(run, refused, ratings, items):
    common = ("tune", ratings, "--epsilon", 6, "--tries", 2, "--try", "dimension=2", "--try", "feature_directions=2,3")
    assert "it has no effect without --features" in refused(*common)
    chosen = run(*common, "--features", items, "--json").json["selection"]["chosen"]
    assert chosen["feature_directions"] in (2, 3)


def test_a_ledger_is_not_charged_for_features_that_fit_no_item(run, ratings, write):
    run("ledger", "init", "l.db", "--account", "a", "--epsilon", 9, "--delta", 1e-5, "--kind", "renyi")
    before = run("ledger", "history", "l.db", "--account", "a", "--json").json
    far = write("far.csv", "item,word", [(900, "a"), (901, "b")])
    charged = ("--ledger", "l.db", "--account", "a")
    result = run("tune", ratings, "--epsilon", 4, "--try", "dimension=1,2", *charged, "--features", far, code=2)
    assert "No item with features" in result.stderr
    assert run("ledger", "history", "l.db", "--account", "a", "--json").json == before
    near = write("near.csv", "item,word", [(1, "a"), (2, "b")])
    run("tune", ratings, "--epsilon", 4, "--try", "dimension=1,2", *charged, "--features", near)
    assert run("ledger", "history", "l.db", "--account", "a", "--json").json != before


# -- compare --


def test_a_study_with_features_has_rows_without_and_with_them(run, ratings, items, studied, folder):
    plain = run("compare", studied(), "--out", "plain", "--json").json
    by_option = run("compare", studied(), "--features", items, "--out", "a", "--json").json
    names = [row["method"] for row in by_option["rows"]]
    assert names == ["ours", "ours, with features", "non-private"]
    assert by_option["features"] == "the features of items: words, year"
    assert by_option["rows"][0]["metrics"] == plain["rows"][0]["metrics"]
    assert by_option["rows"][1]["metrics"] != plain["rows"][0]["metrics"]
    by_file = run("compare", studied('features = "items.csv"'), "--out", "b", "--json").json
    assert by_file["rows"] == by_option["rows"]
    page = (folder / "a/comparison.html").read_text(encoding="utf-8")
    assert NAMED in page
    assert "ours, with features" in (folder / "a/table.csv").read_text(encoding="utf-8")
    stored = [json.loads(file.read_text()) for file in (folder / "a/units").iterdir()]
    named = [each for each in stored if "the features of items: words, year" in json.dumps(each["statement"])]
    assert len(named) == 1


def test_a_study_goes_on_where_it_stopped_when_features_are_added_or_changed(run, ratings, items, studied, write):
    run("compare", studied(), "--out", "s")
    added = run("compare", studied(), "--features", items, "--out", "s")
    assert "2 of 3 fits were already finished" in added.stderr
    other = write("items.csv", "item,words,year", [(i, f"w{i % 2}", 1980 + i % 7) for i in range(38)])
    assert "2 of 3 fits were already finished" in run("compare", studied(), "--features", other, "--out", "s").stderr
    assert "3 of 3 fits were already finished" in run("compare", studied(), "--features", other, "--out", "s").stderr
    kind = ("--feature-kind", "year=binned")
    changed = run("compare", studied(), "--features", other, *kind, "--out", "s").stderr
    assert "2 of 3 fits were already finished" in changed


def test_methods_may_say_whether_they_have_features(run, ratings, items, studied):
    data = 'features = "items.csv"\nfeature_kinds = { year = "ignore" }\n'
    rows = run("compare", studied(data, "grid = { features = [false, true] }"), "--json").json
    assert [row["method"] for row in rows["rows"]] == ["ours: features False", "ours: features True", "non-private"]
    assert rows["features"] == "the features of items: words"
    alone = run("compare", studied(data, "features = true"), "--out", "b", "--json").json["rows"]
    assert [row["method"] for row in alone] == ["ours", "non-private"]
    assert alone[0]["metrics"] == rows["rows"][1]["metrics"]


def test_two_processes_have_the_features_too(run, ratings, items, studied):
    one, two = (
        run("compare", studied(), "--features", items, "--out", str(n), "--processes", n, "--json").json["rows"]
        for n in (1, 2)
    )
    assert one == two


@pytest.mark.parametrize(
    ("data", "ours", "words"),
    [
        ("", "features = true", "Method 'ours': Expected public item features"),
        ("", "features = 'items.csv'", "Expected features of method 'ours' to be true or false, got 'items.csv'."),
        ('features = "no.csv"', "", "Expected features in [data] to be a file, got 'no.csv'."),
        ('feature_item = "id"', "", "Expected features in [data], which feature_item refers to, got none."),
        ('features = "items.csv"\nfeature_kinds = { year = "odd" }', "", "got 'odd' for 'year'"),
        ('features = "items.csv"\nfeature_kinds = { year = 3 }', "", "a table of kinds by column"),
        ('features = "items.csv"\nfeature_crosses = [["words"]]', "", "a list of lists of columns"),
        ('features = "items.csv"\nfeature_crosses = [["words", "none"]]', "", "no column 'none' to cross"),
        ('features = "items.csv"', "features = false", "to use the given features"),
        ('features = "odd.csv"', "", "name it with feature_item in [data]"),
    ],
)
def test_features_that_make_no_sense_in_a_study_get_a_sentence(
    refused, ratings, items, studied, write, data, ours, words
):
    write("odd.csv", "code,words", [(1, "a"), (2, "b")])
    said = refused("compare", studied(data, ours))
    assert said.startswith("Error: ")
    assert words in said


# -- all of them --


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "ratings.csv", "--epsilon", 4),
        ("tune", "ratings.csv", "--epsilon", 4, "--try", "dimension=1,2"),
        ("evaluate", "ratings.csv", "--epsilon", 4),
        ("compare", "s.toml"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--features", "none.csv"), "'none.csv' does not exist"),
        (("--features", "empty.csv"), "empty.csv: "),
        (("--features", "header.csv"), "header.csv: There are no rows"),
        (("--features", "odd.csv"), "got 0 among code, words; name it with --feature-item."),
        (("--features", "odd.csv", "--feature-item", "id"), "There is no column 'id' to use as item"),
        (("--features", "items.csv", "--feature-kind", "years=number"), "There is no column 'years' of features"),
        (("--features", "items.csv", "--feature-kind", "year"), "Expected --feature-kind COLUMN=KIND, got 'year'."),
        (("--features", "items.csv", "--feature-kind", "year=odd"), "got 'odd' for 'year'"),
        (
            ("--features", "items.csv", "--feature-kind", "year=number", "--feature-kind", "year=binned"),
            "once for each column, got 'year' twice",
        ),
        (("--features", "items.csv", "--feature-kind", "words=number"), "'words'"),
        (("--features", "items.csv", "--feature-cross", "words"), "at least two different columns, got 'words'"),
        (("--features", "items.csv", "--feature-cross", "words,colour"), "no column 'colour' to cross"),
        (("--features", "far.csv"), "No item with features is a task: the first ids are 900 and 0."),
        (("--features", "blank.csv"), "Expected features for the 40 items, got none for any of them."),
        (("--features", "huge.csv"), "Feature 'length' holds numbers that are too large"),
        (("--features", "ids.csv"), "Expected at least one column of features besides the id 'item'"),
        (("--feature-kind", "year=number"), "--feature-kind needs --features"),
        (("--feature-item", "id"), "--feature-item needs --features"),
        (("--feature-cross", "a,b"), "--feature-cross needs --features"),
    ],
)
def test_bad_features_get_one_sentence_from_every_command(
    refused, ratings, items, studied, write, folder, command, arguments, words
):
    studied()
    (folder / "empty.csv").write_text("", encoding="utf-8")
    write("header.csv", "item,words", [])
    write("odd.csv", "code,words", [(1, "a"), (2, "b")])
    write("far.csv", "item,words", [(900, "a"), (901, "b")])
    write("blank.csv", "item,words", [(i, "") for i in range(40)])
    write("huge.csv", "item,length", [(i, (-1) ** i * 1e308) for i in range(40)])
    write("ids.csv", "item", [(1,), (2,)])
    assert words in refused(*command, *arguments)


def test_an_unusual_id_column_and_a_cross_are_named_by_options(run, ratings, write):
    items = write("odd.csv", "code,person,role", [(i, f"p{i % 4}", f"r{i % 3}") for i in range(40)])
    named = ("--features", items, "--feature-item", "code", "--feature-cross", "person,role")
    fitted = run("fit", ratings, "--epsilon", 5, *SMALL, *named, "--json")
    assert "the features of items: person, role, person x role" in fitted.json["statement"]["public"]


def test_features_are_for_a_fit_and_not_for_a_saved_model(refused, fitted, ratings, items):
    saved = ("evaluate", ratings, "--model", fitted / "ratings")
    assert "a saved model already has the features it was fitted with" in refused(*saved, "--features", items)
    alone = ("evaluate", ratings, "--epsilon", 4, "--hold-out-items", 0.1)
    assert "needs --features" in refused(*alone)
    assert "--hold-out-items" in refused(
        "evaluate", ratings, "--epsilon", 4, "--features", items, "--hold-out-items", 1
    )

"""Ordinary files: empty cells, repeated pairs, unwanted rows. How many there were is said on the terminal alone."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from apportion.cli.loading import load_data
from apportion.cli.options import DataOptions
from apportion.recommend import load

FIT = ("--epsilon", 8, "--seed", 3, "--dimension", 2, "--rounds", 2)


@pytest.fixture
def fitted(run, folder):
    """Fit a file; returns the model's bytes, what is public of it in words, and what the terminal showed."""

    def model(name, *options):
        out = f"{name}-{len(list(folder.iterdir()))}"
        said = run("fit", name, *FIT, "--out", out, "--json", *options)
        tensors = (folder / out / "model.safetensors").read_bytes()
        return tensors, said.json["statement"]["rules"], said.stderr

    return model


def test_repeated_rows_count_once_by_the_rule_that_the_statement_names(fitted, write, rows, folder):
    clean = fitted(write("clean.csv", "user,item,rating,timestamp", [(*row, 5) for row in rows]))
    repeated = [(user, item, 1, 4 if user % 2 else 3) for user, item, _ in rows[:50]]
    later = write(
        "repeated.csv", "user,item,rating,timestamp", [*repeated, *((*row, 5) for row in rows), rows[0] + (5,)]
    )
    tensors, public, said = fitted(later)
    assert tensors == clean[0]
    assert public == clean[1]
    assert "that of several rows of one user for one item only the last was kept" in public
    assert "repeated.csv: 51 rows repeated a user and an item; rule: last" in said
    first = fitted(later, "--repeats", "first")
    assert first[0] != clean[0]
    assert any("only the first was kept" in each for each in first[1])


def test_the_last_row_of_a_file_without_times_is_its_last(fitted, write, rows):
    clean = fitted(write("clean.csv", "user,item,rating", rows))[0]
    written = write("more.csv", "user,item,rating", [(*rows[7][:2], 1), *rows])
    assert fitted(written)[0] == clean
    assert fitted(written, "--repeats", "first")[0] != clean


def test_repeats_can_be_refused(run, write, rows):
    name = write("more.csv", "user,item,rating", [*rows, rows[7]])
    assert "and again in row" in run("fit", name, *FIT, "--repeats", "refuse", code=2).stderr


def test_rows_with_empty_cells_are_left_out_or_refused(fitted, run, write, rows):
    clean = fitted(write("clean.csv", "user,item,rating", rows))
    gaps = [(rows[0][0], "", 3), ("", 4, 3), (5, 6, ""), (5, 7, "NA"), (5, 8, " null "), (5, 9, "nan")]
    name = write("gaps.csv", "user,item,rating", [*gaps, *rows])
    tensors, public, said = fitted(name)
    assert tensors == clean[0]
    assert "that rows with an empty cell were left out" in public
    assert "gaps.csv: 6 rows had an empty user, item, value or time" in said
    refused = write("one.csv", "user,item,rating", [*rows, (5, 6, "")])
    assert "empty in row" in run("fit", refused, *FIT, "--missing", "refuse", code=2).stderr


def test_an_expression_chooses_rows_by_their_own_cells(fitted, run, write, rows):
    kept = [row for row in rows if row[2] > 1 and row[1] != 7]
    clean = fitted(write("kept.csv", "user,item,rating", kept))[0]
    name = write("all.csv", "user,item,rating,country", [(*row, "FR" if row[1] == 7 else "DE") for row in rows])
    tensors, public, said = fitted(name, "--where", "rating > 1 and country = 'DE'")
    assert tensors == clean
    assert "that only rows with rating > 1 and country = 'DE' were kept" in public
    assert f"all.csv: {len(rows) - len(kept)} rows did not fulfil --where" in said
    assert "one of the functions" in run("fit", name, *FIT, "--where", "count(rating) > 1", code=2).stderr
    assert "no column 'price'" in run("fit", name, *FIT, "--where", "price > 1", code=2).stderr


def test_numbers_of_rows_stay_off_the_page_and_standard_output(run, write, rows, folder):
    name = write("gaps.csv", "user,item,rating", [*rows, *((user, 3, "") for user in range(777))])
    said = run("fit", name, *FIT, "--out", "m")
    assert "777 rows" in said.stderr
    written = [path.read_bytes() for path in (folder / "m").rglob("*") if path.suffix in (".json", ".html")]
    assert not any(b"777 rows" in each for each in [*written, said.stdout.encode()])


def test_clicks_are_counted_once_or_as_often_as_asked(fitted, write, rows):
    clicks = [row[:2] for row in rows]
    clean = fitted(write("clicks.csv", "user,item", clicks))[0]
    often = write("often.csv", "user,item", [*clicks, *clicks[:30]])
    assert fitted(often)[0] == clean
    loaded = load_data(Path(often), DataOptions(repeats="count", min_value=2))
    assert loaded.kind == "clicks"
    assert list(zip(loaded.data.users, loaded.data.tasks, strict=True)) == clicks[:30]
    assert (loaded.data.values == 1).all()


def test_a_history_may_have_gaps_and_repeats(run, write, rows, ratings):
    run("fit", ratings, *FIT, "--out", "m")
    history = write("history.csv", "user,item,rating", [(1, 2, 1), (1, 2, 4), (1, 3, ""), (1, 4, 5)])
    tidy = write("tidy.csv", "user,item,rating", [(1, 2, 4), (1, 4, 5)])
    answered = run("recommend", "m", history, "--json")
    assert answered.stdout == run("recommend", "m", tidy, "--json").stdout
    assert load("m").n_tasks == 40
    assert "1 row repeated" in answered.stderr


def test_a_study_names_the_same_rules(run, write, rows, folder):
    write("gaps.csv", "user,item,rating", [*rows, (5, 7, ""), rows[0]])
    said = '[data]\npath = "gaps.csv"\nkind = "ratings"\nmissing = "{}"\n'
    study = said + '[budgets]\nepsilon = [8]\n[[methods]]\nmethod = "global mean"\n'
    (folder / "s.toml").write_text(study.format("guess"))
    assert "missing in [data]" in run("compare", "s.toml", code=2).stderr
    (folder / "s.toml").write_text(study.format("refuse"))
    assert "'rating' is empty in row" in run("compare", "s.toml", code=2).stderr


def test_json_holds_the_rules_and_no_number_of_rows(run, write, rows):
    name = write("gaps.csv", "user,item,rating", [*rows, *((user, 3, "") for user in range(777))])
    assert "777" not in json.dumps(run("fit", name, *FIT, "--json").json["statement"]["rules"])


def test_clicks_name_a_column_that_may_say_which_rows_are_clicks(fitted, run, write, rows):
    name = write("clicks.csv", "user,item,clicked,timestamp", [(*row[:2], row[2] > 3, 5) for row in rows])
    said = fitted(name)[2]
    assert "Treating the rows as clicks" in said
    assert "Not used: clicked. Every row counts as a click" in said
    chosen, rules, told = fitted(name, "--value", "clicked", "--min-value", 1)
    assert "Not used" not in told
    assert "that only rows with a value of at least 1 were kept" in rules
    only = write("only.csv", "user,item", [row[:2] for row in rows if row[2] > 3])
    assert chosen == fitted(only)[0]
    assert "Not used" not in fitted(name, "--clicks")[2]


# -- statistics --

MADE = ("--user", "who", "--epsilon", 2, "--seed", 4, "--json")
COST = ("--value", "cost", "--range", 0, 9)
STATISTICS = {
    "mean": ("mean", *COST),
    "mean by ward": ("mean", *COST, "--by", "ward", "--keys", "from-data"),
    "quantile": ("quantile", *COST),
    "sum": ("sum", *COST),
    "count by ward": ("count", "--by", "ward", "--keys", "from-data"),
    "keys": ("keys", "--by", "ward"),
    "logistic": ("logistic", "--label", "back", "--features", "cost", "--feature-norm", 9, "--delta", "1e-6"),
}
VISITS = [(k % 60, k % 9, "east" if k % 2 else "west", k % 2) for k in range(300)]
GAPS = {
    "mean": [("", 3, "east", 1), (3, "", "east", 0), (4, " NA ", "east", 1)],
    "mean by ward": [("", 3, "east", 1), (3, "n/a", "east", 0), (4, 5, "", 1)],
    "quantile": [("", 3, "east", 1), (3, "null", "east", 0)],
    "sum": [("", 3, "east", 1), (3, "-", "east", 0)],
    "count by ward": [("", 3, "east", 1), (4, 5, "", 1)],
    "keys": [("", 3, "east", 1), (4, 5, "", 1)],
    "logistic": [("", 3, "east", 1), (3, "?", "east", 0), (4, 5, "", "NaN")],
}


@pytest.fixture
def visits(write):
    """Write rows of visits under a name."""
    return lambda name, rows: write(name, "who,cost,ward,back", rows)


@pytest.mark.parametrize("asked", STATISTICS)
def test_a_statistic_leaves_rows_with_empty_cells_out_and_says_so(run, visits, asked):
    command, *options = STATISTICS[asked]
    clean = run(command, visits("visits.csv", VISITS), *options, *MADE)
    gaps = run(command, visits("gaps.csv", [*GAPS[asked], *VISITS]), *options, *MADE)
    assert gaps.stdout == clean.stdout
    assert gaps.json["statement"]["rules"] == ["that rows with an empty cell were left out"]
    said = f"gaps.csv: {len(GAPS[asked])} rows had an empty cell in a column that is used"
    assert said in gaps.stderr
    assert "had an empty cell" not in clean.stderr
    refused = run(command, "gaps.csv", *options, *MADE, "--missing", "refuse", code=2)
    assert "is empty in row" in refused.stderr or "expected" in refused.stderr


@pytest.mark.parametrize("asked", STATISTICS)
def test_a_statistic_keeps_the_rows_that_an_expression_chooses(run, visits, asked):
    command, *options = STATISTICS[asked]
    kept = run(command, visits("kept.csv", [row for row in VISITS if row[1] > 2 and row[2] != "o"]), *options, *MADE)
    rule = "cost > 2 and ward <> 'o'"
    chosen = run(command, visits("all.csv", VISITS), *options, *MADE, "--where", rule)
    names = [name for name in kept.json if name != "statement"]
    assert [chosen.json[name] for name in names] == [kept.json[name] for name in names]
    assert f"that only rows with {rule} were kept" in chosen.json["statement"]["rules"]
    left_out = sum(row[1] <= 2 for row in VISITS)
    assert f"all.csv: {left_out} rows did not fulfil --where" in chosen.stderr
    assert str(left_out) not in json.dumps(chosen.json["statement"]["rules"])


def test_an_expression_that_cannot_be_read_is_refused_before_the_data(run, folder):
    (folder / "visits.csv").write_text("not a table at all")
    answer = run("mean", "visits.csv", *COST, *MADE, "--where", "sum(cost) > 3", code=2)
    assert "one of the functions" in answer.stderr
    assert "left by the rules" not in answer.stderr


def test_a_query_takes_its_condition_from_where(run, visits):
    visits("visits.csv", VISITS)
    sql = "SELECT ward, avg(cost) FROM 'visits.csv' {} GROUP BY ward"
    options = ("--range", 0, 9, "--keys", "from-data", *MADE)
    assert "--where" in run("query", sql.format("WHERE cost > 2"), *options, code=2).stderr
    answer = run("query", sql.format(""), *options, "--where", "cost > 2").json
    assert "that only rows with cost > 2 were kept" in answer["statement"]["rules"]


def test_where_numbers_of_rows_are_public_empty_cells_are_refused_or_declared(run, visits):
    visits("gaps.csv", [(3, "", "east", 1), *VISITS])
    regress = ("regress", "gaps.csv", "--label", "cost", "--features", "back", "--label-range", 0, 9, *MADE)
    sizes = ("mean", "gaps.csv", *COST, *MADE, "--weights", "paper", "--sizes", "public")
    for asked in (regress, sizes):
        assert "'cost' is empty in row 1" in run(*asked, code=2).stderr
        rules = run(*asked, "--missing", "drop").json["statement"]["rules"]
        assert rules == ["that rows with an empty cell were left out", "which rows were kept, which is not protected"]


def test_rows_of_a_cluster_and_of_a_folder_cannot_be_chosen(run, visits):
    visits("visits.csv", VISITS)
    spark = ("mean", "visits.csv", *COST, *MADE, "--engine", "spark", "--master", "local[1]")
    run("shard", "visits.csv", "--user", "who", "--keep", "cost", "--out", "visits")
    folder = ("mean", "visits", *COST, *MADE)
    for asked, rule in itertools.product((spark, folder), (("--where", "cost > 2"), ("--missing", "drop"))):
        assert "rows cannot be chosen here" in run(*asked, *rule, code=2).stderr


def test_a_column_of_numbers_that_begins_with_na_is_a_column_of_numbers(run, visits):
    name = visits("gaps.csv", [(3, "NA", "east", 1), *VISITS])
    answer = run("logistic", name, *STATISTICS["logistic"][1:], *MADE)
    assert [row["name"] for row in answer.json["estimates"]] == ["cost", "(intercept)"]

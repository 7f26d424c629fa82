"""Ordinary files: empty cells, repeated pairs, unwanted rows. How many there were is said on the terminal alone."""

from __future__ import annotations

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

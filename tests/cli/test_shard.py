"""`apportion shard`, and the commands that take the folder it makes."""

from __future__ import annotations

import pytest

from apportion.privacy import Checkpoint
from apportion.privacy.ledger.keys import LedgerKey

SMALL = (
    "--dimension",
    "2",
    "--rounds",
    "2",
    "--seed",
    "3",
    "--epsilon",
    "5",
    "--missing",
    "refuse",
    "--repeats",
    "refuse",
)


@pytest.fixture
def users(run, ratings):
    run("shard", ratings, "--out", "users", "--rows-per-shard", "1500")
    return "users"


def test_a_fit_of_a_folder_is_the_fit_of_the_file(run, ratings, users, folder):
    for data, out in ((ratings, "one"), (users, "two")):
        run("fit", data, *SMALL, "--out", out, "--memory", "16MiB")
    assert (folder / "one/model.safetensors").read_bytes() == (folder / "two/model.safetensors").read_bytes()
    assert (folder / "one/statement.json").read_bytes() == (folder / "two/statement.json").read_bytes()


def test_a_folder_knows_its_own_columns_whatever_they_are_called(run, ratings, users, folder):
    (folder / "odd.csv").write_text((folder / ratings).read_text().replace("user,item", "actor,repo", 1))
    run("shard", "odd.csv", "--user", "actor", "--item", "repo", "--out", "odd")
    for data, out in ((users, "one"), ("odd", "two")):
        run("fit", data, *SMALL, "--out", out)
    assert (folder / "one/model.safetensors").read_bytes() == (folder / "two/model.safetensors").read_bytes()


@pytest.mark.parametrize("asked", [("--min-value", "4"), ("--min-value", "4", "--exact"), ("--rank-by", "choice")])
def test_clicks_and_choices_of_a_folder_are_those_of_the_file(run, ratings, users, write, folder, asked):
    listed = write("items.csv", "item", [(item,) for item in range(40)])
    for data, out in ((ratings, "one"), (users, "two")):
        run("fit", data, *SMALL, "--out", out, "--items", listed, *asked)
    assert (folder / "one/statement.json").read_bytes() == (folder / "two/statement.json").read_bytes()
    assert (folder / "one/model.safetensors").read_bytes() == (folder / "two/model.safetensors").read_bytes()


def test_a_rule_for_rows_comes_too_late_for_a_folder(run, users):
    assert "choose rows before" in run("fit", users, *SMALL, "--where", "rating > 2", "--out", "one", code=2).stderr


ASKED = ("--user", "user", "--epsilon", "1", "--seed", "1", "--json")


@pytest.mark.parametrize("statistic", [("mean",), ("quantile", "--step", "0.5")], ids=["mean", "quantile"])
def test_a_statistic_of_a_folder_is_that_of_the_file_and_is_read_shard_by_shard(run, ratings, users, statistic):
    asked = (*statistic[1:], "--value", "rating", "--range", "1", "5", *ASKED, "--memory", "16MiB")
    here, there = (run(statistic[0], data, *asked) for data in (ratings, users))
    assert here.json == there.json
    assert "into memory" not in there.stderr


def test_other_commands_load_a_folder_and_say_so(run, ratings, users):
    here, there = (run("count", data, *ASKED) for data in (ratings, users))
    assert here.json == there.json
    assert "loads the folder of users into memory" in there.stderr


@pytest.mark.parametrize("statistic", ["sum", "variance", "histogram"])
def test_statistics_of_values_load_a_folder_with_and_without_groups(run, ratings, users, statistic):
    asked = ("--value", "rating", "--range", "1", "5", *ASKED)
    for by in ((), ("--by", "item")):
        here, there = (run(statistic, data, *asked, *by) for data in (ratings, users))
        assert here.json == there.json
        assert "loads the folder of users into memory" in there.stderr


def test_a_query_takes_a_folder(run, ratings, users):
    pytest.importorskip("duckdb")
    here, there = (
        run("query", f"SELECT sum(rating) FROM '{data}'", "--range", "1", "5", *ASKED) for data in (ratings, users)
    )
    assert here.json == there.json


def test_users_of_a_folder_get_recommendations(run, ratings, users, folder):
    run("fit", users, *SMALL, "--out", "model")
    for data, out in ((ratings, "one.csv"), (users, "two.csv")):
        run("recommend", "model", data, "--out", out)
    one, two = (sorted((folder / name).read_text().splitlines()) for name in ("one.csv", "two.csv"))
    assert one == two


def test_a_model_is_audited_with_the_folder_that_it_was_fitted_to(run, users):
    run("fit", users, *SMALL, "--out", "model")
    assert "No violation was found" in run("audit", "model", "--data", users).stdout


def test_a_study_names_a_folder(run, users, folder):
    study = '[data]\npath = "users"\nkind = "ratings"\nvalue_range = [1, 5]\nvalidation = 0.1\ntest = 0.1\n'
    study += '[budgets]\nepsilon = [5]\ndelta = 1e-6\nseeds = [0]\n[[methods]]\nmethod = "statistics"\nrounds = 1\n'
    (folder / "study.toml").write_text(study)
    assert "users: this command loads the folder of users into memory" in run("compare", "study.toml").stderr


def test_a_statistic_names_the_columns_that_a_folder_has(run, users):
    asked = ("mean", users, "--range", "1", "5", *ASKED)
    assert "there is no column of numbers 'hours'; those kept are" in run(*asked, "--value", "hours", code=2).stderr
    other = ("mean", users, "--range", "1", "5", "--value", "rating", "--user", "who", "--epsilon", "1")
    assert "the folder was made with user column 'user', got 'who'" in run(*other, code=2).stderr


def test_names_may_have_stars_in_them(run, write, rows, ratings):
    write("part-1.csv", "user,item,rating", rows[:2000])
    write("part-2.csv", "user,item,rating", rows[2000:])
    one, two = (
        run("shard", name, "--out", out, "--json").json for name, out in (("part-*.csv", "one"), (ratings, "two"))
    )
    assert one.pop("folder") != two.pop("folder")
    assert one == two == {"rows": len(rows), "users": 300, "items": len({row[1] for row in rows}), "shards": 1}


def test_rows_of_a_query_can_be_taken(run, ratings, rows):
    columns = "columns = {'user': 'BIGINT', 'item': 'BIGINT', 'rating': 'DOUBLE'}"
    settings = f"auto_detect = false, header = true, quote = '', {columns}"
    query = f"SELECT user AS who, item, rating FROM read_csv('{ratings}', {settings}) WHERE rating >= 4"
    made = run("shard", "--query", query, "--user", "who", "--out", "users", "--json").json
    assert made["rows"] == sum(row[2] >= 4 for row in rows)


DECLARED = "that each row of the query is made of one user's data alone"


@pytest.mark.parametrize("by_query", [True, False])
def test_statements_on_a_folder_say_what_was_declared_of_its_query(run, ratings, folder, by_query):
    columns = "columns = {'user': 'BIGINT', 'item': 'BIGINT', 'rating': 'DOUBLE'}"
    settings = f"auto_detect = false, header = true, quote = '', {columns}"
    given = ("--query", f"SELECT * FROM read_csv('{ratings}', {settings})") if by_query else (ratings,)
    run("shard", *given, "--out", "users")
    asked = ("users", *ASKED, "--range", "1", "5", "--value", "rating")
    said = [run("mean", *asked).stdout, run("sum", *asked).stdout]
    for out, further in (("model", ()), ("clicks", ("--clicks",))):
        run("fit", "users", *SMALL, *further, "--out", out)
        said.append((folder / out / "statement.json").read_text(encoding="utf-8"))
    assert [DECLARED in each for each in said] == [by_query] * 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.csv", "--out", "u"), "There is no file 'nothing.csv'"),
        (("--out", "u"), "Name at least one file"),
        (("ratings.csv", "*.csv", "--out", "u"), "File 'ratings.csv' is named twice"),
        (("ratings.csv", "--out", "ratings.csv"), "exists already"),
        (("ratings.csv", "--out", "u", "--keep", "mood"), "There is no column 'mood'"),
        (("--query", "SELECT nonsense", "--out", "u"), "The query failed"),
        (("--query", "SELECT 1; SELECT 2", "--out", "u"), "A query is one SELECT statement, not SELECT and SELECT"),
        (("--query", "SELECT * FROM 'ratings.csv'", "--out", "u"), "DuckDB guesses the columns of a text file"),
        (("ratings.csv", "--out", "u", "--memory", "much"), "--memory: Expected a size such as '2GiB'"),
        (("ratings.csv", "--out", "u", "--memory", "1000"), "--memory: Expected memory of at least 64 MiB"),
    ],
)
def test_bad_requests_are_one_sentence_and_nothing_is_written(refused, ratings, arguments, said):
    assert said in refused("shard", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("users", "--user", "who"), "the columns are"),
        (("users", "--scale", "1", "3"), "outside the scale"),
        (("users", "--memory", "much"), "--memory: Expected a size"),
        ((".",), "expected the same in all files"),
    ],
)
def test_a_fit_of_a_folder_refuses_what_a_fit_of_a_file_does(refused, users, arguments, said):
    assert said in refused("fit", *arguments, *SMALL)


# -- fits that are stopped --


@pytest.fixture
def checkpoint(monkeypatch, tmp_path_factory):
    """The options of a fit that can be stopped."""
    key = LedgerKey.create(tmp_path_factory.mktemp("keys") / "key").place
    monkeypatch.setenv("APPORTION_CHECKPOINT_KEY", key)
    return ("--checkpoint", "going-on")


def test_a_fit_that_was_stopped_goes_on(run, users, checkpoint, folder, monkeypatch):
    run("fit", users, *SMALL, *checkpoint, "--out", "whole")
    (folder / "going-on").rename(folder / "whole-checkpoint")
    store = Checkpoint.store

    def until(self, number, *given):
        store(self, number, *given)
        if number == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(Checkpoint, "store", until)
        run("fit", users, *SMALL, *checkpoint, "--out", "model", code=130)
    said = run("fit", users, *SMALL, *checkpoint, "--out", "model").stderr
    assert "4 releases are stored in going-on" in said
    for name in ("model.safetensors", "statement.json"):
        assert (folder / "model" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_a_checkpoint_of_other_rows_of_a_folder_is_refused(run, refused, users, checkpoint):
    asked = ("fit", users, *SMALL, *checkpoint, "--items", "from-data")
    run(*asked, "--min-value", "4", "--out", "model")
    assert "is of a fit with other data" in refused(*asked, "--min-value", "3", "--out", "another")


def test_a_checkpoint_of_other_data_is_refused(run, refused, users, ratings, checkpoint):
    run("fit", users, *SMALL, *checkpoint, "--out", "model")
    assert "--checkpoint: The checkpoint 'going-on' is of a fit with other data" in refused(
        "fit", ratings, *SMALL, *checkpoint, "--out", "other"
    )

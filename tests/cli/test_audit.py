"""`apportion audit`: a model is put to the test, a violation ends with code 1, and the page says what was tried."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest

from apportion.data.arrow_columns import ValueColumn
from apportion.statistics import UserKeys

QUICK = ("--users", "1", "--canaries", "200")

STUDY = """
[data]
kind = "ratings"
path = "ratings.csv"

[budgets]
epsilon = [4.0, 8.0]
delta = 1e-5

[[methods]]
method = "ours"
dimension = 2
rounds = 2

[[methods]]
method = "non-private"
dimension = 2
"""


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_saved_model_passes(run, fitted, folder, kind):
    found = run("audit", fitted / kind, "--data", fitted / "ratings.csv", *QUICK, "--json").json
    assert found["violated"] is False
    assert [audit["claimed"] for audit in found["audits"]] == [8.0, 8.0, 8.0]
    of_the_file = found["audits"][2]
    assert of_the_file["name"] == "ratings.csv, read again without a user"
    assert [check["passed"] for check in of_the_file["checks"]] == [True, True]
    assert of_the_file["tried"] == [
        "ratings.csv was written without 1 of 1 chosen users, one at a time, and read again"
    ]
    assert 0 <= found["audits"][1]["lower_bound"] <= 8
    page = (folder / f"{kind}-audit.html").read_text(encoding="utf-8")
    assert "no violation" in page
    assert "INTERNAL" in page
    assert "canary users" in page
    assert "all other users have the same rows, to the last bit" in page
    assert "the user with the most rows was left out" in page
    assert "made smaller, to 256" in page  # blocks of the code that 4,000 ratings would not cross


def test_a_reader_that_one_user_leads_astray_ends_with_code_1(run, fitted, monkeypatch):
    honest = ValueColumn.finish

    def centred(self):  # values move with how many rows there are
        values = honest(self)
        return values - np.float32(100 / len(values))

    monkeypatch.setattr(ValueColumn, "finish", centred)
    found = run("audit", fitted / "ratings", "--data", fitted / "ratings.csv", *QUICK, "--json", code=1)
    found = json.loads(found.stdout)
    assert [audit["violated"] for audit in found["audits"]] == [False, False, True]
    assert "of others are read in another way" in found["audits"][2]["checks"][0]["words"]


def test_a_format_whose_files_are_not_written_without_a_user_is_said(run, fitted, folder):
    rows = pa.csv.read_csv(fitted / "ratings.csv")
    pa.feather.write_feather(rows, folder / "ratings.arrow", compression="uncompressed")
    said = run("audit", fitted / "ratings", "--data", "ratings.arrow", *QUICK).stdout
    assert "ratings.arrow: Arrow files are not covered, so users were left out in memory" in said


def test_without_data_the_statement_alone_is_checked(run, fitted):
    said = run("audit", fitted / "ratings").stdout
    assert "only the statement was recomputed" in said
    assert "epsilon of all releases" in said
    assert "No violation was found." in said


def test_the_page_of_a_statement_alone_does_not_say_that_it_used_data(run, fitted, folder):
    said = run("audit", fitted / "ratings").stdout
    page = (folder / "ratings-audit.html").read_text(encoding="utf-8")
    assert "raw data" not in said + page
    assert "Fits were repeated" not in page


def test_a_statement_that_claims_too_little_ends_with_code_1(run, fitted, folder):
    shutil.copytree(fitted / "ratings", folder / "model")
    statement = json.loads((folder / "model" / "statement.json").read_text())
    statement["epsilon"] = statement["spent_epsilon"] = 2.0
    (folder / "model" / "statement.json").write_text(json.dumps(statement))
    said = run("audit", "model", code=1).stdout
    assert "FAILED" in said
    assert "does not hold" in (folder / "model-audit.html").read_text(encoding="utf-8")


def test_the_private_methods_of_a_study_are_audited(run, ratings, folder):
    (folder / "study.toml").write_text(STUDY)
    found = run("audit", "study.toml", *QUICK, "--json").json
    assert [audit["name"] for audit in found["audits"]] == ["ours", "ours: ratings.csv, read again without a user"]
    assert [check["passed"] for check in found["audits"][1]["checks"]] == [True, True]
    assert found["audits"][0]["claimed"] == 4.0
    assert found["violated"] is False


def test_data_with_a_study_is_a_usage_error(run, ratings, folder):
    (folder / "study.toml").write_text(STUDY)
    assert "names its own data" in run("audit", "study.toml", "--data", ratings, code=2).stderr


def test_a_file_that_is_neither_is_one_sentence(run, ratings):
    said = run("audit", ratings, code=2).stderr
    assert "not valid TOML" in said
    assert "Traceback" not in said


# -- what statistics printed --

KEYS = ("--user", "person", "--epsilon", 2, "--delta", "1e-3", "--seed", 3, "--json")


@pytest.fixture
def searches(run, write, folder):
    """Searches of 300 people, one of whom searches for things that nobody else does; and the list that was printed."""
    rows = [(k, f"word {(k * k + j) % 40}", 1) for k in range(300) for j in range(6)]
    rows += [(999, f"my own {j}", 1) for j in range(30)]
    write("searches.csv", "person,query,n", rows)
    (folder / "keys.json").write_text(run("keys", "searches.csv", *KEYS, "--by", "query").stdout)
    return ("--data", "searches.csv", "--user", "person", "--item", "query")


def test_a_list_of_keys_passes(run, searches, folder):
    found = run("audit", "keys.json", *searches, "--json").json
    assert found["violated"] is False
    assert [audit["claimed"] for audit in found["audits"]] == [2.0, 2.0, 2.0]
    assert [check["passed"] for check in found["audits"][2]["checks"]] == [True, True]
    checks = {check["name"]: check["words"] for check in found["audits"][1]["checks"]}
    assert checks["replay without a user"].startswith("no release moved by more than its sensitivity")
    assert checks["canary keys"] == "the keys of 0 of 1000 canary users, who have one each, are in the list"
    page = (folder / "keys-audit.html").read_text(encoding="utf-8")
    assert "a key of their own each" in page
    assert "my own" not in page


def test_a_list_that_tells_of_one_users_keys_is_found(run, searches, monkeypatch):
    fit = UserKeys.fit

    def leaky(self, *args, **arguments):
        """Every tenth key that occurs is listed, whoever holds it."""
        found = fit(self, *args, **arguments)
        by = arguments["by"]
        occurring = sorted(set(map(str, by.vocabulary.ids_of(by.codes))))
        found.keys_ = tuple(sorted({*found.keys_, *occurring[::10]}))
        return found

    monkeypatch.setattr(UserKeys, "fit", leaky)
    found = json.loads(run("audit", "keys.json", *searches, "--json", code=1).stdout)
    failed = [check["name"] for check in found["audits"][1]["checks"] if not check["passed"]]
    assert failed == ["replay without a user", "canary keys"]


def test_the_statement_of_any_statistic_is_recomputed(run, searches, folder):
    (folder / "count.json").write_text(run("count", "searches.csv", *KEYS, "--by", "query").stdout)
    assert "No violation was found." in run("audit", "count.json").stdout
    document = json.loads((folder / "count.json").read_text())
    document["statement"]["epsilon"] = 1.0
    (folder / "count.json").write_text(json.dumps(document))
    assert "FAILED" in run("audit", "count.json", code=1).stdout
    assert "only what `keys` printed" in run("audit", "count.json", *searches, code=2).stderr
    (folder / "other.json").write_text("{}")
    assert "not what a statistic printed" in run("audit", "other.json", code=2).stderr


def test_rows_that_cannot_be_told_apart_in_the_file_are_said(run, fitted, folder):
    rows = [line.split(",") for line in (fitted / "ratings.csv").read_text().splitlines()]
    objects = [json.dumps(dict(zip(rows[0], map(float, row), strict=True))) for row in rows[1:]]
    (folder / "ratings.jsonl").write_text("\n".join([objects[0] + objects[1], *objects[2:]]) + "\n")
    said = run("audit", fitted / "ratings", "--data", "ratings.jsonl", *QUICK).stdout
    assert "its rows cannot be told apart" in said
    assert "so users were left out in memory, and not in the file" in said
    assert "No violation was found." in said

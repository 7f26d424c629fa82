"""Statistics and regressions by command, `--engine spark`, on a real server: the numbers are those of memory."""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from apportion import linalg
from apportion.cli.main import program

pytestmark = [
    pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel"),
    pytest.mark.skipif(
        os.environ.get("APPORTION_SPARK", "sail") != "sail", reason="a command ends the one session that classic has"
    ),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    users = np.sort(rng.integers(0, 80, 300))
    columns = {
        "who": np.array([f"user {code}" for code in users]),
        "cost": np.round(rng.uniform(0, 50, 300)),
        "age": rng.uniform(20, 70, 300),
        "ward": rng.choice(["east", "west"], 300),
        "back": rng.choice(["yes", "no"], 300),
    }
    order = np.lexsort((columns["age"], columns["cost"], columns["who"]))  # as the engine puts a user's rows
    table = pa.table({name: pa.array(column[order]) for name, column in columns.items()})
    pq.write_table(table, "visits.parquet")
    pc.write_csv(table, "visits.csv")
    return tmp_path


def estimates(command, data, *options):
    made = CliRunner().invoke(program, [command, str(data), "--user", "who", "--seed", "1", "--json", *options])
    assert made.exit_code == 0, made.output
    return {row["name"]: row["estimate"] for row in json.loads(made.stdout)["estimates"]}


@pytest.mark.parametrize(
    ("command", "file", "options"),
    [
        ("mean", "visits.csv", ["--value", "cost", "--range", "0", "50", "--epsilon", "2"]),
        ("quantile", "visits.parquet", ["--value", "cost", "--range", "0", "50", "--step", "1", "--epsilon", "2"]),
        ("count", "visits.parquet", ["--by", "ward", "--keys", "from-data", "--epsilon", "2"]),
        (
            "regress", "visits.parquet",
            ["--label", "cost", "--features", "age,ward", "--label-range", "0", "50", "--epsilon", "2"],
        ),
        (
            "logistic", "visits.parquet",
            ["--label", "back", "--yes", "yes", "--features", "ward", "--categories", "ward=east,west",
             "--feature-norm", "2", "--epsilon", "5", "--delta", "1e-5"],
        ),
    ],
)  # fmt: skip
def test_estimates_are_those_of_memory(folder, master, spark, command, file, options):
    here = estimates(command, file, *options)
    cluster = ("--engine", "spark", "--master", master, "--partitions", "2")
    there = estimates(command, folder / file, *cluster, *options)
    assert list(there) == list(here)
    np.testing.assert_allclose(list(there.values()), list(here.values()), rtol=1e-9)


def test_what_is_wrong_is_said_in_one_sentence(folder, master, spark):
    def said(*options):
        made = CliRunner().invoke(program, [*options, "--user", "who", "--epsilon", "1"])
        assert made.exit_code != 0
        return made.output

    mean = ("mean", str(folder / "visits.parquet"), "--range", "0", "1")
    assert "must be given together" in said(*mean, "--value", "cost", "--engine", "spark")
    cluster = ("--engine", "spark", "--master", master)
    assert "There is no column 'costs'" in said(*mean, "--value", "costs", *cluster)
    logistic = ("logistic", str(folder / "visits.parquet"), "--label", "back", "--yes", "yes", "--feature-norm", "2")
    text = said(*logistic, "--features", "ward", "--delta", "1e-5", *cluster)
    assert "its categories cannot be taken from private data" in text

"""`apportion fit --engine spark` on a real server writes the model that it writes from memory."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from apportion import linalg
from apportion.cli.main import program
from apportion.data.synthetic import long_tailed_ratings
from apportion.recommend import load

pytestmark = [
    pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel"),
    pytest.mark.skipif(
        os.environ.get("APPORTION_SPARK", "sail") != "sail", reason="a command ends the one session that classic has"
    ),
]
SETTINGS = ("--epsilon", "20", "--delta", "1e-5", "--dimension", "2", "--rounds", "2", "--seed", "4", "--exact")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, _ = long_tailed_ratings(120, 10, 700, rank=2, rng=np.random.default_rng(0))
    users = np.array([f"user {code}" for code in data.users])
    table = pa.table({"user": users, "item": pa.array(7 * data.tasks), "rating": np.clip(data.values, 1, 5)})
    pq.write_table(table, "ratings.parquet")
    pc.write_csv(table, "ratings.csv")
    (tmp_path / "items.csv").write_text("item\n" + "\n".join(str(7 * k) for k in range(8)) + "\n", encoding="utf-8")
    return tmp_path


def fit(data, *options):
    return CliRunner().invoke(program, ["fit", str(data), *SETTINGS, *options])


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("ratings.parquet", ()),
        ("ratings.csv", ("--items", "from-data")),
        ("ratings.csv", ("--items", "items.csv", "--unlisted", "drop")),
        ("ratings.parquet", ("--min-value", "3", "--items", "from-data")),
    ],
)
def test_the_model_is_that_of_memory(folder, master, spark, file, options):
    here = fit(file, "--out", "here", *options)
    there = fit(folder / file, "--engine", "spark", "--master", master, "--partitions", "2", "--out", "there", *options)
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    one, two = load("here"), load("there")
    assert two.task_ids == one.task_ids
    np.testing.assert_allclose(two.vectors, one.vectors, rtol=1e-6)
    assert two.statement.epsilon == 20.0


def test_what_is_wrong_is_said_in_one_sentence(folder, master, spark):
    assert "must be given together" in fit("ratings.csv", "--engine", "spark").output
    assert "must be given together" in fit("ratings.csv", "--master", master).output
    wrong = fit(folder / "ratings.csv", "--engine", "spark", "--master", master, "--user", "who")
    assert wrong.exit_code != 0
    assert "There is no column 'who'" in wrong.output
    assert not (folder / "ratings-model").exists()


def test_a_cluster_that_is_not_there_is_named(folder, spark):
    away = fit("ratings", "--engine", "spark", "--master", "sc://localhost:1")
    assert away.exit_code != 0
    assert "Spark cannot be reached at 'sc://localhost:1': " in away.output

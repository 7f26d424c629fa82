"""Small files and a runner: every test works in an empty folder of its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from apportion.cli.main import program
from apportion.data.synthetic import long_tailed_ratings

_FITS = ("fit", "evaluate")
SMALL = ("--dimension", "2", "--rounds", "2")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def rows():
    """Ratings of 300 users and 40 items, as lists."""
    data, _ = long_tailed_ratings(300, 40, 4000, rank=2, rng=np.random.default_rng(1), stars="whole")
    return list(zip(data.users.tolist(), data.tasks.tolist(), data.values.tolist(), strict=True))


@pytest.fixture
def write(folder):
    """Write a CSV file from a header and rows."""

    def written(name, header, lines):
        text = "\n".join([header, *(",".join(str(cell) for cell in line) for line in lines)])
        (folder / name).write_text(text + "\n", encoding="utf-8")
        return name

    return written


@pytest.fixture
def ratings(write, rows):
    return write("ratings.csv", "user,item,rating", rows)


@pytest.fixture
def clicks(write, rows):
    return write("clicks.csv", "user,item", [row[:2] for row in rows])


@pytest.fixture
def run():
    """Run the program; the answer has .exit_code, .stdout and .stderr, and `.json` where that was asked for."""

    def answered(*arguments, code=0):
        listed = {"--items", "--model", "--help"} | ({"--features"} if arguments[0] == "fit" else set())
        if arguments[0] in _FITS and not listed & set(arguments):
            arguments = (*arguments, "--items", "from-data")  # 300 users are too few for a list of their own
        result = CliRunner().invoke(program, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.stderr
        if code == 0 and "--json" in arguments:
            result.json = json.loads(result.stdout)
        return result

    return answered


@pytest.fixture
def refused(run, folder):
    """Run a command that must be refused; returns its sentence and checks that the folder did not change."""

    def sentence(*arguments, code=2):
        before = sorted(path.name for path in folder.rglob("*"))
        result = run(*arguments, code=code)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert sorted(path.name for path in folder.rglob("*")) == before
        return result.stderr.splitlines()[-1]

    return sentence


@pytest.fixture(scope="session")
def fitted(tmp_path_factory, rows):
    """A folder with a saved model of each kind, fitted by the program itself."""
    folder = tmp_path_factory.mktemp("fitted")
    lines = "\n".join(f"{user},{item},{value}" for user, item, value in rows)
    (folder / "ratings.csv").write_text(f"user,item,rating\n{lines}\n", encoding="utf-8")
    for kind in ("ratings", "clicks"):
        arguments = ["fit", str(folder / "ratings.csv"), f"--{kind}", "--epsilon", "8", "--out", str(folder / kind)]
        result = CliRunner().invoke(program, [*arguments, *SMALL, "--seed", "1"])
        assert result.exit_code == 0, result.stderr
    return folder

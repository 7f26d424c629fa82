"""A new file format is one new file: every reader and every command then takes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import orc

from apportion import Interactions, ItemFeatures
from apportion.cli.item_files import read_item_list
from apportion.cli.main import program
from apportion.data import formats, sources
from apportion.data.tables import read_table
from apportion.data.task_files import read_task_folder
from apportion.errors import InputError

FOLDER = Path(__file__).parent / "file_format"
ROWS = [{"user": f"u{k % 7}", "item": k % 5, "rating": float(1 + k % 4)} for k in range(70)]


@pytest.fixture
def with_orc(monkeypatch):
    """The package as if `orc_file.py` stood among its formats."""
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(FOLDER)])
    sources.table_formats.cache_clear()
    yield
    monkeypatch.undo()
    sources.table_formats.cache_clear()


def written(path, rows):
    orc.write_table(pa.Table.from_pylist(rows), path)
    return path


def as_csv(path, rows):
    lines = [",".join(map(str, row.values())) for row in rows]
    path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.usefixtures("with_orc")
def test_interactions_are_those_of_the_same_rows_in_a_text_file(tmp_path):
    new = Interactions.read(written(tmp_path / "a.orc", ROWS[:5]))
    old = Interactions.read(as_csv(tmp_path / "a.csv", ROWS[:5]))
    assert new.users.tolist() == old.users.tolist()
    assert new.tasks.tolist() == old.tasks.tolist()
    assert new.values.tolist() == old.values.tolist()


@pytest.mark.usefixtures("with_orc")
def test_tables_features_item_lists_and_folders_of_tasks_take_it(tmp_path):
    table = read_table(written(tmp_path / "b.orc", ROWS), user="user", columns={"rating": "number or text"})
    assert table.numbers["rating"].tolist() == [row["rating"] for row in ROWS]
    features = ItemFeatures.read(written(tmp_path / "f.orc", [{"item": k, "genre": "ab"[k % 2]} for k in range(6)]))
    assert len(features) == 6
    assert read_item_list(written(tmp_path / "i.orc", [{"item": 3}, {"item": 5}])) == [3, 5]
    (tmp_path / "tasks").mkdir()
    written(tmp_path / "tasks" / "north.orc", [{"y": 1.0, "x": 2.0}, {"y": 3.0, "x": 4.0}])
    folder = read_task_folder(tmp_path / "tasks", label="y")
    assert folder.names == ("north",)
    assert np.array_equal(folder.matrices[0], [[2.0], [4.0]])


@pytest.mark.usefixtures("with_orc")
def test_a_command_takes_it(tmp_path):
    file = written(tmp_path / "c.orc", ROWS)
    told = ["mean", str(file), "--user", "user", "--value", "rating", "--range", "1", "4", "--epsilon", "1"]
    done = CliRunner().invoke(program, [*told, "--json"])
    assert done.exit_code == 0, done.output


def test_without_that_file_it_is_no_format(tmp_path):
    with pytest.raises(InputError, match=r"c\.orc"):
        Interactions.read(written(tmp_path / "c.orc", ROWS))

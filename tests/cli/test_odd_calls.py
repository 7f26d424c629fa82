"""Calls that would write over what they read, and ids that would move the cursor of a terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from apportion.cli.outputs import table
from apportion.cli.terminal import on_one_line

HISTORY = "user,item,rating\n7,0,5\n7,1,2\n"


@pytest.fixture
def model(fitted, folder):
    """A copy of a model, and a history beside it."""
    import shutil

    shutil.copytree(fitted / "ratings", folder / "model")
    (folder / "history.csv").write_text(HISTORY)
    return "model"


@pytest.mark.parametrize(
    "call",
    [
        ("recommend", "model", "history.csv", "--out", "history.csv"),
        ("explore", "model", "--out", "model/report.html"),
        ("card", "model", "--out", "model/statement.json"),
    ],
)
def test_no_command_writes_over_what_it_reads(refused, model, folder, call):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert "Cannot write the file" in refused(*call)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_link_to_nothing_is_refused_before_anything_is_spent(refused, ratings, folder):
    (folder / "out").symlink_to(folder / "nothing")
    assert "Refusing to replace 'out'" in refused("fit", ratings, "--epsilon", 1, "--out", "out")


@pytest.mark.parametrize(("text", "shown"), [("a\nb", r"a\nb"), ("\x1b[31m", r"\x1b[31m"), ("\u202eb", r"\u202eb")])
def test_ids_cannot_move_the_cursor(run, model, folder, text, shown):
    (folder / "history.csv").write_text(f'user,item,rating\n"{text}",0,5\n', encoding="utf-8")
    assert f"user {shown}\n" in run("recommend", model, "history.csv", "-k", 1).stdout
    assert shown in table(["item"], [[text]])


def test_other_scripts_and_emoji_are_shown_as_they_are():
    assert on_one_line("שלום 本 é 👩‍👩‍👧") == "שלום 本 é 👩‍👩‍👧"


def test_an_interruption_while_the_program_is_loaded_is_one_line(folder):
    (folder / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Now:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'apportion.cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Now())\n"
    )
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "apportion", "--version"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr == "Error: Interrupted.\n"

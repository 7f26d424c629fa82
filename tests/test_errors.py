"""Errors say what is wrong, and carry the argument that caused them."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import apportion
from apportion.errors import InputError, require_format
from apportion.privacy import Budget

SOURCE = Path(apportion.__file__).parent


def test_an_error_without_an_argument_says_its_sentence_everywhere():
    error = InputError("The file is empty.")
    assert str(error) == error.told("--anything") == "The file is empty."
    assert str(error.inside("a.csv")) == "a.csv: The file is empty."


def test_a_remedy_names_the_argument_as_the_reader_knows_it():
    error = InputError("No column looks like the user", argument="user", remedy="name it with").inside("a.csv")
    assert str(error) == "a.csv: No column looks like the user; name it with user=."
    assert error.told("--user-column") == "a.csv: No column looks like the user; name it with --user-column."


def test_an_error_about_an_argument_is_told_with_its_name_in_front():
    with pytest.raises(InputError, match=r"^Expected a finite epsilon > 0, got -1\.0\.$") as refused:
        Budget(-1.0, 1e-6)
    assert refused.value.argument == "epsilon"
    assert refused.value.told("--epsilon") == "--epsilon: Expected a finite epsilon > 0, got -1.0."


def test_an_error_survives_the_way_from_another_process():
    error = pickle.loads(pickle.dumps(InputError("Too many", argument="rounds", remedy="ask for fewer with")))
    assert (str(error), error.argument) == ("Too many; ask for fewer with rounds=.", "rounds")
    assert error.told("--rounds") == "Too many; ask for fewer with --rounds."


def test_another_format_is_refused_by_its_number():
    require_format("The thing", 2, 2)
    with pytest.raises(InputError, match=r"^The thing has format 3, .* reads format 2: install a newer apportion"):
        require_format("The thing", 3, 2)
    with pytest.raises(InputError, match=r"has format 1, .*: create it again with this version\.$"):
        require_format("The thing", 1, 2)


def raised_without_a_decision(path):
    """Lines at which an InputError neither names its argument nor says that no argument caused it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        named = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None))
        if named == "InputError" and not any(keyword.arg == "argument" for keyword in node.keywords):
            yield f"{path.relative_to(SOURCE)}:{node.lineno}"


def test_every_input_error_names_its_argument_or_says_that_there_is_none():
    assert [place for path in sorted(SOURCE.rglob("*.py")) for place in raised_without_a_decision(path)] == []


def test_an_input_error_without_a_decision_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "new.py").write_text('raise InputError("a")\nraise errors.InputError("b", argument=None)\n')
    assert list(raised_without_a_decision(tmp_path / "new.py")) == ["new.py:1"]

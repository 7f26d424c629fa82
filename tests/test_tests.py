"""Tests that can fail, where one looks for them: each checks something, and stands beside the module it is about."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "apportion"
FILES = sorted(HERE.rglob("test_*.py"))
ELSEWHERE = {"benchmarks", "conformance", "docs", "extending", "papers", "planted"}  # folders that mirror no package
KINDS = {"exact", "likelihood", "replay"}  # kinds of test that many packages have, and names of modules by chance
CHECKS = {"raises", "warns", "validate", "check_schema"}  # of pytest, and of a schema
TOO_SHORT = 2  # a text of fewer letters or digits is found in almost anything

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def called(node):
    """The last part of the name that is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_check(node):
    """Whether a statement or call fails by itself where something is wrong."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    must_succeed = any(each.arg == "check" and getattr(each.value, "value", 0) is True for each in node.keywords)
    return called(node) in CHECKS or called(node).startswith("assert_") or (called(node) == "run" and must_succeed)


def visible_files(path):
    """A file itself, the conftests above it, and the tests' own modules that it imports from."""
    imported = [node.module for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.module]
    own = [folder / f"{name.replace('.', '/')}.py" for name in imported for folder in (HERE, path.parent)]
    above = [folder / "conftest.py" for folder in path.parents if folder.is_relative_to(HERE)]
    return [path, *(each for each in (*own, *above) if each.exists())]


def helpers_that_check(path):
    """Names of functions, fixtures and classes within sight of a file that hold a check, or call one that does."""
    defined = [node for each in visible_files(path) for node in ast.walk(parsed(each))]
    defined = [node for node in defined if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    defined = [node for node in defined if not node.name.startswith("test_")]
    found = {node.name for node in defined if any(map(is_check, ast.walk(node)))}
    calling = {node.name for node in defined if found & {called(c) for c in ast.walk(node) if isinstance(c, ast.Call)}}
    return found | calling


def checks_something(test, helpers=frozenset()):
    asked_for = {each.arg for each in test.args.args} | {called(c) for c in ast.walk(test) if isinstance(c, ast.Call)}
    return any(map(is_check, ast.walk(test))) or bool(asked_for & helpers)


def cannot_fail(node):
    """Whether an assertion is always so: a constant, `or` a true constant, a tuple, a text of one letter in another."""
    told = node.test
    if isinstance(told, ast.BoolOp) and isinstance(told.op, ast.Or):
        return any(isinstance(each, ast.Constant) and each.value for each in told.values)
    if isinstance(told, ast.Compare) and isinstance(told.ops[0], ast.In) and isinstance(told.left, ast.Constant):
        text = told.left.value
        return isinstance(text, str) and text.isalnum() and text.isascii() and len(text) < TOO_SHORT
    return isinstance(told, ast.Constant | ast.Tuple | ast.JoinedStr)


def takes_anything(node):
    """Whether any exception will do: `pytest.raises(Exception)` without a word on which."""
    broad = [each for each in node.args[:1] if getattr(each, "id", "") in ("Exception", "BaseException")]
    return called(node) == "raises" and bool(broad) and not any(each.arg == "match" for each in node.keywords)


@every_file
def test_every_test_checks_something(path):
    tests = [node for node in functions(parsed(path)) if node.name.startswith("test_")]
    helpers = helpers_that_check(path)
    assert [f"{path.name}:{node.lineno} {node.name}" for node in tests if not checks_something(node, helpers)] == []


@every_file
def test_no_assertion_is_always_so(path):
    nodes = list(ast.walk(parsed(path)))
    idle = [node.lineno for node in nodes if isinstance(node, ast.Assert) and cannot_fail(node)]
    broad = [node.lineno for node in nodes if isinstance(node, ast.Call) and takes_anything(node)]
    assert idle == []
    assert broad == []


@pytest.mark.parametrize(
    "statement",
    ["assert True", "assert x or True", "assert (x, 'words')", "assert '1' in said", "assert f'{x} is wrong'"],
)
def test_an_assertion_that_cannot_fail_is_seen(statement):
    assert cannot_fail(ast.parse(statement).body[0])


@pytest.mark.parametrize("statement", ["assert x", "assert x or y", "assert '12' in said", "assert 'x' not in said"])
def test_an_assertion_that_can_fail_is_not_accused(statement):
    assert not cannot_fail(ast.parse(statement).body[0])


@pytest.mark.parametrize(
    ("body", "checks"),
    [
        ("fit(data)", False),
        ("subprocess.run(program)", False),
        ("subprocess.run(program, check=True)", True),
        ("with pytest.raises(InputError):\n        fit(data)", True),
        ("np.testing.assert_array_equal(a, b)", True),
    ],
)
def test_a_test_without_a_check_is_seen(body, checks):
    (test,) = functions(ast.parse(f"def test_it(data):\n    {body}\n"))
    assert checks_something(test) is checks


@every_file
def test_a_test_stands_in_the_folder_of_what_it_tests(path):
    folder = path.relative_to(HERE).parent
    if not folder.parts or ELSEWHERE & set(folder.parts):
        return
    assert (SOURCE / folder).is_dir(), f"src/apportion has no folder {folder}"
    name = path.stem.removeprefix("test_")
    homes = {found.parent.relative_to(SOURCE) for found in SOURCE.rglob(f"{name}.py")}
    homes |= {found.parents[1].relative_to(SOURCE) for found in SOURCE.glob(f"*/**/{name}/__init__.py")}
    assert name in KINDS or not homes or folder in homes, f"the module {name} is in {', '.join(map(str, homes))}"


def test_every_package_has_a_folder_of_tests():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    without = {"estimators"}  # what all share, tested with each of them
    assert {name for name in packages - without if not list((HERE / name).rglob("test_*.py"))} == set()

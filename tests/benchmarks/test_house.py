"""What the claim on the house counts: lines, annotations, names, and files of the product that an example touches."""

from __future__ import annotations

import ast

import pytest

from benchmarks import house

SMALL = '''
def documented(x: int, *, y: str) -> int:
    """Words,

    on several lines.
    """
    z = x

    return z


def bare(x, *rest): return x


class Kept:
    def method(self, x: int) -> None:
        pass

    def _own(self) -> None:
        pass
'''


@pytest.fixture
def extending(tmp_path, monkeypatch):
    """Write an example of adding an engine, and say what it touches."""
    monkeypatch.setattr(house, "EXTENDING", tmp_path)

    def touched(own, test=""):
        (tmp_path / "engine").mkdir()
        (tmp_path / "engine" / "own.py").write_text(own)
        (tmp_path / "test_engine.py").write_text(test)
        return house.files_of_extension("engine")["touched"]

    return touched


def test_functions_are_measured_without_their_docstrings():
    documented, bare, method, own = (
        node for node in ast.walk(ast.parse(SMALL)) if isinstance(node, ast.FunctionDef)
    )  # fmt: skip
    assert [house._body_lines(node) for node in (documented, bare, method, own)] == [3, 1, 1, 1]
    assert [house._is_annotated(node) for node in (documented, bare, method, own)] == [True, False, True, True]
    assert [node.name for node in house._public_definitions(ast.parse(SMALL))] == [
        "documented",
        "bare",
        "Kept",
        "method",
    ]


def test_an_example_that_only_uses_what_is_public_touches_nothing(extending):
    own = "from apportion.engines import LocalEngine\n\n\nclass Mine(LocalEngine):\n    _kept = 1\n"
    test = "from apportion import engines\n\n\ndef test_it():\n    mine = engines.LocalEngine()\n    mine.chunk = 3\n"
    assert extending(own, test) == []


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("from apportion.engines.local import _chunks\n", "apportion.engines.local"),
        ("from apportion import engines\n\nengines.KINDS = ()\n", "apportion.engines"),
        ("from apportion import engines\n\nprint(engines._kinds)\n", "apportion.engines"),
        ("def test_it(monkeypatch):\n    monkeypatch.setattr('apportion.engines.KINDS', ())\n", "apportion.engines"),
        ("from apportion import engines\n\nsetattr(engines, 'KINDS', ())\n", "apportion.engines"),
    ],
)
def test_an_example_that_patches_or_reaches_inside_is_seen(extending, text, module):
    assert extending("", text) == [module]


def test_a_new_file_in_a_folder_of_the_product_changes_none_that_is_there(extending):
    test = "from apportion import engines\n\n\ndef test_it(monkeypatch):\n"
    assert extending("", test + "    monkeypatch.setattr(engines, '__path__', [])\n") == []


def test_without_an_example_there_is_nothing_to_count(tmp_path, monkeypatch):
    monkeypatch.setattr(house, "EXTENDING", tmp_path)
    assert house.files_of_extension("engine") is None


def test_a_second_list_of_the_layers_is_seen(tmp_path):
    packages = {path.parent.name for path in house.SOURCE.glob("*/__init__.py")}
    again = tmp_path / "again.py"
    again.write_text(f"LAYERS = {sorted(packages)!r}\n")
    assert house._lists_packages(again, packages) == 1
    again.write_text("LAYERS = ['linalg', 'data']\n")
    assert house._lists_packages(again, packages) == 0

"""Every script of the gallery is in a group, says what it shows, and leaves a picture."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = sorted((DOCS / "gallery_scripts").glob("*.py"))


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("docs_gallery", DOCS / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


def test_every_script_is_in_one_group_and_every_name_has_a_script(gallery):
    listed = [name for names in gallery.GROUPS.values() for name in names]
    assert sorted(listed) == sorted(script.stem.removeprefix("plot_") for script in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_says_what_it_shows(script):
    title, empty, *words = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").splitlines()
    assert title.endswith((".", "?"))
    assert empty == ""
    assert len(" ".join(words)) > 60


def test_a_page_shows_the_picture_what_was_printed_and_the_script(gallery):
    shown = gallery.run(DOCS / "gallery_scripts" / "plot_costs_add_up.py")
    assert shown.picture.startswith("<svg")
    page = gallery.page(shown)
    assert page.startswith("# What many releases cost together\n")
    for part in ("![", "256 releases at epsilon 0.1", "plot_costs_add_up.py"):
        assert part in page


def test_a_script_without_a_group_is_listed_under_more(gallery):
    shown = [gallery.Shown(name, name, "", "", "", 0.0) for names in gallery.GROUPS.values() for name in names]
    assert "## More" not in gallery.index(shown)
    assert "## More" in gallery.index([*shown, gallery.Shown("new", "New", "", "", "", 0.0)])

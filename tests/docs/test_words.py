"""The list of words: pages keep to it, code is left out, and each rule finds what it is for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

CHECKER = Path(__file__).parents[2] / "docs" / "check_words.py"


@pytest.fixture(scope="module")
def words():
    spec = importlib.util.spec_from_file_location("check_words", CHECKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_uses_a_word_of_the_list(words):
    pages = {page: words.problems(page.read_text(encoding="utf-8")) for page in words.pages()}
    assert len(pages) > 60
    assert {str(page): found for page, found in pages.items() if found} == {}


def test_a_word_is_found_with_its_line_and_what_to_write_instead(words):
    assert words.problems("One.\nWe utilise it.\n") == ["2: 'utilise': use"]
    assert words.problems("Blazingly fast; a seamless whole.") == [
        "1: 'Blazingly': say how fast",
        "1: 'seamless': say what happens",
    ]


def test_code_links_and_formulas_are_left_out(words):
    text = "`utilise` [x](utilise.md) $utilise$\n```python\nutilise()\n```\n"
    assert words.problems(text) == []
    assert len(words.prose(text).splitlines()) == len(text.splitlines())

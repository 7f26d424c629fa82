"""The Python of every page runs as it stands there, block after block, and the options of commands exist."""

from __future__ import annotations

import pytest

from benchmarks.docs_runs import DOCS, Block, blocks, commands, pages, run_block, unknown_options, working_folder

PAGES = {page.relative_to(DOCS).as_posix(): blocks(page) for page in pages()}
RUN = ("python", "toml", "json")
MAKES_A_FOLDER = "apportion shard "  # commands run where Python needs what they make
WITH_BLOCKS = [name for name, found in PAGES.items() if any(block.language in RUN for block in found)]
COMMANDS = [(block.place, words) for found in PAGES.values() for block in found for words in commands(block)]


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_the_blocks_of_a_page_run(name):
    kept = [block for block in PAGES[name] if block.language in RUN or MAKES_A_FOLDER in block.text]
    if any("torch" in block.text or "Encoder" in block.text for block in kept):
        pytest.importorskip("torch")
    with working_folder():
        names = {"__name__": "page"}
        for block in kept:
            printed = run_block(block, names)
            prints = "print(" in block.text if block.language == "python" else block.language == "sh"
            assert bool(printed.strip()) == prints, block.place
            assert "nan" not in printed, block.place


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[place for place, _ in COMMANDS])
def test_a_command_has_the_options_that_the_page_gives_it(place, words):
    assert unknown_options(words) == [], place


def test_a_wrong_option_and_a_wrong_command_are_found():
    assert unknown_options(["apportion", "fit", "x.csv", "--epsilonn", "1"]) == ["--epsilonn"]
    assert unknown_options(["apportion", "ledger", "initialise"]) == ["initialise"]
    assert unknown_options(["apportion", "ledger", "init", "x.db", "--epsilon", "1"]) == []


def test_a_command_that_fails_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="ended with 2"):
        run_block(Block("page.md", 1, "sh", "apportion fit nothing.csv --epsilon 1\n"), {})


def test_there_is_python_on_many_pages():
    assert len(WITH_BLOCKS) > 12
    assert len(COMMANDS) > 30

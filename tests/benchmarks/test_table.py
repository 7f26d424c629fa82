"""The page of claims, and the README's figures and picture, show what is stored and nothing else."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import picture, rows, table
from benchmarks.__main__ import CLAIMS


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the stored results that a test may change; the pages stay as they are."""
    shutil.copytree(table.RESULTS, tmp_path / "results")
    monkeypatch.setattr(table, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(picture, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def change(path, alter):
    stored = json.loads(path.read_text(encoding="utf-8"))
    alter(stored)
    path.write_text(json.dumps(stored), encoding="utf-8")


def test_the_documentation_shows_exactly_the_stored_results():
    assert table.is_current(CLAIMS), "run `make table`"
    assert picture.is_current(), "run `make table`"


def test_another_figure_makes_page_readme_and_picture_out_of_date(copied):
    change(copied / "ml1m-ratings.json", lambda stored: stored["value"].update({"1": 0.5}))
    assert "0.5000 / " in table.page(CLAIMS)
    assert "0.5000 / " in table.figures()
    assert not table.is_current(CLAIMS)
    assert picture.is_current()
    change(copied / "skew-ml1m.json", lambda stored: stored["value"]["ratings"]["ours"].update({"1": 0.5}))
    assert not picture.is_current()


def test_a_result_that_no_longer_holds_comes_first_in_its_group(copied):
    change(copied / "audit-published.json", lambda stored: stored.update(holds=False))
    group = table.page(CLAIMS).split("## Guarantees")[1].split("## ")[0]
    first = group.strip().splitlines()[2]
    assert first.startswith("| [`audit-published`]")
    assert "**no**" in first
    assert not table.is_current(CLAIMS)


def test_the_page_says_which_results_have_another_source(copied, monkeypatch):
    monkeypatch.setattr(table, "is_older", lambda stored: stored["claim"] == "replay")
    older = [line for line in table.page(CLAIMS).splitlines() if table.EARLIER in line and line.startswith("| [")]
    assert [line.split("`")[1] for line in older] == ["replay"]


def test_a_claim_without_a_row_is_shown_with_its_headline(copied):
    change(copied / "replay.json", lambda stored: stored.update(claim="new-claim", headline="as measured"))
    (copied / "replay.json").rename(copied / "new-claim.json")
    page = table.page([*CLAIMS, "new-claim"])
    assert "as measured" in page.split(f"## {rows.OTHER}")[1]
    assert "- `replay`:" in page.split("## Without a stored result")[1]


def test_a_row_that_does_not_fit_its_result_names_the_claim(copied):
    change(copied / "memory.json", lambda stored: stored.update(value={}))
    with pytest.raises(ValueError, match="The row of memory "):
        table.page(CLAIMS)


def test_every_row_belongs_to_one_claim():
    named = [claim for theme in rows.THEMES.values() for claim in theme]
    assert len(named) == len(set(named))
    assert set(named) <= set(CLAIMS)

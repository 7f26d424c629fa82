"""Every claim in its quick form, and a README that shows what was stored."""

from __future__ import annotations

import json

import pytest

from benchmarks import claim, table
from benchmarks.__main__ import CLAIMS, run
from benchmarks.browser import found_browser
from benchmarks.export_readers import need_libraries

NEEDED = {"explorer-browser": found_browser, "exports": need_libraries}


def skip_without_what_is_needed(name):
    try:
        NEEDED.get(name, lambda: None)()
    except claim.UnavailableError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", CLAIMS)
def test_the_quick_form_of_a_claim_holds(name, capsys):
    skip_without_what_is_needed(name)
    assert run(name, quick=True) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["claim"] == name
    assert line["holds"] is True


def test_a_claim_that_does_not_hold_exits_non_zero(capsys):
    wrong = claim.Outcome({"x": 2.0}, {"x": 1.0}, False, "")
    assert claim.run("wrong", lambda quick: wrong, quick=True) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["holds"] is False


def test_a_claim_that_cannot_be_measured_says_why_and_is_not_stored(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(claim, "RESULTS", tmp_path)

    def measure(quick):
        raise claim.UnavailableError("no data")

    assert claim.run("missing", measure, quick=False) == 3
    assert "no data" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_readme_shows_exactly_the_stored_results():
    assert table.is_current(), "run `make table`"


def test_every_stored_result_belongs_to_a_claim():
    assert {path.stem for path in claim.RESULTS.glob("*.json")} <= set(CLAIMS)

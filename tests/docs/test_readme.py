"""The README says what the program prints, links to what there is, and does not contradict its picture."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from apportion.cli.demo import demo
from apportion.cli.main import program

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "claims.md"]
README = PAGES[0].read_text(encoding="utf-8")
CUT = "[...]"


def shown_output():
    """The lines that the README shows of `apportion fit`, without the marks of what is left out."""
    shown = README.split("--out model\n")[1].split("\n$ ")[0].splitlines()
    return [line for line in shown if not line.startswith("[...")]


def test_the_output_in_the_readme_is_that_of_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(demo, ["--out", "demo", "--users", "20000", "--rows", "600000"]).exit_code == 0
    command = re.search(r"^\$ apportion (fit .*)$", README, re.MULTILINE).group(1)
    printed = runner.invoke(program, command.split()).output.splitlines()
    for line in shown_output():
        pattern = re.escape(line).replace(re.escape(CUT), ".*")
        assert any(re.fullmatch(pattern, each) for each in printed), line
    releases = [line for line in printed if re.search("% of the budget", line)]
    shown = [line for line in shown_output() if re.search(", sensitivity ", line)]
    assert f"[... {len(releases) - len(shown)} more lines]" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not link.startswith("http") and not (page.parent / link).exists()] == []


def test_the_two_first_commands_are_in_the_readme():
    assert re.search("^make demo ", README, re.MULTILINE)
    assert re.search("^make test ", README, re.MULTILINE)


def test_what_the_readme_says_of_plain_means_is_so():
    ours, plain = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("skew-ml1m", "ml1m-ratings")
    )
    better = plain["settings"]["non_private"]["damped_means"] < ours["value"]["ratings"]["ours"]["1"]
    assert better == ("plain item and user means without privacy predict ratings better" in README)


def test_the_citation_names_the_version_that_is_built():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {built['version']}\n" in cited
    assert f"\nlicense: {built['license']}\n" in cited

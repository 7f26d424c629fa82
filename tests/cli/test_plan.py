"""`apportion plan`: a forecast from sizes alone, as a table, as JSON and as a page."""

from __future__ import annotations

import json

import pytest

SIZES = ("--users", 1e5, "--items", 2e3, "--rows-per-user", 40)


def test_the_table_names_every_epsilon_and_what_it_rests_on(run):
    done = run("plan", *SIZES, "--epsilon", 1, "--epsilon", 5)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["1", "5"]
    assert "nothing was spent" in done.stdout
    assert "Outside the sizes of the study (users)" in done.stdout


def test_json_and_page_hold_the_same_forecast(run, tmp_path):
    page = tmp_path / "plan.html"
    found = json.loads(run("plan", *SIZES, "--without-privacy", 0.8, "--json", "--page", page).stdout)
    errors = [one["error"] for one in found["expected"]]
    assert errors == sorted(errors, reverse=True)
    assert all(error > 0.8 for error in errors)
    written = page.read_text(encoding="utf-8")
    assert "<svg" in written
    assert f"{errors[0]:.3f}" in written
    drawn = written[written.index("<svg") :]
    assert drawn.index("area-accent") < drawn.index(">without privacy<"), "the band would cover the label"


def test_clicks_lose_recall_and_have_a_wide_interval(run):
    found = json.loads(run("plan", *SIZES, "--clicks", "--epsilon", 0.5, "--json").stdout)
    (one,) = found["expected"]
    assert found["metric"] == "Recall@20"
    assert one["error"] < found["without_privacy"]
    assert one["interval"][0] > one["error"] > one["interval"][1]
    assert "Click data of the same size differ" in run("plan", *SIZES, "--clicks").stdout


def test_a_recall_above_one_is_refused(run):
    done = run("plan", *SIZES, "--clicks", "--without-privacy", 1.2, code=2)
    assert "--without-privacy: Expected a recall without privacy of at most 1, got 1.2." in done.stderr


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (("--users", 10, "--items", 5, "--rows-per-user", 9), "rows"),
        (("--users", 10, "--items", 5), "rows-per-user"),
        ((*SIZES, "--clicks", "--without-privacy", 1.5), "--without-privacy: Expected a recall"),
    ],
)
def test_sizes_that_no_data_have_are_refused(run, sizes, said):
    done = run("plan", *sizes, code=2)
    assert said in done.stderr

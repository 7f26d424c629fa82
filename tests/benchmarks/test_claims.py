"""Every claim in its quick form."""

from __future__ import annotations

import json

import pytest

from benchmarks import claim
from benchmarks.__main__ import CLAIMS, run
from benchmarks.browser import found_browser
from benchmarks.export_readers import need_libraries

NEEDED = {"explorer-browser": found_browser, "exports": need_libraries}


def skip_without_what_is_needed(name):
    try:
        NEEDED.get(name, lambda: None)()
    except claim.UnavailableError as missing:
        pytest.skip(str(missing))


REHEARSED = {
    "another data set": (
        "adaptive-floor",
        "adaptive-floor-clicks",
        "adaptive-floor-features",
        "adaptive-gain",
        "price-of-privacy",
        "ml1m-ratings",
        "ml1m-ratings-tuned",
        "ml1m-clicks",
        "topk-ratings",
        "features-ml1m",
        "features-prior",
    ),
    "a GPU, or its size": ("gpu-fit", "heavytail-synthetic", "heavytail-pairs", "rare-classes", "rare-real"),
    "the speed or memory of a machine": (
        "items-private",
        "keys-recall",
        "epoch-vs-peers",
        "round-vs-implicit",
        "linear-growth",
        "read-speed",
        "memory",
        "disk-scale",
        "features-time",
        "protected-scale",
        "optim-speed",
        "trainer-fits",
        "trainer-speed",
        "exact-mode",
        "gwa-scale",
        "contributions-threshold",
        "serve-load",
        "federated-scale",
        "groupby-scale",
    ),
    "the whole site": ("docs-runs",),
    "a cluster, and Java": ("spark-faults", "spark-vs-als"),
    "more draws or more data": (
        "federated-agrees",
        "replay-at-size",
        "mutants",
        "audit-tight",
        "contributions-audit",
        "contributions-coverage",
        "coverage-real",
        "mean-vs-peers",
        "quantile-vs-peers",
        "groupby-error",
        "erm-floor",
        "features-convex",
        "protected-em",
        "parties-floor",
        "protected-schedule",
        "regress-real",
    ),
}
"""Claims whose quick form cannot decide them, by what it lacks."""


@pytest.mark.parametrize("name", CLAIMS)
def test_the_quick_form_holds_or_says_what_it_checks_instead(name, capsys):
    skip_without_what_is_needed(name)
    code = run(name, quick=True)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["claim"] == name
    assert code == 0, line
    rehearsed = any(name in names for names in REHEARSED.values())
    assert line["holds"] is (None if rehearsed else True)


def test_every_claim_that_is_stored_as_failing_is_only_rehearsed():
    """A quick form that passes where the full form fails would check something easier."""
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in claim.RESULTS.glob("*.json")]
    failing = {result["claim"] for result in stored if not result["holds"]}
    assert failing <= {name for names in REHEARSED.values() for name in names}


def test_a_rehearsal_does_not_say_that_a_claim_holds(capsys):
    shown = claim.Rehearsal({"x": 2.0}, {"small data are fitted": True})
    assert claim.run("small", lambda quick: shown, quick=True) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line == {"claim": "small", "value": {"x": 2.0}, "holds": None, "shows": {"small data are fitted": True}}
    wrong = claim.Rehearsal({}, {"small data are fitted": True, "and better than the mean": False})
    assert claim.run("small", lambda quick: wrong, quick=True) == 1


def test_a_full_form_cannot_be_a_rehearsal():
    with pytest.raises(TypeError, match="full form of small returned a rehearsal"):
        claim.run("small", lambda quick: claim.Rehearsal({}, {}), quick=False)


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


def test_every_stored_result_belongs_to_a_claim():
    assert {path.stem for path in claim.RESULTS.glob("*.json")} <= set(CLAIMS)

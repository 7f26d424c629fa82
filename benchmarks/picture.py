"""The README's picture: error against ε on MovieLens 1M, from the stored results and never typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.cells import best_of_six
from benchmarks.claim import RESULTS
from benchmarks.table import DRAWN
from papers.public_features.drawing import Line, Panel, figure

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "error_against_epsilon.svg"
OURS, SIX = "apportion", "best of six published methods"
TWIN, SIMPLE = "without privacy", "means or popularity, no privacy"


def draw() -> str:
    """Return the picture as SVG: ratings on the left, clicks on the right."""
    compared, ratings, clicks = _stored(DRAWN), _stored("ml1m-ratings"), _stored("ml1m-clicks")
    panels = [
        _panel("ratings: test RMSE, lower is better", compared, "ratings", _simple(ratings, "damped_means")),
        _panel("clicks: Recall@20, higher is better", compared, "clicks", _simple(clicks, "popularity")),
    ]
    return figure("MovieLens 1M, one user's whole history protected", panels, width=400, height=260)


def rewrite() -> None:
    """Write the picture."""
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")


def is_current() -> bool:
    """Whether the picture shows the stored results."""
    return PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == draw()


def _stored(claim: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{claim}.json").read_text(encoding="utf-8"))
    return found


def _simple(stored: dict[str, Any], name: str) -> float:
    return float(stored["settings"]["non_private"][name])


def _panel(title: str, compared: dict[str, Any], part: str, simple: float) -> Panel:
    """Ours with its deviation over seeds of the noise, the best of the six at each ε, and two lines without privacy."""
    measured, spread = compared["value"][part], compared["settings"]["standard_deviations"][part]
    names = sorted(measured["ours"], key=float)
    at = [float(name) for name in names]
    best = best_of_six(compared, part)
    lines = {
        OURS: Line(at, [measured["ours"][name] for name in names], [spread["ours"][name] for name in names]),
        SIX: Line(at, [best[name] for name in names]),
        TWIN: Line(at, [measured["without privacy"][name] for name in names], dashed=True, plain=True),
        SIMPLE: Line(at, [simple] * len(at), dashed=True, plain=True),
    }
    return Panel(title, lines, "ε (δ = 1e-5)", log_x=True, ticks=dict(zip(at, names, strict=True)))

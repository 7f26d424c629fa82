"""The paper's figures, drawn from what the claims stored and, for the cost law, from its formula.

python -m papers.public_features figures
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.claim import RESULTS
from papers.public_features import cost
from papers.public_features import movielens as paper
from papers.public_features.drawing import Line, Panel, figure
from papers.public_features.tables import HERE

METRICS = {"ratings": "ratings, RMSE (less is better)", "clicks": "clicks, Recall@20 (more is better)"}
SLICE_METRICS = {"ratings": "RMSE", "clicks": "Recall@20 within the slice"}
SLICED = (paper.FEATURES, paper.ID_ONLY, paper.GRADIENT, paper.GRADIENT_ID)
ORDER = (*SLICED, paper.OURS, paper.OURS_ID, paper.FACTORISED, paper.PURE_GRADIENT, paper.JOINT)
PLACES = {1.0: "rarest", 2.0: "2", 3.0: "3", 4.0: "4", 5.0: "popular"}
D, M = 10**6, 1000  # examples and items of the cost law, as in the paper
Stored = dict[str, Any]


def of_comparison(stored: Stored) -> dict[str, str]:
    """Trade-offs (fig. 1, 2), draws of the noise (fig. 4, 8) and slices (fig. 9)."""
    drawn = [paper.resampled(draws) for draws in paper.RESAMPLES]
    pictures = {}
    for kind, number in (("ratings", 1), ("clicks", 2)):
        rows = [name for name in stored["value"][kind] if name not in drawn]
        panel = _over_epsilon(stored, kind, rows)
        pictures[f"tradeoff-{kind}"] = figure(
            f"Quality against ε, MovieLens 1M {kind} (fig. {number})",
            [panel],
            width=640,
            height=330,
            order=ORDER,
        )
        pictures[f"slices-{kind}"] = _sliced(stored, kind)
    panels = [_over_epsilon(stored, kind, drawn, short=paper.FEATURES + ", ") for kind in METRICS]
    pictures["draws"] = figure("Draws of the noise in 16 steps (fig. 4, 8)", panels, width=300)
    return pictures


def of_time(stored: Stored) -> dict[str, str]:
    """Test error against time (fig. 3)."""
    points = stored["settings"]["points"]
    lines = {name: Line([p[0] for p in each], [p[1] for p in each]) for name, each in points.items()}
    panel = Panel("test RMSE", lines, "processor seconds of fitting", log_x=True)
    return {"time": figure("Quality over time, MovieLens 1M ratings, ε = 5 (fig. 3)", [panel], width=560, height=300)}


def of_scaling(stored: Stored) -> dict[str, str]:
    """Excess risk against the number of features (Theorem 3, Remark 7)."""
    features, risks = stored["settings"]["features"], stored["settings"]["risks"]
    titles = {"ball": "‖θ‖ bounded, active", "none": "no constraint", "items": "max ‖θᵀx‖ bounded"}
    panels = []
    for case, title in titles.items():
        lines = {
            name.removesuffix(f", {case}"): Line(features, values)
            for name, values in risks.items()
            if name.endswith(f", {case}")
        }
        panels.append(Panel(title, lines, "features p", log_x=True, log_y=True))
    return {"scaling": figure(f"Excess risk, m = {stored['settings']['items']} items", panels, same_y=True)}


def of_cost() -> dict[str, str]:
    """Visits of items (fig. 5) and the cost of SSP-c over that of DP-SGD (fig. 6), by formula."""
    sizes = [float(size) for size in np.geomspace(1, D, 25).round()]
    exponents = (0.0, 0.5, 1.0, 1.5)
    ranks = np.unique(np.geomspace(1, M, 40).round().astype(int))
    counts = {f"α = {a:g}": Line(ranks.tolist(), (D * cost.power_law(M, a)[ranks - 1]).tolist()) for a in exponents}
    visits = {
        f"α = {a:g}": Line(sizes, [cost.visits(cost.power_law(M, a), D, int(s)) for s in sizes]) for a in exponents
    }
    first = figure(
        "Items' counts fall as 1/rank^α: examples, and batches of an epoch that an item is in (fig. 5)",
        [
            Panel("examples of an item", counts, "rank", log_x=True, log_y=True),
            Panel("visits per epoch β/m", visits, "batch size", log_x=True, log_y=True),
        ],
        width=330,
    )
    second = figure(
        "Cost of SSP-c over that of DP-SGD, α = 1, d = 32 (fig. 6)",
        [_ratios("c = d²", 32.0**2), _ratios("c = d", 32.0)],
        width=330,
    )
    return {"visits": first, "cost": second}


def write(folder: Path = HERE, results: Path = RESULTS) -> list[Path]:
    """Draw what there are results for; returns the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Stored], dict[str, str]]] = {
        "ml1m": of_comparison, "time": of_time, "scaling": of_scaling,
    }  # fmt: skip
    pictures = of_cost()
    for name, made in makers.items():
        source = results / f"features-{name}.json"
        if source.exists():
            pictures |= made(json.loads(source.read_text(encoding="utf-8")))
    for name, markup in pictures.items():
        (folder / f"{name}.svg").write_text(markup, encoding="utf-8")
    return [folder / f"{name}.svg" for name in pictures]


def _over_epsilon(stored: Stored, kind: str, rows: list[str], *, short: str = "") -> Panel:
    """A line per row over ε, with standard deviations over seeds; rows without features are dashed.

    `short` is what names begin with and the legend leaves out.
    """
    means, spreads = stored["value"][kind], stored["settings"]["standard_deviations"][kind]
    lines = {}
    for name in rows:
        epsilons = list(means[name])
        lines[name.removeprefix(short)] = Line(
            [float(e) for e in epsilons],
            [means[name][e] for e in epsilons],
            [spreads[name][e] for e in epsilons],
            dashed="no features" in name,
        )
    marked = {x: f"{x:g}" for line in lines.values() for x in line.x}
    return Panel(METRICS[kind], lines, "ε", log_x=True, ticks=marked)


def _sliced(stored: Stored, kind: str) -> str:
    settings = stored["settings"]
    by_slice = settings["within_slices" if kind == "clicks" else "by_slice"][kind]
    spreads = settings["standard_deviations_by_slice"][kind]
    panels = []
    for e in next(iter(stored["value"][kind].values())):
        lines = {
            name: Line(
                list(PLACES),
                [held[name][e] for held in by_slice.values()],
                [held[name][e] for held in spreads.values()],
                dashed="no features" in name,
            )
            for name in SLICED
        }
        panels.append(Panel(f"ε = {e}", lines, "fifth of the movies by count", ticks=PLACES))
    return figure(
        f"{SLICE_METRICS[kind]} by popularity slice, MovieLens 1M {kind} (fig. 9)", panels, same_y=True, order=ORDER
    )


def _ratios(title: str, pass_cost: float) -> Panel:
    shares = cost.power_law(M, 1.0)
    sizes = [float(size) for size in np.geomspace(10, D, 21).round()]
    lines = {
        f"{epochs} epoch{'s' if epochs > 1 else ''}": Line(
            sizes, [cost.cost_ratio(shares, D, int(s), epochs, pass_cost, 32) for s in sizes]
        )
        for epochs in (1, 10, 100, 1000)
    }
    lines["equal cost"] = Line([sizes[0], sizes[-1]], [1.0, 1.0], dashed=True, plain=True)
    return Panel(title, lines, "batch size", log_x=True, log_y=True)

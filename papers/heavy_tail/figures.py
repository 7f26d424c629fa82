"""The figures, drawn from what the claims stored: losses and accuracies against ε, and rarest accuracy against loss."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apportion.report.svg import Drawing, Linear
from papers.heavy_tail.synthetic import RESULTS
from papers.heavy_tail.tables import STUDIES
from papers.heavy_tail.updates import OPTIMIZERS

_STYLE = (
    "text{font:11px sans-serif;fill:#333} .title{font-weight:600} path{fill:none;stroke-width:1.6} line{stroke:#ddd} "
    + " ".join(
        f".c{k}{{stroke:{colour}}} text.c{k},circle.c{k}{{fill:{colour};stroke:none}}"
        for k, colour in enumerate(("#b65a2b", "#5d7f2f", "#7a5ca8", "#0f6e78"))
    )
)
_PANEL, _HEIGHT, _LEGEND = 200.0, 190.0, 24.0
Panel = tuple[str, dict[str, Sequence[float]]]
"""A title, and the values of each optimizer."""


def figure(title: str, epsilons: Sequence[float], panels: Sequence[Panel], *, percent: bool) -> str:
    """A row of panels over ε, a line for each optimizer."""
    picture = Drawing(_PANEL * len(panels), _HEIGHT + _LEGEND + 16, title)
    picture.text((10, 14), title, "title")
    for column, panel in enumerate(panels):
        _draw(picture, panel, epsilons, _PANEL * column, percent)
    return _finished(picture, _HEIGHT + 32)


def _finished(picture: Drawing, legend_at: float) -> str:
    """The legend, and the markup as a file of its own."""
    for order, name in enumerate(OPTIMIZERS):
        picture.text((44 + 110.0 * order, legend_at), f"● {name}", f"c{order}")
    return picture.as_file(_STYLE)


def front(study: dict[str, Any], highest: float) -> str:
    """Rarest accuracy against training loss at the end: a line for each optimizer and constant, a point for each rate.

    Points are means over seeds; those with a loss above the highest are left out.
    """
    title = f"Rarest accuracy against training loss at the end, {study['problem']}"
    picture = Drawing(480, 380, title)
    picture.text((10, 14), title, "title")
    means = [
        (order, [p for p in zip(_over_seeds(line["loss"]), _over_seeds(line["rarest accuracy"]), strict=True)
                 if p[0] <= highest])
        for order, name in enumerate(OPTIMIZERS)
        for line in study["front"][name]
    ]  # fmt: skip
    lowest = min(loss for _, points in means for loss, _ in points)
    best = max(accuracy for _, points in means for _, accuracy in points)
    across = Linear(lowest - 0.02 * (highest - lowest), highest, 50, 465)
    up = Linear(0.0, 1.05 * max(best, 0.01), 320, 30)
    for tick in up.ticks(5):
        picture.line((across.start, up(tick)), (across.end, up(tick)), "")
        picture.text((across.start - 4, up(tick) + 4), f"{100 * tick:g} %", anchor="end")
    for tick in across.ticks(6):
        picture.text((across(tick), up.start + 14), f"{tick:g}", anchor="middle")
    picture.text(((across.start + across.end) / 2, up.start + 30), "training loss", anchor="middle")
    for order, points in means:
        placed = [(across(loss), up(accuracy)) for loss, accuracy in points]
        picture.path(placed, f"c{order}")
        for place in placed:
            picture.circle(place, 2.5, f"c{order}")
    return _finished(picture, 370)


def _over_seeds(values: Any) -> list[float]:
    return [float(value) for value in np.mean(values, axis=0)]


def _draw(picture: Drawing, panel: Panel, epsilons: Sequence[float], left: float, percent: bool) -> None:
    title, lines = panel
    shown = [min(v, 100.0) for values in lines.values() for v in values]
    low, high = (0.0, max(max(shown), 0.01) * 1.05) if percent else (min(shown) * 0.95, min(max(shown), 9.0) * 1.02)
    up = Linear(low, high, _HEIGHT - 18, 40)
    across = Linear(0.0, max(epsilons), left + 40, left + _PANEL - 10)
    picture.text((left + 40, 32), title)
    for tick in up.ticks(4):
        picture.line((across.start, up(tick)), (across.end, up(tick)), "")
        text = f"{100 * tick:g} %" if percent else f"{tick:g}"
        picture.text((across.start - 4, up(tick) + 4), text, anchor="end")
    for tick in across.ticks(4):
        picture.text((across(tick), up.start + 14), f"{tick:g}", anchor="middle")
    picture.text(((across.start + across.end) / 2, up.start + 28), "ε", anchor="middle")
    for order, name in enumerate(OPTIMIZERS):
        points = [(across(e), up(min(max(v, low), high))) for e, v in zip(epsilons, lines[name], strict=True)]
        picture.path(points, f"c{order}")


def of_synthetic(study: dict[str, Any], groups: Sequence[int] = (0, 3, 5, 7)) -> dict[str, str]:
    """Loss and accuracy of the synthetic study, each optimizer as its training loss chose it."""
    runs = {name: found["loss"] for name, found in study["optimizers"].items()}
    sizes = study["class sizes"]
    losses: list[Panel] = [("all rows", {name: run["curve loss"] for name, run in runs.items()})]
    losses += [
        (f"classes of {sizes[g]}", {name: [look[g] for look in run["curve group loss"]] for name, run in runs.items()})
        for g in groups
    ]
    accuracies: list[Panel] = [
        (
            f"classes of {sizes[g]}",
            {name: [look[g] for look in run["curve group accuracy"]] for name, run in runs.items()},
        )
        for g in groups
    ]
    return {
        "loss": figure(f"Training loss, {study['problem']}", study["epsilon"], losses, percent=False),
        "accuracy": figure(f"Training accuracy, {study['problem']}", study["epsilon"], accuracies, percent=True),
    }


def of_trainings(study: dict[str, Any], title: str, names: Sequence[str]) -> dict[str, str]:
    """Loss and accuracy of a study of trainings: each optimizer as its training loss chose it, means over seeds."""
    runs = {name: _mean_run(found.get("loss", found)["runs"]) for name, found in study["optimizers"].items()}
    losses: list[Panel] = [("all", {name: run["loss"] for name, run in runs.items()})]
    accuracies: list[Panel] = [("all", {name: run["accuracy"] for name, run in runs.items()})]
    for g, group in enumerate(names):
        losses.append((group, {name: [look[g] for look in run["group loss"]] for name, run in runs.items()}))
        accuracies.append((group, {name: [look[g] for look in run["group accuracy"]] for name, run in runs.items()}))
    return {
        "loss": figure(f"Training loss, {title}", study["epsilon"], losses, percent=False),
        "accuracy": figure(f"Training accuracy, {title}", study["epsilon"], accuracies, percent=True),
    }


def _mean_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        what: np.mean([run[what] for run in runs], axis=0).tolist()
        for what in ("loss", "accuracy", "group loss", "group accuracy")
    }


def draw_all(folder: Path = RESULTS) -> list[Path]:
    """Draw whatever results there are; returns the pictures."""
    drawn: dict[str, dict[str, str]] = {}
    for name in STUDIES:
        if (folder / f"{name}.json").exists():
            study = _read(folder, name)
            drawn[name] = of_synthetic(study)
            if "front" in study:
                drawn[name]["front"] = front(study, highest=4.5)
    for name, title in (("mnist", "Barcode MNIST"), ("text-from-scratch", "text from scratch")):
        if (folder / f"{name}.json").exists():
            study = _read(folder, name)
            drawn[name] = of_trainings(study, title, study["group names"])
    if (folder / "text.json").exists():
        for name, study in _read(folder, "text").items():
            n_groups = len(next(iter(study["optimizers"].values()))["runs"][0]["group loss"][0])
            title = f"text, {name}, most frequent tokens first"
            drawn[f"text-{name.replace(' ', '-')}"] = of_trainings(
                study, title, [f"group {k + 1}" for k in range(n_groups)]
            )
    written = []
    for name, pictures in drawn.items():
        for what, markup in pictures.items():
            written.append(folder / f"{name}-{what}.svg")
            written[-1].write_text(markup, encoding="utf-8")
    return written


def _read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found

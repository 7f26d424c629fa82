"""The synthetic study as tables: both criteria, all groups, from what the claims stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from papers.heavy_tail.synthetic import RESULTS

STUDIES = ("synthetic", "pair-10-10", "pair-1-5", "pair-10-5")
_CRITERIA = {"loss": "at the lowest training loss", "rarest": "at the best accuracy on the rarest classes"}


def to_markdown(study: dict[str, Any]) -> str:
    """Tables of a study: accuracy in percent by class size, each optimizer as a criterion chose it; and the reach."""
    sizes = study["class sizes"]
    lines = [f"## {study['problem']}: {study['steps'][-1]} steps, ε = {study['epsilon'][-1]:.2f}", ""]
    for criterion, words in _CRITERIA.items():
        lines += [
            f"Each {words}; means over {len(study['seeds'])} seeds.",
            "",
            f"| | loss | {' | '.join(f'{size}' for size in sizes)} | rarest, by seed | rarest loss | effective rate "
            "| lr | constant | settings tried |",
            "|---" * (len(sizes) + 8) + "|",
        ]
        for name, found in study["optimizers"].items():
            run = found[criterion]
            cells = [f"{sum(run['loss']) / len(run['loss']):.3f}"]
            cells += [f"{100 * accuracy:.1f}" for accuracy in run["group accuracy"]]
            cells += [_percents(run["rarest accuracy by seed"]), f"{run['group loss'][-1]:.2f}"]
            cells += [f"{run[key]:.3g}" for key in ("effective rate", "lr", "constant")]
            tried = f"{len(found['tried'])}{'' if found['resolved'] else ', not resolved'}"
            lines.append(f"| {name} | {' | '.join(cells)} | {tried} |")
        lines.append("")
    return "\n".join([*lines, *(_reach(study["reach"]) if "reach" in study else ())])


def _reach(reach: dict[str, dict[str, list[float]]]) -> list[str]:
    """What each optimizer can reach at a loss, and how far DP-AdamBC is ahead of DP-GDM on the same seeds."""
    losses = list(reach["DP-GD"])
    lines = [
        "Rarest accuracy in reach at no more than a training loss, at the end of runs over a sweep of rates: mean and "
        "standard deviation over seeds.",
        "",
        f"| | {' | '.join(losses)} |",
        "|---" * (len(losses) + 1) + "|",
    ]
    for name, by_loss in reach.items():
        lines.append(f"| {name} | {' | '.join(_spread(by_loss[loss]) for loss in losses)} |")
    ahead = [np.subtract(reach["DP-AdamBC"][loss], reach["DP-GDM"][loss]) for loss in losses]
    lines.append(f"| DP-AdamBC less DP-GDM | {' | '.join(_spread(gap) for gap in ahead)} |")
    return [*lines, ""]


def _spread(values: Any) -> str:
    return f"{100 * np.mean(values):.2f} ± {100 * np.std(values, ddof=1):.2f}"


def _percents(values: Any) -> str:
    return ", ".join(f"{100 * value:.1f}" for value in values)


def write_all(folder: Path = RESULTS) -> Path:
    """Write the tables of whatever results there are."""
    parts = [
        "# The synthetic set",
        "",
        "Computed from raw data with seeded noise: not for release. Accuracies in percent.",
        "",
    ]
    for name in STUDIES:
        if (folder / f"{name}.json").exists():
            parts.append(to_markdown(json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))))
    path = folder / "synthetic.md"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path

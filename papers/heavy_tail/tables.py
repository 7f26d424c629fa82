"""The synthetic study as tables: both criteria, all groups, from what the claims stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from papers.heavy_tail.synthetic import RESULTS

STUDIES = ("synthetic", "pair-10-10", "pair-1-5", "pair-10-5")
_CRITERIA = {"loss": "at the lowest training loss", "rarest": "at the best accuracy on the rarest classes"}


def to_markdown(study: dict[str, Any]) -> str:
    """Two tables of a study: accuracy in percent by class size, each optimizer as a criterion chose it."""
    sizes = study["class sizes"]
    lines = [f"## {study['problem']}: {study['steps'][-1]} steps, ε = {study['epsilon'][-1]:.2f}", ""]
    for criterion, words in _CRITERIA.items():
        lines += [
            f"Each {words}; means over {len(study['optimizers']['DP-GD'][criterion]['loss'])} seeds.",
            "",
            f"| | loss | {' | '.join(f'{size}' for size in sizes)} | rarest, by seed | rarest loss | rate | constant |",
            "|---" * (len(sizes) + 6) + "|",
        ]
        for name, by_criterion in study["optimizers"].items():
            run = by_criterion[criterion]
            cells = [f"{sum(run['loss']) / len(run['loss']):.3f}"]
            cells += [f"{100 * accuracy:.1f}" for accuracy in run["group accuracy"]]
            cells += [", ".join(f"{100 * value:.1f}" for value in run["rarest accuracy by seed"])]
            cells += [f"{run['group loss'][-1]:.2f}", _marked(run, "lr", "rate"), _marked(run, "constant", "constant")]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _marked(run: dict[str, Any], key: str, what: str) -> str:
    """A setting, with a star where it is the first or the last of those tried."""
    return f"{run[key]:g}{'*' if run.get(f'{what} at the edge of the grid') else ''}"


def write_all(folder: Path = RESULTS) -> Path:
    """Write the tables of whatever results there are."""
    parts = [
        "# The synthetic set",
        "",
        "Computed from raw data with seeded noise: not for release. A star marks a setting at the edge of its grid.",
        "",
    ]
    for name in STUDIES:
        if (folder / f"{name}.json").exists():
            parts.append(to_markdown(json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))))
    path = folder / "synthetic.md"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path

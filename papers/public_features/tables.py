"""Tables of the paper's experiments in Markdown, from the stored results of the claims; `time_report` has its own.

python -m papers.public_features tables
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.claim import RESULTS
from papers.public_features import cost

HERE = Path(__file__).parent / "results"


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def scaling(stored: dict[str, Any]) -> str:
    """Excess risk against p, with slopes."""
    settings, slopes = stored["settings"], stored["value"]["p"]
    rows = [[name, *values, slopes[name]] for name, values in settings["risks"].items()]
    text = f"# Excess risk against the number of features\n\nm = {settings['items']} items, noise multiplier "
    text += (
        f"{settings['noise_multiplier']:g}; ball: ‖θ‖ bounded and active; items: max ‖θᵀx‖ bounded; none: no bound.\n\n"
    )
    text += markdown(["method, constraint", *[f"p = {p}" for p in settings["features"]], "slope"], rows)
    slopes_in_items = ", ".join(f"{name} {value:.2f}" for name, value in stored["value"]["m"].items())
    return text + f"\nSlopes in m under the ball: {slopes_in_items}.\n"


def comparison(stored: dict[str, Any]) -> str:
    """Rows of the comparison, overall and by slice (fig. 1, 2, 4, 8, 9)."""
    settings = stored["settings"]
    text = f"# MovieLens 1M with genre and year\n\nMean over {len(settings['noise_seeds'])} noise seeds (standard "
    text += "deviation), δ = 1e-5; slices of a fifth of the movies each, rarest first.\n"
    for kind in stored["value"]:
        metric = "RMSE" if kind == "ratings" else "Recall@20"
        text += f"\n## {kind}, {metric}\n\n" + _sliced(stored, kind, settings["by_slice"][kind])
        if kind in settings["within_slices"]:
            users = ", ".join(map(str, settings["users with targets by slice"][kind]))
            text += f"\n### {kind}, {metric} within slices\n\nEvery slice is ranked alone; {users} users have targets "
            text += "there.\n\n"
            text += _sliced(
                stored, kind, settings["within_slices"][kind], settings["standard_deviations_by_slice"][kind]
            )
        failed = [name for name, passed in settings["checks"][kind].items() if not passed]
        text += f"\nNot held: {', '.join(failed) or 'nothing'}.\n"
    failed = [name for name, passed in settings["checks by the whole catalogue"].items() if not passed]
    return text + f"\nBy Recall@20 over the whole catalogue, not held for clicks: {', '.join(failed) or 'nothing'}.\n"


def _sliced(
    stored: dict[str, Any], kind: str, slices: dict[str, Any], spreads_by_slice: dict[str, Any] | None = None
) -> str:
    spreads = stored["settings"]["standard_deviations"][kind]
    rows = []
    for name, by in stored["value"][kind].items():
        for e, figure in by.items():
            cells = [f"{held[name][e]:.4f}" for held in slices.values()]
            if spreads_by_slice:
                cells = [
                    f"{cell} ({held[name][e]:.4f})" for cell, held in zip(cells, spreads_by_slice.values(), strict=True)
                ]
            rows.append([name, e, f"{figure:.4f} ({spreads[name][e]:.4f})", *cells])
    return markdown(["row", "ε", "overall", *slices], rows)


def ratios() -> str:
    """Fig. 5 and 6 by formula."""
    shares = cost.power_law(1000, 1.0)
    rows = [[size, f"{cost.visits(shares, 10**6, size):.1f}"] for size in (1, 100, 1000, 10_000, 100_000, 10**6)]
    text = "# The cost law by formula (eq. 9)\n\n10⁶ examples, 1000 items, counts falling as 1/rank.\n\n"
    text += markdown(["batch size", "batches an item is in, per epoch"], rows)
    text += "\nCost of SSP-c over that of DP-SGD, d = 32:\n\n"
    return text + markdown(["encoder", "batch size", "1 epoch", "10", "100", "1000"], cost.table_of_ratios())


def write(folder: Path = HERE) -> list[Path]:
    """Write what there are results for; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"scaling": scaling, "ml1m": comparison}
    written = []
    for name, table in made.items():
        source = RESULTS / f"features-{name}.json"
        if source.exists():
            path = folder / f"{name}.md"
            path.write_text(table(json.loads(source.read_text(encoding="utf-8"))), encoding="utf-8")
            written.append(path)
    (folder / "cost.md").write_text(ratios(), encoding="utf-8")
    return [*written, folder / "cost.md"]


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

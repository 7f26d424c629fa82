"""Quality against the exponent of the weights on MovieLens 1M (fig. 3, 9), with the settings of the main study.

For both updates: weights that are normalised per user, weights that are only clipped (eq. 12), the joint allocation.
Settings were tuned for normalised weights at each ε on the validation part, so the comparison leans towards those. Mean
± standard deviation over noise seeds on the test part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apportion.data import Interactions
from apportion.evaluation import StudyResults, run_study
from papers.skew import movielens

CHOICES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0)


def run(
    found: StudyResults,
    data: Interactions,
    folder: Path,
    epsilons: Sequence[float],
    processes: int = 2,
    choices: Sequence[float] = CHOICES,
) -> dict[float, StudyResults]:
    """One study for each ε, in a folder of its own."""
    return {
        epsilon: run_study(
            movielens.exponents(found, epsilon, choices), data, folder / f"epsilon-{epsilon:g}", processes=processes
        )
        for epsilon in epsilons
    }


def to_markdown(kind: str, by_epsilon: dict[float, StudyResults]) -> str:
    """A table for each ε: a row per update and kind of weights, a column per exponent."""
    first = next(iter(by_epsilon.values()))
    metric = first.study.metrics[0]
    lines = [f"# {metric.upper() if kind == 'ratings' else metric} on MovieLens 1M {kind} against the exponent", ""]
    lines += [
        "Computed from raw data with seeded noise: not for release. " + " ".join((__doc__ or "").split("\n")[2:5])
    ]
    for epsilon, results in by_epsilon.items():
        exponents = sorted(
            {cell.combination.settings["allocation.exponent"] for cell in results.cells if cell.combination.settings}
        )
        lines += ["", f"## ε = {epsilon:g}", "", "| weights | " + " | ".join(f"{e:g}" for e in exponents) + " |"]
        lines.append("|---|" + "---|" * len(exponents))
        for method in dict.fromkeys(cell.combination.method for cell in results.cells):
            cells = [cell for cell in results.cells if cell.combination.method == method]
            shown = {cell.combination.settings.get("allocation.exponent"): cell.figure(metric) for cell in cells}
            texts = []
            for exponent in exponents:
                figure = shown.get(exponent, shown.get(None))
                texts.append("-" if figure is None else f"{figure.mean:.4f}±{figure.stddev or 0:.4f}")
            if None in shown:
                texts = [texts[0], *["" for _ in texts[1:]]]
            lines.append(f"| {method} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"

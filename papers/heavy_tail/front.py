"""What each optimizer can reach, however it is tuned: rarest accuracy against training loss over a sweep of rates.

All optimizers run at the same effective rates, DP-AdamBC at three constants, on seeds that nothing was tuned on. A
point is a run's last look. Along a sweep points are joined by straight lines, and an optimizer's *reach* at a loss is
the best rarest accuracy on any of its lines at no more than that loss, for each seed by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.heavy_tail.many_runs import rounded
from papers.heavy_tail.search import PARTS, Place
from papers.heavy_tail.synthetic import Bench
from papers.heavy_tail.updates import OPTIMIZERS

RATES = range(0, 21, 4)  # at noise 10: effective rates of 1 to 5.7, in steps of √2
CONSTANTS = {"DP-GD": (0,), "DP-GDM": (0,), "DP-Adam": (-8,), "DP-AdamBC": (-12, -8, -4)}  # eighths of a decade
_PIECES = 200  # of a line between two points

Floats = NDArray[np.float64]


def sweep(
    bench: Bench,
    seeds: Sequence[int],
    rates: Sequence[int] | None = None,
    constants: dict[str, tuple[int, ...]] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """For each optimizer one line for each constant: losses and rarest accuracies at the end, by seed and rate.

    Without rates of its own a sweep takes `RATES`, times (10 / noise)²: rates are larger as steps are fewer.
    """
    if rates is None:
        more = round(2 * PARTS * math.log2(10 / bench.problem.noise_multiplier))
        rates = [rate + more for rate in RATES]
    found: dict[str, list[dict[str, Any]]] = {}
    for name in OPTIMIZERS:
        found[name] = []
        for constant in (constants or CONSTANTS)[name]:
            places = [Place(rate, constant) for rate in rates]
            runs = bench.curves(name, places, seeds)
            found[name].append(
                {
                    "constant": bench.setting(name, places[0]).constant,
                    "effective rate": rounded([place.effective_rate for place in places]),
                    "loss": rounded([[run.loss[0, -1] for run in by_seed] for by_seed in zip(*runs, strict=True)]),
                    "rarest accuracy": rounded(
                        [[run.group_accuracy[0, -1, -1] for run in by_seed] for by_seed in zip(*runs, strict=True)]
                    ),
                }
            )
    return found


def reach(lines: Sequence[dict[str, Any]], loss: float) -> list[float]:
    """By seed, the best rarest accuracy of an optimizer at no more than this loss; 0 where it does not come there."""
    n_seeds = len(lines[0]["loss"])
    best = np.zeros(n_seeds)
    for line, seed in itertools.product(lines, range(n_seeds)):
        losses, accuracies = _fine(line["loss"][seed], line["rarest accuracy"][seed])
        within = accuracies[losses <= loss]
        best[seed] = max(best[seed], within.max(initial=0.0))
    found: list[float] = rounded(best)
    return found


def reaches(fronts: dict[str, list[dict[str, Any]]], losses: Sequence[float]) -> dict[str, dict[str, list[float]]]:
    """The reach of every optimizer at some losses, by seed; and that of DP-AdamBC at each of its constants."""
    members = {**fronts, **dict(_by_constant("DP-AdamBC", fronts["DP-AdamBC"]))}
    return {name: {f"{loss:g}": reach(lines, loss) for loss in losses} for name, lines in members.items()}


def _by_constant(name: str, lines: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for line in lines:
        yield f"{name}, constant {line['constant']:.2g}", [line]


def _fine(losses: Sequence[float], accuracies: Sequence[float]) -> tuple[Floats, Floats]:
    """Points of the broken line through a sweep."""
    at = np.linspace(0, len(losses) - 1, _PIECES * (len(losses) - 1) + 1)
    places = np.arange(len(losses))
    return np.interp(at, places, losses), np.interp(at, places, accuracies)

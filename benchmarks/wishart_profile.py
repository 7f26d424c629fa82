"""Claim: the exact (ε, δ) profile of additive Wishart noise is what simulated releases show.

For a grid of dimensions, degrees of freedom, scales and ε, matrices are drawn with and without a task whose model is at
the bound of its norm, beside other tasks. δ in each direction is the difference of two probabilities of the best
attacker's set; exact binomial intervals of both give an interval of δ, which must hold the formula's value. A profile
with one degree of freedom more must fall outside somewhere: the intervals are narrow enough to see it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.likelihood import lower_proportion, upper_proportion
from apportion.linalg.packed import pack, unpack
from apportion.privacy import SeededNoise
from apportion.published.model_protection import wishart
from benchmarks.claim import Outcome, print_table

Floats = NDArray[np.float64]

DIMENSIONS, SPARE, SHIFTS, EPSILONS = (1, 3, 10), (3, 8, 40), (0.5, 3.0, 12.0), (0.0, 0.3, 1.0, 3.0)
QUICK_DIMENSIONS, QUICK_SPARE, QUICK_SHIFTS = (1, 3), (3, 8), (3.0,)
DRAWS, QUICK_DRAWS = 30_000, 4_000
FALSE_ALARM = 1e-3  # of the whole claim
NORM = 1.5


@dataclass(frozen=True)
class Cell:
    """One comparison.

    Attributes:
        where: dimension, spare degrees, c = K²/s, ε and direction.
        exact: δ by the formula.
        low: lower end of what simulation allows.
        high: upper end.
        wrong: δ by the formula for one degree of freedom more.
    """

    where: tuple[int, int, float, float, str]
    exact: float
    low: float
    high: float
    wrong: float

    @property
    def agrees(self) -> bool:
        """Whether the formula is within."""
        return self.low <= self.exact <= self.high

    @property
    def sees(self) -> bool:
        """Whether the wrong formula is not."""
        return not self.low <= self.wrong <= self.high


def measure(quick: bool) -> Outcome:
    """Compare on the whole grid."""
    grid = (QUICK_DIMENSIONS, QUICK_SPARE, QUICK_SHIFTS) if quick else (DIMENSIONS, SPARE, SHIFTS)
    draws, n_cells = QUICK_DRAWS if quick else DRAWS, 2 * len(EPSILONS) * math.prod(map(len, grid))
    cells = [
        cell
        for seed, (dimension, spare, shift) in enumerate(itertools.product(*grid))
        for cell in compared(dimension, spare, shift, draws, FALSE_ALARM / n_cells, seed)
    ]
    shown = [[*c.where, c.exact, c.low, c.high] for c in cells if c.where[3] == 1.0]
    print_table(["d", "spare degrees", "K^2/s", "epsilon", "direction", "delta", "at least", "at most"], shown)
    agree, seen = sum(cell.agrees for cell in cells), sum(cell.sees for cell in cells)
    width = max(cell.high - cell.low for cell in cells if cell.where[3] == 0.0)
    return Outcome(
        value={"cells": len(cells), "agree": agree, "reject_one_degree_more": seen, "widest_interval": round(width, 4)},
        target={"agree": len(cells), "reject_one_degree_more": "at least 1"},
        holds=agree == len(cells) and seen > 0,
        headline=f"the exact profile of additive Wishart noise agrees with simulation in {agree} of {len(cells)} "
        f"settings (dimension, degrees of freedom, scale, ε, direction); {seen} of them reject one degree more",
        settings={
            "draws": draws,
            "false_alarm": FALSE_ALARM,
            "epsilons": list(EPSILONS),
            "grid": [list(g) for g in grid],
        },
    )


def compared(dimension: int, spare: int, shift: float, draws: int, alpha: float, seed: int) -> Iterator[Cell]:
    """Both directions at every ε, from the same draws; alpha is the chance that one interval is wrong."""
    absent, present = (simulated(dimension, spare, shift, there, draws, seed) for there in (False, True))
    for epsilon in EPSILONS:
        growth, power = math.exp(epsilon), spare / 2 - 1
        edge = shift / -math.expm1(-(epsilon + shift / 2) / power)
        yield Cell(
            (dimension, spare, shift, epsilon, "absent"),
            wishart.absent_delta(epsilon, 1 / shift, spare),
            *_interval(absent <= edge, present <= edge, growth, alpha),
            wishart.absent_delta(epsilon, 1 / shift, spare + 1),
        )
        edge = shift / -math.expm1((epsilon - shift / 2) / power) if epsilon < shift / 2 else math.inf
        yield Cell(
            (dimension, spare, shift, epsilon, "present"),
            wishart.present_delta(epsilon, 1 / shift, spare),
            *_interval(present > edge, absent > edge, growth, alpha),
            wishart.present_delta(epsilon, 1 / shift, spare + 1),
        )


def simulated(dimension: int, spare: int, shift: float, present: bool, draws: int, seed: int) -> Floats:
    """The attacker's statistic K² / (s wᵀ Σ⁻¹ w) of released matrices, the other tasks' part taken away."""
    rng = np.random.default_rng([seed, 1])
    models = rng.standard_normal((4, dimension))
    models *= NORM / np.linalg.norm(models, axis=1, keepdims=True)
    model, others = models[0], models[1:].T @ models[1:]
    total = pack(others + present * np.outer(model, model))
    noise, scale = SeededNoise(2 * seed + present), NORM**2 / shift
    released = np.stack([wishart.add_wishart(total, scale, spare + dimension - 1, noise) for _ in range(draws)])
    solved = np.linalg.solve(unpack(released) - others, np.broadcast_to(model[:, None], (draws, dimension, 1)))
    return np.asarray(shift / (model @ solved)[:, 0])


def _interval(hits: NDArray[np.bool_], other: NDArray[np.bool_], growth: float, alpha: float) -> tuple[float, float]:
    """Of the first probability less e^ε times the second."""
    n, one, two = len(hits), int(hits.sum()), int(other.sum())
    low = lower_proportion(one, n, alpha / 4) - growth * upper_proportion(two, n, alpha / 4)
    return low, upper_proportion(one, n, alpha / 4) - growth * lower_proportion(two, n, alpha / 4)

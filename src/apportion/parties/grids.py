"""The grids that a party averages over: the ratio r of its prior and the factor f of its centre, with their priors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RATIOS = np.exp(np.linspace(np.log(1e-2), np.log(1e5), 24))  # r t: variance explained over variance left
_SCORE_VARIANCES = np.exp(np.linspace(np.log(0.05), np.log(50.0), 8))  # r t of scores of two classes
NEAR = np.exp(np.linspace(np.log(1e-4), np.log(1e4), 28))  # r t around a centre
NEAR_SCORES = np.exp(np.linspace(np.log(1e-3), np.log(50.0), 10))  # the same for scores of two classes
_STEPS = np.array([-1.5, -0.75, 0.0, 0.75, 1.5])  # steps of log f, in standard deviations


@dataclass(frozen=True, eq=False)
class Centre:
    """The point around which the models of all parties lie, and how far they lie from it.

    Attributes:
        models: the centre c of each party, [tasks, features], in the units of its own data.
        spread: the typical variance explained by deviations from the centre, over the variance left.
        spread_of_logs: the standard deviation of log r, over parties.
        spread_of_factors: the standard deviation of log f, over parties.
    """

    models: Floats
    spread: float
    spread_of_logs: float
    spread_of_factors: float


@dataclass(frozen=True, eq=False)
class Grid:
    """Values of r t and of f that are averaged over, and the log weights of all pairs, [f, r].

    Attributes:
        ratios: r t.
        factors: f.
        logs: log weights, up to a constant that all grids of a loss have in common.
    """

    ratios: Floats
    factors: Floats
    logs: Floats

    @property
    def total(self) -> float:
        """The log of the sum of all weights."""
        return float(np.logaddexp.reduce(self.logs.ravel()))


def _prior(ratios: Floats) -> Floats:
    """Return the log density of the explained fraction h, Beta(1, ½), on a grid even in log r: log h(1 - h)^½."""
    return np.asarray(np.log(ratios) - 1.5 * np.log1p(ratios))[None, :]


def _even(ratios: Floats) -> Floats:
    """Return the same for a uniform density of h."""
    return np.asarray(np.log(ratios) - 2 * np.log1p(ratios))[None, :]


WIDE = Grid(RATIOS, np.zeros(1), _prior(RATIOS))
SCORES = Grid(_SCORE_VARIANCES, np.zeros(1), _even(_SCORE_VARIANCES))


def grid_about(centre: Centre, ratios: Floats) -> Grid:
    """Return the grid around a spread, with the same sum of weights as the grid without a centre."""
    logs = -0.5 * np.square((np.log(ratios) - np.log(centre.spread)) / centre.spread_of_logs)
    total = (WIDE if ratios is NEAR else SCORES).total
    chances = -0.5 * np.square(_STEPS)
    chances = chances - np.logaddexp.reduce(chances)
    logs = (logs - np.logaddexp.reduce(logs))[None, :] + chances[:, None] + total
    return Grid(ratios, np.exp(centre.spread_of_factors * _STEPS), logs)

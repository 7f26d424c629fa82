"""Rows of the time study, figure 3: what is timed against what, and how the settings were found.

The rule, fixed before anything was timed: AM-DPSGD runs with the settings of the lowest RMSE on the validation part at
ε = 5, whatever time they take; a faster setting within one standard deviation over seeds takes their place. That row
decides. AM-SSP may be set for speed, on the validation part too: the fewest rounds that were found to go below it.
Both have the same users' side, the same encoder and the same first vectors up to their size; items have vectors of
their own in both. Nobody's settings were chosen on the test part, which is what is shown. `results/time.md` has the
figures of the search.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from apportion.data.sparse_rows import SparseRows
from apportion.engines import LocalEngine
from apportion.privacy import SeededNoise
from apportion.published.public_features.encoders import TwoLayerEncoder
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.training import Training
from apportion.published.public_features.user_gradients import DenseEncoder
from papers.public_features import movielens as paper

EPSILON = 5.0
SPEED, DEFAULTS = "AM-SSP, set for speed", "AM-SSP, defaults"
TUNED, EARLIER, MINI_BATCHES = "AM-DPSGD, tuned", "AM-DPSGD, 24 steps", "AM-DPSGD, mini-batches of users"
NAMES = (SPEED, DEFAULTS, TUNED, EARLIER, MINI_BATCHES)

_WIDTHS = {SPEED: 9, DEFAULTS: 6, TUNED: 6, EARLIER: 6, MINI_BATCHES: 6}
_STATISTICS: dict[str, Any] = {"label_bound": 0.85, "gram_share": 0.03}
_MADE: dict[str, dict[str, Any]] = {
    SPEED: {
        "dimension": 8, "rounds": 2, "growth": 3.0, "start_scale": 0.6, "bias_ridge": 4.0, "user_ridge": 2.0,
    },
    DEFAULTS: {},
    TUNED: {
        "rounds": 12, "growth": 0.9, "start_scale": 0.15, "bias_scale": 1.0, "user_norm": 1.25, "counts_share": 0.05,
    },
    EARLIER: paper.RATINGS.gradient_common,
    MINI_BATCHES: {"rounds": 12, "growth": 0.9, "start_scale": 0.15, "bias_scale": 1.0},
}  # fmt: skip
_STEPS: dict[str, dict[str, Any]] = {
    TUNED: {"steps": 4, "clip": 0.3, "rate": 0.01, "own_step": 0.35, "own_clip": 0.75},
    EARLIER: {**paper.RATINGS.gradient, "own_step": paper.OWN_STEP["ratings"]},
    MINI_BATCHES: {
        "steps": 16, "clip": 0.3, "rate": 0.005, "own_step": 0.35, "own_clip": 0.75, "sampling": 0.1,
    },
}  # fmt: skip
WIDER = {"rounds": 3, "growth": 2.0}  # AM-SSP with a larger encoder, which takes a third round
_WIDE_RATE, _WIDEST_RATE = 0.01, 0.005  # of Adam there, and where people are among the features


def steps_of(name: str) -> tuple[int, int]:
    """Rounds, and steps in each, of a row of AM-DPSGD."""
    return _MADE[name]["rounds"], _STEPS[name]["steps"]


def estimator(
    name: str,
    rows: SparseRows,
    seed: int,
    *,
    hidden: int | None = None,
    module: bool = False,
    only: int | None = None,
    chunk: int = 200_000,
) -> EncoderMinimisation:
    """The row's estimator, on one thread.

    Args:
        name: one of `NAMES`.
        rows: features of the items.
        seed: of the noise, and of the encoder's first parameters: some starts are luckier than others.
        hidden: width of the encoder's hidden layer, if larger than that of its output.
        module: a module of one's own instead, with a hidden layer of that width and hyperbolic tangents: no shortcut
            for its gradients is known, so that they go through Opacus.
        only: rounds of one step each, to time a step of AM-DPSGD.
        chunk: observations worked on at once.
    """
    torch.manual_seed(seed)
    given, width = dict(_MADE[name]), _WIDTHS[name]
    encoder = _module(rows, hidden or width, width) if module else _two_layers(name, rows, width, hidden)
    if name in _STEPS:
        update: Any = EncoderGradient(encoder, **(_STEPS[name] | ({"steps": 1} if only else {})))
        given |= {"rounds": only} if only else {}
    elif name == DEFAULTS:
        update = EncoderStatistics(encoder)
    else:
        larger = hidden is not None or rows.n_columns > 1000
        rate = _WIDEST_RATE if rows.n_columns > 1000 else _WIDE_RATE if larger else 0.05
        update = EncoderStatistics(encoder, Training(epochs=8, batch_size=None, rate=rate), **_STATISTICS)
        given |= WIDER if larger else {}
    engine = LocalEngine(threads=1, chunk=chunk)
    return EncoderMinimisation(
        EPSILON, paper.DELTA, features=rows, update=update, noise=SeededNoise(seed), engine=engine, **given
    )


def _two_layers(name: str, rows: SparseRows, width: int, hidden: int | None) -> TwoLayerEncoder:
    """The paper's encoder; a table that is small, or whose gradient is released whole, has a dense one."""
    sparse = name in (SPEED, DEFAULTS) and rows.n_columns > 1000
    return TwoLayerEncoder(rows.groups, width, hidden=hidden, sparse=sparse)


def _module(rows: SparseRows, hidden: int, width: int) -> DenseEncoder:
    return DenseEncoder(nn.Sequential(nn.Linear(rows.n_columns, hidden), nn.Tanh(), nn.Linear(hidden, width)))

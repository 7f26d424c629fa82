"""Claim: what DP-AdamBC takes for the second moment has no bias, also where the noise changes from step to step.

Every coordinate of a large parameter has the same gradient, so each is one draw. Gradients are released by a session,
with a clip norm that moves at every step, and the optimizer is told what noise they carry. E[v̂ − n̂] must be the
squared gradient: the mean over all coordinates is to be within 5 standard errors of it (a false alarm once in 1.7
million), where the second moment without the correction is far outside.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from apportion.privacy import Budget, SeededNoise, Session
from benchmarks.claim import Outcome, print_table
from benchmarks.heavytail_synthetic import need_torch

SEEDS = range(5)
ERRORS = 5.0  # standard errors
BETAS = (0.9, 0.99)
CORRECTED = "largest error of v̂ − n̂, in standard errors"
UNCORRECTED = "least error of v̂, in standard errors"


def measure(quick: bool) -> Outcome:
    """Measure the bias of both estimates, in standard errors."""
    need_torch()
    width, steps = (8_000, 10) if quick else (50_000, 40)
    rows = [[seed, epsilon, *_run(width, steps, epsilon, seed)] for epsilon in (1.0, 8.0) for seed in SEEDS]
    print_table(["seed", "epsilon", "squared gradient", "v̂ − n̂", "its error / s.e.", "v̂ without / s.e."], rows)
    worst, uncorrected = max(abs(row[4]) for row in rows), min(row[5] for row in rows)
    return Outcome(
        value={CORRECTED: worst, UNCORRECTED: uncorrected},
        target={CORRECTED: ERRORS, UNCORRECTED: f"above {10 * ERRORS:g}"},
        holds=worst <= ERRORS and uncorrected > 10 * ERRORS,
        headline=f"DP-AdamBC's second moment over {width:,} draws: within {worst:.1f} standard errors of the noiseless "
        f"one (uncorrected: {uncorrected:,.0f})",
        settings={"coordinates": width, "steps": steps, "betas": BETAS, "seeds": f"0 to {SEEDS.stop - 1}"},
    )


def _run(width: int, steps: int, epsilon: float, seed: int) -> tuple[float, float, float, float]:
    """Squared gradient, its estimate, and the errors of the estimate with and without the correction."""
    import torch
    from torch import nn

    from apportion.training import DPAdamBC, PrivateGradients, QuantileClip, UserRows

    n_users, size = 100, 1e-3
    module = nn.Linear(width, 1, bias=False).double()
    inputs = torch.full((n_users, width), size, dtype=torch.float64)
    units = UserRows(inputs, torch.zeros(n_users), np.arange(n_users))
    session = Session(Budget(epsilon, 1e-5), noise=SeededNoise(seed))
    clip = QuantileClip(2 * size * math.sqrt(width), quantile=0.2, rate=0.05, smallest=size * math.sqrt(width) * 1.01)
    gradients = PrivateGradients(
        module, lambda out, _: out[:, 0], units, session, steps=steps, n_units=n_users, clip=clip, rows_at_once=100
    )
    optimizer = DPAdamBC(module.parameters(), 0.0, betas=BETAS)
    variances = []
    for _ in range(steps):
        variances.append(gradients.fill(optimizer).variance)
        optimizer.step()
    return _compared(optimizer, module.weight, size**2, np.array(variances))


def _compared(optimizer: Any, weight: Any, square: float, variances: Any) -> tuple[float, float, float, float]:
    weights = BETAS[1] ** np.arange(len(variances))[::-1]
    weights /= weights.sum()
    spread = 4 * square * variances + 2 * variances**2  # of (g + z)², z normal
    error = math.sqrt(float((weights**2 * spread).sum()) / weight.numel())
    found = float(optimizer.second_moment(weight).mean())
    without = found + float((weights * variances).sum())
    return square, found, round((found - square) / error, 2), round((without - square) / error, 1)

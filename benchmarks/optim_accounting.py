"""Claim: the ε of a training's statement is dp_accounting's for the same events, and empty batches are steps.

Trainings with full and with Poisson batches, of users and of examples. Their events are rebuilt from what the statement
says (noise over sensitivity, probability, number of releases) as dp_accounting's own, and composed by its own
accountant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from apportion.privacy import Budget, SeededNoise, Session, Statement
from benchmarks.claim import Outcome, print_table
from benchmarks.heavytail_synthetic import need_torch

MOST = 0.005  # relative: grids of the privacy loss differ
CASES = ((1.0, 20, 2.0), (0.1, 50, 1.0), (0.02, 200, 4.0), (0.3, 10, 8.0), (0.005, 400, 1.0))
DELTA = 1e-5


def measure(quick: bool) -> Outcome:
    """Train, and compare every ε."""
    need_torch()
    rows = [_case(*case, by_user=user) for case in (CASES[:2] if quick else CASES) for user in (True, False)]
    print_table(["unit", "sampling", "steps", "empty", "budget", "stated epsilon", "dp_accounting", "apart"], rows)
    apart, empty = max(row[7] for row in rows), sum(row[3] for row in rows)
    within = all(row[5] <= row[4] for row in rows)
    return Outcome(
        value={"largest relative difference": apart, "empty batches": empty, "stated epsilon within budget": within},
        target={
            "largest relative difference": MOST,
            "empty batches": "at least 1",
            "stated epsilon within budget": True,
        },
        holds=apart <= MOST and within and empty > 0,
        headline=f"Stated ε of {len(rows)} trainings is dp_accounting's to {100 * apart:.2f} %; "
        f"{empty} empty Poisson batches were steps like any other",
        settings={"cases (sampling, steps, epsilon)": CASES, "delta": DELTA, "users": 40, "seed": 1},
    )


def _case(sampling: float, steps: int, epsilon: float, *, by_user: bool) -> tuple[Any, ...]:
    import torch
    from torch import nn

    from apportion.training import DPAdamBC, ExampleRows, ExampleSession, PrivateGradients, UserRows

    rng = np.random.default_rng(3)
    inputs, targets = torch.as_tensor(rng.standard_normal((40, 3))), torch.as_tensor(rng.integers(0, 2, 40))
    units = UserRows(inputs, targets, np.arange(40) // 2) if by_user else ExampleRows(inputs, targets)
    session = (Session if by_user else ExampleSession)(Budget(epsilon, DELTA), noise=SeededNoise(1))
    module = nn.Linear(3, 2).double()
    way = _Counting(module)
    gradients = PrivateGradients(module, way.loss, units, session, steps=steps, sampling=sampling, n_units=40, way=way)
    optimizer = DPAdamBC(module.parameters(), 0.01)
    empty = 0
    for _ in range(steps):
        before = way.batches
        gradients.fill(optimizer)
        empty += way.batches == before
        optimizer.step()
    stated = session.statement()
    reference = _reference(stated, sampling)
    apart = abs(stated.spent_epsilon - reference) / reference
    return stated.unit.split(":")[0], sampling, steps, empty, epsilon, stated.spent_epsilon, reference, apart


class _Counting:
    """Counts the batches that have anybody in them."""

    def __init__(self, module: Any) -> None:
        from apportion.training.layers import LayerFactors
        from papers.heavy_tail.models import loss_per_row

        self.loss = loss_per_row
        self.batches = 0
        self._way = LayerFactors(module, loss_per_row)

    def blocks(self, inputs: Any, targets: Any, offsets: Any) -> Any:
        self.batches += 1
        return self._way.blocks(inputs, targets, offsets)


def _reference(stated: Statement, sampling: float) -> float:
    """ε by dp_accounting's accountant, of events made from the releases as stated."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    multipliers = [release.stddev / release.sensitivity for release in stated.releases]
    one = dp_accounting.GaussianDpEvent(float(np.mean(multipliers)))
    event = one if sampling == 1 else dp_accounting.PoissonSampledDpEvent(sampling, one)
    accountant.compose(event, len(multipliers))
    return float(accountant.get_epsilon(stated.delta))

"""Alignment of gradients (fig. 1) and the law of section 2, on a private run of the linear model.

The paper draws the cosines of 520 rows' gradients at several steps; `alignment.py` does that. Here their means within
and across classes are a table, with the law's predictions of each class's gradient and curvature beside what they are,
the fraction of rows whose gradients are clipped, and the length of a step's noise over what each group adds to it. All
of it is computed from raw data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from apportion.training import AddedNoise
from apportion.training.clipped_units import WatchedRows, clip_factors, noise_to_signal
from apportion.training.clipping import ComingStep
from apportion.training.diagnostics import Alignment, class_law, gradient_alignment
from papers.heavy_tail.long_tail import LongTail, long_tail
from papers.heavy_tail.many_runs import ManyRuns
from papers.heavy_tail.models import loss_per_row
from papers.heavy_tail.updates import Setting

ROWS = 520
STEPS = (0, 20, 100, 300)


@dataclass(frozen=True, eq=False)
class Look:
    """One optimizer after some steps: the module, and how the gradients of the chosen rows are aligned."""

    optimizer: str
    taken: int
    module: nn.Linear
    alignment: Alignment


@dataclass(frozen=True, eq=False)
class Looks:
    """What a table and a picture are made of."""

    data: LongTail
    noise_multiplier: float
    each: list[Look]


def looked(
    n_groups: int = 6, smallest: int = 8, steps: tuple[int, ...] = STEPS, noise_multiplier: float = 5.0
) -> Looks:
    """Private runs of DP-GD and DP-AdamBC, looked at after each of these numbers of steps."""
    data = long_tail(n_groups, smallest)
    chosen = np.sort(np.random.default_rng(0).permutation(len(data.labels))[:ROWS])
    rows = torch.as_tensor(data.inputs[chosen]), torch.as_tensor(data.labels[chosen])
    each = []
    for setting in (Setting("DP-GD", 1.0), Setting("DP-AdamBC", 0.002, 1.0)):
        for taken in steps:
            runs = ManyRuns(data, [setting], 1.0, noise_multiplier, (1,), "cpu")
            runs.run(taken, max(taken, 1))
            module = _linear(runs.weights[:, 0].T.contiguous())
            each.append(Look(setting.optimizer, taken, module, gradient_alignment(module, loss_per_row, *rows)))
    return Looks(data, noise_multiplier, each)


def table(looks: Looks) -> str:
    """Markdown: cosines within and across classes, ratios to the law by group, what is clipped, noise over signal."""
    data = looks.data
    lines = [
        f"{len(data.labels)} rows, {data.n_classes} classes of {data.sizes[0]} to {data.sizes[-1]} rows; C = 1, noise "
        f"{looks.noise_multiplier:g}. Computed from raw data with seeded noise: not for release.",
        "",
        "| optimizer | steps | cosine within a class | across | gradient over law, by group | curvature over law "
        "| clipped | noise over signal, by group |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for look in looks.each:
        law = class_law(look.module.weight.detach().numpy(), data.inputs, data.labels)
        ratios = (
            _by_group(law.gradient / law.gradient_law, data),
            _by_group(law.curvature / law.curvature_law, data),
        )
        lines.append(
            f"| {look.optimizer} | {look.taken} | {look.alignment.within:.3f} | {look.alignment.across:.3f} | "
            + " | ".join(", ".join(f"{value:.2f}" for value in ratio) for ratio in ratios)
            + " | "
            + _clipped_and_noise(look.module, data, looks.noise_multiplier)
            + " |"
        )
    return "\n".join(lines) + "\n"


def _clipped_and_noise(module: nn.Module, data: Any, noise_multiplier: float) -> str:
    """The fraction of rows that a full-batch step at C = 1 clips, and its noise over each group's part of it."""
    rows = WatchedRows(torch.as_tensor(data.inputs), torch.as_tensor(data.labels), data.groups, None)
    step = ComingStep(1.0, AddedNoise(noise_multiplier, len(data.labels)))
    factors = clip_factors(module, loss_per_row, rows, step)
    ratios = noise_to_signal(module, loss_per_row, rows, len(data.sizes), step, factors)
    return f"{(factors < 1).mean():.2f} | " + ", ".join(f"{ratio:.2g}" for ratio in ratios)


def _linear(weights: torch.Tensor) -> nn.Linear:
    module = nn.Linear(weights.shape[1], weights.shape[0], bias=False)
    with torch.no_grad():
        module.weight.copy_(weights)
    return module


def _by_group(values: Any, data: Any) -> Any:
    """Medians over the classes of each group."""
    of_class = np.zeros(data.n_classes, np.int64)
    of_class[data.labels] = data.groups
    return [float(np.median(values[of_class == group])) for group in range(len(data.sizes))]

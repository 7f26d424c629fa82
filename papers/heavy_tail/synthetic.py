"""The synthetic study: every optimizer tuned alike, the best by training loss and by accuracy on the rarest classes.

Each has 24 settings: four constants (DP-Adam's γ, DP-AdamBC's floor γ') with six half powers of ten as rates, or 24
rates where there is no constant. Everything is chosen on the training data and no ε covers the choice (E18): the curves
compare optimizers, not private procedures. Runs go on to ε = 28 at δ = 1e-5, where the paper stops.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy import gaussian
from papers.heavy_tail.long_tail import LongTail, long_tail
from papers.heavy_tail.many_runs import Curves, ManyRuns, Setting

DELTA = 1e-5
EPSILON = 28.0
OPTIMIZERS = ("DP-GD", "DP-GDM", "DP-Adam", "DP-AdamBC")
N_SETTINGS = 24  # of every optimizer
CONSTANTS = (0.1, 1.0, 10.0, 100.0)
RATES_WITH_CONSTANTS = (1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1)
RATES_ALONE = {"DP-GD": (0.05, 50.0), "DP-GDM": (0.005, 5.0)}  # the first and the last, in equal ratios between
CRITERIA = ("loss", "rarest")
LOOKS = 40  # at a run
RESULTS = Path(__file__).parent / "results"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A clip norm and a noise multiplier, and how many steps they allow."""

    clip_norm: float
    noise_multiplier: float
    steps: int

    @property
    def name(self) -> str:
        """For tables and files."""
        return f"C = {self.clip_norm:g}, noise {self.noise_multiplier:g}"


@dataclass(frozen=True)
class Best:
    """A setting, and where on its way it was best by a criterion.

    Attributes:
        setting: what was chosen.
        step: of the best look.
        loss: of all rows there.
        group_loss: by group.
        group_accuracy: by group.
    """

    setting: Setting
    step: int
    loss: float
    group_loss: Floats
    group_accuracy: Floats


def steps_for(noise_multiplier: float, epsilon: float = EPSILON, delta: float = DELTA) -> int:
    """How many full-batch Gaussian steps of this noise stay within ε.

    >>> steps_for(10.0) / steps_for(5.0) > 3.99
    True
    """
    return int((gaussian.mu_of(epsilon, delta) * noise_multiplier) ** 2)


def epsilon_after(steps: int, noise_multiplier: float, delta: float = DELTA) -> float:
    """ε of so many full-batch steps."""
    return gaussian.epsilon_of(math.sqrt(steps) / noise_multiplier, delta)


def grid(optimizer: str, scale: float, *, brief: bool = False) -> list[Setting]:
    """All settings of an optimizer, equally many for each.

    A constant changes the size of steps, too, so that six rates with four constants make many sizes. Optimizers without
    a constant get as many rates instead, in steps of 1.35.

    Args:
        optimizer: its name.
        scale: rates without constants are divided by this; gradients of a larger clip norm are larger by about as much.
        brief: take the constant 1, or every fourth rate.
    """
    if optimizer in RATES_ALONE:
        rates = np.geomspace(*RATES_ALONE[optimizer], N_SETTINGS) / scale
        return [Setting(optimizer, float(f"{rate:.4g}")) for rate in (rates[::4] if brief else rates)]
    constants = (1.0,) if brief else CONSTANTS
    return [Setting(optimizer, rate, constant) for constant in constants for rate in RATES_WITH_CONSTANTS]


def tuned(
    problem: Problem, data: LongTail, device: str, together: int, seed: int = 0, *, brief: bool = False
) -> dict[str, dict[str, Best]]:
    """The best setting of every optimizer by each criterion, on one seed."""
    found: dict[str, dict[str, Best]] = {}
    for optimizer in OPTIMIZERS:
        settings = grid(optimizer, problem.clip_norm, brief=brief)
        bests = [b for some in _batches(settings, together) for b in _looked(problem, data, device, some, seed)]
        found[optimizer] = {
            "loss": min((b[0] for b in bests), key=lambda b: b.loss),
            "rarest": max((b[1] for b in bests), key=lambda b: float(b.group_accuracy[-1])),
        }
    return found


def _looked(problem: Problem, data: LongTail, device: str, some: list[Setting], seed: int) -> list[tuple[Best, Best]]:
    """For each setting its best look by loss and by the rarest group's accuracy."""
    runs = ManyRuns(data, some, problem.clip_norm, problem.noise_multiplier, seed, device)
    curves = runs.run(problem.steps, max(1, problem.steps // LOOKS))
    return [(best_look(curves, k, s, "loss"), best_look(curves, k, s, "rarest")) for k, s in enumerate(some)]


def best_look(curves: Curves, run: int, setting: Setting, criterion: str) -> Best:
    """Where on its way a run was best; a run that became infinite is as bad as can be there."""
    loss = np.where(np.isfinite(curves.loss[run]), curves.loss[run], np.inf)
    accuracy = np.where(np.isfinite(loss), curves.group_accuracy[run, :, -1], 0.0)
    at = int(loss.argmin()) if criterion == "loss" else int(accuracy.argmax())
    return Best(
        setting,
        int(curves.steps[at]),
        float(loss[at]),
        curves.group_loss[run, at],
        curves.group_accuracy[run, at],
    )


def repeated(
    problem: Problem, data: LongTail, device: str, chosen: dict[str, dict[str, Best]], seeds: range
) -> dict[str, dict[str, list[tuple[Best, Curves]]]]:
    """The chosen settings again on several seeds: each with its best look by its criterion, and its curves."""
    found: dict[str, dict[str, list[tuple[Best, Curves]]]] = {o: {c: [] for c in CRITERIA} for o in chosen}
    for optimizer, by_criterion in chosen.items():
        settings = [by_criterion[c].setting for c in CRITERIA]
        for seed in seeds:
            runs = ManyRuns(data, settings, problem.clip_norm, problem.noise_multiplier, seed, device)
            curves = runs.run(problem.steps, max(1, problem.steps // LOOKS))
            for k, criterion in enumerate(CRITERIA):
                found[optimizer][criterion].append((best_look(curves, k, settings[k], criterion), _one(curves, k)))
    return found


def study(
    problem: Problem, data: LongTail, device: str, *, seeds: range, together: int, brief: bool = False
) -> dict[str, Any]:
    """Tune on the seed before the others, repeat on the others, and sum up by optimizer and criterion."""
    chosen = tuned(problem, data, device, together, seed=seeds.start - 1, brief=brief)
    again = repeated(problem, data, device, chosen, seeds)
    steps = again["DP-GD"]["loss"][0][1].steps
    return {
        "problem": problem.name,
        "steps": [int(s) for s in steps],
        "epsilon": [round(epsilon_after(int(s), problem.noise_multiplier), 4) if s else 0.0 for s in steps],
        "class sizes": list(data.sizes),
        "optimizers": {
            optimizer: {
                criterion: {**_summed(found), **_at_edges(problem, found[0][0].setting)}
                for criterion, found in by_criterion.items()
            }
            for optimizer, by_criterion in again.items()
        },
    }


def _summed(found: list[tuple[Best, Curves]]) -> dict[str, Any]:
    bests, curves = [b for b, _ in found], [c for _, c in found]
    accuracies = np.stack([b.group_accuracy for b in bests])
    return {
        "lr": bests[0].setting.lr,
        "constant": bests[0].setting.constant,
        "steps at best": [b.step for b in bests],
        "loss": [round(b.loss, 4) for b in bests],
        "group accuracy": [round(float(a), 4) for a in accuracies.mean(axis=0)],
        "group accuracy spread": [round(float(a), 4) for a in accuracies.std(axis=0, ddof=min(1, len(bests) - 1))],
        "rarest accuracy by seed": [round(float(a), 4) for a in accuracies[:, -1]],
        "group loss": [round(float(v), 4) for v in np.stack([b.group_loss for b in bests]).mean(axis=0)],
        "curve loss": _rounded(np.mean([c.loss[0] for c in curves], axis=0)),
        "curve group loss": _rounded(np.mean([c.group_loss[0] for c in curves], axis=0)),
        "curve group accuracy": _rounded(np.mean([c.group_accuracy[0] for c in curves], axis=0)),
        "clipped at the end": round(float(np.mean([c.clipped[0, -1] for c in curves])), 4),
    }


def _at_edges(problem: Problem, setting: Setting) -> dict[str, bool]:
    tried = grid(setting.optimizer, problem.clip_norm)
    rates, constants = [s.lr for s in tried], [s.constant for s in tried]
    return {
        "rate at the edge of the grid": setting.lr in (min(rates), max(rates)),
        "constant at the edge of the grid": min(constants) < max(constants)
        and setting.constant in (min(constants), max(constants)),
    }


def _one(curves: Curves, run: int) -> Curves:
    part = slice(run, run + 1)
    return Curves(
        curves.steps, curves.loss[part], curves.group_loss[part], curves.group_accuracy[part], curves.clipped[part]
    )


def _rounded(values: Floats) -> Any:
    return np.round(np.nan_to_num(values, nan=1e9, posinf=1e9), 4).tolist()


def _batches(settings: list[Setting], together: int) -> Iterator[list[Setting]]:
    for first in range(0, len(settings), together):
        yield settings[first : first + together]


def stored(found: dict[str, Any], name: str) -> Path:
    """Write a study's results for the figures."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def full_set(seed: int = 0) -> LongTail:
    """The set of the paper's figures."""
    return long_tail(8, 8, seed)

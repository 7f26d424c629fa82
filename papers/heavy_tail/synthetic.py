"""The synthetic study: every optimizer tuned alike, the best by training loss and by accuracy on the rarest classes.

The procedure, fixed before anything of it was run (the rates and constants of 4 after the first search, before any
sweep):

1. Each optimizer is searched from coarse to fine (`search`) for the setting with the lowest training loss. A setting's
   loss is its lowest one on the way, averaged over three tuning seeds; all optimizers and settings share their noise.
   Momentum and β1 are 0.9, β2 is 0.999. The best setting ends up inside what was tried, its neighbours 9 % away in the
   effective rate, for every optimizer.
2. The other criterion, the best accuracy on the rarest classes, takes its setting from the same runs.
3. What was chosen runs again on five seeds that were not tuned on.
4. `front`: the same effective rates for all four, on those five seeds, for the losses and rarest accuracies that each
   optimizer can reach at the end of its runs, however it is tuned.

Everything is chosen on the training data and no ε covers the choice (E18): the curves compare optimizers, not private
procedures. Runs go on to ε = 28 at δ = 1e-5, where the paper stops.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.privacy import gaussian
from papers.heavy_tail.long_tail import LongTail, long_tail
from papers.heavy_tail.many_runs import Curves, ManyRuns, rounded
from papers.heavy_tail.search import DISTANCES, START_CONSTANTS, Place, Search
from papers.heavy_tail.updates import OPTIMIZERS, Setting, has_constant, setting_for

DELTA = 1e-5
EPSILON = 28.0
TUNING_SEEDS = (101, 102, 103)
CRITERIA = ("loss", "rarest")
LOOKS = 40  # at a run
TOGETHER = 60  # runs side by side at most
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
    """A run, and where on its way it was best by a criterion.

    Attributes:
        step: of the best look.
        loss: of all rows there.
        group_loss: by group.
        group_accuracy: by group.
    """

    step: int
    loss: float
    group_loss: Floats
    group_accuracy: Floats


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        chosen: the place of the best setting, by criterion.
        tried: one entry for each setting: effective rate, constant, and its figures, means over seeds.
        resolved: whether all neighbours of the best were tried.
    """

    chosen: dict[str, Place]
    tried: list[dict[str, float]]
    resolved: bool


def steps_for(noise_multiplier: float, epsilon: float = EPSILON, delta: float = DELTA) -> int:
    """How many full-batch Gaussian steps of this noise stay within ε.

    >>> steps_for(10.0) / steps_for(5.0) > 3.99
    True
    """
    return int((gaussian.mu_of(epsilon, delta) * noise_multiplier) ** 2)


def epsilon_after(steps: int, noise_multiplier: float, delta: float = DELTA) -> float:
    """ε of so many full-batch steps."""
    return gaussian.epsilon_of(math.sqrt(steps) / noise_multiplier, delta)


class Bench:
    """Runs of a problem on a device.

    Args:
        problem: clip norm, noise and steps.
        data: the training rows.
        device: a torch device.
    """

    def __init__(self, problem: Problem, data: LongTail, device: str) -> None:
        self.problem = problem
        self.data = data
        self._device = device

    def setting(self, optimizer: str, place: Place) -> Setting:
        """Gradients of a larger clip norm are larger by about as much, so effective rates are over the clip norm."""
        stddev = self.problem.noise_multiplier * self.problem.clip_norm / len(self.data.labels)
        return setting_for(optimizer, place.effective_rate / self.problem.clip_norm, place.constant_value, stddev)

    def curves(self, optimizer: str, places: Sequence[Place], seeds: Sequence[int]) -> list[list[Curves]]:
        """For each place one run for each seed."""
        found: list[list[Curves]] = []
        at_once = max(1, TOGETHER // len(seeds))
        for first in range(0, len(places), at_once):
            settings = [self.setting(optimizer, place) for place in places[first : first + at_once]]
            problem = self.problem
            runs = ManyRuns(self.data, settings, problem.clip_norm, problem.noise_multiplier, seeds, self._device)
            seen = runs.run(problem.steps, max(1, problem.steps // LOOKS))
            n = len(settings)
            found += [[_one(seen, k * n + m) for k in range(len(seeds))] for m in range(n)]
        return found


def best_look(curves: Curves, criterion: str) -> Best:
    """Where on its way a single run was best; a run that became infinite is as bad as can be there."""
    loss = np.where(np.isfinite(curves.loss[0]), curves.loss[0], np.inf)
    accuracy = np.where(np.isfinite(loss), curves.group_accuracy[0, :, -1], 0.0)
    at = int(loss.argmin()) if criterion == "loss" else int(accuracy.argmax())
    return Best(int(curves.steps[at]), float(loss[at]), curves.group_loss[0, at], curves.group_accuracy[0, at])


def tuned(bench: Bench, optimizer: str, seeds: Sequence[int] = TUNING_SEEDS, *, brief: bool = False) -> Tuned:
    """Search one optimizer; both criteria's settings, and all that was tried."""
    search = Search(
        has_constant(optimizer),
        start_constants=(0,) if brief else START_CONSTANTS,
        distances=DISTANCES[:1] if brief else DISTANCES,
    )
    tried: dict[Place, dict[str, float]] = {}
    while places := search.wanted():
        for place, curves in zip(places, bench.curves(optimizer, places, seeds), strict=True):
            tried[place] = {"effective rate": place.effective_rate, **_figures(curves)}
            if has_constant(optimizer):
                tried[place]["constant"] = place.constant_value
        search.take({place: tried[place]["loss"] for place in places})
    rarest = max(tried, key=lambda place: tried[place]["best rarest accuracy"])
    return Tuned({"loss": search.best, "rarest": rarest}, list(tried.values()), search.resolved)


def _figures(curves: Sequence[Curves]) -> dict[str, float]:
    """Of one setting: means over seeds of its lowest loss, its best rarest accuracy, and both at the end."""
    bests = [(best_look(c, "loss"), best_look(c, "rarest")) for c in curves]
    found = {
        "loss": np.mean([loss.loss for loss, _ in bests]),
        "rarest accuracy there": np.mean([loss.group_accuracy[-1] for loss, _ in bests]),
        "best rarest accuracy": np.mean([rarest.group_accuracy[-1] for _, rarest in bests]),
        "loss at the end": np.mean([c.loss[0, -1] for c in curves]),
        "rarest accuracy at the end": np.mean([c.group_accuracy[0, -1, -1] for c in curves]),
    }
    return {name: rounded(value) for name, value in found.items()}


def study(
    problem: Problem, data: LongTail, device: str, *, seeds: Sequence[int], brief: bool = False
) -> dict[str, Any]:
    """Tune on the tuning seeds, repeat on the others, and sum up by optimizer and criterion."""
    bench = Bench(problem, data, device)
    optimizers: dict[str, Any] = {}
    for name in OPTIMIZERS:
        found = tuned(bench, name, TUNING_SEEDS[:1] if brief else TUNING_SEEDS, brief=brief)
        again = bench.curves(name, [found.chosen[criterion] for criterion in CRITERIA], seeds)
        optimizers[name] = {
            criterion: _summed(bench.setting(name, found.chosen[criterion]), found.chosen[criterion], runs, criterion)
            for criterion, runs in zip(CRITERIA, again, strict=True)
        }
        optimizers[name]["tried"] = found.tried
        optimizers[name]["resolved"] = found.resolved
        steps = again[0][0].steps
    return {
        "problem": problem.name,
        "steps": [int(s) for s in steps],
        "epsilon": [round(epsilon_after(int(s), problem.noise_multiplier), 4) if s else 0.0 for s in steps],
        "class sizes": list(data.sizes),
        "tuning seeds": list(TUNING_SEEDS[:1] if brief else TUNING_SEEDS),
        "seeds": list(seeds),
        "optimizers": optimizers,
    }


def _summed(setting: Setting, place: Place, curves: Sequence[Curves], criterion: str) -> dict[str, Any]:
    bests = [best_look(c, criterion) for c in curves]
    accuracies = np.stack([b.group_accuracy for b in bests])
    return {
        "effective rate": rounded(place.effective_rate),
        "lr": setting.lr,
        "constant": setting.constant,
        "steps at best": [b.step for b in bests],
        "loss": rounded([b.loss for b in bests]),
        "group accuracy": rounded(accuracies.mean(axis=0)),
        "group accuracy spread": rounded(accuracies.std(axis=0, ddof=min(1, len(bests) - 1))),
        "rarest accuracy by seed": rounded(accuracies[:, -1]),
        "group loss": rounded(np.mean([b.group_loss for b in bests], axis=0)),
        "curve loss": rounded(np.mean([c.loss[0] for c in curves], axis=0)),
        "curve group loss": rounded(np.mean([c.group_loss[0] for c in curves], axis=0)),
        "curve group accuracy": rounded(np.mean([c.group_accuracy[0] for c in curves], axis=0)),
        "clipped at the end": rounded(np.mean([c.clipped[0, -1] for c in curves])),
    }


def _one(curves: Curves, run: int) -> Curves:
    part = slice(run, run + 1)
    return Curves(
        curves.steps, curves.loss[part], curves.group_loss[part], curves.group_accuracy[part], curves.clipped[part]
    )


def stored(found: dict[str, Any], name: str) -> Path:
    """Write a study's results for the figures."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def full_set(seed: int = 0) -> LongTail:
    """The set of the paper's figures."""
    return long_tail(8, 8, seed)

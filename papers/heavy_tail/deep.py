"""Trainings of small deep modules, every optimizer tuned by the search of the synthetic study, in small.

A setting's loss is that at the end of its training, on one tuning seed; the search ends when the neighbours of the best
setting are 19 % away in the effective rate. What was chosen runs again on other seeds, as does the setting with the
best rarest accuracy at the end among those tried. Everything is chosen on the training data and no ε covers that (E18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from papers.heavy_tail.many_runs import Curves, rounded
from papers.heavy_tail.many_trainings import ManyTrainings, Privacy, Task
from papers.heavy_tail.search import DISTANCES, START_CONSTANTS, START_RATES, Place, Search
from papers.heavy_tail.updates import OPTIMIZERS, Setting, has_constant, setting_for

CRITERIA = ("loss", "rarest")


@dataclass(frozen=True)
class Plan:
    """How a study trains and tunes.

    Attributes:
        clip_norm: C.
        noise_multiplier: σ.
        sampling: probability with which a row takes part in a step.
        steps: how many steps are taken.
        looks: how often rows are scored.
        tuning_seed: of the search.
        seeds: of what was chosen.
        start_rates: of the search, in eighths of a factor of 2.
        start_constants: in eighths of a factor of 10.
        distances: from coarse to fine.
        together: runs side by side at most.
        rows_at_once: rows whose gradients are held at a time.
    """

    clip_norm: float
    noise_multiplier: float
    sampling: float
    steps: int
    looks: int = 10
    tuning_seed: int = 101
    seeds: Sequence[int] = (1, 2, 3, 4, 5)
    start_rates: Sequence[int] = START_RATES
    start_constants: Sequence[int] = START_CONSTANTS
    distances: Sequence[int] = DISTANCES[:3]
    together: int = 60
    rows_at_once: int = 512

    @property
    def privacy(self) -> Privacy:
        """Of every step."""
        return Privacy(self.clip_norm, self.noise_multiplier, self.sampling)


Wanted = tuple[str, Place]
"""An optimizer and a place of its search."""


def study(task: Task, plan: Plan, device: str) -> dict[str, Any]:
    """Tune all optimizers, run what was chosen on the other seeds, and sum up."""
    searches = {
        name: Search(has_constant(name), plan.start_rates, plan.start_constants, plan.distances) for name in OPTIMIZERS
    }
    tried: dict[Wanted, Curves] = {}
    while wanted := [(name, place) for name, search in searches.items() for place in search.wanted()]:
        tried |= _trained(task, plan, wanted, plan.tuning_seed, device)
        for name, search in searches.items():
            search.take({place: _end(tried[n, place])[0] for n, place in wanted if n == name})
    chosen = {name: _chosen(searches[name], name, tried) for name in OPTIMIZERS}
    both = list(dict.fromkeys((name, place) for name, by in chosen.items() for place in by.values()))
    again = [_trained(task, plan, both, seed, device) for seed in plan.seeds]
    counts = np.bincount(np.asarray(task.groups)[: task.watched].ravel(), minlength=task.n_groups)
    return {
        "plan": {**asdict(plan), "start_rates": list(plan.start_rates), "start_constants": list(plan.start_constants)},
        "n rows": len(task.inputs),
        "steps": next(iter(again[0].values())).steps.tolist(),
        "optimizers": {
            name: {
                **{c: _summed(task, plan, name, by[c], [f[name, by[c]] for f in again], counts) for c in CRITERIA},
                "tried": [_tried(name, place, tried[name, place]) for place in searches[name].losses],
                "resolved": searches[name].resolved,
            }
            for name, by in chosen.items()
        },
    }


def _chosen(search: Search, name: str, tried: dict[Wanted, Curves]) -> dict[str, Place]:
    rarest = max(search.losses, key=lambda place: (_end(tried[name, place])[1], -search.losses[place]))
    return {"loss": search.best, "rarest": rarest}


def _trained(task: Task, plan: Plan, wanted: list[Wanted], seed: int, device: str) -> dict[Wanted, Curves]:
    """One training of each."""
    found: dict[Wanted, Curves] = {}
    for first in range(0, len(wanted), plan.together):
        some = sorted(wanted[first : first + plan.together], key=lambda one: OPTIMIZERS.index(one[0]))
        settings = [_setting(task, plan, name, place) for name, place in some]
        runs = ManyTrainings(task, plan.privacy, settings, seed, device, plan.rows_at_once)
        curves = runs.run(plan.steps, -(-plan.steps // plan.looks))
        for k, one in enumerate(some):
            part = slice(k, k + 1)
            found[one] = Curves(curves.steps, curves.loss[part], curves.group_loss[part], curves.group_accuracy[part])
    return found


def _setting(task: Task, plan: Plan, name: str, place: Place) -> Setting:
    stddev = plan.noise_multiplier * plan.clip_norm / (plan.sampling * len(task.inputs))
    return setting_for(name, place.effective_rate / plan.clip_norm, place.constant_value, stddev)


def _end(curves: Curves) -> tuple[float, float]:
    """Loss and rarest accuracy at the end; a training that became infinite has learned nothing."""
    loss = float(curves.loss[0, -1])
    return (loss, float(curves.group_accuracy[0, -1, -1])) if np.isfinite(loss) else (np.inf, 0.0)


def _tried(name: str, place: Place, curves: Curves) -> dict[str, float]:
    loss, rarest = _end(curves)
    return {
        "effective rate": round(place.effective_rate, 4),
        **({"constant": round(place.constant_value, 4)} if has_constant(name) else {}),
        "loss at the end": rounded(loss),
        "rarest accuracy at the end": rounded(rarest),
    }


def _summed(task: Task, plan: Plan, name: str, place: Place, curves: Sequence[Curves], counts: Any) -> dict[str, Any]:
    setting = _setting(task, plan, name, place)
    return {
        "effective rate": round(place.effective_rate, 4),
        "lr": setting.lr,
        "constant": setting.constant,
        "runs": [
            {
                "seed": seed,
                "loss": rounded(run.loss[0]),
                "accuracy": rounded(run.group_accuracy[0] @ counts / counts.sum()),
                "group loss": rounded(run.group_loss[0]),
                "group accuracy": rounded(run.group_accuracy[0]),
            }
            for seed, run in zip(plan.seeds, curves, strict=True)
        ],
    }


def at_the_end(found: dict[str, Any], name: str, criterion: str, what: str) -> Any:
    """Mean over seeds of a figure at the end of an optimizer's runs."""
    runs = found["optimizers"][name][criterion]["runs"]
    return np.mean([run[what][-1] for run in runs], axis=0).round(4).tolist()


def spread_at_the_end(found: dict[str, Any], name: str, criterion: str, what: str) -> Any:
    """Standard deviation over seeds of a figure at the end."""
    values = [run[what][-1] for run in found["optimizers"][name][criterion]["runs"]]
    return np.std(values, axis=0, ddof=min(1, len(values) - 1)).round(4).tolist()


def by_seed_at_the_end(found: dict[str, Any], name: str, criterion: str) -> list[float]:
    """Rarest accuracy at the end, for each seed."""
    return [run["group accuracy"][-1][-1] for run in found["optimizers"][name][criterion]["runs"]]

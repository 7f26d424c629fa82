"""Private trainings of modules, every optimizer tuned alike: the chosen ones by frequency group, whatever it says.

Settings are chosen on the training data, and no ε covers that (E18): tables compare optimizers, not private procedures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from apportion.privacy import SeededNoise, accounting
from apportion.training import DPSGD, DPAdam, DPAdamBC, FixedClip, PrivateTrainer, Watch
from apportion.training.per_unit import Loss
from apportion.training.units import Units
from papers.heavy_tail.updates import OPTIMIZERS

DELTA = 1e-5


@dataclass(frozen=True)
class Regime:
    """How a study trains.

    Attributes:
        clip_norm: C.
        noise_multiplier: σ.
        sampling: probability with which a unit takes part in a step.
        steps: how many steps are taken.
        n_units: declared number of units.
        rates: learning rates of each optimizer; equally many.
        looks: how often the training rows are scored.
    """

    clip_norm: float
    noise_multiplier: float
    sampling: float
    steps: int
    n_units: int
    rates: dict[str, tuple[float, ...]]
    looks: int = 4

    @property
    def epsilon(self) -> float:
        """What all steps cost."""
        return epsilon_after(self, self.steps)


def epsilon_after(regime: Regime, steps: int) -> float:
    """What so many steps cost."""
    return _epsilon(regime.noise_multiplier, regime.sampling, steps)


@lru_cache(maxsize=64)
def _epsilon(noise_multiplier: float, sampling: float, steps: int) -> float:
    """The grid of the privacy loss is coarse, and so the answer rounded up."""
    if not steps:
        return 0.0
    if sampling == 1:
        return accounting.epsilon_of([accounting.Gaussian(noise_multiplier, steps)], DELTA)
    return accounting.epsilon_of([accounting.SampledGaussian(noise_multiplier, sampling, steps)], DELTA, 1e-3)


def make_optimizer(name: str, module: nn.Module, rate: float) -> Any:
    """The optimizer of a table's row."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    match name:
        case "DP-GD":
            return DPSGD(parameters, rate)
        case "DP-GDM":
            return DPSGD(parameters, rate, momentum=0.9)
        case "DP-Adam":
            return DPAdam(parameters, rate)
        case _:
            return DPAdamBC(parameters, rate)


def train(
    make: Callable[[], nn.Module],
    loss: Loss,
    units: Units,
    watch: Watch,
    regime: Regime,
    name: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """One training: what was seen at the end, and on the way."""
    module = make()
    trainer = PrivateTrainer(
        module, make_optimizer(name, module, rate), loss,
        epsilon=regime.epsilon, delta=DELTA, steps=regime.steps, sampling=regime.sampling, n_units=regime.n_units,
        clip=FixedClip(regime.clip_norm), rows_at_once=512, noise=SeededNoise(seed), tuning="a study on training data",
    )  # fmt: skip
    watch.every = -(-regime.steps // regime.looks)
    trainer.fit(units, watch=watch)
    seen = trainer.history_
    return {
        "optimizer": name,
        "rate": rate,
        "seed": seed,
        "steps": [s.step for s in seen],
        "loss": [_finite(s.scores.loss) for s in seen],
        "accuracy": [_finite(s.scores.accuracy) for s in seen],
        "group loss": [[_finite(v) for v in s.scores.group_loss] for s in seen],
        "group accuracy": [[_finite(v) for v in s.scores.group_accuracy] for s in seen],
    }


def compare(
    make: Callable[[], nn.Module],
    loss: Loss,
    units: Units,
    watch: Watch,
    regime: Regime,
    *,
    seeds: range,
    kept: Path | None = None,
) -> dict[str, Any]:
    """Tune every optimizer on the first seed, by its loss at the end; the chosen again on the others.

    Args:
        make: makes the module, always alike.
        loss: one number for each row, or several.
        units: the training rows.
        watch: what is looked at.
        regime: how to train.
        seeds: of noise and samples.
        kept: a file of runs that were made before, to which new ones are added; none is made twice.
    """
    done = _Kept(kept, regime)

    def run(name: str, rate: float, seed: int) -> dict[str, Any]:
        return done(name, rate, seed, lambda: train(make, loss, units, watch, regime, name, rate, seed))

    found: dict[str, Any] = {}
    for name in OPTIMIZERS:
        tried = [run(name, rate, seeds.start) for rate in regime.rates[name]]
        best = min(tried, key=lambda made: made["loss"][-1])
        others = [run(name, best["rate"], seed) for seed in seeds[1:]]
        rarest = max(tried, key=lambda made: made["group accuracy"][-1][-1])
        found[name] = {
            "rate": best["rate"],
            "rate at the edge of the grid": best["rate"] in (min(regime.rates[name]), max(regime.rates[name])),
            "runs": [best, *others],
            "best rarest accuracy of any rate": rarest["group accuracy"][-1][-1],
            "its rate": rarest["rate"],
        }
    steps = next(iter(found.values()))["runs"][0]["steps"]
    return {
        "regime": asdict(regime),
        "steps": steps,
        "epsilon": [round(epsilon_after(regime, s), 4) for s in steps],
        "optimizers": found,
    }


class _Kept:
    """Runs in a file, so that a long study that is cut off is not lost."""

    def __init__(self, path: Path | None, regime: Regime) -> None:
        self._path = path
        self._of = {name: value for name, value in asdict(regime).items() if name != "rates"}

    def __call__(self, name: str, rate: float, seed: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        wanted = {"optimizer": name, "rate": rate, "seed": seed, "regime": self._of}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                held: dict[str, Any] = json.loads(line)
                if all(held[key] == value for key, value in wanted.items()):
                    return held
        made = {**make(), "regime": self._of}
        if self._path is not None:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")
        return made


def at_the_end(found: dict[str, Any], name: str, what: str) -> Any:
    """Mean over seeds of a figure at the end of an optimizer's runs."""
    return np.mean([run[what][-1] for run in found["optimizers"][name]["runs"]], axis=0).round(4).tolist()


def _finite(value: float) -> float:
    return round(float(np.nan_to_num(value, nan=1e9, posinf=1e9)), 4)

"""Claim: the published Wishart mechanism gives a task away with probability 1 − e^(−ε); ours does not.

The published mechanism adds W_d(d + 1, K²/(2ε) I) to the sum of the tasks' outer products and claims pure ε-DP. An
attacker who knows all other models subtracts them and asks whether w wᵀ can be taken away from what is left. If not,
the task was not there: that happens with probability 1 − e^(−ε) when it was absent and never when it was present. The
same attacker, the best one there is for each release, and a trained one then try the Gaussian release and the
additive Wishart option of this library, at an (ε, δ) of the same ε: none may show more than ε at that δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.likelihood import lower_proportion, upper_proportion
from apportion.auditing.tester import audit_outputs
from apportion.linalg.packed import pack, packed_size, unpack
from apportion.privacy import Budget, SeededNoise, Session
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.task_sums import OuterSum, TaskModels, outer_sum
from apportion.published.model_protection import Wishart
from benchmarks.claim import Outcome, print_table

Floats = NDArray[np.float64]

NORM, OTHERS, DELTA = 2.0, 6, 1e-3
DIMENSIONS, QUICK_DIMENSIONS = (1, 5, 30), (5,)
EPSILONS, QUICK_EPSILONS = (0.1, 1.0, 3.0), (3.0,)
DRAWS, QUICK_DRAWS = 20_000, 2_000
OUR_DRAWS, QUICK_OUR_DRAWS = 8_000, 600
ALPHA = 1e-5  # of each interval and each bound
SPARE = 10  # spare degrees of freedom of our option, for each dimension


@dataclass(frozen=True)
class Setting:
    """Other tasks' models, which the attacker knows, and the model in question, at the bound of its norm."""

    others: Floats
    model: Floats

    @classmethod
    def of(cls, dimension: int) -> Setting:
        """Random models; the others are shorter."""
        rng = np.random.default_rng(dimension)
        models = rng.standard_normal((OTHERS + 1, dimension))
        models /= np.linalg.norm(models, axis=1, keepdims=True)
        lengths = NORM * np.append(rng.uniform(0.3, 0.9, OTHERS), 1.0)
        models *= lengths[:, None]
        return cls(models[:-1], models[-1])

    def models(self, present: bool) -> Floats:
        """Of all tasks that take part."""
        return np.vstack([self.others, self.model]) if present else self.others

    def left(self, released: Floats) -> Floats:
        """Released matrices without the others' part."""
        return np.asarray(unpack(released) - self.others.T @ self.others)

    def contradicts(self, released: Floats) -> Floats:
        """How far w wᵀ is from being part of what is left: above 0, it cannot be."""
        return np.asarray(-np.linalg.eigvalsh(self.left(released) - np.outer(self.model, self.model))[:, 0])

    def along(self, released: Floats) -> Floats:
        """The best statistic for Gaussian noise: what is left in the direction of w."""
        return np.asarray(np.einsum("i,nij,j->n", self.model, self.left(released), self.model))

    def sufficient(self, released: Floats) -> Floats:
        """The best statistic for Wishart noise: 1 / wᵀ Σ⁻¹ w."""
        model = np.broadcast_to(self.model[:, None], (len(released), len(self.model), 1))
        return np.asarray(1 / (self.model @ np.linalg.solve(self.left(released), model))[:, 0])


def published(setting: Setting, present: bool, epsilon: float, draws: int, seed: int) -> Floats:
    """Outputs of the published mechanism, packed."""
    rng, dimension = np.random.default_rng([seed, present]), len(setting.model)
    models, out = setting.models(present), np.empty((draws, packed_size(dimension)))
    scale = NORM**2 / (2 * epsilon)
    for start in range(0, draws, 1000):
        normals = rng.standard_normal((min(1000, draws - start), dimension, dimension + 1))
        out[start : start + 1000] = pack(models.T @ models + scale * normals @ normals.transpose(0, 2, 1))
    return out


def _sum(setting: Setting, present: bool) -> OuterSum:
    return outer_sum(TaskModels.clipped(setting.models(present), NORM), ADD_REMOVE_TASK)


def gaussian(setting: Setting, present: bool, epsilon: float, draws: int) -> Floats:
    """Outputs of the default release of this library."""

    def one(seed: int) -> Floats:
        session = Session(Budget(epsilon, DELTA), noise=SeededNoise(2 * seed + present), neighbours=ADD_REMOVE_TASK)
        share = session.plan(sum=1.0).one("sum")
        return np.asarray(session.release("sum", _sum(setting, present), share))

    return np.stack([one(seed) for seed in range(draws)])


def additive(setting: Setting, present: bool, epsilon: float, draws: int) -> Floats:
    """Outputs of the additive Wishart option."""

    def one(seed: int) -> Floats:
        session = Session(Budget(epsilon, DELTA), noise=SeededNoise(2 * seed + present), neighbours=ADD_REMOVE_TASK)
        mechanism = Wishart(max(3, SPARE * len(setting.model)))
        _, share = session.plan_with(mechanism, 1)
        return np.asarray(session.release_with(mechanism, "sum", _sum(setting, present), share))

    return np.stack([one(seed) for seed in range(draws)])


def measure(quick: bool) -> Outcome:
    """Attack the published mechanism, then ours."""
    dimensions = QUICK_DIMENSIONS if quick else DIMENSIONS
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    draws, our_draws = (QUICK_DRAWS, QUICK_OUR_DRAWS) if quick else (DRAWS, OUR_DRAWS)
    broken = _attacks(dimensions, epsilons, draws)
    print_table(
        ["d", "epsilon", "attacker is certain", "1 - e^-epsilon", "false alarms"],
        [[d, e, found, 1 - math.exp(-e), false] for (d, e), (found, false, _) in broken.items()],
    )
    shown = _ours(dimensions, epsilons, our_draws)
    print_table(
        ["d", "epsilon", "release", "attacker", "epsilon shown"], [[*key, bound] for key, bound in shown.items()]
    )
    certain = all(fits and false == 0 for _, false, fits in broken.values())
    most = max(bound / key[1] for key, bound in shown.items())
    return Outcome(
        value={
            "certain": {f"d={d}, epsilon={e:g}": round(found, 4) for (d, e), (found, _, _) in broken.items()},
            "false_alarms": sum(false for _, false, _ in broken.values()),
            "largest_part_of_epsilon_shown_of_ours": round(most, 4),
        },
        target={"certain": "1 - e^-epsilon", "false_alarms": 0, "largest_part_of_epsilon_shown_of_ours": "at most 1"},
        holds=certain and most <= 1,
        headline="the published Wishart mechanism lets an attacker be certain that a task was absent with probability "
        f"1 − e^(−ε), in d = {', '.join(map(str, dimensions))}, without false alarms; of our releases the same one, "
        f"the best one and a trained one show at most {most:.2f} of ε",
        settings={
            "dimensions": list(dimensions),
            "epsilons": list(epsilons),
            "delta_of_ours": DELTA,
            "draws": {"published": draws, "ours": our_draws},
            "alpha_of_each": ALPHA,
        },
    )


def _attacks(
    dimensions: tuple[int, ...], epsilons: tuple[float, ...], draws: int
) -> dict[tuple[int, float], tuple[float, int, bool]]:
    """How often the attacker is certain, its false alarms, and whether the first fits 1 − e^(−ε)."""
    found = {}
    for dimension in dimensions:
        setting = Setting.of(dimension)
        for seed, epsilon in enumerate(epsilons):
            rounding = 1e-9 * NORM**2 / epsilon
            absent, present = (
                int((setting.contradicts(published(setting, there, epsilon, draws, seed)) > rounding).sum())
                for there in (False, True)
            )
            low, high = lower_proportion(absent, draws, ALPHA / 2), upper_proportion(absent, draws, ALPHA / 2)
            found[dimension, epsilon] = (absent / draws, present, low <= 1 - math.exp(-epsilon) <= high)
    return found


def _ours(
    dimensions: tuple[int, ...], epsilons: tuple[float, ...], draws: int
) -> dict[tuple[int, float, str, str], float]:
    """Lower bounds on ε at δ by each attacker."""
    bounds = {}
    for dimension in dimensions:
        setting = Setting.of(dimension)
        for epsilon in epsilons:
            for release, make, best in (
                ("Gaussian", gaussian, setting.along),
                ("additive Wishart", additive, setting.sufficient),
            ):
                here, there = (make(setting, present, epsilon, draws) for present in (False, True))
                tried: dict[str, Callable[[Floats], Floats] | None]
                tried = {"the published attack's": setting.contradicts, "the best": best, "trained": None}
                for name, statistic in tried.items():
                    bounds[dimension, epsilon, release, name] = _bound(here, there, epsilon, statistic)
    return bounds


def _bound(here: Floats, there: Floats, epsilon: float, statistic: Callable[[Floats], Floats] | None) -> float:
    if statistic is None:
        return audit_outputs(here, there, epsilon, DELTA, confidence=1 - ALPHA).lower_bound
    values = [statistic(part)[:, None] for part in (here, there)]
    return audit_outputs(
        values[0], values[1], epsilon, DELTA, statistic=lambda row: float(row[0]), confidence=1 - ALPHA
    ).lower_bound

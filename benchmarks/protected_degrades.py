"""Claim: with hardly any budget, protected multi-task learning is learning alone (Proposition 1), whatever it assumes.

Every structure, both losses and both kinds of neighbours, with Gaussian noise, at ε = 1e-6 and δ = 1/m²: the largest
difference between a party's model and what it learns alone, relative to the length of the latter, over many draws of
data and noise. Learning alone is computed a second time here, from each party's rows by themselves. Where the number of
tasks is not public, nothing is known of how strong a sum can be, and noise may pass for a direction by chance: how
often it does is measured too, at the same ε with δ = 1e-5, and is no part of the claim.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.parties import ProtectedMultiTask
from apportion.parties.choice import learned_alone
from apportion.parties.posterior import local_side
from apportion.parties.tasks import rows_of_lists
from apportion.privacy import ADD_REMOVE_TASK, REPLACE_TASK, SeededNoise
from benchmarks.claim import Outcome, print_table

EPSILON, TARGET = 1e-6, 1e-6
STRUCTURES = ("em", "low-rank", "group-sparse", "low-rank+sparse", "relations")
Floats = NDArray[np.float64]
Tasks = tuple[list[Floats], list[Floats]]


def measure(quick: bool) -> Outcome:
    """Fit everything in every way."""
    draws, n_tasks = (1, 12) if quick else (25, 200)
    rows, largest = [], 0.0
    for structure, loss in itertools.product(STRUCTURES, ("squared", "logistic")):
        repeated, number = (draws, n_tasks) if loss == "squared" else (max(draws // 5, 1), max(n_tasks // 4, 12))
        gaps = {
            name: max(_gap(structure, loss, seed, number, arguments) for seed in range(repeated))
            for name, arguments in _relations(number).items()
        }
        largest = max(largest, *gaps.values())
        rows.append([structure, loss, repeated, *gaps.values()])
    print_table(["structure", "loss", "draws", *(f"gap, {name}" for name in _relations(n_tasks))], rows)
    undeclared = {structure: _mistaken(structure, draws, n_tasks) for structure in STRUCTURES}
    return Outcome(
        value={"largest relative gap": largest, "noise taken for structure, number of tasks private": undeclared},
        target={"largest relative gap": TARGET},
        holds=largest <= TARGET,
        headline="at ε = 1e-6 every structure gives what each party learns alone: largest relative difference "
        f"{largest:g} ({TARGET:g} asked)",
        settings={
            "epsilon": EPSILON,
            "delta": "1/m^2",
            "tasks": n_tasks,
            "draws": draws,
            "logistic": "a quarter, a fifth",
        },
    )


def _relations(n_tasks: int) -> dict[str, dict[str, Any]]:
    return {
        "replaced": {"neighbours": REPLACE_TASK},
        "added or removed": {"neighbours": ADD_REMOVE_TASK, "n_tasks": n_tasks},
    }


def _gap(structure: str, loss: str, seed: int, n_tasks: int, arguments: dict[str, Any]) -> float:
    features, labels = _tasks(seed, n_tasks, loss)
    model = ProtectedMultiTask(EPSILON, structure=structure, loss=loss, noise=SeededNoise(seed), **arguments)
    found = model.fit(features, labels).coef_
    alone = _alone(seed, n_tasks, loss)
    lengths = np.maximum(np.linalg.norm(alone, axis=1), 1e-12)
    return float((np.linalg.norm(found - alone, axis=1) / lengths).max())


@lru_cache(maxsize=128)
def _alone(seed: int, n_tasks: int, loss: str) -> Floats:
    """What each party learns from its own rows, one party at a time."""
    return np.stack(
        [
            learned_alone(local_side(rows_of_lists([x], [y]), loss)).mean[0]
            for x, y in zip(*_tasks(seed, n_tasks, loss), strict=True)
        ]
    )


def _mistaken(structure: str, draws: int, n_tasks: int) -> float:
    """The part of fits in which some party's model is not its own alone, where the number of tasks is private."""
    wrong = 0
    for seed in range(draws):
        features, labels = _tasks(seed, n_tasks, "squared")
        model = ProtectedMultiTask(
            EPSILON, 1e-5, structure=structure, neighbours=ADD_REMOVE_TASK, noise=SeededNoise(seed)
        ).fit(features, labels)
        wrong += not np.array_equal(model.coef_, model.single_task_)
    return wrong / draws


def _tasks(seed: int, n_tasks: int, loss: str) -> Tasks:
    """Low-rank models; sizes and scales of tasks differ."""
    rng = np.random.default_rng([seed, 21])
    models = rng.standard_normal((n_tasks, 2)) @ rng.standard_normal((2, 12)) * 3
    features = [rng.standard_normal((int(size), 12)) for size in rng.integers(3, 40, n_tasks)]
    labels = [x @ w + rng.standard_normal(len(x)) for x, w in zip(features, models, strict=True)]
    if loss == "logistic":
        return features, [(y > 0).astype(np.float64) for y in labels]
    return features, [scale * y for scale, y in zip(10 ** rng.uniform(-3, 3, n_tasks), labels, strict=True)]

"""Every method of the comparison, as a function of a problem, an ε and a seed that gives one model a task.

Ours run with the library's defaults. What is not private chooses its penalties by cross-validation on all tasks'
rows. The other private methods are given the best of a grid of settings **by the test rows**: they get more than they
could have, since paying for the choice would cost them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.parties import ProtectedMultiTask
from apportion.privacy import Budget, SeededNoise
from apportion.published import model_protection as others
from apportion.published.model_protection.together import Structure
from papers.model_protection.data import Problem

Floats = NDArray[np.float64]

EM, LOW_RANK, GROUP_SPARSE = "ours, EM", "ours, low-rank", "ours, group-sparse"
ALONE_L2, ALONE_L1, ALONE_COMMON = "alone, l2", "alone, l1", "alone, l2 with one penalty for all"
MEAN, MEAN_BY_GROUP, RELATED = "DP-AGGR, K/m", "DP-AGGR, by group privacy", "DP-MTRL, by group privacy"
TRACE, GROUP, RELATIONS = "trace norm, not private", "group l1, not private", "relations, not private"
OURS = (EM, LOW_RANK, GROUP_SPARSE)
ALONE = (ALONE_L2, ALONE_L1, ALONE_COMMON)
RIVALS = (MEAN, MEAN_BY_GROUP, RELATED)
NOT_PRIVATE: dict[str, Structure] = {TRACE: "trace norm", GROUP: "group l1", RELATIONS: "relations"}

_CLIPS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
_RELATED = [(penalty, 0.01, 1) for penalty in _PENALTIES] + [
    (penalty, relation, 3) for penalty in (1.0, 10.0, 100.0) for relation in (0.1, 1.0)
]  # penalty, relation penalty, rounds; in one round relations are only a further penalty


@dataclass(frozen=True)
class Penalties:
    """Penalties of the methods that are not private, chosen once for all repetitions of a study."""

    chosen: dict[str, float]

    @classmethod
    def of(cls, problem: Problem, n_penalties: int = 12) -> Penalties:
        """By cross-validation on one problem's training rows."""
        return cls(
            {
                name: others.chosen_penalty(problem.train, structure, problem.loss, n_penalties)
                for name, structure in NOT_PRIVATE.items()
            }
        )


def without_noise(problem: Problem, penalties: Penalties) -> dict[str, float]:
    """Scores of learning alone and of joint learning without privacy."""
    train, loss = problem.train, problem.loss
    found = {ALONE_L2: problem.alone, ALONE_L1: others.alone_l1(train, loss)}
    if loss == "squared":
        found[ALONE_COMMON] = others.alone_common(train)
    for name, structure in NOT_PRIVATE.items():
        found[name] = others.joint(train, structure, penalties.chosen[name], loss)
    return {name: problem.score(models) for name, models in found.items()}


def ours(problem: Problem, method: str, epsilon: float, seed: int, **settings: Any) -> ProtectedMultiTask:
    """One of our methods, fitted."""
    structure = {EM: "em", LOW_RANK: "low-rank", GROUP_SPARSE: "group-sparse"}[method]
    estimator = ProtectedMultiTask(
        epsilon, structure=structure, loss=problem.loss, noise=SeededNoise(seed), **settings
    )  # fmt: skip
    return estimator.fit(list(problem.train.features), list(problem.train.targets))


def rival(problem: Problem, method: str, epsilon: float, seed: int) -> float:
    """The best score of another private method over its settings, by the test rows."""
    budget = Budget(epsilon, 1 / problem.train.n_tasks**2)
    return min(problem.score(make(problem, budget, seed).models) for make in _settings(method))


Make = Callable[[Problem, Budget, int], others.BaselineModels]


@cache
def _settings(method: str) -> Sequence[Make]:
    if method == MEAN:
        return [_mean(clip) for clip in _CLIPS]
    if method == MEAN_BY_GROUP:
        return [_mean_by_group(penalty) for penalty in _PENALTIES]
    return [_related(penalty, relation, rounds) for penalty, relation, rounds in _RELATED]


def _mean(clip: float) -> Make:
    return lambda problem, budget, seed: others.aggregated(problem.alone, budget, clip, SeededNoise(seed))


def _mean_by_group(penalty: float) -> Make:
    return lambda problem, budget, seed: others.aggregated_by_group(
        problem.train, budget, penalty, SeededNoise(seed), problem.loss
    )


def _related(penalty: float, relation: float, rounds: int) -> Make:
    return lambda problem, budget, seed: others.related_by_group(
        problem.train, budget, penalty, relation, rounds, SeededNoise(seed)
    )

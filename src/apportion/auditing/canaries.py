"""Canary users: added to the data of a whole fit, then searched for in the model that it releases.

A canary has one task that nobody else has, with an extreme value: all of a user's possible sensitivity lies on the sums
of that task. The task is in the public list whether or not the canary is in the data. How well the model separates
canaries that were in from those that were out bounds the ε of the whole fit from below:

- many runs: one canary, in for half of the fits and out for the others; true and false alarms are bounded exactly;
- one run: many canaries, each in or out by a fair coin; the number of coins guessed right bounds ε (Steinke, Nasr and
  Jagielski, "Privacy Auditing with One (1) Training Run", 2023, Theorem 5.2; docs/proofs/auditing.md).

What to look at is learned from the first half of the fits, or from half of the canaries, whose coins are revealed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.auditing import distinguisher
from apportion.auditing.likelihood import epsilon_from_statistics, mu_from_statistics
from apportion.data import Interactions, Vocabulary
from apportion.errors import InputError
from apportion.privacy import Gaussian, NoiseSource, SeededNoise, Statement, gaussian
from apportion.recommend.model import ItemModel

Floats = NDArray[np.float64]
Fit = Callable[[Interactions, NoiseSource], ItemModel]
"""Fits a recommender on the data with noise from the source, and returns the model."""
_GRID, _LARGEST = 0.02, 60.0  # grid of ε for the bound from one run
_LEAST_RUNS, _LEAST_CANARIES = 80, 160  # half of them are used to learn what to look at


@dataclass(frozen=True)
class CanaryFinding:
    """The result of an audit with canaries.

    Attributes:
        claimed: the ε of the statement.
        delta: its δ.
        lower_bound: a lower bound on the fit's ε at that δ, at `confidence`.
        confidence: the confidence of the bound.
        runs: number of fits.
        canaries: number of users added or left out.
        tried: what was done, in words.
    """

    claimed: float
    delta: float
    lower_bound: float
    confidence: float
    runs: int
    canaries: int
    tried: str

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.lower_bound > self.claimed


@dataclass(frozen=True)
class Canaries:
    """A data set with canary users in it.

    Attributes:
        data: all users, including the canaries.
        users: codes of the canaries.
        tasks: codes of their tasks.
    """

    data: Interactions
    users: NDArray[np.int64]
    tasks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.users)

    def kept(self, inside: NDArray[np.bool_]) -> Interactions:
        """Return the data with some of the canaries, as if the others had never existed."""
        gone = self.users[~inside]
        rows = ~np.isin(self.data.users, gone)
        return Interactions.from_arrays(
            self.data.user_ids.ids_of(self.data.users[rows]),
            self.data.task_ids.ids_of(self.data.tasks[rows]),
            self.data.values[rows],
            task_ids=self.data.task_ids,
        )


def with_canaries(data: Interactions, number: int, value: float) -> Canaries:
    """Add users with one task each that nobody else has.

    Args:
        data: the real users.
        number: number of canaries to add.
        value: the value of their only row. An end of the public scale, far from the mean, has the most effect.
    """
    if number < 1:
        raise InputError(f"Expected at least 1 canary, got {number}.", argument="number")
    user_ids, task_ids = _extended(data.user_ids, number, "user"), _extended(data.task_ids, number, "item")
    users = np.arange(data.n_users, data.n_users + number)
    tasks = np.arange(data.n_tasks, data.n_tasks + number)
    whole = Interactions.from_codes(
        np.concatenate([data.users, users]),
        np.concatenate([data.tasks, tasks]),
        np.concatenate([data.values, np.full(number, value, np.float32)]),
        user_ids=user_ids,
        task_ids=task_ids,
    )
    return Canaries(whole, users, tasks)


def audit_many_runs(
    fit: Fit,
    data: Interactions,
    *,
    value: float,
    runs: int,
    confidence: float = 0.999,
    noise: Callable[[int], NoiseSource] = SeededNoise,
) -> CanaryFinding:
    """Fit many times with one canary and without it, and bound ε from below.

    If all releases are Gaussian, the bound is on the Gaussian-DP parameter, which the statement also claims. Otherwise
    it is on ε at δ itself.

    Args:
        fit: the recommender.
        data: the users that are really there.
        value: the value of the canary's only row.
        runs: the number of fits with the canary, and of those without it.
        confidence: the confidence of the bound.
        noise: returns the noise source of a run, given its number.
    """
    if runs < _LEAST_RUNS:
        raise InputError(f"Expected at least {_LEAST_RUNS} runs with the canary, got {runs}.", argument="runs")
    canaries = with_canaries(data, 1, value)
    both = [canaries.kept(np.array([inside])) for inside in (True, False)]
    rows = []
    for number in range(2 * runs):
        model = fit(both[number % 2], noise(number))
        rows.append(_seen(model, canaries.tasks)[0])
    statement, seen, half = _statement_of(model), np.array(rows), runs // 2
    inside, outside = seen[::2], seen[1::2]
    score = distinguisher.train(inside[:half], outside[:half], statement.delta)
    bound = _bound(score(inside[half:]), score(outside[half:]), statement, 1 - confidence)
    tried = f"{runs} fits with one canary user and {runs} without"
    return CanaryFinding(statement.epsilon, statement.delta, bound, confidence, 2 * runs, 1, tried)


def audit_one_run(
    fit: Fit,
    data: Interactions,
    *,
    value: float,
    canaries: int,
    confidence: float = 0.999,
    noise: NoiseSource | None = None,
    rng: np.random.Generator,
) -> CanaryFinding:
    """Fit once with each of many canaries in or out by a fair coin, and bound ε from below.

    Args:
        fit: the recommender.
        data: the users that are really there.
        value: the value of each canary's only row.
        canaries: the number of canaries. The coins of half of them are revealed, those of the others are guessed.
        confidence: the confidence of the bound.
        noise: the noise source of the fit.
        rng: tosses the coins.
    """
    if canaries < _LEAST_CANARIES:
        raise InputError(
            f"Expected at least {_LEAST_CANARIES} canaries for one run, got {canaries}.", argument="canaries"
        )
    added = with_canaries(data, canaries, value)
    inside = rng.random(canaries) < 0.5
    model = fit(added.kept(inside), noise or SeededNoise(0))
    statement = _statement_of(model)
    seen, shown = _seen(model, added.tasks), np.arange(canaries) < canaries // 2
    score = distinguisher.train(seen[shown & inside], seen[shown & ~inside], statement.delta)
    scores, alpha = score(seen), 1 - confidence
    guesses = _most_telling(scores[shown], inside[shown], statement.delta, alpha)
    right = _right_guesses(scores[~shown], inside[~shown], guesses)
    judged = int((~shown).sum())
    bound = epsilon_from_guesses(right, 2 * guesses, judged, statement.delta, alpha)
    tried = f"one fit with {canaries} canary users, each in or out by a coin: {right} of {2 * guesses} guesses right"
    return CanaryFinding(statement.epsilon, statement.delta, bound, confidence, 1, canaries, tried)


def probability_of_guesses(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least this many right guesses under (ε, δ)-DP.

    Without δ, the number of right guesses is at most binomial with success probability 1/(1 + e^-ε). With δ, the bound
    is β + 2 m δ max_i P(v - i ≤ B < v)/i, where v is the number observed and m the number of coins.
    """
    from scipy.stats import binom

    success = 1 / (1 + math.exp(-epsilon))
    beyond = float(binom.sf(right - 1, guesses, success))
    if not delta or not right:
        return min(beyond, 1.0)
    below = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, success))
    slope = float((below / np.arange(1, right + 1)).max())
    return min(beyond + 2 * canaries * delta * slope, 1.0)


def epsilon_from_guesses(right: int, guesses: int, canaries: int, delta: float, alpha: float) -> float:
    """Return a lower bound on ε at δ from right guesses of fair coins; it fails with probability at most alpha.

    Args:
        right: number of right guesses.
        guesses: number of guesses; the other coins were skipped.
        canaries: number of coins.
        delta: the δ.
        alpha: the risk.
    """
    if not 0 <= right <= guesses <= canaries:
        raise InputError(
            f"Expected right <= guesses <= canaries, got {right}, {guesses} and {canaries}.", argument=None
        )

    def refuted(epsilon: float) -> bool:
        return probability_of_guesses(right, guesses, canaries, epsilon, delta) <= alpha

    low = 0.0
    if not refuted(low):
        return 0.0
    while low < _LARGEST and refuted(low + _GRID):  # from below: stop at the first ε that is not refuted
        low += _GRID
    high = low + _GRID
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _extended(vocabulary: Vocabulary, number: int, kind: str) -> Vocabulary:
    """Return the same ids, followed by new ones."""
    if vocabulary.holds_text:
        ids: Any = [*map(str, vocabulary.ids), *(f"canary {kind} {k}" for k in range(number))]
    else:
        held = np.asarray(vocabulary.ids)
        ids = np.concatenate([held, int(held.max(initial=0)) + 1 + np.arange(number)])
    return Vocabulary(ids, name=vocabulary.name, declared=vocabulary.declared)


def _seen(model: ItemModel, tasks: NDArray[np.int64]) -> Floats:
    """Return everything that the model says about some tasks, one row each."""
    vectors = np.asarray(model.vectors[tasks], np.float64)
    columns = [
        np.asarray(model.fold_in.features[tasks], np.float64),
        np.linalg.norm(vectors, axis=1),
        np.asarray(model.popularity[tasks], np.float64),
        np.asarray(model.reliability[tasks], np.float64),
        np.asarray(model.fold_in.observation_weights[tasks], np.float64),
    ]
    return np.column_stack(columns)


def _statement_of(model: ItemModel) -> Statement:
    if model.statement is None:
        raise InputError("Expected a model with a privacy statement, got one without.", argument="fit")
    return model.statement


def _bound(inside: Floats, outside: Floats, statement: Statement, alpha: float) -> float:
    if all(release.mechanism == Gaussian.key for release in statement.releases):
        mu = max(mu_from_statistics(inside, outside, alpha), 0.0)
        return gaussian.epsilon_of(mu, statement.delta)
    one_way = epsilon_from_statistics(inside, outside, alpha / 2, statement.delta)
    return max(one_way, epsilon_from_statistics(-outside, -inside, alpha / 2, statement.delta), 0.0)


def _right_guesses(scores: Floats, inside: NDArray[np.bool_], guesses: int) -> int:
    """Count right guesses: canaries with the highest scores that were in, and with the lowest that were out."""
    order = np.argsort(scores)
    return int(inside[order[len(order) - guesses :]].sum() + (~inside[order[:guesses]]).sum())


def _most_telling(scores: Floats, inside: NDArray[np.bool_], delta: float, alpha: float) -> int:
    """Return how many canaries to guess at each end, judged by the revealed ones."""
    choices = np.unique(np.linspace(len(scores) / 20, len(scores) // 2, 10).astype(int).clip(1))

    def bound(guesses: int) -> float:
        right = _right_guesses(scores, inside, guesses)
        return epsilon_from_guesses(right, 2 * guesses, len(scores), delta, alpha)

    return int(max(choices.tolist(), key=lambda guesses: (bound(guesses), guesses)))

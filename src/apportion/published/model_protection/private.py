"""The private baselines for model protection: DP-AGGR and DP-MTRL.

Both were designed to protect single rows. Protecting a task of n rows with them costs n times as much (group privacy,
Prop. 3): an (ε/n, δ/(n e^ε)) guarantee for rows is an (ε, δ) guarantee for tasks. They add a vector b with density
∝ exp(−ε' ||b||/Δ) to each solution, where Δ is how far one row moves it: 2 L/(n λ) for a loss that is L-Lipschitz in a
row of norm 1 and λ-strongly convex.

**Neither group form has a guarantee as published**: L is the largest slope on the data themselves, although it must not
depend on the data, and squared loss has no L at all. They are here for comparison. `aggregated` repairs the first: each
task's model is clipped to K, the mean over a public number m of tasks moves by K/m, and a session releases it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from apportion.privacy import Budget, NoiseSource, Purpose, Rows, Session, Statement
from apportion.privacy.model_totals import model_total
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.published.model_protection.alone import alone_l2
from apportion.published.model_protection.rows import Floats, LossName, TaskLists
from apportion.published.model_protection.together import relations_of

NO_GUARANTEE = (
    "none: the Lipschitz constant is taken from the data, and squared loss has none; the "
    "stated epsilon would hold only if it were a public bound"
)


@dataclass(frozen=True)
class BaselineModels:
    """The models that a baseline gives to every task.

    Attributes:
        models: one row per task.
        guarantee: the guarantee, in words.
        statement: the statement of the session, if there was one.
    """

    models: Floats
    guarantee: str
    statement: Statement | None = None


def aggregated(models: Floats, budget: Budget, clip_norm: float, noise: NoiseSource) -> BaselineModels:
    """DP-AGGR with task-level accounting: the mean of the tasks' own models, clipped, for everybody.

    Args:
        models: what each task learned alone, one row per task.
        budget: the budget of a whole task.
        clip_norm: the norm K to which models are clipped.
        noise: where randomness comes from.

    Privacy: add or remove one task; the number of tasks that the sum is divided by is declared, and the same for both
    neighbours. Gaussian noise for a sensitivity of K/m.
    """
    session = Session(
        budget,
        noise=noise,
        neighbours=ADD_REMOVE_TASK,
        public=[
            f"the number of tasks, declared as {len(models)}, which the sum is divided by",
            f"the clip norm {clip_norm:g}",
        ],
    )
    total = model_total(Rows.clipped(models, clip_norm))
    released = session.release(Purpose.SUM_OF_MODELS, total, session.plan(models=1.0).one("models"))
    mean = np.asarray(released, np.float64) / len(models)
    return BaselineModels(np.tile(mean, (len(models), 1)), "joint differential privacy of tasks", session.statement())


def aggregated_by_group(
    rows: TaskLists, budget: Budget, penalty: float, noise: NoiseSource, loss: LossName = "squared"
) -> BaselineModels:
    """DP-AGGR by group privacy, as in the paper: the mean of the tasks' own models with noise for single rows."""
    models = _regularised(rows, penalty, loss)
    slopes = _largest_slopes(rows, models, loss)
    sensitivity = float((2 * slopes / (rows.sizes * penalty)).max()) / rows.n_tasks
    per_row = budget.epsilon / int(rows.sizes.max())
    mean = models.mean(axis=0) + _long_vectors(1, rows.n_features, noise)[0] * sensitivity / per_row
    return BaselineModels(np.tile(mean, (rows.n_tasks, 1)), NO_GUARANTEE)


def related_by_group(
    rows: TaskLists,
    budget: Budget,
    penalty: float,
    relation_penalty: float,
    rounds: int,
    noise: NoiseSource,
) -> BaselineModels:
    """DP-MTRL by group privacy: models in closed form, given relations and the others' noisy models, plus noise.

    It uses squared loss, even for class labels, because it needs the closed form.

    Args:
        rows: the rows of all tasks.
        budget: the budget of a whole task.
        penalty: strong convexity λ₁ of every task's own problem.
        relation_penalty: weight λ₂ of tr(W Ω⁻¹ Wᵀ), divided by the number of tasks.
        rounds: number of alternations between models and relations.
        noise: where randomness comes from.
    """
    n_tasks, largest = rows.n_tasks, int(rows.sizes.max())
    log_delta = math.log(budget.delta / largest) - budget.epsilon
    per_round = _pure_per_round(budget.epsilon / largest, log_delta, rounds)
    relations: Floats = np.eye(n_tasks) / n_tasks
    models: Floats = np.zeros((n_tasks, rows.n_features))
    grams, moments = rows.grams / rows.sizes[:, None, None], rows.moments / rows.sizes[:, None]
    for done in range(rounds):
        if done:
            relations = relations_of(models)
        inverse = relation_penalty / n_tasks * np.linalg.inv(relations + 0.1 / n_tasks * np.eye(n_tasks))
        own = np.diag(inverse)
        strength = penalty + own
        pulled = moments - (inverse @ models - own[:, None] * models)
        curved = grams + strength[:, None, None] * np.eye(rows.n_features)
        models = np.asarray(np.linalg.solve(curved, pulled[:, :, None])[:, :, 0], np.float64)
        sensitivity = 2 * _largest_slopes(rows, models, "squared") / (rows.sizes * strength)
        models = models + _long_vectors(n_tasks, rows.n_features, noise) * (sensitivity / per_round)[:, None]
    return BaselineModels(models, NO_GUARANTEE)


def _regularised(rows: TaskLists, penalty: float, loss: LossName) -> Floats:
    """Return each task's own model under a mean loss plus λ/2 ||w||²."""
    if loss == "logistic":
        return np.stack(
            [
                alone_l2(TaskLists([x], [y]), loss, [penalty * len(y)])[0]
                for x, y in zip(rows.features, rows.targets, strict=True)
            ]
        )
    ridge = (penalty * rows.sizes)[:, None, None] * np.eye(rows.n_features)
    return np.asarray(np.linalg.solve(rows.grams + ridge, rows.moments[:, :, None])[:, :, 0])


def _largest_slopes(rows: TaskLists, models: Floats, loss: LossName) -> Floats:
    """Return the steepest slope of the loss over a task's own rows, the paper's estimate of L."""
    if loss == "logistic":
        return np.ones(rows.n_tasks)
    return np.array([np.abs(s - y).max() for s, y in zip(rows.predicted(models), rows.targets, strict=True)])


def _pure_per_round(epsilon: float, log_delta: float, rounds: int) -> float:
    """Return the largest pure ε per round such that all rounds compose to (ε, δ) by the paper's bounds."""

    def spent(each: float) -> float:
        drift = rounds * math.tanh(each / 2) * each
        return min(rounds * each, drift + each * math.sqrt(-2 * rounds * log_delta))

    low, high = epsilon / rounds, max(epsilon, epsilon / rounds)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= epsilon else (low, middle)
    return low


def _long_vectors(count: int, width: int, noise: NoiseSource) -> Floats:
    """Return vectors with density ∝ exp(−||b||): a direction times a sum of exponential variables."""
    directions = noise.normal((count, width), np.float64)
    lengths = -np.log(noise.uniform(count * width)).reshape(count, width).sum(axis=1)
    return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True) * lengths[:, None])

"""The published recipe for ratings (E6), made again from its description: alternating least squares with three slips.

What its accounting says, and what the code does, for at most 100 ratings of a user and count noise c:

- sum of the ratings: noise 5 √100 c, charged as c times the sensitivity; 100 ratings of 5 move it by 500, 10 times as
  far;
- number of ratings: noise c, charged as c times the sensitivity; a user moves it by 100, 100 times as far;
- counts of items: noise c, charged as c / √100 times the sensitivity: right;
- matrices Σ w x xᵀ: right; vectors Σ w y x: noise for |y| ≤ 1, while centred ratings reach 3.

Noise is calibrated by Rényi orders, as there. The twin makes the same releases with the sensitivities that they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from apportion.allocation import adaptive
from apportion.auditing.replay import RecordingSession, ReplayingSession
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import Budget, Labels, SeededNoise, gaussian
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Rows
from apportion.privacy.contributions import TaskGrams, TaskMoments
from apportion.published.skew.updates import solve_noisy
from held_values import HeldLabels, HeldRows
from planted.recommenders import forged

DELTA = 1e-5
PER_USER = 100  # ratings, for mean and counts, and the squared weight of a user
LARGEST, CENTRED = 5.0, 3.0
_ORDERS = [*np.linspace(1.1, 10.9, 99), *range(11, 64)]


@dataclass(frozen=True)
class Recipe:
    """Settings in the manner of the published runs on MovieLens 10M.

    Attributes:
        epsilon: that is printed.
        count_stddev: c.
        steps: alternations.
        dimension: of the vectors.
        honest: whether sensitivities are declared as they are.
    """

    epsilon: float
    count_stddev: float
    steps: int = 2
    dimension: int = 8
    honest: bool = False
    max_norm: float = 0.2
    item_ridge: float = 1.0

    @property
    def mu(self):
        """The Gaussian-DP parameter whose ε by Rényi orders is the printed one."""
        return _mu_by_orders(self.epsilon)

    @property
    def budget(self):
        """The same by the exact profile, a little smaller."""
        return Budget(gaussian.epsilon_of(self.mu, DELTA), DELTA)

    def shares(self):
        """Fractions of μ²: twice 1/c² for the mean, 100/c² for counts, the rest evenly over matrices and vectors."""
        unit = 1 / (self.count_stddev * self.mu) ** 2
        rest = (1 - (2 + PER_USER) * unit) / (2 * self.steps) * (1 - 1e-9)
        return {"mean": [unit, unit], "counts": PER_USER * unit, "training": [rest] * (2 * self.steps)}

    def fit(self, data, session):
        """Everything that the code releases, in its order; returns the item vectors."""
        engine, users = LocalEngine(np.float64, threads=1), data.as_users
        plan = session.plan(**self.shares())
        centre = self._mean(data, session, plan["mean"])
        weights = self._weights(data, session, plan.one("counts"))
        items = 0.1 * np.random.default_rng(0).standard_normal((data.n_tasks, self.dimension))
        labels = np.asarray(data.values, np.float64) - centre
        shares = list(plan["training"])
        for step in range(self.steps):
            vectors = engine.kernels.solve_users(users, items, labels, 0.1 * np.eye(self.dimension))
            rows = HeldRows(Rows.clipped(np.asarray(vectors, np.float64), self.max_norm))
            bounded = HeldLabels(self._labels(labels))
            grams, moments = engine.add_up(users, [TaskGrams(weights, rows), TaskMoments(weights, rows, bounded)])
            matrices = session.release(f"step {step + 1}: matrices", grams, shares.pop(0))
            sums = session.release(f"step {step + 1}: vectors", moments, shares.pop(0))
            items = solve_noisy(np.asarray(matrices), np.asarray(sums), self.item_ridge * np.eye(self.dimension))
        return {"items": items}

    def _labels(self, labels):
        """Bounded by 1 on paper, by nothing in fact; the twin clips them to 3 and says so."""
        return Labels.clipped(labels, CENTRED) if self.honest else forged(Labels, _values=labels, _bound=1.0)

    def _mean(self, data, session, shares):
        root = math.sqrt(PER_USER)
        declared = (LARGEST * PER_USER, float(PER_USER)) if self.honest else (LARGEST * root, 1.0)
        total, number = (
            session.release(name, _sum([value], bound), share)
            for name, value, bound, share in zip(
                ("sum of ratings", "number of ratings"),
                (float(data.values.sum()), float(data.n_observations)),
                declared,
                shares,
                strict=True,
            )
        )
        return float(np.clip(total[0] / max(number[0], 1.0), 0.5, LARGEST))

    def _weights(self, data, session, share):
        counts = _sum(data.by_task.counts.astype(np.float64), math.sqrt(PER_USER))
        released = np.maximum(session.release("counts", counts, share), 1.0)
        return adaptive(released, 0.5)


# c = 200, two steps and 8 dimensions are published for ε = 1. For 5 and 20, c is the round number at which the noise
# supports what was computed by hand before; how the rest of the budget is split over steps does not matter to that.
PUBLISHED = {1.0: Recipe(1.0, 200.0), 5.0: Recipe(5.0, 40.0), 20.0: Recipe(20.0, 10.0)}


def neighbours(seed=0, n_users=1000):
    """Ratings about a mean of 3.5, and a user of 100 ratings of half a star, at which labels are -3; then without it.

    There are enough ratings for the published noise on their mean to leave it within a few tenths.
    """
    rng = np.random.default_rng(seed)
    values = rng.choice([2.5, 3.0, 3.5, 4.0, 4.5], (n_users, PER_USER))
    values[0] = 0.5
    users, tasks = np.divmod(np.arange(values.size), PER_USER)
    data = Interactions.from_arrays(users, tasks, values.ravel(), task_ids=np.arange(PER_USER))
    return data, data.without(0)


def moved(recipe, data, neighbour, seed=0):
    """By replay: for each release how far it moved, in declared sensitivities, and the ε that its noise supports."""
    arguments = {"budget": recipe.budget, "noise": SeededNoise(seed)}
    first = RecordingSession(**arguments)
    recipe.fit(data, first)
    second = ReplayingSession(first, **arguments)
    recipe.fit(neighbour, second)
    ratios = {record.name: ratio for record, ratio in zip(first.records, second.ratios, strict=True)}
    mu = math.sqrt(
        math.fsum((ratio * r.release.mu) ** 2 for ratio, r in zip(second.ratios, first.records, strict=True))
    )
    return ratios, gaussian.epsilon_of(mu, DELTA)


def worst_case_epsilon(recipe):
    """The ε that the noise supports if every slip is used to the full."""
    shares = recipe.shares()
    unit, counts, each = shares["mean"][0], shares["counts"], shares["training"][0]
    factor = unit * (PER_USER + PER_USER**2) + counts + recipe.steps * each * (1 + CENTRED**2)
    return gaussian.epsilon_of(recipe.mu * math.sqrt(factor), DELTA)


def _sum(values, bound):
    return BoundedSum(_KEY, np.asarray(values, np.float64), bound, "as the accounting has it")


@cache
def _mu_by_orders(epsilon):
    low, high = 1e-3, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _renyi_epsilon(middle) < epsilon else (low, middle)
    return low


def _renyi_epsilon(mu):
    from dp_accounting import GaussianDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(_ORDERS)
    accountant.compose(GaussianDpEvent(1 / mu))
    return accountant.get_epsilon(DELTA)

"""Excess risk against the number of features p and of items m: noisy gradient descent and SSP, Theorem 3, Remark 7.

A linear encoder v_j = θᵀ x_j with p ≫ m features per item, m items, and one example per user: y = u · θ*ᵀ x_j + noise.
Noisy gradient descent adds noise to all p·d numbers of a gradient; SSP adds it to the m·d that the items' statistics
have. While θ may be anything, noise outside the span of the items does not move any prediction, and neither method
depends on p. Where θ must stay in a ball that is active, noise outside the span fills the ball: every projection then
takes from the signal what noise brought, and the risk of noisy gradient descent grows with p.

The ball is that of the Frobenius norm, which is what the lower bound that the paper cites is for. The set that the
paper itself names, max_j ‖θᵀ x_j‖ bounded, does not see what is outside the span, and under it noisy gradient descent
does not depend on p either: that is the third case, "items".

Noise is drawn in float64 from NumPy here and nothing is released: this is a simulation of mechanisms with a given
noise multiplier, not a use of them on anybody's data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CASES = ("ball", "none", "items")
METHODS = ("noisy gradient descent", "SSP-i", "SSP-c")
STEPS = (4, 16, 64)
RATES = tuple(2.0 ** np.arange(-7, 4))


@dataclass(frozen=True)
class Problem:
    """Items, their statistics without noise, and the radius of the ball.

    Attributes:
        features: x, items x p, rows of norm 1.
        matrices: A_j = Σ u uᵀ.
        vectors: b_j = Σ y u.
        radius: half the norm of the best θ without a constraint.
        reach: half the largest norm of an item's vector there.
    """

    features: Floats
    matrices: Floats
    vectors: Floats
    radius: float
    reach: float

    @classmethod
    def drawn(cls, n_items: int, n_features: int, n_examples: int, dimension: int, rng: np.random.Generator) -> Problem:
        """A problem with |u| = 1, |y| ≤ 1 and the same users, whatever p is."""
        users = rng.standard_normal((n_examples, dimension))
        users /= np.linalg.norm(users, axis=1, keepdims=True)
        items = np.arange(n_examples) % n_items
        truth = rng.standard_normal((n_items, dimension)) / np.sqrt(dimension)
        labels = np.einsum("nd,nd->n", users, truth[items]) + 0.3 * rng.standard_normal(n_examples)
        labels = np.clip(labels, -1, 1)
        matrices = np.zeros((n_items, dimension, dimension))
        np.add.at(matrices, items, users[:, :, None] * users[:, None, :])
        vectors = np.zeros((n_items, dimension))
        np.add.at(vectors, items, labels[:, None] * users)
        features = rng.standard_normal((n_items, n_features))
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        best = np.linalg.solve(matrices, vectors[:, :, None])[:, :, 0]
        theta = np.linalg.lstsq(features, best, rcond=None)[0]
        return cls(
            features,
            matrices,
            vectors,
            0.5 * float(np.linalg.norm(theta)),
            0.5 * float(np.linalg.norm(best, axis=1).max()),
        )

    def risk(self, theta: Floats) -> float:
        """The squared loss, up to a constant."""
        items = self.features @ theta
        bent = np.einsum("mij,mj->mi", self.matrices, items)
        return float(((0.5 * bent - self.vectors) * items).sum())

    def gradient(self, theta: Floats, matrices: Floats, vectors: Floats) -> Floats:
        """Σ_j x_j (A_j θᵀx_j − b_j)ᵀ for these statistics."""
        slopes = np.einsum("mij,mj->mi", matrices, self.features @ theta) - vectors
        return np.asarray(self.features.T @ slopes)

    def projected(self, theta: Floats, case: str) -> Floats:
        """The nearest θ that the case allows; for items' norms, by moving each item's own component."""
        if case == "ball":
            return theta * min(1.0, self.radius / max(float(np.linalg.norm(theta)), 1e-300))
        if case == "items":
            items = self.features @ theta
            kept = items * np.minimum(1.0, self.reach / np.maximum(np.linalg.norm(items, axis=1), 1e-300))[:, None]
            gram = self.features @ self.features.T
            return np.asarray(theta + self.features.T @ np.linalg.solve(gram, kept - items))
        return theta


def descend(
    problem: Problem, case: str, noisy: Callable[[Floats], Floats], steps: int, rate: float, scale: float
) -> Floats:
    """Projected gradient descent with steps of rate/(scale √t); the mean of the last half of the iterates."""
    theta = np.zeros((problem.features.shape[1], problem.vectors.shape[1]))
    kept, total = 0, np.zeros_like(theta)
    for t in range(1, steps + 1):
        theta = problem.projected(theta - rate / scale / np.sqrt(t) * noisy(theta), case)
        if t > steps // 2:
            kept, total = kept + 1, total + theta
    return np.asarray(total / kept)


def noisy_gradient(problem: Problem, method: str, level: float, steps: int, rng: np.random.Generator) -> Any:
    """The gradient as a method sees it; noise is `level` times the sensitivity for one release of everything.

    Sensitivities for |u| = |x| = 1, |y| ≤ 1: 1 for A_j (Frobenius) and 1 for b_j, released beside each other, and 2 for
    a gradient, where |u · v| ≤ 1 is assumed in its favour.
    """
    m, d = problem.vectors.shape
    spread = level * np.sqrt(steps)

    def matrices(size: float) -> Floats:
        drawn = rng.standard_normal((m, d, d)) * size
        return np.asarray((drawn + drawn.transpose(0, 2, 1)) / 2)

    if method == "noisy gradient descent":
        shape = (problem.features.shape[1], d)
        return lambda theta: (
            problem.gradient(theta, problem.matrices, problem.vectors) + 2 * spread * rng.standard_normal(shape)
        )
    if method == "SSP-i":
        size = np.sqrt(2) * spread  # two releases a step
        return lambda theta: problem.gradient(
            theta, problem.matrices + matrices(size), problem.vectors + size * rng.standard_normal((m, d))
        )
    size = np.sqrt(2) * level
    values, turned = np.linalg.eigh(problem.matrices + matrices(size))
    repaired = np.einsum("mik,mk,mjk->mij", turned, np.maximum(values, 0), turned)
    right = problem.vectors + size * rng.standard_normal((m, d))
    return lambda theta: problem.gradient(theta, repaired, right)


def best_risk(problem: Problem, case: str) -> float:
    """The least risk that the case allows, by many exact steps."""
    scale = float(np.linalg.eigvalsh(problem.matrices).max())
    theta = np.zeros((problem.features.shape[1], problem.vectors.shape[1]))
    for _ in range(400):
        exact = problem.gradient(theta, problem.matrices, problem.vectors)
        theta = problem.projected(theta - exact / scale / 1.5, case)
    return problem.risk(theta)


def excess(
    problem: Problem, case: str, method: str, level: float, seeds: Iterable[int], grid: Sequence[tuple[int, float]]
) -> float:
    """Mean excess risk at the best number of steps and step size of the grid: every method is given its best."""
    least = best_risk(problem, case)
    scale = float(np.linalg.eigvalsh(problem.matrices).max())
    found = []
    for steps, rate in grid:
        risks = []
        for seed in seeds:
            rng = np.random.default_rng([seed, steps])
            noisy = noisy_gradient(problem, method, level, steps, rng)
            risks.append(problem.risk(descend(problem, case, noisy, steps, rate, scale)) - least)
        found.append(float(np.mean(risks)))
    return min(found)


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Of log value against log size, least squares."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-12)), 1)[0])


def curve(
    sizes: Sequence[tuple[int, int]],
    case: str,
    method: str,
    *,
    level: float,
    seeds: Sequence[int],
    grid: Sequence[tuple[int, float]],
    per_item: int = 200,
    dimension: int = 4,
) -> list[float]:
    """Excess risk over pairs (items, features); the examples per item stay the same."""
    values = []
    for n_items, n_features in sizes:
        rng = np.random.default_rng(17)
        problem = Problem.drawn(n_items, n_features, per_item * n_items, dimension, rng)
        values.append(excess(problem, case, method, level, seeds, grid))
    return values

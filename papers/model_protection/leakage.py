"""Figure 2: how one task's model shows in the others', and how noise keeps it from them.

Ten models of five features from U(0, 1), the last 100 times as long. One step of Algorithm 2 projects every model by
M = U max(0, 1 − λ/√Λ) Uᵀ, from the eigenvalues Λ of the sum of outer products. Without noise, M is the direction of the
long model, and everybody can read it off their own. With noise it is nearly the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.packed import unpack
from apportion.privacy import Budget, Purpose, SeededNoise, Session
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.task_sums import TaskModels, outer_sum

Floats = NDArray[np.float64]

N_TASKS, N_FEATURES, TIMES, PENALTY = 10, 5, 100.0, 50.0
CLIP_NORM = TIMES * math.sqrt(N_FEATURES)
EPSILON, DELTA = 0.1, 1e-5
_SHIFT = 1.5  # of the eigenvalues, in edges of the noise's spectrum: large noise then makes M the identity


@dataclass(frozen=True)
class Leak:
    """How close the other tasks' models are to the last one's: mean absolute cosine.

    Attributes:
        before: as they were learned alone.
        unprotected: after a step without noise.
        protected: after a step with the release of this library.
        shared: how far M is from the identity then, in spectral norm.
    """

    before: float
    unprotected: float
    protected: float
    shared: float


def measure(seed: int, epsilon: float = EPSILON) -> Leak:
    """One draw of models and noise."""
    rng = np.random.default_rng([seed, 2])
    models = rng.random((N_TASKS, N_FEATURES))
    models[-1] *= TIMES
    exposed = _projection(models.T @ models, 0.0)
    session = Session(Budget(epsilon, DELTA), noise=SeededNoise(seed), neighbours=ADD_REMOVE_TASK)
    total = outer_sum(TaskModels.clipped(models, CLIP_NORM), ADD_REMOVE_TASK)
    packed = session.release(Purpose.MODEL_COVARIANCE, total, session.plan(sum=1.0).one("sum"))
    released = np.asarray(unpack(packed), np.float64)
    edge = session.statement().releases[0].stddev * math.sqrt(2 * N_FEATURES)
    hidden = _projection(released, _SHIFT * edge)
    return Leak(
        _closeness(models),
        _closeness(models @ exposed),
        _closeness(models @ hidden),
        float(np.linalg.norm(hidden - np.eye(N_FEATURES), 2)),
    )


def mean_of(leaks: list[Leak]) -> Leak:
    """Over draws."""
    fields = ("before", "unprotected", "protected", "shared")
    return Leak(*(float(np.mean([getattr(leak, name) for leak in leaks])) for name in fields))


def to_markdown(by_epsilon: dict[float, Leak], draws: int) -> str:
    """A table over ε."""
    lines = [
        "# Fig. 2: one model in the others",
        "",
        f"Mean absolute cosine between the last task's model and those of the other nine, over {draws} draws.",
        f"δ = {DELTA:g}, add or remove one task. Computed with seeded noise: not for release.",
        "",
        "| ε | alone | one step without noise | one step with our release | distance of M from the identity |",
        "|---|---|---|---|---|",
    ]
    for epsilon, leak in by_epsilon.items():
        cells = (leak.before, leak.unprotected, leak.protected, leak.shared)
        lines.append(f"| {epsilon:g} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _projection(matrix: Floats, shift: float) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    roots = np.sqrt(np.maximum(values + shift, 1e-300))
    return np.asarray((vectors * np.maximum(1 - PENALTY / roots, 0.0)) @ vectors.T)


def _closeness(models: Floats) -> float:
    norms = np.maximum(np.linalg.norm(models, axis=1), 1e-100)  # a step may leave nothing of a model
    return float(np.abs(models[:-1] @ models[-1] / (norms[:-1] * norms[-1])).mean())

"""The numbers that users receive at the beginning of a round on ratings. All of them are public or released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.checks import checked_floats, refuse_non_finite
from apportion.linalg.fixed_sums import MARGIN, Runs

Floats = NDArray[np.float64]

_LARGEST_WEIGHT = 1e100  # limit of a task's weight, so that its square is finite
_SHORTEST_WEIGHTS = 1e-18  # users whose weights have a smaller norm take no part


@dataclass(frozen=True)
class TaskWeights:
    """Weights of observations that follow from their tasks: w_ij = ω_i s_j, with Σ_i w_ij² ≤ 1 for each user j.

    Attributes:
        values: ω, one per task; not negative, at most 1e100.
        only_down: whether s_j is at most 1, if ω has its own scale; otherwise each user's squares sum to 1.
    """

    values: Floats
    only_down: bool = False

    def __post_init__(self) -> None:
        """Refuse weights whose squares could not be added up."""
        checked = checked_floats("task weights", self.values, ndim=1, dtype=np.dtype(np.float64))
        if checked.size and not (checked.min() >= 0 and checked.max() <= _LARGEST_WEIGHT):
            raise InputError(
                f"Expected task weights from 0 to {_LARGEST_WEIGHT:g}; at least one is outside.", argument="values"
            )
        object.__setattr__(self, "values", checked)

    @property
    def norm(self) -> float:
        """The norm of each user's weights: 1, minus a margin for rounding."""
        return 1 - MARGIN

    @property
    def least_norm(self) -> float:
        """The least norm: smaller norms count as this one."""
        return 1.0 if self.only_down else _SHORTEST_WEIGHTS

    def of_runs(self, runs: Runs, tasks: NDArray[np.int32]) -> Floats:
        """Return the weight of every observation of some users, given their tasks."""
        return np.asarray(self.within_bound(self.values[tasks], runs))

    def within_bound(self, raw: Any, runs: Any, arrays: Any = np) -> Any:
        """Scale each user's numbers so that their squares sum to 1; `arrays` is NumPy, or torch for tensors."""
        norms = arrays.sqrt(runs.sums()(raw * raw))
        factors = self.norm / arrays.where(norms > self.least_norm, norms, self.least_norm)
        return raw * factors[runs.owner]


@dataclass(frozen=True)
class RatingRound:
    """The numbers of one round.

    Attributes:
        features: [n_tasks, 2 + latent]: 1, item bias, item vector.
        trust: [n_tasks], weight of an observation of this task in the user's regression.
        base: [d, d], precision of the prior of a user's (bias, factor on item biases, taste).
        base_rhs: [d], precision times mean of that prior.
        scales: [d - 1], relative size of the coordinates of a row.
        value_range: public range of the values; values outside are clipped to it.
        centre: the number that is subtracted from a value to get a label.
        unit: values per unit of label.
        clip_norm: norm to which a user's rows are clipped together.
        step: the step of the lattice to which the rows are truncated, a power of two.
        summary_clip: norm to which a user's vote on shared moments is clipped.
        summary_step: the step of the lattice of votes.
        starting: whether item vectors are stand-ins. Then residuals are computed from biases alone, the factor on item
            biases is 1, and tastes are scaled to a public length.
        start_norm: that length.
        vector_weights: [n_tasks], from 0 to 1: by how much the coordinates of a row behind the first are multiplied. It
            is 0 for tasks that the round learns no vector of, so that more of a user's norm is left for the others.
            None for ones.
        most_leverage: the cap on the leverage of an observation in its user's regression.
        full_vote: the total weight from which on a user's vote counts in full.
    """

    features: Floats
    trust: Floats
    base: Floats
    base_rhs: Floats
    scales: Floats
    value_range: tuple[float, float]
    centre: float
    unit: float
    clip_norm: float
    step: float
    summary_clip: float
    summary_step: float
    starting: bool = False
    start_norm: float = 1.0
    vector_weights: Any = None
    most_leverage: float = 0.95
    full_vote: float = 10.0
    least_weight: float = 1e-9
    shortest_taste: float = 1e-12
    shortest_part: float = 1e-12

    def __post_init__(self) -> None:
        """Bring the arrays to one form. Refuse arrays that do not fit together."""
        float64 = np.dtype(np.float64)
        features = checked_floats("features", self.features, ndim=2, dtype=float64)
        n_tasks, dim = features.shape
        if dim < 2:
            raise InputError(f"Expected features (1, item bias, item vector), got {dim} columns.", argument="features")
        shapes = {"trust": (n_tasks,), "base": (dim, dim), "base_rhs": (dim,), "scales": (dim - 1,)}
        if self.vector_weights is None:
            object.__setattr__(self, "vector_weights", np.ones(n_tasks))
        shapes["vector_weights"] = (n_tasks,)
        checked = {
            name: checked_floats(name, getattr(self, name), shape=s, dtype=float64) for name, s in shapes.items()
        }
        refuse_non_finite(features=features, **checked)
        for name, array in {"features": features, **checked}.items():
            object.__setattr__(self, name, array)
        _check_vector_weights(checked["vector_weights"])
        _check_steps(self.clip_norm, self.step)
        _check_steps(self.summary_clip, self.summary_step)

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return int(self.features.shape[0])

    @property
    def dim(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    @property
    def width(self) -> int:
        """Number of coordinates of a row."""
        return self.dim - 1

    @property
    def summary_width(self) -> int:
        """Number of coordinates of a vote."""
        return 5 + len(self.summary_scales)

    @cached_property
    def summary_scales(self) -> Floats:
        """Relative noise of the packed second moments of tastes: 1 on the diagonal, 1/√2 off it."""
        latent = self.dim - 2
        return np.array([1.0 if r == c else math.sqrt(0.5) for r in range(latent) for c in range(r + 1)])


def _check_vector_weights(weights: NDArray[np.floating[Any]]) -> None:
    if weights.size and not (weights.min() >= 0 and weights.max() <= 1):
        raise InputError("Expected weights of vectors from 0 to 1; at least one is outside.", argument="vector_weights")


def _check_steps(norm: float, step: float) -> None:
    if not (step > 0 and math.frexp(step)[0] == 0.5):
        raise InputError(f"Expected a step that is a power of two, got {step}.", argument="step")
    if not 0 < norm / step <= 2.0**50:
        raise InputError(f"Expected a clip norm of at most 2^50 steps, got {norm / step:g}.", argument="norm")

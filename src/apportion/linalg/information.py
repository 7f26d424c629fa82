"""The information of noisy statistics about every task's parameters θ: a precision and a score, for a posterior.

For b_i = t_i A θ_i + e_i with cov(e_i) = V_i the likelihood of θ_i is exp(u_iᵀ θ − θᵀ W_i θ / 2) with the precision
W_i = t_i² Aᵀ V_i⁻¹ A and the score u_i = t_i Aᵀ V_i⁻¹ b_i. Everything is computed task by task, by operations in one
fixed order, so that the compiled kernel and NumPy agree in every bit, on every processor.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import kernel
from apportion.linalg.backend import active_backend
from apportion.linalg.checks import checked_floats
from apportion.linalg.fixed_sums import Runs, dot
from apportion.linalg.packed import packed_size, unpack

Floats = NDArray[np.float64]

_LARGEST = 1e100  # limit of a result: beyond it there is no solution
_TASKS_AT_A_TIME = 1024  # tasks whose precisions are added up at a time


@dataclass(frozen=True)
class NoisyDesign:
    """How the statistics b_i of all tasks depend on their parameters: b_i = t_i A θ_i + e_i.

    The errors have the covariance V_i = g_i S + s_i P + diag(ν); S is given with the statistics, because EM changes it.

    Attributes:
        design: A, [d, d].
        shape: P, [d, d], symmetric; the lower triangle is read.
        noise_variance: ν, [d].
        exposure: t, one per task.
        signal: g, one per task.
        sampling: s, one per task.
    """

    design: Floats
    shape: Floats
    noise_variance: Floats
    exposure: Floats
    signal: Floats
    sampling: Floats

    def __post_init__(self) -> None:
        """Bring the arrays to one form. Refuse arrays that do not fit together."""
        n_tasks, dim = len(self.exposure), len(self.design)
        shapes = dict.fromkeys(("design", "shape"), (dim, dim)) | {"noise_variance": (dim,)}
        for name, shape in (shapes | dict.fromkeys(("exposure", "signal", "sampling"), (n_tasks,))).items():
            array = checked_floats(name, getattr(self, name), shape=shape, dtype=np.dtype(np.float64))
            object.__setattr__(self, name, array)


@dataclass(frozen=True)
class Information:
    """The information of statistics about tasks.

    Attributes:
        scores: u, [n_tasks, d].
        total: the sum of W over all tasks, [d, d].
        each: W of every task, packed, [n_tasks, d(d+1)/2]; without rows if it was not asked for.
    """

    scores: Floats
    total: Floats
    each: Floats


def information(
    model: NoisyDesign, spread: Floats, statistics: Floats, *, each: bool, threads: int | None = None
) -> Information:
    """Return the score and the precision of every task; zero if they are not finite or above 1e100.

    Args:
        model: how statistics depend on parameters.
        spread: S, [d, d], symmetric; the lower triangle is read.
        statistics: b, [n_tasks, d].
        each: whether every task's precision is wanted, not only their sum.
        threads: number of threads; None is all.

    >>> one = np.ones((1, 1))
    >>> model = NoisyDesign(one, 0 * one, np.full(1, 4.0), np.full(1, 2.0), np.zeros(1), np.zeros(1))
    >>> information(model, 0 * one, np.full((1, 1), 6.0), each=False)  # b = 2 θ + e with variance 4
    Information(scores=array([[3.]]), total=array([[1.]]), each=array([], shape=(0, 1), dtype=float64))
    """
    n_tasks, dim = len(model.exposure), len(model.design)
    seen: Floats = np.asarray(checked_floats("statistics", statistics, shape=(n_tasks, dim)), np.float64)
    held: Floats = np.asarray(checked_floats("spread", spread, shape=(dim, dim)), np.float64)
    if dim == 0:
        raise InputError("Expected at least one parameter for each task.", argument=None)
    if active_backend() == "compiled":
        scores, total, found = _by_kernel(model, held, seen, each, threads)
    else:
        scores, total, found = _by_numpy(model, held, seen, each)
    return Information(scores, np.asarray(unpack(total)), found)


class _Arguments(ctypes.Structure):
    """`InformationArguments` of `_users.cpp`."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("n_tasks", "dim")]
        + [(name, ctypes.c_void_p) for name in ("design", "spread", "shape", "noise", "exposure", "signal", "sampling")]
        + [(name, ctypes.c_void_p) for name in ("statistics", "scores", "each", "total")]
        + [("largest", ctypes.c_double)]
    )


def _by_kernel(
    model: NoisyDesign, spread: Floats, statistics: Floats, each: bool, threads: int | None
) -> tuple[Floats, Floats, Floats]:
    n_tasks, dim = statistics.shape
    scores, total = np.empty((n_tasks, dim)), np.zeros(packed_size(dim))
    found = np.empty((n_tasks if each else 0, packed_size(dim)))
    arrays: dict[str, NDArray[Any]] = {"design": model.design, "spread": spread, "shape": model.shape}
    arrays |= {"noise": model.noise_variance, "exposure": model.exposure, "signal": model.signal}
    arrays |= {"sampling": model.sampling, "statistics": statistics, "scores": scores, "total": total}
    arguments = _Arguments(n_tasks=n_tasks, dim=dim, largest=_LARGEST)
    for name, array in (arrays | {"each": found} if each else arrays).items():
        setattr(arguments, name, array.ctypes.data)
    kernel.information(arguments, threads=threads)
    return scores, total, found


def _by_numpy(model: NoisyDesign, spread: Floats, statistics: Floats, each: bool) -> tuple[Floats, Floats, Floats]:
    """Do what `_information.hpp` does, operation by operation, for all tasks at once."""
    dim = statistics.shape[1]
    with np.errstate(all="ignore"):  # results that are not finite become zero below
        lower, reciprocals = _factor(model, spread)
        columns = [[model.exposure * model.design[r, c] for r in range(dim)] for c in range(dim)]
        solved = [_substituted(lower, reciprocals, column) for column in [*columns, list(statistics.T)]]
        scores = np.stack([dot(solved[a], solved[dim]) for a in range(dim)], axis=1)
        found = np.stack([dot(solved[a], solved[b]) for a in range(dim) for b in range(a + 1)], axis=1)
        diagonal = [a * (a + 3) // 2 for a in range(dim)]
        sizes = np.concatenate([found[:, diagonal], np.abs(scores)], axis=1)
        good = np.asarray(sizes <= _LARGEST).all(axis=1)
    scores[~good], found[~good] = 0.0, 0.0
    return scores, _sum_of_turns(found), found if each else found[:0]


def _factor(model: NoisyDesign, spread: Floats) -> tuple[list[list[Floats]], list[Floats]]:
    """Return lower Cholesky factors of all V without their diagonal, and its reciprocals; NaN if there is no factor."""
    dim = len(model.design)
    lower: list[list[Floats]] = [[] for _ in range(dim)]
    reciprocals: list[Floats] = []
    for j in range(dim):
        for i in range(j, dim):
            entry = model.signal * spread[i, j] + model.sampling * model.shape[i, j]
            if i == j:
                entry = entry + model.noise_variance[i]
            for k in range(j):
                entry = entry - lower[j][k] * lower[i][k]
            if i == j:
                reciprocals.append(1 / np.sqrt(entry))
            else:
                lower[i].append(entry * reciprocals[j])
    return lower, reciprocals


def _substituted(lower: list[list[Floats]], reciprocals: list[Floats], right: list[Floats]) -> list[Floats]:
    """Return L⁻¹ times one column."""
    solved: list[Floats] = []
    for r, entry in enumerate(right):
        for k in range(r):
            entry = entry - lower[r][k] * solved[k]
        solved.append(entry * reciprocals[r])
    return solved


def _sum_of_turns(found: Floats) -> Floats:
    """Return the sum over tasks in the order of the kernel: some tasks at a time, in eight lanes, then turn by turn."""
    n_tasks = len(found)
    sums = Runs(np.append(np.arange(0, n_tasks, _TASKS_AT_A_TIME), n_tasks)).sums()
    total = np.zeros(found.shape[1])
    for turn in np.stack([sums(column) for column in found.T], axis=1):
        total += turn
    return total

"""What training does to frequent and rare classes. It is computed from raw data and not covered by ε.

It covers losses and accuracies by group of classes, the alignment of gradients within a class (fig. 1 of the heavy-tail
paper), and the law of its section 2: the gradient and the Hessian of class k are proportional to its frequency π_k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from apportion.training.per_unit import Loss, gradient_way

NOT_COVERED = "computed from raw data, not covered by epsilon"
Floats = NDArray[np.float64]
_ROWS = 256  # rows at a time


@dataclass(frozen=True)
class GroupScores:
    """Losses and accuracies of raw rows, overall and by group of classes. Not covered by ε.

    Attributes:
        loss: mean over all rows.
        accuracy: mean over all rows.
        group_loss: mean over the rows of each group; NaN for a group without rows.
        group_accuracy: likewise.
    """

    loss: float
    accuracy: float
    group_loss: Floats
    group_accuracy: Floats


def frequency_groups(labels: ArrayLike, edges: ArrayLike) -> NDArray[np.int64]:
    """Return the group of each row by the frequency of its class; 0 for classes at least as frequent as the first edge.

    Args:
        labels: the class of each row, from 0.
        edges: numbers of rows, descending; group k has classes below edge k - 1 and not below edge k.
    """
    classes = np.asarray(labels, np.int64)
    counts = np.bincount(classes.ravel())
    return np.searchsorted(-np.asarray(edges, np.int64), -counts[classes], side="left").astype(np.int64)


@torch.no_grad()  # type: ignore[untyped-decorator]
def scores_by_group(
    module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, class_groups: ArrayLike, n_class_groups: int
) -> GroupScores:
    """Score a module on raw rows. Outputs have their classes on axis 1; each target has a group."""
    lost: list[Tensor] = []
    right: list[Tensor] = []
    for first in range(0, len(inputs), _ROWS):
        part = slice(first, first + _ROWS)
        outputs = module(inputs[part])
        lost.append(loss(outputs, targets[part]).double().cpu())
        right.append((outputs.argmax(1) == targets[part]).double().cpu())
    losses, hits = torch.cat(lost).numpy().ravel(), torch.cat(right).numpy().ravel()
    places = np.asarray(class_groups, np.int64).ravel()
    counts = np.bincount(places, minlength=n_class_groups).astype(np.float64)
    counts[counts == 0] = np.nan
    by_group = [np.bincount(places, values, minlength=n_class_groups) / counts for values in (losses, hits)]
    return GroupScores(float(losses.mean()), float(hits.mean()), by_group[0], by_group[1])


@dataclass(frozen=True)
class Alignment:
    """Cosines of the gradients of pairs of raw rows. Not covered by ε.

    Attributes:
        cosines: of all pairs, in the order of the rows' classes.
        within: mean over pairs of one class.
        across: mean over pairs of two classes.
    """

    cosines: Floats
    within: float
    across: float


def gradient_alignment(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Alignment:
    """Return how well gradients of rows are aligned within a class and across classes (fig. 1)."""
    order = torch.argsort(targets, stable=True)
    gradients = torch.cat(list(_row_gradients(module, loss, inputs[order], targets[order])))
    units = gradients / torch.linalg.vector_norm(gradients, dim=1, keepdim=True).clamp_min(1e-30)
    cosines = (units @ units.T).double().cpu().numpy()
    classes = targets[order].cpu().numpy()
    same = classes[:, None] == classes[None, :]
    others = ~np.eye(len(classes), dtype=bool)
    return Alignment(cosines, _mean(cosines[same & others]), _mean(cosines[~same]))


@dataclass(frozen=True)
class ClassLaw:
    """Gradient and Hessian of a linear softmax model by class, and the law of section 2. Not covered by ε.

    Attributes:
        frequency: π_k.
        gradient: length of the gradient of the mean loss in class k's weights.
        gradient_law: (1 − p_k) π_k ‖x̄_k‖, p_k the mean probability of the right class over its rows.
        curvature: trace of the Hessian of the mean loss in class k's weights.
        curvature_law: p_k (1 − p_k) π_k tr H̄_k.
    """

    frequency: Floats
    gradient: Floats
    gradient_law: Floats
    curvature: Floats
    curvature_law: Floats


def class_law(weights: ArrayLike, inputs: ArrayLike, labels: ArrayLike, bias: ArrayLike | None = None) -> ClassLaw:
    """Compare gradients and Hessians by class with the law.

    Args:
        weights: of the linear model, one row per class.
        inputs: one row each.
        labels: the class of each row.
        bias: of the linear model, if it has one.
    """
    sums = _ClassSums(np.asarray(weights, np.float64), 0.0 if bias is None else np.asarray(bias, np.float64))
    x, y = np.asarray(inputs), np.asarray(labels, np.int64)
    for first in range(0, len(y), _ROWS):
        part = slice(first, first + _ROWS)
        sums.add(np.asarray(x[part], np.float64), y[part])
    return sums.law()


@torch.no_grad()  # type: ignore[untyped-decorator]
def law_of_head(module: nn.Module, inputs: Tensor, labels: Tensor) -> ClassLaw | None:
    """Return the law for the linear layer whose outputs are the module's scores; None if there is no such layer."""
    sums: _ClassSums | None = None
    for first in range(0, len(inputs), _ROWS):
        part = slice(first, first + _ROWS)
        result = _into_head(module, inputs[part])
        if result is None:
            return None
        head, features = result
        if sums is None:
            bias = 0.0 if head.bias is None else head.bias.double().cpu().numpy()
            sums = _ClassSums(head.weight.double().cpu().numpy(), bias)
        sums.add(features.double().cpu().numpy(), labels[part].cpu().numpy())
    return None if sums is None else sums.law()


def _into_head(module: nn.Module, inputs: Tensor) -> tuple[nn.Linear, Tensor] | None:
    """Return the linear layer that computes the module's scores, and its input."""
    passed: list[tuple[nn.Linear, Tensor, Tensor]] = []
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    hooks = [
        layer.register_forward_hook(lambda part, given, output: passed.append((part, given[0], output)))
        for layer in layers
    ]
    try:
        outputs = module(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not passed or passed[-1][2] is not outputs or outputs.dim() != 2:
        return None
    return passed[-1][0], passed[-1][1]


class _ClassSums:
    """The sums over rows that the law needs, added in batches."""

    def __init__(self, weights: Floats, bias: Floats | float) -> None:
        self._weights = weights
        self._bias = bias
        n_classes = len(weights)
        self._counts, self._right, self._curvature, self._squares = np.zeros((4, n_classes))
        self._slopes, self._inputs = np.zeros((2, *weights.shape))

    def add(self, x: Floats, y: NDArray[np.int64]) -> None:
        """Add some rows and their classes."""
        scores = x @ self._weights.T + self._bias
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        hot = np.zeros_like(p)
        hot[np.arange(len(y)), y] = 1.0
        squares = np.square(x).sum(axis=1)
        self._counts += hot.sum(axis=0)
        self._right += (hot * p).sum(axis=0)
        self._curvature += (p * (1 - p)).T @ squares
        self._squares += hot.T @ squares
        self._slopes += (p - hot).T @ x
        self._inputs += hot.T @ x

    def law(self) -> ClassLaw:
        """Return means over all rows, and what the law predicts."""
        n, counts = self._counts.sum(), np.maximum(self._counts, 1.0)
        frequency, right = self._counts / n, self._right / counts
        return ClassLaw(
            frequency,
            np.linalg.norm(self._slopes / n, axis=1),
            (1 - right) * frequency * np.linalg.norm(self._inputs / counts[:, None], axis=1),
            self._curvature / n,
            right * (1 - right) * frequency * (self._squares / counts),
        )


def _row_gradients(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Iterator[Tensor]:
    """Yield whole gradients of rows, in batches."""
    way = gradient_way(module, loss, inputs, targets)
    for first in range(0, len(inputs), _ROWS):
        part = slice(first, first + _ROWS)
        n = len(inputs[part])
        blocks = way.blocks(inputs[part], targets[part], torch.arange(n + 1))
        yield torch.cat([block.each().flatten(1) for block in blocks], dim=1)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")

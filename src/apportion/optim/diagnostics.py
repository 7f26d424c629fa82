"""What training does to frequent and rare classes, computed from raw data: nothing here is covered by ε.

Losses and accuracies by group of classes; how well gradients of one class are aligned (fig. 1 of the heavy-tail paper);
the law of its section 2, by which the gradient and the Hessian of class k are proportional to its frequency π_k; the
fraction of clipped gradients; and the noise relative to what each group adds to a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from apportion.optim.known_noise import AddedNoise
from apportion.optim.per_unit import Loss, gradient_way, trainable

NOT_COVERED = "computed from raw data, not covered by epsilon"
Floats = NDArray[np.float64]
_ROWS = 256  # at a time


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
    """The group of each row by how often its class occurs: 0 for classes at least as frequent as the first edge.

    Args:
        labels: the class of each row, from 0.
        edges: numbers of rows, falling; group k has classes below edge k - 1 and not below edge k.
    """
    classes = np.asarray(labels, np.int64)
    counts = np.bincount(classes.ravel())
    return np.searchsorted(-np.asarray(edges, np.int64), -counts[classes], side="left").astype(np.int64)


@torch.no_grad()  # type: ignore[untyped-decorator]
def scores_by_group(
    module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, groups: ArrayLike, n_groups: int
) -> GroupScores:
    """Score a module on raw rows; outputs have their classes on axis 1, groups are one for each target."""
    lost: list[Tensor] = []
    right: list[Tensor] = []
    for first in range(0, len(inputs), _ROWS):
        part = slice(first, first + _ROWS)
        outputs = module(inputs[part])
        lost.append(loss(outputs, targets[part]).double().cpu())
        right.append((outputs.argmax(1) == targets[part]).double().cpu())
    losses, hits = torch.cat(lost).numpy().ravel(), torch.cat(right).numpy().ravel()
    places = np.asarray(groups, np.int64).ravel()
    counts = np.bincount(places, minlength=n_groups).astype(np.float64)
    counts[counts == 0] = np.nan
    by_group = [np.bincount(places, values, minlength=n_groups) / counts for values in (losses, hits)]
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
    """How well gradients of rows are aligned within a class and across classes (fig. 1)."""
    order = torch.argsort(targets, stable=True)
    gradients = torch.cat(list(_row_gradients(module, loss, inputs[order], targets[order])))
    units = gradients / torch.linalg.vector_norm(gradients, dim=1, keepdim=True).clamp_min(1e-30)
    cosines = (units @ units.T).double().cpu().numpy()
    classes = targets[order].cpu().numpy()
    same = classes[:, None] == classes[None, :]
    others = ~np.eye(len(classes), dtype=bool)
    return Alignment(cosines, _mean(cosines[same & others]), _mean(cosines[~same]))


def gradient_lengths(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Floats:
    """Length of each row's gradient, before any clip."""
    way, found = gradient_way(module, loss, inputs, targets), []
    for first in range(0, len(inputs), _ROWS):
        part = slice(first, first + _ROWS)
        blocks = way.blocks(inputs[part], targets[part], torch.arange(len(inputs[part]) + 1))
        squares = torch.stack([block.squared_norms(None).double().cpu() for block in blocks]).sum(0)
        found.append(squares.clamp_min(0).sqrt())
    return np.asarray(torch.cat(found).numpy(), np.float64)


def clipped_fraction(lengths: Floats, clip_norm: float) -> float:
    """The fraction of gradients that are longer than the clip norm."""
    return float((lengths > clip_norm).mean()) if len(lengths) else 0.0


def noise_to_signal(
    module: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    groups: ArrayLike,
    n_groups: int,
    clip_norm: float,
    noise: AddedNoise,
) -> Floats:
    """Length of a step's noise over the length of what each group of rows adds to it after clipping."""
    width = sum(p.numel() for p in trainable(module).values())
    sums = torch.zeros((n_groups, width), dtype=torch.float64)
    places, first = torch.as_tensor(np.asarray(groups, np.int64)), 0
    for gradients in _row_gradients(module, loss, inputs, targets):
        lengths = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        clipped = (gradients * (clip_norm / lengths.clamp_min(clip_norm))).double().cpu()
        sums.index_add_(0, places[first : first + len(clipped)], clipped)
        first += len(clipped)
    signal = torch.linalg.vector_norm(sums, dim=1).numpy() / noise.divisor
    return np.asarray(np.sqrt(width * noise.variance) / np.maximum(signal, 1e-300), np.float64)


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


def class_law(weights: ArrayLike, inputs: ArrayLike, labels: ArrayLike) -> ClassLaw:
    """Compare gradients and Hessians by class with what the law says of them.

    Args:
        weights: of the linear model, one row per class.
        inputs: one row each.
        labels: the class of each row.
    """
    w, x, y = np.asarray(weights, np.float64), np.asarray(inputs, np.float64), np.asarray(labels, np.int64)
    scores = x @ w.T
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores)
    p /= p.sum(axis=1, keepdims=True)
    hot = np.zeros_like(p)
    hot[np.arange(len(y)), y] = 1.0
    counts = np.maximum(hot.sum(axis=0), 1.0)
    frequency, squares = hot.sum(axis=0) / len(y), np.square(x).sum(axis=1)
    right = (hot * p).sum(axis=0) / counts
    means = hot.T @ x / counts[:, None]
    return ClassLaw(
        frequency,
        np.linalg.norm((p - hot).T @ x / len(y), axis=1),
        (1 - right) * frequency * np.linalg.norm(means, axis=1),
        (p * (1 - p)).T @ squares / len(y),
        right * (1 - right) * frequency * (hot.T @ squares / counts),
    )


def _row_gradients(module: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> Iterator[Tensor]:
    """Whole gradients of rows, some at a time."""
    way = gradient_way(module, loss, inputs, targets)
    for first in range(0, len(inputs), _ROWS):
        part = slice(first, first + _ROWS)
        n = len(inputs[part])
        blocks = way.blocks(inputs[part], targets[part], torch.arange(n + 1))
        yield torch.cat([block.each().flatten(1) for block in blocks], dim=1)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")

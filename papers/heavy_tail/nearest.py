"""Nearest class means: one release of the whole budget instead of steps.

A row, centred by the released mean and scaled to length 1, is added to the sum of its class: a unit vector in all
classes together, so the sums have sensitivity 1 for adding or removing a row. They get Gaussian noise once. A class c
with m̃_c rows by released counts and sum s̃_c has the score x · s̃_c / (m̃_c + κ) + λ log m̃_c. Descent adds noise to a
rare class at every step, most of it in columns where the class has nothing to say; here it has noise once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from papers.heavy_tail.long_tail import LongTail
from papers.heavy_tail.search import Place

Floats = NDArray[np.float64]

_RATE = 100.0  # λ is an effective rate over this, so that searches start at 0.005 to 0.16


def accuracies(
    data: LongTail, mean: Floats, frequencies: Floats, mu: float, places: Sequence[Place], seed: int
) -> Floats:
    """Return accuracies by place and group.

    Args:
        data: the training rows.
        mean: of the inputs, as released.
        frequencies: of the classes, as released.
        mu: the Gaussian-DP parameter of the sums.
        places: of the settings: λ is the effective rate over 100, κ the constant.
        seed: of the noise.
    """
    rows = centred_rows(data, mean)
    sums = class_sums(rows, data.labels, data.n_classes)
    sums += np.random.default_rng([seed, 3]).standard_normal(sums.shape) / mu
    products, counts = rows @ sums.T, frequencies * len(rows)
    shown = [products / (counts + p.constant_value) + p.effective_rate / _RATE * np.log(counts) for p in places]
    right = [scores.argmax(1) == data.labels for scores in shown]
    groups = range(len(data.sizes))
    return np.array([[one[data.groups == group].mean() for group in groups] for one in right])


def centred_rows(data: LongTail, mean: Floats) -> Floats:
    """Return the inputs less a released mean, each of length 1; or 0 where nothing is left."""
    rows = data.inputs - mean
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float64)


def class_sums(rows: Floats, labels: NDArray[np.int64], n_classes: int) -> Floats:
    """Return the sum of the rows of each class; a row of length 1 moves them by 1."""
    sums = np.zeros((n_classes, rows.shape[1]))
    np.add.at(sums, labels, rows)
    return sums

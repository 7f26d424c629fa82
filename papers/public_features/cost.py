"""The cost law: Proposition 2 and figures 5 and 6 by formula, and SSP-c's cost by the clock.

SSP-c costs O(D d²) for the statistics once and O(c + d²) per item and epoch, c being a forward and a backward pass of
one item; DP-SGD costs at least c for every batch that an item is in. β_j = (D/B)(1 − (1 − p_j)^B) batches of an epoch
contain item j, p_j being its share of the D examples.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from apportion.published.public_features.encoders import TwoLayerEncoder
from apportion.published.public_features.statistics import Surrogate
from apportion.published.public_features.training import EncoderTrainer, Training
from papers.public_features.stand_ins import GROUPS, item_features

Floats = NDArray[np.float64]


def power_law(n_items: int, exponent: float) -> Floats:
    """Shares of items that fall off with their rank (fig. 5, left)."""
    weights = np.arange(1, n_items + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def visits(shares: Floats, n_examples: int, batch_size: int) -> float:
    """β/m: in how many batches of an epoch an item is, on average (fig. 5, right)."""
    batches = n_examples / batch_size
    return float((batches * -np.expm1(batch_size * np.log1p(-shares))).mean())


def cost_ratio(
    shares: Floats, n_examples: int, batch_size: int, epochs: float, pass_cost: float, dimension: int
) -> float:
    """SSP-c over DP-SGD, eq. 9 without its constant (fig. 6)."""
    m, squared = len(shares), dimension**2
    ours = n_examples * squared + epochs * m * (pass_cost + squared)
    return ours / (pass_cost * epochs * m * visits(shares, n_examples, batch_size))


def training_seconds(
    n_items: int, epochs: int, batch_size: int, hidden: int, dimension: int = 8, repeats: int = 3
) -> float:
    """Processor seconds of training on given statistics, the least of some repeats; one thread."""
    rng = np.random.default_rng(0)
    rows = item_features(n_items, rng)
    curvature = np.tile(np.eye(dimension), (n_items, 1, 1))
    surrogate = Surrogate(curvature, rng.standard_normal((n_items, dimension)))
    torch.manual_seed(0)
    trainer = EncoderTrainer(
        TwoLayerEncoder(GROUPS, dimension, hidden=hidden, sparse=False), rows, Training(epochs, batch_size)
    )
    steps = Training(epochs, batch_size).steps(n_items)
    trainer.descend(surrogate, 2)
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        trainer.descend(surrogate, steps)
        taken.append(time.process_time() - start)
    return min(taken)


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Of log value against log size, least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def table_of_ratios(
    n_examples: int = 10**6, n_items: int = 1000, exponent: float = 1.0, dimension: int = 32
) -> list[list[str]]:
    """Fig. 6 as a table: batch sizes down, epochs across, for encoders with a hidden layer (c = d²) and without."""
    shares, rows = power_law(n_items, exponent), []
    for name, pass_cost in (("c = d²", float(dimension**2)), ("c = d", float(dimension))):
        for batch_size in (100, 1000, 10_000, 100_000):
            ratios = [
                cost_ratio(shares, n_examples, batch_size, epochs, pass_cost, dimension)
                for epochs in (1, 10, 100, 1000)
            ]
            rows.append([name, str(batch_size), *[f"{ratio:.3g}" for ratio in ratios]])
    return rows

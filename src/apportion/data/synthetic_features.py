"""Synthetic ratings and clicks of items with informative public features, with a known truth.

Every item has one to three words and a year. Its bias and its factors are a linear function of these, plus a part of
its own. Users, popularity and noise are as in `synthetic`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from apportion.data.features import ItemFeatures
from apportion.data.interactions import Interactions
from apportion.data.synthetic import ClickTruth, RatingTruth, long_tailed_clicks, long_tailed_ratings

__all__ = ["DescribedItems", "clicks_with_features", "described_items", "ratings_with_features"]


@dataclass(frozen=True, eq=False)
class DescribedItems:
    """Items with words and a year, and how far these explain what users think of them.

    Attributes:
        features: the public features.
        matrix: the same as a dense matrix: words, then the standardised year.
    """

    features: ItemFeatures
    matrix: NDArray[np.float64]


def described_items(n_items: int, *, n_words: int = 12, rng: np.random.Generator) -> DescribedItems:
    """Generate items 0 to n_items - 1, each with one to three words and a year."""
    import pyarrow as pa

    counts = rng.integers(1, 4, n_items)
    order = np.argsort(rng.random((n_items, n_words)), axis=1)[:, :3]
    words = [[f"word {w:02d}" for w in row[:count]] for row, count in zip(order, counts, strict=True)]
    years = rng.integers(1950, 2001, n_items)
    frame = pa.table({"item": np.arange(n_items), "words": words, "year": years})
    matrix = np.zeros((n_items, n_words + 1))
    matrix[
        np.repeat(np.arange(n_items), counts), np.concatenate([r[:c] for r, c in zip(order, counts, strict=True)])
    ] = 1
    matrix[:, -1] = (years - years.mean()) / years.std()
    return DescribedItems(ItemFeatures.from_frame(frame, kinds={"year": "binned"}, bins=6), matrix)


def ratings_with_features(
    n_users: int,
    n_items: int,
    n_observations: int,
    *,
    rng: np.random.Generator,
    rank: int = 3,
    explained: float = 0.7,
    noise_stddev: float = 0.8,
) -> tuple[Interactions, ItemFeatures, RatingTruth]:
    """Generate ratings; features explain the fraction `explained` of the variance of items' biases and factors."""
    data, truth = long_tailed_ratings(n_users, n_items, n_observations, rank=rank, rng=rng, noise_stddev=noise_stddev)
    items = described_items(n_items, rng=rng)
    changed = replace(
        truth,
        task_bias=_mixed(truth.task_bias[:, None], items.matrix, explained, rng)[:, 0],
        task_factors=_mixed(truth.task_factors, items.matrix, explained, rng),
    )
    noise = noise_stddev * rng.standard_normal(data.n_observations)
    values = np.clip(changed.expected(data.users, data.tasks) + noise, 1.0, 5.0).astype(np.float32)
    rated = Interactions.from_codes(data.users, data.tasks, values, user_ids=data.user_ids, task_ids=data.task_ids)
    return rated, items.features, changed


def clicks_with_features(
    n_users: int,
    n_items: int,
    n_observations: int,
    *,
    rng: np.random.Generator,
    rank: int = 4,
    words_per_taste: int = 2,
    stray: float = 0.2,
) -> tuple[Interactions, ItemFeatures, ClickTruth]:
    """Generate clicks.

    An item has a word of the taste that likes it best and, with probability `stray`, any other word.
    """
    import pyarrow as pa

    data, truth = long_tailed_clicks(n_users, n_items, n_observations, rank=rank, rng=rng, skew=0.7, taste_strength=2.5)
    lift = truth.profiles / np.maximum(truth.profiles.mean(axis=0), 1e-12)
    best = np.argmax(lift, axis=0)
    true_word = best * words_per_taste + rng.integers(0, words_per_taste, n_items)
    other = rng.integers(0, rank * words_per_taste, n_items)
    has_other = rng.random(n_items) < stray
    words = [[f"word {w:02d}" for w in (a, b)[: 1 + c]] for a, b, c in zip(true_word, other, has_other, strict=True)]
    frame = pa.table({"item": data.task_ids.ids, "words": words})
    return data, ItemFeatures.from_frame(frame), truth


def _mixed(
    own: NDArray[np.float32], matrix: NDArray[np.float64], explained: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return columns of the same spread; part of their variance is a random linear function of the features."""
    centred = matrix - matrix.mean(axis=0)
    shared = centred @ rng.standard_normal((matrix.shape[1], own.shape[1]))
    shared *= own.std(axis=0) / np.maximum(shared.std(axis=0), 1e-12)
    mixed = np.sqrt(explained) * shared + np.sqrt(1 - explained) * (own - own.mean(axis=0))
    return np.asarray(mixed + own.mean(axis=0), np.float32)

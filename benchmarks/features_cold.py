"""Claim: items held out of training entirely are ranked from their features alone, better than by chance.

A tenth of the movies of MovieLens 1M, chosen at random, is taken out of the training data; the rest is fitted with
genres and years as public features, at ε = 5 and δ = 1e-5, everything in the budget. Users then meet the held-out
movies only:

- clicks: Recall@20 among the held-out movies, from what a user clicked among the others; against a random order,
  against popularity as features predict it, and against true popularity among the held-out movies, which nobody could
  know;
- ratings: RMSE of held-out movies, against the user's own mean, which is all that is known without features.

The claim is that features beat a random order and predicted popularity on clicks, and the user's mean on ratings, on
MovieLens and on generated data. The quick form is the generated part, smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.features import ItemFeatures
from apportion.data.synthetic_features import clicks_with_features, ratings_with_features
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender
from apportion.recommend.model import ItemModel
from benchmarks import movielens
from benchmarks.claim import Outcome, print_table
from benchmarks.features_movielens import ml1m_features

EPSILON = 5.0
SEEDS = range(3)
_SHARE = 0.1
_K = 20
_OWN_MEAN = "user's own mean"


@dataclass(frozen=True)
class ColdItems:
    """Data without some items, and what the same users do with these.

    Attributes:
        train: rows of the other items, whose list is all that training knows.
        cold: rows of the held-out items, under a list of these alone.
        items: the held-out items' features, as a model reads them.
    """

    train: Interactions
    cold: Interactions
    items: ItemFeatures


def measure(quick: bool) -> Outcome:
    """Measure clicks and ratings, on MovieLens and on generated data."""
    rng = np.random.default_rng(1)
    size = 1200 if quick else 4000
    clicks, click_features, _ = clicks_with_features(size, size // 4, 40 * size, rng=rng)
    ratings, rating_features, _ = ratings_with_features(size, size // 4, 40 * size, rng=rng)
    value = {
        "generated clicks": _clicks(clicks, click_features),
        "generated ratings": _ratings(ratings, rating_features),
    }
    if not quick:
        features = ml1m_features()
        value["MovieLens clicks"] = _clicks(movielens.clicks(), features)
        value["MovieLens ratings"] = _ratings(movielens.ratings(), features)
    for name, found in value.items():
        print_table([name, "held-out items"], list(found.items()))
    return Outcome(
        value=value,
        target={"clicks": "features above random and predicted popularity", "ratings": "features below user means"},
        holds=all(_holds(found) for found in value.values()),
        headline="" if quick else _headline(value["MovieLens clicks"], value["MovieLens ratings"]),
        settings={
            "held out": f"{_SHARE:.0%} of the items, at random, three times",
            "epsilon": EPSILON,
            "delta": movielens.DELTA,
            "k": _K,
        },
    )


def _holds(found: dict[str, float]) -> bool:
    if _OWN_MEAN in found:
        return found["features"] < found[_OWN_MEAN]
    return found["features"] > max(found["random"], found["predicted popularity"])


def _headline(clicks: dict[str, float], ratings: dict[str, float]) -> str:
    return (
        f"MovieLens 1M movies held out of training, ε = {EPSILON:g}: Recall@{_K} among them {clicks['features']:.3f} "
        f"from genres and years (random {clicks['random']:.3f}, popularity predicted from features "
        f"{clicks['predicted popularity']:.3f}, true popularity {clicks['true popularity']:.3f}); RMSE "
        f"{ratings['features']:.4f} (the user's own mean {ratings[_OWN_MEAN]:.4f})"
    )


def _clicks(data: Interactions, features: ItemFeatures) -> dict[str, float]:
    totals: dict[str, list[float]] = {}
    for seed in SEEDS:
        parts = _without_some(data, features, seed)
        model = _fitted(PrivateClickRecommender(EPSILON, movielens.DELTA, features=features), parts, seed)
        scores = _scores(model, parts)
        predicted = model.popularity[parts.train.n_tasks :]
        counts = parts.cold.by_task.counts.astype(np.float64)
        shuffled = np.random.default_rng(seed).random(scores.shape)
        orders: dict[str, NDArray[Any]] = {
            "features": scores,
            "random": shuffled,
            "predicted popularity": np.broadcast_to(predicted, scores.shape),
            "true popularity": np.broadcast_to(counts, scores.shape),
        }
        for name, order in orders.items():
            totals.setdefault(name, []).append(_recall(order, parts.cold))
    return {name: round(float(np.mean(found)), 5) for name, found in totals.items()}


def _ratings(data: Interactions, features: ItemFeatures) -> dict[str, float]:
    totals: dict[str, list[float]] = {"features": [], _OWN_MEAN: []}
    for seed in SEEDS:
        parts = _without_some(data, features, seed)
        model = _fitted(PrivateRatingRecommender(EPSILON, movielens.DELTA, features=features), parts, seed)
        scores = np.clip(_scores(model, parts), 1.0, 5.0)
        cold, train = parts.cold, parts.train
        counts = np.bincount(train.users, minlength=train.n_users)
        overall = float(train.values.mean())
        means = (np.bincount(train.users, train.values, minlength=train.n_users) + 5 * overall) / (counts + 5)
        predictions: dict[str, NDArray[Any]] = {
            "features": scores[cold.users, cold.tasks],
            _OWN_MEAN: means[cold.users],
        }
        for name, predicted in predictions.items():
            totals[name].append(float(np.sqrt(np.square(predicted - cold.values).mean())))
    return {name: round(float(np.mean(found)), 5) for name, found in totals.items()}


def _without_some(data: Interactions, features: ItemFeatures, seed: int) -> ColdItems:
    described = features.item_ids.find(data.task_ids.ids) >= 0
    held_out = described & (np.random.default_rng(seed).random(data.n_tasks) < _SHARE)
    kept = _with_tasks(data.where(~held_out[data.tasks]), data.task_ids.ids[~held_out])
    cold_ids = data.task_ids.ids[held_out]
    cold = _with_tasks(data.where(held_out[data.tasks]), cold_ids)
    rows = features.rows.take(features.item_ids.find(cold_ids))
    return ColdItems(kept, cold, ItemFeatures(Vocabulary(cold_ids, name="item"), rows, features.space))


def _with_tasks(data: Interactions, ids: NDArray[np.int64]) -> Interactions:
    """The same rows under a task list of their own."""
    listed = Vocabulary(ids, name="task", declared=True)
    codes = listed.find(data.task_ids.ids)[data.tasks]
    return Interactions.from_codes(data.users, codes, data.values, user_ids=data.user_ids, task_ids=listed)


def _fitted(estimator: PrivateClickRecommender | PrivateRatingRecommender, parts: ColdItems, seed: int) -> ItemModel:
    estimator.set_params(noise=SeededNoise(seed), random_state=seed)
    model: ItemModel = estimator.fit(parts.train).model_.with_new_items(parts.items)
    return model


def _scores(model: ItemModel, parts: ColdItems) -> NDArray[np.float32]:
    """Scores of the held-out items for every user, from that user's other rows."""
    known = parts.train
    history = Interactions.from_codes(
        known.users, known.tasks, known.values, user_ids=known.user_ids, task_ids=model.task_ids
    )
    scores: NDArray[np.float32] = model.score(history, np.arange(known.n_users))[:, known.n_tasks :]
    return scores


def _recall(scores: NDArray[np.floating[Any]], cold: Interactions) -> float:
    """Mean over users with clicks among the held-out items: clicked items in the first k, of min(k, clicks)."""
    rng = np.random.default_rng(0)
    tied = np.argsort(rng.random(scores.shape[1]))  # equal scores are ordered at random, not by code
    order = tied[np.argsort(-scores[:, tied], axis=1, kind="stable")[:, :_K]]
    clicked = np.zeros(scores.shape, bool)
    clicked[cold.users, cold.tasks] = True
    hits = np.take_along_axis(clicked, order, axis=1).sum(axis=1)
    totals = clicked.sum(axis=1)
    some = totals > 0
    return float((hits[some] / np.minimum(_K, totals[some])).mean())

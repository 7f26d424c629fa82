"""Claim: Recall@20 on MovieLens 1M clicks under user-level DP, with the settings a user gets who gives ε and data.

Clicks are ratings of at least 4; 600 users each are held out for validation and test and show 80 % of their clicks; δ
= 1e-5, add/remove of a user, everything in the budget; mean over five noise seeds. The constants of the defaults were
found with the validation users of this data set in view, so this is not an independent test of them. The quick form
fits generated clicks at ε = 5 and asks that the model beat popularity.
"""

from __future__ import annotations

import numpy as np

from apportion.data import UserSplit
from apportion.evaluation import Popularity, RankingModel, recall_at_k
from apportion.privacy import SeededNoise
from apportion.recommend import ClickRecommender, PrivateClickRecommender
from benchmarks import movielens
from benchmarks.claim import Outcome, Rehearsal, print_table

TARGETS = {"1": 0.187, "5": 0.271, "20": 0.314}
SPLIT_SEED = 0


def measure(quick: bool) -> Outcome | Rehearsal:
    """Measure the default settings."""
    if quick:
        return _quick()
    split = movielens.clicks().split_by_users(np.random.default_rng(SPLIT_SEED), n_validation=600, n_test=600)
    value, rows = {}, []
    for epsilon in movielens.EPSILONS:
        recalls = [_private_recall(split, epsilon, seed) for seed in movielens.NOISE_SEEDS]
        value[f"{epsilon:g}"] = round(float(np.mean(recalls)), 5)
        rows.append([f"{epsilon:g}", float(np.mean(recalls)), float(np.std(recalls)), TARGETS[f"{epsilon:g}"]])
    twin = _recall(ClickRecommender().fit(split.train).model_, split)
    popularity = _recall(Popularity().fit(split.train), split)
    print_table(["epsilon", "test Recall@20", "st. dev. over seeds", "target"], rows)
    print_table(["not private", "test Recall@20"], [["implicit ALS", twin], ["popularity", popularity]])
    return Outcome(
        value=value,
        target=TARGETS,
        holds=all(value[e] >= TARGETS[e] for e in TARGETS),
        headline="MovieLens 1M clicks, test Recall@20 "
        + " / ".join(f"{v:.4f}" for v in value.values())
        + f" at ε = 1 / 5 / 20, δ = 1e-5 (ALS without privacy {twin:.4f}, popularity "
        f"{popularity:.4f}); defaults developed on this data set",
        settings={
            "split": f"600 + 600 held-out users, 80/20 history, seed {SPLIT_SEED}",
            "noise_seeds": list(movielens.NOISE_SEEDS),
            "delta": movielens.DELTA,
            "tuning": "defaults; their constants were chosen with this data set's validation users in view",
            "non_private": {"als": twin, "popularity": popularity},
        },
    )


def _private_recall(split: UserSplit, epsilon: float, seed: int) -> float:
    estimator = PrivateClickRecommender(epsilon, movielens.DELTA, noise=SeededNoise(seed), random_state=seed)
    return _recall(estimator.fit(split.train).model_, split)


def _recall(model: RankingModel, split: UserSplit) -> float:
    return recall_at_k(model, split.test.history, split.test.target, k=20).overall


def _quick() -> Rehearsal:
    split = movielens.generated_clicks().split_by_users(np.random.default_rng(0), n_validation=50, n_test=400)
    ours = _private_recall(split, 5.0, 0)
    plain = _recall(Popularity().fit(split.train), split)
    print_table(["model", "test Recall@20"], [["private, epsilon = 5", ours], ["popularity", plain]])
    return Rehearsal({"recall": ours, "popularity": plain}, {"better than popularity": ours > plain})

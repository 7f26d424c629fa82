"""A new allocation: which items a user's budget goes to; the bound and the statement come with the weights."""

from __future__ import annotations

import numpy as np

from apportion.auditing import audit
from apportion.data.synthetic import long_tailed_ratings
from apportion.privacy import Budget, SeededNoise
from apportion.recommend import PrivateRatingRecommender
from extending.allocation.important_items import Important


def fitted(data, factor, seed):
    half = np.arange(data.n_tasks) % 2
    policy = Important(tuple(np.where(half == 1, factor, 1.0)))
    return (
        PrivateRatingRecommender(epsilon=2.0, rounds=2, dimension=2, allocation=policy, noise=SeededNoise(seed))
        .fit(data)
        .model_
    )


def test_items_that_matter_are_known_better_than_the_others_and_the_statement_names_the_weights():
    data, _ = long_tailed_ratings(1500, 60, 40_000, rank=2, rng=np.random.default_rng(0))
    known = [[fitted(data, factor, seed).reliability for seed in range(3)] for factor in (1.0, 4.0)]
    odd = np.arange(60) % 2 == 1
    equal, important = (each[odd].mean() - each[~odd].mean() for each in np.mean(known, axis=1))
    assert important > equal + 0.05
    assert "importance times popularity^-0.25" in fitted(data, 4.0, 0).statement.to_text()


def test_no_user_adds_more_than_the_bound_whatever_is_important():
    data, _ = long_tailed_ratings(60, 12, 400, rank=2, rng=np.random.default_rng(1))

    def fit(rows, session):
        policy = Important(tuple(10.0 ** np.linspace(-3, 3, 12)))
        estimator = PrivateRatingRecommender(epsilon=1.0, rounds=2, dimension=2, n_users=60, allocation=policy)
        return {"vectors": estimator.fit(rows, session=session).model_.vectors}

    for finding in audit(fit, data, 3, {"budget": Budget(1.0, 1e-6), "noise": SeededNoise(0)}):
        assert finding.ratio <= 1 + 1e-9

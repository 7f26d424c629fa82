"""Votes of the click recommender: what a row is worth, what is chosen, and that a fit falls back to popularity."""

from __future__ import annotations

import pickle
import re
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.data.synthetic import long_tailed_clicks
from apportion.engines import LocalEngine, Processors
from apportion.estimators.counts import (
    may_lead,
    release_leading_popularity,
    release_popularity,
    release_popularity_again,
)
from apportion.evaluation import recall_at_k
from apportion.privacy import Budget, Purpose, SeededNoise, Session
from apportion.recommend import ClickSettings, PrivateClickRecommender
from apportion.recommend.clicks_fold_in import Trust
from apportion.recommend.clicks_votes import (
    RankLosses,
    bolder_if_alike,
    chosen_by_votes,
    doubt_of_votes,
    expected_voters,
    many_voters,
    rows_to_hold_out,
)
from apportion.recommend.model import FoldIn

from private_estimators import audit_estimator, clicks_of_default_size
from strategies import random_interactions


def regression(scores):
    """Every user scores task i by scores[i]: the start is where it stays."""
    features = np.asarray(scores, np.float32)[:, None]
    base = np.array([[1e6]], np.float32)
    return FoldIn(features, np.ones(len(features), np.float32), base, base[0])


def test_a_held_out_row_is_worth_its_rank_among_what_the_user_has_not():
    n_tasks = 400
    kept = Interactions.from_arrays([0, 0, 1], [0, 1, 5], task_ids=np.arange(n_tasks)).as_users
    shown = Interactions.from_arrays([0, 1], [2, 20], task_ids=np.arange(n_tasks)).as_users
    falling = np.arange(n_tasks, 0, -1) / n_tasks
    losses = RankLosses((regression(falling), regression(falling[::-1])))(kept, shown, Processors(np.float32))
    np.testing.assert_allclose(losses[:, 0], [-1.0, -1 / (1 + (19 / 20) ** 2)])  # tasks 0 and 1, and task 5, are kept
    assert (losses[:, 1] > -0.01).all()


def test_users_without_a_held_out_row_lose_nothing_and_alter_nobody():
    data = random_interactions(3, n_users=30, n_tasks=20)
    held = rows_to_hold_out(1e4, 1.0)
    kept, shown = held.kept(data.as_users), held.shown(data.as_users)
    losses = RankLosses((regression(np.arange(20.0)),))
    together = losses(kept, shown, Processors(np.float32))
    assert not together[~shown.present].any()
    for user in np.flatnonzero(shown.present)[:5]:
        alone = losses(kept.run(user, user + 1), shown.run(user, user + 1), Processors(np.float32))
        np.testing.assert_array_equal(alone[0], together[user])


def test_losses_are_the_same_in_another_process():
    data = random_interactions(3, n_users=30, n_tasks=20)
    held = rows_to_hold_out(1e4, 1.0)
    kept, shown = held.kept(data.as_users), held.shown(data.as_users)
    first, other = regression(np.arange(20.0)), regression(np.arange(20.0)[::-1])
    shared = FoldIn(first.features, first.observation_weights, 2 * first.base, first.base_rhs)
    losses = RankLosses((first, other, shared))
    here = losses(kept, shown, Processors(np.float32))
    assert np.array_equal(pickle.loads(pickle.dumps(losses))(kept, shown, Processors(np.float32)), here)
    assert np.array_equal(here[:, :1], RankLosses((first,))(kept, shown, Processors(np.float32)))


def test_few_users_at_a_small_budget_are_not_asked():
    assert rows_to_hold_out(100.0, 0.05) is None
    assert rows_to_hold_out(1e4, 0.05).fraction == 0.08
    many = rows_to_hold_out(1e6, 0.05)
    assert (many.fraction, many.voters) == (pytest.approx(0.04), pytest.approx(0.025))


def test_a_choice_has_to_stand_out_of_the_noise():
    assert chosen_by_votes(np.array([-1.9, 5.0]), 1.0, 2.0) == 0
    assert chosen_by_votes(np.array([-2.1, -2.2]), 1.0, 2.0) == 2


def test_the_next_setting_is_taken_if_it_is_bolder_and_gains_nearly_as_much():
    hardly, little, much = Trust(20, 5), Trust(1, 5), Trust(0.2, 1)
    choices = (Trust(1e4, 5), hardly, little, much, Trust(0.2, 1, 0.7))
    assert bolder_if_alike(choices, 2, np.array([-3.0, -100.0, -98.0, 0.0])) == much
    assert bolder_if_alike(choices, 2, np.array([-3.0, -100.0, -90.0, 0.0])) == little
    assert bolder_if_alike(choices, 1, np.array([-100.0, -100.0, 0.0, 0.0])) == hardly
    assert bolder_if_alike(choices, 3, np.array([0.0, 0.0, -100.0, -100.0])) == much  # features are no bolder
    assert bolder_if_alike(choices, 0, np.array([5.0, 5.0, 5.0, 5.0])) == choices[0]


def test_one_more_setting_is_listed_where_users_are_many_for_the_budget():
    assert [many_voters(n_users, 0.1) for n_users in (2200, 2300)] == [False, True]
    data = random_interactions(8, n_users=60, n_tasks=90)
    for epsilon, ridges in ((1.0, "20 1 0.2"), (5.0, "20 5 1 0.2")):
        fit = clicks_of_default_size(n_users=3000, epsilon=epsilon).fit(data)
        (votes,) = (each for each in fit.statement_.releases if each.purpose == Purpose.VOTES)
        assert re.findall(r"ridge ([0-9.]+),", votes.derivation) == ["10000", *ridges.split()]


@pytest.mark.parametrize("by_hand", [(Trust(1e4, 5), Trust(20, 5), Trust(2, 5)), (Trust(1e4, 5), Trust(0.2, 1))])
def test_a_list_by_hand_stays_as_it_is(by_hand):
    data = random_interactions(8, n_users=60, n_tasks=90)
    fit = clicks_of_default_size(n_users=3000, settings=ClickSettings(choices=by_hand)).fit(data)
    (votes,) = (each for each in fit.statement_.releases if each.purpose == Purpose.VOTES)
    assert re.findall(r"ridge ([0-9.]+),", votes.derivation) == [f"{each.ridge:g}" for each in by_hand]


@pytest.mark.parametrize("user", range(3))
def test_votes_on_one_more_setting_move_by_at_most_their_sensitivity(user):
    data = random_interactions(8, n_users=30, n_tasks=150)
    many = partial(clicks_of_default_size, n_users=5000)
    for finding in audit_estimator(many, data, user, epsilon=5.0, seed=user):
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding


def test_doubt_grows_with_the_noise_and_with_the_voters():
    rows = rows_to_hold_out(1e4, 0.05)
    assert expected_voters(rows, 1e4, 2e4) == pytest.approx(1e4 * 0.08 * 4)
    assert expected_voters(rows, 1e4, 1e6) == 1e4
    assert doubt_of_votes(3.0, 0.0) == 3.0
    assert doubt_of_votes(0.0, 400.0) == 2 * doubt_of_votes(0.0, 100.0) > 0


def test_without_tastes_a_fit_falls_back_to_popularity_alone():
    data, _ = long_tailed_clicks(1000, 120, 12_000, rank=1, taste_strength=0.0, rng=np.random.default_rng(0))
    fits = (PrivateClickRecommender(20.0, 1e-5, noise=SeededNoise(seed)).fit(data) for seed in range(3))
    assert [fit.model_.settings["trust"]["ridge"] for fit in fits] == [1e4] * 3


def test_popularity_counted_again_has_the_noise_of_both_shares():
    data = random_interactions(7, n_users=60, n_tasks=3000)
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(3))
    parts = data.as_users, session, LocalEngine()
    shares = session.plan(counts=[0.2, 0.6]).several("counts")
    first = release_popularity(*parts, shares[0], 60.0)
    both = release_popularity_again(*parts, shares[1], first, None)
    assert both.counts.stddev == pytest.approx(1 / session.plan(rest=0.2).one("rest").of.mu / np.sqrt(0.8))
    truth = np.bincount(data.tasks, 1 / np.sqrt(data.by_user.counts[data.users]), minlength=3000)
    spread = np.std(both.noisy - truth) / both.counts.stddev  # st. dev. 0.013; without the first release 1.15
    assert abs(spread - 1) < 0.07


def test_counts_of_leading_tasks_find_more_popular_ones_than_counts_of_all_tasks_at_the_same_share():
    data, _ = long_tailed_clicks(2000, 800, 40_000, rank=1, skew=0.4, taste_strength=0.0, rng=np.random.default_rng(0))
    truth = np.bincount(data.tasks, 1 / np.sqrt(data.by_user.counts[data.users]), minlength=800)
    found = np.zeros(2)
    for seed in range(8):
        for k in range(2):
            session = Session(Budget(0.25, 1e-5), noise=SeededNoise(seed))
            first, second = session.plan(counts=[0.4, 0.5]).several("counts")
            parts = data.as_users, session, LocalEngine()
            given = (*parts, second, release_popularity(*parts, first, 2000.0))
            both = release_leading_popularity(*given) if k else release_popularity_again(*given, None)
            found[k] += truth[np.argsort(-both.posterior.mean)[:20]].mean()
    assert found[1] > 1.03 * found[0]  # 1.10, with a standard deviation of 0.017


def test_a_task_that_does_not_lead_keeps_its_estimate():
    data = random_interactions(7, n_users=300, n_tasks=40)
    session = Session(Budget(20.0, 1e-5), noise=SeededNoise(3))
    shares = session.plan(counts=[0.4, 0.6]).several("counts")
    first = release_popularity(data.as_users, session, LocalEngine(), shares[0], 300.0)
    both = release_leading_popularity(data.as_users, session, LocalEngine(), shares[1], first)
    others = ~may_lead(first.posterior)
    assert 10 < others.sum() < 30
    assert (both.posterior.mean == first.posterior.mean)[others].all()
    assert (both.noisy != first.noisy)[~others].all()
    text = session.statement().releases[-1].derivation
    assert f"{(~others).sum()} tasks that may be among the most popular" in text


def test_too_few_users_for_votes_spend_everything_on_popularity():
    fit = PrivateClickRecommender(1.0, 1e-5, noise=SeededNoise(1)).fit(random_interactions(7, n_users=60, n_tasks=90))
    purposes = [release.purpose for release in fit.statement_.releases]
    assert purposes == [Purpose.NUMBER_OF_USERS, *[Purpose.POPULARITY] * 3]
    assert sum(release.share for release in fit.statement_.releases) == pytest.approx(1.0)
    assert fit.model_.settings["trust"]["ridge"] == 1e4


def generated(taste):
    clicks, _ = long_tailed_clicks(
        2500, 300, 50000, rank=4, rng=np.random.default_rng(5), taste_strength=taste, concentration=0.1
    )
    return clicks.split_by_users(np.random.default_rng(0), n_validation=10, n_test=900)


class Counts:
    """Popularity alone, with noise of the whole budget."""

    def __init__(self, train, mu):
        weights = 1 / np.sqrt(train.by_user.counts[train.users])
        noise = np.random.default_rng(0).standard_normal(train.n_tasks) / mu
        self.counts = np.bincount(train.tasks, weights, minlength=train.n_tasks) + noise

    def score(self, history, users):
        return np.repeat(self.counts[None], len(users), axis=0)


@pytest.mark.parametrize(("taste", "least"), [(0.0, 0.97), (3.0, 1.2)])
def test_a_fit_is_popularity_where_there_is_no_taste_and_better_where_there_is(taste, least):
    split = generated(taste)
    fit = PrivateClickRecommender(2.0, 1e-5, noise=SeededNoise(1)).fit(split.train)
    held_out = split.test.history, split.test.target
    plain = recall_at_k(Counts(split.train, Budget(2.0, 1e-5).mu), *held_out, k=20).overall
    assert recall_at_k(fit.model_, *held_out, k=20).overall >= least * plain
    purposes = [release.purpose for release in fit.statement_.releases]
    assert purposes.count(Purpose.VOTES) == 1
    assert purposes[-1] is (Purpose.POPULARITY if taste == 0 else Purpose.ITEM_VECTORS)


def test_worthless_features_are_not_used():
    split = generated(3.0)
    rng = np.random.default_rng(1)
    columns = {f"x{k}": rng.standard_normal(300) for k in range(4)}
    features = ItemFeatures.from_frame(pa.table({"item": np.arange(300), **columns}))
    fit = PrivateClickRecommender(2.0, 1e-5, features=features, noise=SeededNoise(1)).fit(split.train)
    assert fit.model_.settings["trust"]["feature_weight"] == 0
    assert fit.model_.settings["trust"]["ridge"] < 5  # what was learned by id is trusted

"""How much users differ, from one release: its bound, what it estimates, and what a fit makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.auditing.hidden_values import distance, raw_value
from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.engines import LocalEngine, add_up_one
from apportion.postprocessing.running import Belief
from apportion.privacy import Budget, Gaussian, Purpose, SeededNoise, Session
from apportion.privacy.neighbours import ADD_REMOVE
from apportion.recommend import PrivateRatingRecommender, RatingSettings
from apportion.recommend.user_spread import PairProducts, Spread, clip_norm_for, released_spread

from strategies import interactions

WIDE = PairProducts((-100.0, 100.0), 0.0, 1.0, clip_norm=1e4)


def sum_of(data, part):
    return add_up_one(LocalEngine(np.float64, chunk=7), data.as_users, part.contribution(ADD_REMOVE))


@given(data=interactions(), user=st.integers(0, 11), clip_norm=st.sampled_from([0.05, 0.4, 1.0]))
def test_removing_any_user_moves_the_sum_by_at_most_its_clip_norm(data, user, clip_norm):
    part = PairProducts((1.0, 5.0), 3.5, 1.0, clip_norm)
    full, rest = sum_of(data, part), sum_of(data.without(user), part)
    assert full.l2_sensitivity == pytest.approx(clip_norm, rel=1e-8)
    assert distance(full, raw_value(rest), Gaussian()) <= full.l2_sensitivity


def test_a_user_of_extreme_ratings_reaches_the_bound():
    data = Interactions.from_arrays(["a"] * 6 + ["b"], [*range(6), 0], [1.0] * 6 + [3.0], task_ids=range(6))
    part = PairProducts((1.0, 5.0), 3.5, 1.0, clip_norm=1.0)
    full, rest = sum_of(data, part), sum_of(data.without(0), part)
    assert distance(full, raw_value(rest), Gaussian()) >= 0.999


def test_users_of_one_rating_add_nothing():
    data = Interactions.from_arrays(range(5), [0, 1, 2, 0, 1], [1.0, 5.0, 5.0, 1.0, 2.0], task_ids=range(3))
    assert not raw_value(sum_of(data, WIDE)).any()


def test_a_part_is_the_mean_product_of_pairs_and_the_variance():
    values = np.array([1.0, -2.0, 4.0])
    data = Interactions.from_arrays([*"aaab"], [0, 1, 2, 0], [*values, 3.0], task_ids=range(3))
    say = np.sqrt(6) / 4
    pairs = [values[i] * values[j] for i in range(3) for j in range(3) if i != j]
    expected = say * np.array([0.25, np.mean(pairs), values.var(ddof=1) / 4])
    np.testing.assert_allclose(raw_value(sum_of(data, WIDE)), expected, atol=1e-5)


def ratings_with(bias_stddev, n_users=4000, rows=6, seed=0):
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), rows)
    tasks = np.concatenate([rng.choice(40, rows, replace=False) for _ in range(n_users)])
    items = 0.3 * rng.standard_normal(40)
    values = bias_stddev * rng.standard_normal(n_users)[users] + items[tasks] + 0.8 * rng.standard_normal(len(users))
    return Interactions.from_arrays(users, tasks, values - values.mean(), task_ids=range(40))


@pytest.mark.parametrize("bias_stddev", [0.0, 0.3, 1.0])
def test_the_variances_between_and_within_users_are_estimated_without_bias(bias_stddev):
    quarter_of_say, between, quarter_within = raw_value(sum_of(ratings_with(bias_stddev), WIDE))
    assert between / (4 * quarter_of_say) == pytest.approx(bias_stddev**2, abs=0.06)
    assert quarter_within / quarter_of_say == pytest.approx(0.8**2 + 0.3**2, abs=0.05)


def spread_of(variance, stddev=0.1, say=2000.0):
    released = say * np.array([0.25, variance, 0.25 * 0.6])
    return Spread(released, stddev, clip_norm=1.0, n_users=say, rows=10.0)


def test_what_the_release_says_counts_as_far_as_its_noise_allows():
    exact = [spread_of(variance).of_biases(0.15) for variance in (-0.02, 0.1, 0.4)]
    assert exact[0] < 0.005
    assert exact[1:] == pytest.approx([0.125, 0.5], rel=0.05)  # a quarter is added for what is clipped off
    assert spread_of(0.4, stddev=1e5).of_biases(0.15) == pytest.approx(0.15, rel=0.02)
    assert spread_of(0.1).within_users(Belief(0.9, 0.25)).mean == pytest.approx(0.6, abs=1e-3)
    assert spread_of(0.1, stddev=1e6).within_users(Belief(0.9, 0.25)).mean == pytest.approx(0.9, abs=1e-3)


def test_the_clip_norm_follows_from_the_number_of_users_and_the_budget():
    found = [clip_norm_for(n_users, 10.0, 0.02) for n_users in (100.0, 4000.0, 1e6)]
    assert found == pytest.approx([0.4, 0.8, 1.0])
    assert clip_norm_for(8000.0, 2.0, 0.02) == pytest.approx(1.6 * 2**0.5 / 4)  # users of two ratings have less say


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_users_of_widely_spread_ratings_are_clipped_no_more_than_others(factor):
    data = ratings_with(0.5)
    spread_out = Interactions.from_arrays(
        data.users, data.tasks, factor * data.values.astype(np.float64), task_ids=range(40)
    )

    def found(variance):
        session = Session(Budget(20.0, 1e-5), noise=SeededNoise(0))
        share = session.plan(spread=0.9).one("spread")
        parts = (spread_out.as_users, session, LocalEngine(np.float64), share, (-100.0, 100.0), 0.0, 1.0)
        return released_spread(*parts, 4000.0, 6.0, variance)

    fitting, usual = found(0.9 * factor**2), found(0.9)
    assert fitting.unit == factor
    assert fitting.of_biases(0.15) / factor**2 == pytest.approx(0.25, rel=0.1)
    assert (usual.of_biases(0.15) < 0.9 * fitting.of_biases(0.15)) == (factor > 1)


def test_where_there_is_nothing_but_noise_a_fit_is_hardly_worse_than_the_global_mean():
    nothing = {"task_bias_stddev": 0.01, "user_bias_stddev": 0.01, "rank": 1, "taste_stddev": 1e-3, "stars": "whole"}
    data, _ = long_tailed_ratings(3000, 400, 30_000, rng=np.random.default_rng(6), **nothing)
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))

    def rmse(seed, **given):
        made = PrivateRatingRecommender(1.0, 1e-5, noise=SeededNoise(seed), **given).fit(train)
        return np.sqrt(np.mean(np.square(made.model_.predict(train, test) - test.values)))

    floor = np.sqrt(np.mean(np.square(train.values.mean() - test.values)))
    fixed = RatingSettings(spread_share=0.0)
    assert np.mean([rmse(seed) for seed in range(4)]) <= 1.008 * floor
    assert np.mean([rmse(seed, settings=fixed) for seed in range(4)]) > 1.015 * floor


def test_the_release_is_in_the_statement_unless_its_share_is_nothing():
    data, _ = long_tailed_ratings(300, 30, 3000, rank=1, rng=np.random.default_rng(0))

    def shares(**settings):
        made = PrivateRatingRecommender(1.0, 1e-5, settings=RatingSettings(**settings), noise=SeededNoise(0)).fit(data)
        assert sum(each.share for each in made.statement_.releases) == pytest.approx(1.0)
        return [each.share for each in made.statement_.releases if each.purpose is Purpose.USER_SPREAD]

    assert shares() == pytest.approx([0.02])
    assert shares(spread_share=0.0) == shares(votes_share=0.0) == shares(rounds=0) == []

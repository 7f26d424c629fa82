"""Choices in a ratings fit: what they cost, when they are learned for predictions, and ranking by them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from apportion.data import Interactions
from apportion.data.features import ItemFeatures
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.synthetic_features import ratings_with_features
from apportion.data.users import UsersWithoutRows
from apportion.errors import InputError
from apportion.privacy import Purpose, SeededNoise
from apportion.privacy.statement import Tuning
from apportion.recommend import PrivateRatingRecommender, RatingSettings, load, ratings, save
from apportion.recommend.choice_rounds import TO_PREDICT_VALUES, TO_RANK, Choices, clarity, stands_out, takes_long
from apportion.recommend.choosing import DRAWN, EXPLORING_PLACE, PRIME, STRIDE, history_seeds, mixed
from apportion.recommend.model import RatingModel
from apportion.recommend.rating_settings import CHOICE_SHARE

from private_estimators import at_the_bound, audit_estimator, ratings_by_choice, ratings_with_choices
from strategies import interactions

OF_CHOICES = (Purpose.CHOICE_VECTORS, Purpose.CHOICE_VOTES)


@cache
def fitted(rank_by="choice", epsilon=20.0):
    data, _ = long_tailed_ratings(1200, 150, 24_000, rank=3, rng=np.random.default_rng(0))
    estimator = PrivateRatingRecommender(epsilon, 1e-5, rank_by=rank_by, noise=SeededNoise(1), rounds=3)
    return estimator.fit(data).model_, data


def spent(model):
    return sum(release.share for release in model.statement.releases if release.purpose in OF_CHOICES)


def test_choices_take_their_share_and_the_whole_budget_is_spent():
    model, _ = fitted()
    assert 0 < spent(model) <= CHOICE_SHARE + 1e-9
    assert sum(release.share for release in model.statement.releases) == pytest.approx(1)
    assert spent(fitted("value")[0]) == 0


def test_rounds_of_choices_are_about_popular_items_but_for_the_last(monkeypatch):
    monkeypatch.setattr("apportion.recommend.choice_rounds.chosen_by_votes", lambda *_: 2)
    estimator = PrivateRatingRecommender(5.0, 1e-5, rank_by="choice", noise=SeededNoise(1), rounds=2)
    model = estimator.fit(fitted()[1]).model_
    rounds = [each for each in model.statement.releases if each.purpose == Purpose.CHOICE_VECTORS]
    assert ["most popular items" in each.derivation for each in rounds] == [True] * (TO_RANK.rounds - 1) + [False]
    assert np.abs(model.choice.features[:, 1:]).sum(axis=1).all()


def test_a_second_fit_starts_from_its_own_popularity():
    _, data = fitted()
    turned = Interactions.from_arrays(data.users, 149 - data.tasks, data.values, task_ids=np.arange(150))
    estimator = PrivateRatingRecommender(1e6, 1e-5, rank_by="choice", noise=SeededNoise(1), rounds=3)
    one, other = (estimator.fit(held).model_.choice for held in (data, turned))
    assert np.corrcoef(one.features[:, 0], other.features[::-1, 0])[0, 1] > 0.99
    assert np.corrcoef(one.features[:, 0], other.features[:, 0])[0, 1] < 0.5


def test_what_to_rank_by_is_asked_for_and_not_tuned():
    _, data = fitted()
    held = PrivateRatingRecommender(20.0, 1e-5, rank_by="choice", noise=SeededNoise(1)).fit(data).model_.statement
    assert held.tuning_kind is Tuning.DEFAULTS
    assert "worth 1 click" in held.to_text()


@settings(max_examples=3)
@given(data=interactions(), user=st.integers(0, 11))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(data, user):
    findings = audit_estimator(ratings_by_choice, data, user, epsilon=5.0, seed=user)
    assert any("choices" in finding.name for finding in findings)
    for finding in findings:
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding


def test_a_user_at_the_bound_moves_the_releases_of_choices_by_nine_tenths_of_it():
    data, extreme_users = at_the_bound()
    best = {}
    for user in extreme_users[:2]:
        for finding in audit_estimator(ratings_by_choice, data, user, epsilon=50.0, seed=0):
            best[finding.name] = max(finding.ratio, best.get(finding.name, 0.0))
    of_choices = {name: ratio for name, ratio in best.items() if "choices" in name}
    assert len(of_choices) >= 4
    assert min(of_choices.values()) >= 0.9, of_choices


def test_where_so_few_users_cannot_vote_nothing_is_spent_on_choices():
    data, _ = long_tailed_ratings(60, 30, 600, rank=2, rng=np.random.default_rng(0))
    model = PrivateRatingRecommender(1.0, rank_by="choice", noise=SeededNoise(1)).fit(data).model_
    assert spent(model) == 0
    assert sum(release.share for release in model.statement.releases) == pytest.approx(1)
    assert model.recommend(data, 20).tasks.shape[1] == 20


def test_lists_hold_no_item_twice_and_none_that_the_user_has_or_that_is_barred():
    model, data = fitted()
    barred = list(model.task_ids)[:7]
    found = model.recommend(data, 45, exclude=barred)
    for user, tasks in zip(found.users, found.tasks, strict=True):
        own = set(data.tasks[data.users == user].tolist())
        listed = tasks[tasks >= 0].tolist()
        assert len(set(listed)) == len(listed) == min(45, model.n_tasks - len(own | set(range(7))))
        assert not set(listed) & own
        assert min(listed, default=7) >= 7
    low, high = model.value_range
    values = found.scores[found.tasks >= 0]
    assert low <= values.min()
    assert values.max() <= high


def test_a_list_is_the_beginning_of_a_longer_one_and_the_same_for_a_user_alone():
    model, data = fitted()
    longer = model.recommend(data, 2 * EXPLORING_PLACE + 3)
    for k in (5, EXPLORING_PLACE, EXPLORING_PLACE + 1):
        assert np.array_equal(model.recommend(data, k).tasks, longer.tasks[:, :k])
    alone = model.recommend(data.select_users(np.array([17])), EXPLORING_PLACE)
    assert np.array_equal(alone.tasks[0], longer.tasks[list(longer.users).index(17), :EXPLORING_PLACE])


def test_choices_are_listed_more_often_and_more_items_are_shown_than_by_value():
    _, data = fitted()
    train, held_out = data.split_by_value(np.random.default_rng(1), (0.8, 0.2))
    liked = held_out.where(held_out.values >= 4)
    hits, shown = {}, {}
    for rank_by in ("choice", "value"):
        lists = fitted(rank_by)[0].recommend(train, EXPLORING_PLACE)
        pairs = {(user, task) for user, row in zip(lists.users, lists.tasks, strict=True) for task in row.tolist()}
        hits[rank_by] = len(pairs & set(zip(liked.users.tolist(), liked.tasks.tolist(), strict=True)))
        shown[rank_by] = len({task for _, task in pairs})
    assert hits["choice"] > 1.2 * hits["value"]
    assert shown["choice"] > shown["value"]


def test_a_saved_model_recommends_the_same(tmp_path):
    model, data = fitted()
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").recommend(data, EXPLORING_PLACE)
    assert np.array_equal(again.tasks, model.recommend(data, EXPLORING_PLACE).tasks)


def test_an_unknown_ranking_is_refused():
    data, _ = long_tailed_ratings(60, 30, 600, rank=2, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="got 'fame'"):
        PrivateRatingRecommender(1.0, rank_by="fame").fit(data)


def words_of(ids):
    return pa.table({"item": ids, "word": [f"w{each % 5}" for each in range(len(ids))]})


@cache
def fitted_with_features():
    _, data = fitted()
    features = ItemFeatures.from_frame(words_of(data.task_ids.ids))
    settings = {"rank_by": "choice", "features": features, "noise": SeededNoise(1), "rounds": 2}
    return PrivateRatingRecommender(20.0, 1e-5, **settings).fit(data).model_, data


def test_choices_and_item_features_go_together():
    model, data = fitted_with_features()
    assert 0 < spent(model) <= CHOICE_SHARE + 1e-9
    assert model.feature_map is not None
    assert model.choice is not None
    assert not np.array_equal(model.recommend(data, 10).tasks, by_value(model).recommend(data, 10).tasks)


def by_value(model):
    names = ("fold_in", "vectors", "popularity", "reliability", "task_ids", "statement", "offset", "value_range")
    return RatingModel(**{name: getattr(model, name) for name in names})


def test_new_items_are_ranked_by_choice_as_well():
    model, data = fitted_with_features()
    new = words_of([10_000 + number for number in range(5)])
    wider = model.with_new_items(new)
    assert wider.ranking_features.shape[0] == model.n_tasks + 5
    found = model.recommend(data, model.n_tasks, new_items=new)
    places = [int((found.tasks == model.n_tasks + each).sum()) for each in range(5)]
    assert min(places) > 0.9 * len(found.users)
    likely = wider.choice.features[-5:, 0]
    assert wider.choice.features[:-5, 0].min() < likely.min()
    assert likely.max() < wider.choice.features[:-5, 0].max()


def most_of_a_word(lists):
    return max(int(((lists >= 0) & (lists % 5 == word)).sum(axis=1).max()) for word in range(5))


def test_caps_hold_in_lists_ranked_by_choice():
    model, data = fitted_with_features()
    lists = model.recommend(data, 25, caps={"word": 6}).tasks
    assert most_of_a_word(lists) == 6
    assert most_of_a_word(model.recommend(data, 25).tasks) > 6


def test_drawn_items_are_spread_evenly():
    """A false alarm has a chance of 1e-9; twice as many draws of one item in ten are always seen."""
    rng = np.random.default_rng(0)
    histories = np.sort(rng.permuted(np.tile(np.arange(40, dtype=np.int32), (3000, 1)), axis=1)[:, :5], axis=1)
    seeds = history_seeds(np.arange(0, 5 * 3000 + 1, 5), histories.ravel())
    numbers = STRIDE * np.arange(DRAWN)
    counts = np.bincount((mixed((seeds[:, None] + numbers) % PRIME) % 10).ravel(), minlength=10)
    assert chisquare(counts).pvalue > 1e-9
    assert chisquare(np.where(np.arange(10) == 3, 2, 1) * counts).pvalue < 1e-9


@pytest.mark.parametrize("trusted", [0, 1])
@pytest.mark.parametrize(("n_users", "epsilon"), [(800, 1.0), (1500, 0.5), (3000, 1.0)])
def test_a_private_list_leaves_enough_for_choices_and_ratings(monkeypatch, n_users, epsilon, trusted):
    """The list may take most of a small budget; then choices take their share of the rest."""
    monkeypatch.setattr("apportion.recommend.choice_rounds.chosen_by_votes", lambda *_: trusted)
    data, _ = long_tailed_ratings(n_users, 60, 15 * n_users, rank=2, rng=np.random.default_rng(n_users))
    of_rows = Interactions.from_arrays(data.users, data.tasks, data.values)
    estimator = PrivateRatingRecommender(
        epsilon, 1e-6, rank_by="choice", items="private", noise=SeededNoise(2), rounds=3
    )
    releases = estimator.fit(of_rows).model_.statement.releases
    assert sum(release.share for release in releases) == pytest.approx(1)
    assert sum(release.share for release in releases if release.purpose in OF_CHOICES) < 0.3


@pytest.mark.parametrize("share", [-0.2, float("nan"), 0.9])
def test_a_share_for_choices_that_leaves_nothing_is_refused_before_anything_is_spent(share):
    _, data = fitted()
    estimator = PrivateRatingRecommender(1.0, settings=RatingSettings(choice_share=share), rank_by="choice")
    with pytest.raises(InputError, match="Expected choice_share from 0"):
        estimator.fit(data)


def test_choices_stand_beside_public_features_and_say_nothing_of_new_items(monkeypatch):
    monkeypatch.setattr(Choices, "vectors_are_trusted", True)  # users would vote against generated ones
    data, features, _ = ratings_with_features(900, 80, 27_000, rng=np.random.default_rng(3))
    models = []
    for share in (0.0, 0.3):
        settings = RatingSettings(choice_share=share, rounds=3)
        estimator = PrivateRatingRecommender(50.0, 1e-5, features=features, settings=settings, noise=SeededNoise(1))
        models.append(estimator.fit(data).model_)
    without, model = models
    further = model.fold_in.features.shape[1] - without.fold_in.features.shape[1]
    purposes = {release.purpose for release in model.statement.releases}
    assert further > 0
    assert {*OF_CHOICES, Purpose.FEATURE_VOTES} <= purposes
    rows = model.feature_map.features(features.for_tasks(data.task_ids))
    assert rows.shape == model.fold_in.features.shape
    assert not rows[:, -further:].any()
    assert model.fold_in.features[:, -further:].any()


def test_choices_are_learned_only_if_popularity_is_clear_and_users_have_many_rows():
    popularity = np.full(200, 50.0)  # 1,000 users with √n = 10
    assert stands_out(popularity, 1000.0, mu=1.0)
    assert not stands_out(popularity, 1000.0, mu=0.8)
    assert not stands_out(popularity, 2000.0, mu=1.0)  # √n = 5, 25 rows
    assert not takes_long(50_000.0)
    assert takes_long(60_000.0)


def test_at_small_budgets_a_ranking_learns_directions_in_proportion_to_the_budget():
    sizes = {"n_users": 6040.0, "n_tasks": 3706}
    ranking = [TO_RANK.dimension(mu, 0.55 * mu, **sizes) for mu in (0.125, 0.25, 0.5, 1.0, 2.0)]
    values = [TO_PREDICT_VALUES.dimension(mu, 0.55 * mu, **sizes) for mu in (0.25, 1.0)]
    assert ranking == [3, 4, 8, 15, 23]
    assert values == [7, 15]
    assert TO_RANK.dimension(0.1, 0.05, 300.0, 60) == 2  # as many as the noise allows
    assert TO_RANK.dimension(2.0, 1.0, 6040.0, 2) == 2


def test_how_far_choices_are_trusted_follows_how_clear_popularity_is(monkeypatch):
    popularity = np.full(200, 50.0)  # 1,000 users with √n = 10
    assert [clarity(popularity, 1000.0, mu=mu) for mu in (0.09, 0.45, 0.9, 1.8)] == pytest.approx([0.1, 0.5, 1, 2])
    assert clarity(popularity, 2000.0, mu=0.9) == 0
    trusted = []
    monkeypatch.setattr("apportion.recommend.ratings._Fit._trust_choices", lambda self, _, far: trusted.append(far))
    for epsilon in (0.1, 2.0, 20.0):
        PrivateRatingRecommender(epsilon, 1e-5, rank_by="choice", noise=SeededNoise(1), rounds=2).fit(busy())
    least, middle, most = trusted
    assert least == 0.1 < middle < 1 == most


def busy(n_users=700):
    return long_tailed_ratings(n_users, 60, 40 * n_users, rank=2, activity_spread=0.2, rng=np.random.default_rng(5))[0]


@pytest.mark.parametrize("items", [None, "private"])
@pytest.mark.parametrize(("trusted", "most"), [(0, 0.04), (2, 0.25)])
def test_by_default_clear_popularity_pays_for_choices_and_the_model_still_ranks_by_value(
    monkeypatch, trusted, most, items
):
    """If users vote against the vectors, most of the share goes to the ratings."""
    monkeypatch.setattr("apportion.recommend.choice_rounds.chosen_by_votes", lambda *_: trusted)
    data = busy()
    if items:
        data = Interactions.from_arrays(data.users, data.tasks, data.values)
    model = PrivateRatingRecommender(20.0, 1e-5, items=items, noise=SeededNoise(1), rounds=3).fit(data).model_
    assert most / 2 < spent(model) <= most + 1e-9
    assert sum(release.share for release in model.statement.releases) == pytest.approx(1)
    assert model.choice is None


@pytest.mark.parametrize("user", [0, 1])
def test_by_default_no_release_moves_by_more_than_its_sensitivity_when_choices_are_learned(monkeypatch, user):
    monkeypatch.setattr("apportion.recommend.ratings.stands_out", lambda *_: True)
    data, extreme_users = at_the_bound()
    findings = audit_estimator(ratings_with_choices, data, extreme_users[user], epsilon=50.0, seed=user)
    of_choices = [finding for finding in findings if "choices" in finding.name]
    assert len(of_choices) >= 3
    assert max(finding.ratio for finding in of_choices) >= 0.9
    assert all(finding.ratio <= 1 + 1e-9 and finding.gap <= 1e-7 for finding in findings)


def test_rows_that_are_copied_in_every_pass_are_copied_at_once_for_choices(monkeypatch):
    """Sums of choices depend on how users are cut, if they are not exact."""
    data = busy(300)

    def fit():
        return PrivateRatingRecommender(20.0, 1e-5, noise=SeededNoise(1), rounds=2).fit(data).model_

    monkeypatch.setattr("apportion.recommend.ratings.stands_out", lambda *_: True)
    usual, parts_of = fit(), UsersWithoutRows.parts

    def in_parts(self):
        self._rows = 1000
        return parts_of(self)

    monkeypatch.setattr(ratings, "_MOST_COPIED", 100)
    monkeypatch.setattr(UsersWithoutRows, "parts", in_parts)
    copied = fit()
    assert spent(usual) > 0
    assert np.array_equal(copied.fold_in.features, usual.fold_in.features)

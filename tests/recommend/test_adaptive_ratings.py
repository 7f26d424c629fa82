"""What a ratings fit learns from releases: the clip norm, the length of vectors, users' variances, and an offset."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_ratings
from apportion.data.users import UsersWithoutRows
from apportion.postprocessing.popularity import Exposure
from apportion.privacy import Purpose, SeededNoise
from apportion.recommend import PrivateRatingRecommender, RatingSettings, clip_norms, ratings
from apportion.recommend.variance_votes import _LEVELS, UserVariances

EXPOSURE = Exposure(np.full(50, 100.0), np.zeros(50), np.full(50, 10.0))


def light_and_skewed(n_users=4000, n_tasks=60):
    """One or two ratings a user, most of them 5 and some of them 1."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 3, n_users)
    users = np.repeat(np.arange(n_users), sizes)
    tasks = np.concatenate([rng.choice(n_tasks, size, replace=False) for size in sizes])
    values = np.where(rng.random(len(users)) < 0.2 + 0.002 * tasks, 1.0, 5.0)
    return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(n_tasks))


def mean_error(settings, epsilon=20.0):
    data = light_and_skewed()
    train, test = data.split_by_value(np.random.default_rng(0), (0.8, 0.2))
    made = PrivateRatingRecommender(epsilon, 1e-5, settings=settings, noise=SeededNoise(0)).fit(train).model_
    return float(np.mean(made.predict(train, test) - test.values)), made


@pytest.mark.parametrize("epsilon", [2.0, 20.0])
def test_a_norm_that_cuts_off_the_ones_shifts_no_predictions(epsilon):
    settings = RatingSettings(clip=0.7, rounds=1, votes_share=0.0)
    error, _ = mean_error(settings, epsilon)
    assert abs(error) < 0.1  # without a correction it is 0.65; held-out values have a mean with deviation 0.05


def test_predictions_of_light_users_on_a_skewed_scale_have_no_offset():
    learned, made = mean_error(None)
    assert abs(learned) < 0.04  # 0.01 of the scale; the mean of 1,200 held-out values has a standard deviation of 0.05
    assert "votes" in {release.purpose.key for release in made.statement.releases}


def released(offsets, lost=0.2, voters=1000.0):
    """The sum of `ClippedAway` where each norm shifts the mean by so much."""
    kept = 1 - lost
    says = [1.0, 0.0, 0.25, *[lost] * 5, *(-kept * np.array(offsets) / 2)]
    return voters * np.array(says)


def test_the_norm_grows_where_clipping_shifts_the_mean_and_only_where_that_is_no_noise():
    shifted = released([0.4, 0.3, 0.2, 0.0, 0.0])
    assert clip_norms.choose(shifted, 1.0, EXPOSURE, 10.0).clip_norm == 2.2
    assert [clip_norms.choose(shifted, noise, EXPOSURE, 1.0).clip_norm for noise in (1.0, 1000.0)] == [2.2, 0.7]
    assert clip_norms.choose(released([0.0] * 5), 1.0, EXPOSURE, 10.0).clip_norm == 0.7


def test_vectors_are_learned_of_items_that_stand_out_of_the_noise_and_of_some_always():
    total = np.array([500.0, 100.0, 80.0, 20.0, 5.0, 0.0])
    about = Exposure(total, np.zeros(6), total)

    def chosen(mu):
        return clip_norms.worth_a_vector(about, 1.0, mu).sum()

    assert [chosen(mu) for mu in (10.0, 1.0, 0.1, 0.01)] == [5, 4, 2, 1]
    assert clip_norms.worth_a_vector(about, 2.0, 0.1).sum() == 1
    one_of_many = np.concatenate([[100.0], np.ones(10_000)])
    assert clip_norms.worth_a_vector(Exposure(one_of_many, 0 * one_of_many, one_of_many), 1.0, 1e-9).sum() == 1416


def test_noise_does_not_choose_among_items_that_are_equally_popular():
    """In a survey all items have about as many ratings; if noise left some out, their tastes would be lost."""
    total = np.random.default_rng(0).normal(100.0, 8.0, 200)
    for mu in (0.001, 0.05, 0.09, 1.0):
        assert clip_norms.worth_a_vector(Exposure(total, np.zeros(200), total), 1.0, mu).mean() > 0.95


def test_rounds_leave_out_the_vectors_of_rare_items(monkeypatch):
    """Their rows have a bias alone, so the vector of a rare item follows from the prior."""
    data, _ = long_tailed_ratings(1500, 300, 30_000, rank=2, rng=np.random.default_rng(4))
    seen = []
    numbers = ratings._Fit._round_numbers
    monkeypatch.setattr(ratings._Fit, "_round_numbers", lambda fit, *of: seen.append(numbers(fit, *of)) or seen[-1])
    settings = RatingSettings(dimension=2, rounds=3, votes_share=0.0)
    made = PrivateRatingRecommender(2.0, 1e-5, settings=settings, noise=SeededNoise(0)).fit(data).model_
    weights = [each.vector_weights for each in seen]
    assert weights[0].all()  # a round for biases
    assert all((each == weights[1]).all() for each in weights[1:])
    kept = weights[1] > 0
    assert 20 < kept.sum() < 280
    assert made.popularity[kept].min() >= made.popularity[~kept].max()
    lengths = np.linalg.norm(made.vectors, axis=1)
    assert np.median(lengths[~kept]) < 0.6 * np.median(lengths[kept])


def test_what_a_norm_keeps_is_measured_and_drawn_to_what_it_keeps_on_usual_data():
    rng = np.random.default_rng(0)
    lengths = np.exp(0.32 * rng.standard_normal(100_000) - 0.32**2)  # their squares have mean 1
    for norm in (0.5, 1.0, 2.0):
        kept = np.minimum(1.0, norm / lengths).mean()
        assert clip_norms.usual_part(norm * 1.3, 1.3**2).mean == pytest.approx(kept, abs=0.003)
    few, many = (clip_norms.choose(released([0.0] * 5, lost=0.4), noise, EXPOSURE, 0.1) for noise in (1e4, 1e-3))
    assert few.clip_norm == many.clip_norm == 0.7
    assert few.kept.mean == pytest.approx(clip_norms.usual_part(0.7, few.variance.mean).mean, abs=0.01)
    assert many.kept.mean == pytest.approx(0.6, abs=1e-3)


def test_residual_variance_is_drawn_to_the_usual_one_by_its_noise():
    exact = clip_norms.choose(4 * released([0.0] * 5, voters=250.0), 1e-6, EXPOSURE, 1.0).variance
    assert exact.mean == pytest.approx(1.0, abs=1e-6)
    assert clip_norms.choose(released([0.0] * 5), 1e9, EXPOSURE, 1.0).variance.mean == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("mu", "rows", "expected"),
    [
        (0.01, 100.0, 0),
        (0.05, 100.0, 1),
        (0.05, 10.0, 0),
        (0.2, 100.0, 2),
        (0.4, 100.0, 4),
        (10.0, 100.0, 8),
        (10.0, 1.5, 1),
    ],
)
def test_vectors_are_longer_where_items_stand_out_of_the_noise(mu, rows, expected):
    assert clip_norms.dimension_for(EXPOSURE, 0.7, mu, rows) == expected


def few_users(n_users, seed=12):
    data, _ = long_tailed_ratings(n_users, 60, 12 * n_users, rank=2, stars="whole", rng=np.random.default_rng(seed))
    return data.split_by_value(np.random.default_rng(0), (0.8, 0.2))


def rmse_of(predicted, test):
    return float(np.sqrt(np.mean(np.square(predicted - test.values))))


def test_fits_of_a_hundred_users_are_not_worse_than_the_global_mean():
    train, test = few_users(120)
    made = [PrivateRatingRecommender(0.5, 1e-5, noise=SeededNoise(seed)).fit(train).model_ for seed in range(4)]
    ours = np.mean([rmse_of(model.predict(train, test), test) for model in made])
    assert ours <= 1.01 * rmse_of(train.values.mean(), test)  # it was 1.07


def releases_of(train, **more):
    made = PrivateRatingRecommender(0.5, 1e-5, noise=SeededNoise(0), **more).fit(train)
    return [(release.name, release.share) for release in made.statement_.releases]


def test_where_nothing_stands_out_there_are_three_rounds_for_biases_with_all_that_is_left():
    found = releases_of(few_users(120)[0])
    assert [name for name, _ in found if "item sums" in name] == [f"round {k}: item sums" for k in range(3)]
    assert not any("votes" in name for name, _ in found)
    assert sum(share for _, share in found) == pytest.approx(1.0, abs=1e-9)
    once = releases_of(few_users(120)[0], settings=RatingSettings(rounds=0))
    assert [name for name, _ in once if "item sums" in name] == ["round 0: item sums"]
    given = releases_of(few_users(120)[0], dimension=1)
    assert len([name for name, _ in given if "item sums" in name]) == 9


def test_few_users_are_counted_twice_and_many_once():
    def overviews(n_users, epsilon):
        train, _ = few_users(n_users)
        made = PrivateRatingRecommender(epsilon, 1e-5, rounds=1, noise=SeededNoise(0)).fit(train)
        return [r.share for r in made.statement_.releases if r.purpose is Purpose.OVERVIEW]

    assert overviews(120, 0.5) == pytest.approx([0.003, 0.047])
    assert overviews(3000, 20.0) == pytest.approx([0.003])


def test_a_variance_changes_only_where_votes_say_so_beyond_doubt():
    default = UserVariances(0.15, 0.15, 1.0)
    nothing = np.zeros(len(_LEVELS))
    assert default.voted(nothing, 1.0, 1000.0) == default
    for_means = np.where([name == "latent" and factor < 0.01 for name, factor in _LEVELS], -50.0, 0.0)
    assert default.voted(for_means, 1.0, 1000.0) == UserVariances(0.15, 0.15, 1e-4)
    assert default.voted(for_means, 30.0, 1000.0) == default


def test_rows_that_are_copied_in_every_pass_give_the_same_model_in_every_bit(monkeypatch):
    data, _ = long_tailed_ratings(800, 30, 8000, rank=2, rng=np.random.default_rng(1))

    def fit():
        return PrivateRatingRecommender(3.0, 1e-5, noise=SeededNoise(1)).fit(data).model_

    usual, passes, parts_of = fit(), [], UsersWithoutRows.parts

    def in_parts(self):
        self._rows = 500
        passes.append(sum(1 for _ in parts_of(self)))
        return parts_of(self)

    monkeypatch.setattr(ratings, "_MOST_COPIED", 100)
    monkeypatch.setattr(UsersWithoutRows, "parts", in_parts)
    copied = fit()
    assert min(passes) > 3
    assert np.array_equal(copied.fold_in.features, usual.fold_in.features)
    assert np.array_equal(copied.fold_in.base, usual.fold_in.base)

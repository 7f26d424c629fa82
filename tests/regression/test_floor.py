"""A model is published only where it is seen to beat a private constant, and the comparison is paid for."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.auditing import audit_neighbour
from apportion.data.users import Users
from apportion.errors import InputError
from apportion.estimators.contributions import Noisy
from apportion.losses import loss_of
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, Budget, SeededNoise
from apportion.regression import UserERM
from apportion.regression.floor import Ends, LossDifferences, stands_out
from apportion.regression.private_constant import best_constant, likely_mean
from apportion.regression.user_sides import Design

NAMES = ("coef_", "intercept_", "model_part_", "n_steps_", "about_intervals_", "statement_")


def some_rows(strength, seed=0, n_users=600):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_users), np.minimum(rng.zipf(1.8, n_users), 20))
    x = rng.uniform(-1, 1, (len(groups), 2)) / np.sqrt(2)
    return x, (rng.random(len(groups)) < 1 / (1 + np.exp(-(strength * x[:, 0] + 0.8)))).astype(float), groups


def log_loss(model, x, y):
    return float(np.logaddexp(0, -(2 * y - 1) * model.decision_function(x)).mean())


def losses(strength, epsilon, **settings):
    """Mean log loss over four fits, and that of the best constant."""
    x, y, groups = some_rows(strength)
    fits = [
        UserERM("logistic", epsilon, noise=SeededNoise(seed), **settings).fit(x, y, users=groups) for seed in range(4)
    ]
    share = y.mean()
    constant = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    return np.array([log_loss(fit, x, y) for fit in fits]) / constant, [fit.model_part_ for fit in fits]


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("sizes", ["public", "private"])
def test_where_features_say_nothing_the_constant_is_published(epsilon, sizes):
    found, parts = losses(0.0, epsilon, sizes=sizes)
    assert found.mean() < 1.01
    assert np.mean(parts) <= 0.5
    without, _ = losses(0.0, epsilon, sizes=sizes, floor=False)
    assert without.mean() > found.mean()


def test_where_features_say_much_the_model_is_published():
    found, parts = losses(8.0, 3.0)
    assert max(parts) == 1.0
    assert found.mean() < 0.8


@pytest.mark.parametrize("settings", [{}, {"loss": "squared", "gradient_bound": 2.0}, {"interval_parts": 3}], ids=str)
@pytest.mark.parametrize("sizes", ["public", "private"])
@pytest.mark.parametrize("epsilon", [1.0, 300.0])
def test_no_release_of_the_floor_moves_by_more_than_its_sensitivity(settings, sizes, epsilon):
    if settings.get("interval_parts") and sizes == "private":
        return
    x, y, groups = some_rows(4.0, n_users=30)

    def fit(rows, session):
        arguments = {"steps": 2, "sizes": sizes, "max_size": 8, **settings}
        model = UserERM(**arguments).fit(rows[0], rows[1], users=rows[2], session=session)
        return {name: getattr(model, name) for name in NAMES}

    heavy = groups == np.bincount(groups).argmax()
    far, flipped = np.where(heavy[:, None], 99 * x, x), np.where(heavy, 1 - y, y)
    other = (far, flipped, groups) if sizes == "public" else (x[~heavy], y[~heavy], groups[~heavy])
    relation = REPLACE_VALUES if sizes == "public" else ADD_REMOVE
    about = {"budget": Budget(epsilon, 1e-5), "noise": SeededNoise(3), "neighbours": relation}
    moved = audit_neighbour(fit, (x, y, groups), other, about)
    assert max(moved.values()) <= 1 + 1e-9
    if epsilon > 100:
        assert {"evidence", "comparison"} <= set(moved)


def test_a_user_at_the_ends_moves_the_comparison_by_all_of_its_sensitivity():
    design = Design(1.0, loss_of("logistic"), 1.0)
    constant, model = np.zeros((1, 2)), np.array([[50.0, 0.0]])
    values = LossDifferences(design, constant, model, Ends.of(loss_of("logistic"), 1e9))
    users = Users([0, 1, 2], {"features": np.array([[1.0], [-1.0]]), "labels": np.array([1.0, 1.0])})
    gain, harm = values(users)._values
    assert (harm == 0.5).all()
    assert (gain < -0.24).all()  # the loss of the score 0 is all that a row can gain
    assert (gain >= -0.5).all()


def test_a_candidate_is_taken_only_if_it_beats_the_constant_by_its_noise():
    ends = Ends(-np.ones(2), np.ones(2))
    assert ends.chosen(Noisy(np.array([-2.0, -3.0]), 0.5, 0.0), 10.0) == 1.0
    assert ends.chosen(Noisy(np.array([-3.0, -2.0]), 0.5, 0.0), 10.0) == 0.5
    assert ends.chosen(Noisy(np.array([-0.3, -0.4]), 0.5, 0.0), 10.0) == 0.0


def test_a_gradient_that_is_noise_rarely_stands_out():
    """1,000 draws of noise in 3 coordinates: about 16 % stand out; 25 % would be 7 standard deviations more."""
    noise = np.random.default_rng(0).normal(size=(1000, 3))
    assert np.mean([stands_out(each, 1.0) for each in noise]) < 0.25
    assert stands_out(np.array([5.0, 0.0, 0.0]), 1.0)
    assert not stands_out(np.zeros(0), 1.0)


def test_the_constant_of_a_mean_that_is_all_noise_is_near_zero_and_of_a_sharp_one_its_log_odds():
    assert likely_mean(np.array([0.4]), np.array([1e-6]))[0] == pytest.approx(0.4)
    assert abs(likely_mean(np.array([5.0]), np.array([50.0]))[0]) < 0.05
    assert best_constant(loss_of("logistic"), 0.5, 10.0) == pytest.approx(np.log(3))
    assert best_constant(loss_of("logistic"), 1.0, 10.0) == pytest.approx(10.0)


def test_intervals_are_refused_in_one_sentence_where_noise_stops_the_fit():
    x, y, groups = some_rows(2.0)
    settings = {"sizes": "public", "interval_parts": 4, "noise": SeededNoise(1)}
    refused = UserERM("logistic", 0.5, **settings).fit(x, y, users=groups)
    assert refused.coef_intervals_ is None
    assert refused.about_intervals_.startswith("Intervals are refused:")
    given = UserERM("logistic", 200.0, **settings).fit(x, y, users=groups)
    assert given.coef_intervals_ is not None
    assert given.about_intervals_ == ""


def test_numbers_of_rows_are_protected_by_default():
    x, y, groups = some_rows(1.0, n_users=60)
    model = UserERM("logistic", 2.0, noise=SeededNoise(1)).fit(x, y, users=groups)
    assert model.statement_.neighbours is ADD_REMOVE
    with pytest.raises(InputError, match="public sizes for intervals"):
        UserERM("logistic", 2.0, interval_parts=3).fit(x, y, users=groups)

"""Label-private regression: unbiased, bounded, close to the best, and honest about its error."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone

from apportion.allocation.users import SampleLimit, Unbounded
from apportion.auditing import audit_likelihood, audit_neighbour
from apportion.errors import InputError
from apportion.privacy import REPLACE_LABELS, Budget, SeededNoise
from apportion.regression import LabelPrivateRegression

RNG = np.random.default_rng(4)
SIZES = np.minimum(RNG.zipf(1.6, 40), 25)
GROUPS = RNG.permutation(np.repeat(np.arange(40), SIZES))
X = RNG.normal(size=(len(GROUPS), 3))
BETA, INTERCEPT = np.array([1.0, -0.5, 0.25]), 2.0
PUBLISHED = ("coef_", "intercept_", "coef_intervals_", "intercept_interval_", "noise_variance_", "statement_")


def some_labels(seed=0, stddev=0.5):
    return X @ BETA + INTERCEPT + stddev * np.random.default_rng(seed).normal(size=len(X))


def a_regression(**arguments):
    return LabelPrivateRegression(**{"label_range": (-6.0, 10.0), "noise": SeededNoise(0), **arguments})


def test_with_a_large_epsilon_it_is_least_squares():
    y = some_labels()
    found = a_regression(epsilon=1e6, noise_variance=0.25).fit(X, y, users=GROUPS)
    design = np.column_stack([X, np.ones(len(X))])
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose([*found.coef_, found.intercept_], expected, atol=1e-3)
    np.testing.assert_allclose(found.predict(X), design @ expected, atol=1e-2)


@pytest.mark.parametrize("target", ["coefficients", "predictions"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_estimate_is_unbiased_and_has_the_variance_that_it_states(target, delta):
    runs, errors = 300, []
    estimator = a_regression(epsilon=3.0, delta=delta, noise_variance=0.25, target=target)
    weights = estimator.fit(X, some_labels(), users=GROUPS).label_weights_
    for seed in range(runs):
        estimator.set_params(bounding=weights, noise=SeededNoise(seed))
        found = estimator.fit(X, some_labels(seed), users=GROUPS)
        errors.append([*(found.coef_ - BETA), found.intercept_ - INTERCEPT])
    design = np.column_stack([X, np.ones(len(X))])
    errors = np.array(errors)
    assert (np.abs(errors.mean(axis=0)) < 6 * errors.std(axis=0) / np.sqrt(runs)).all()  # false alarms: below 1e-8
    metric = np.eye(4) if target == "coefficients" else design.T @ design / len(X)
    measured = np.einsum("ri,ij,rj->r", errors, metric, errors)
    assert abs(measured.mean() - found.total_variance_) < 6 * measured.std() / np.sqrt(runs)


def test_the_optimal_weights_beat_limits_and_least_squares():
    variances = [
        a_regression(bounding=bounding, noise_variance=0.25).fit(X, some_labels(), users=GROUPS).total_variance_
        for bounding in ("paper", SampleLimit(), Unbounded())
    ]
    assert variances[0] < 0.9 * variances[1]
    assert variances[1] <= variances[2]


def test_aiming_at_predictions_predicts_better_whatever_the_units():
    scaled = X * [1.0, 100.0, 0.01]
    found = {
        target: a_regression(noise_variance=0.25, target=target, epsilon=2.0).fit(scaled, some_labels(), users=GROUPS)
        for target in ("coefficients", "predictions")
    }
    in_other_units = a_regression(noise_variance=0.25, target="predictions", epsilon=2.0).fit(
        X, some_labels(), users=GROUPS
    )
    assert found["predictions"].total_variance_ == pytest.approx(in_other_units.total_variance_, rel=1e-4)
    assert found["predictions"].total_variance_ < found["coefficients"].total_variance_


@pytest.mark.parametrize("budget", [Budget(1.0, 0.0), Budget(2.0, 1e-6)], ids=["pure", "gaussian"])
@pytest.mark.parametrize("bounding", ["paper", SampleLimit(2), Unbounded()], ids=str)
@pytest.mark.parametrize("variance", [None, 0.25], ids=["variance paid for", "variance given"])
def test_replay_on_neighbours_stays_within_every_sensitivity(budget, bounding, variance):
    def fit(labels, session):
        estimator = a_regression(bounding=bounding, noise_variance=variance, tolerance=1e-2)
        found = estimator.fit(X, labels, users=GROUPS, session=session)
        return {name: getattr(found, name) for name in PUBLISHED}

    arguments = {"budget": budget, "noise": SeededNoise(1), "neighbours": REPLACE_LABELS}
    labels = some_labels()
    for user, by in ((0, -99.0), (int(np.argmax(SIZES)), 99.0), (7, 1.0)):
        other = labels.copy()
        other[user == GROUPS] = by
        assert max(audit_neighbour(fit, labels, other, arguments).values()) <= 1 + 1e-9


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_best_attacker_learns_about_epsilon_and_no_more(delta):
    features, groups = np.array([[1.0], [1.0], [1.0], [0.1]]), np.array([0, 0, 1, 2])
    estimator = LabelPrivateRegression(
        4.0, delta, label_range=(0, 1), noise_variance=0.01, fit_intercept=False, bounding="paper"
    )
    estimator.set_params(bounding=estimator.fit(features, np.zeros(4), users=groups).label_weights_)

    def fit(labels, session):
        return {"coef": estimator.fit(features, labels, users=groups, session=session).coef_}

    one, two = (np.array([end, end, 0.5, 0.5]) for end in (0.0, 1.0))
    found = audit_likelihood(
        fit, one, two, {"budget": Budget(4.0, delta), "neighbours": REPLACE_LABELS}, noise=SeededNoise, draws=1000
    )
    assert 0.45 * 4.0 <= found.lower_bound <= 4.0  # above 4 only with probability 1e-3


@pytest.mark.parametrize(
    "settings", [{"noise_variance": 0.25}, {}, {"target": "coefficients"}, {"delta": 1e-6}], ids=str
)
def test_intervals_hold_the_truth_about_as_often_as_they_say(settings):
    held, runs = np.zeros(4), 400
    estimator = a_regression(epsilon=2.0, bounding="paper", **settings)
    weights = estimator.fit(X, some_labels(), users=GROUPS).label_weights_
    for run in range(runs):
        estimator.set_params(bounding=weights, noise=SeededNoise(run))
        found = estimator.fit(X, some_labels(run), users=GROUPS)
        ends = np.vstack([found.coef_intervals_, found.intercept_interval_])
        held += (ends[:, 0] <= [*BETA, INTERCEPT]) & ([*BETA, INTERCEPT] <= ends[:, 1])
    assert (held >= binom.ppf(1e-6, runs, 0.95)).all()  # false alarms: 4e-6
    if "noise_variance" in settings:
        assert (held <= binom.ppf(1 - 1e-6, runs, 0.95)).all()


def test_weights_of_one_fit_serve_other_labels_of_the_same_people_and_nobody_elses():
    first = a_regression(noise_variance=0.25).fit(X, some_labels(), users=GROUPS)
    again = a_regression(noise_variance=0.25, bounding=first.label_weights_).fit(X, some_labels(), users=GROUPS)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    with pytest.raises(InputError, match="do not fit"):
        a_regression(bounding=first.label_weights_).fit(np.sin(X), some_labels(), users=GROUPS)


def test_manners():
    copy = clone(a_regression(bounding=SampleLimit(3), noise_variance=1.0))
    assert copy.get_params()["bounding"] == SampleLimit(3)
    found = copy.fit(X, some_labels(), users=GROUPS)
    assert found.threshold_ == 3
    text = found.statement_.to_text()
    for phrase in ("replace the labels", "all features", "declared as 1", "range of labels, -6 to 10"):
        assert phrase in text
    seen = []
    a_regression(noise_variance=1.0).fit(X, some_labels(), users=GROUPS, progress=lambda *what: seen.append(what))
    assert seen[-1] == ("weights of labels", 13, 13)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"label_range": (1, 1)}, "low < high"),
        ({"label_range": (0.0, 1e-46)}, "at least 1e-12 wide"),
        ({"noise_variance": -1.0}, "noise_variance of at least 0"),
        ({"variance_share": 1.0}, "variance_share"),
        ({"bounding": "best"}, "'robust', 'paper', SampleLimit"),
        ({"target": "errors"}, "'coefficients' or 'predictions'"),
        ({"level": 0.0}, "level"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        a_regression(**arguments).fit(X, some_labels(), users=GROUPS)


@pytest.mark.parametrize("target", ["coefficients", "predictions"])
def test_features_that_depend_on_each_other_are_refused(target):
    with pytest.raises(InputError, match="rank"):
        a_regression(target=target).fit(np.column_stack([X, X[:, 0]]), some_labels(), users=GROUPS)
    with pytest.raises(InputError, match="rank"):  # and with the constant that an intercept adds
        a_regression(target=target).fit(np.column_stack([X, np.ones(len(X))]), some_labels(), users=GROUPS)

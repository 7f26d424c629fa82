"""Weights that stay near least squares: where the truth is curved, and where it goes with the number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.allocation.users import SampleLimit, Unbounded
from apportion.auditing import audit_neighbour
from apportion.privacy import REPLACE_LABELS, Budget, SeededNoise
from apportion.regression import LabelPrivateRegression
from apportion.regression.label_weights.optimal import least_squares_weights, optimal_label_weights
from apportion.regression.label_weights.robust import Design, Structure, robust_label_weights
from apportion.regression.residual_structure import Average, SquaredResiduals, from_averages

RNG = np.random.default_rng(8)
SIZES = np.minimum(3 * RNG.zipf(1.7, 120), 90)
INDPTR = np.concatenate([[0], np.cumsum(SIZES)])
GROUPS = np.repeat(np.arange(120), SIZES)
X = np.minimum(RNG.exponential(1.5, len(GROUPS)), 8.0)
FEATURES = np.column_stack([X, np.ones(len(X))])
CURVED = 6 * np.tanh(X / 2) + 0.5 * RNG.normal(size=len(X))
LIKELY = Structure(0.03, 0.2, 0.1)


def least_squares(labels):
    return np.linalg.lstsq(FEATURES, labels, rcond=None)[0]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("price", [0.01, 1.0, 100.0])
def test_weights_are_unbiased_for_a_line_and_no_worse_than_least_squares(norm, price):
    design = Design(FEATURES, INDPTR)
    made = robust_label_weights(design, LIKELY, price=price, norm=norm)
    np.testing.assert_allclose(made.rows.T @ FEATURES, np.eye(2), atol=1e-9)
    all_rows = least_squares_weights(FEATURES, INDPTR, variance=0.0, price=price, norm=norm)
    assert made.objective <= all_rows.objective * (1 + 1e-9)
    assert made.cap <= all_rows.cap * (1 + 1e-9)


def test_on_curved_data_the_bias_is_a_fraction_of_that_of_the_papers_weights():
    design = Design(FEATURES, INDPTR)
    settings = {"price": 20.0, "norm": 1}
    ours = robust_label_weights(design, LIKELY, **settings).rows
    papers = optimal_label_weights(FEATURES, INDPTR, variance=0.03, tolerance=1e-3, **settings).rows
    ours, papers = (np.linalg.norm(rows.T @ CURVED - least_squares(CURVED)) for rows in (ours, papers))
    assert ours < 0.3 * papers


def test_a_free_sensitivity_gives_least_squares_and_a_known_dependence_brings_in_the_size():
    design = Design(FEATURES, INDPTR)
    free = robust_label_weights(design, LIKELY, price=0.0, norm=1)
    np.testing.assert_allclose(free.rows, design.least_squares, atol=1e-12)
    logs = np.log(SIZES)[GROUPS]
    dependent = robust_label_weights(design, Structure(0.03, 0.5, 1.0), price=0.3, norm=1)
    assert dependent.cap < free.cap
    np.testing.assert_allclose(dependent.rows.T @ logs, least_squares(logs), atol=1e-9)


def test_the_predicted_bias_is_that_of_residuals_drawn_with_the_structure():
    """1,000 draws: a variance is known to 4.5 %; 25 % is more than 5 standard deviations."""
    design = Design(FEATURES, INDPTR)
    weights = robust_label_weights(design, LIKELY, price=1.0, norm=1).rows
    rng = np.random.default_rng(3)
    away = weights - design.least_squares
    own = rng.normal(size=(1000, 120, 2)) * np.sqrt(0.2 * 0.03 / 2)
    drawn = np.sqrt(0.8 * 0.03) * rng.normal(size=(1000, len(X)))
    drawn += np.einsum("rnd,nd->rn", own[:, GROUPS], design.unit)
    measured = np.square(drawn @ away).sum(axis=1).mean()
    assert np.trace(design.bias(weights, Structure(0.03, 0.2, 0.0))) == pytest.approx(measured, rel=0.25)


def test_intervals_hold_the_least_squares_line_of_curved_data():
    target, held = least_squares(np.clip(CURVED, -2, 8)), 0
    model = LabelPrivateRegression(3.0, label_range=(-2, 8))
    for run in range(25):
        model.set_params(noise=SeededNoise(run)).fit(X[:, None], CURVED, users=GROUPS)
        model.set_params(bounding=model.label_weights_)
        held += model.coef_intervals_[0, 0] <= target[0] <= model.coef_intervals_[0, 1]
    assert held >= 20  # at 95 %, fewer have a probability below 1e-3


def test_the_interval_for_a_population_is_wider():
    fits = {
        name: LabelPrivateRegression(50.0, label_range=(-2, 8), interval_for=name, noise=SeededNoise(1)).fit(
            X[:, None], CURVED, users=GROUPS
        )
        for name in ("rows", "population")
    }
    widths = {name: np.diff(fit.coef_intervals_)[0, 0] for name, fit in fits.items()}
    assert widths["population"] > 1.2 * widths["rows"]


@pytest.mark.parametrize("bounding", [SampleLimit(3), Unbounded()], ids=str)
def test_robust_weights_are_closer_to_the_line_than_other_bounds(bounding):
    target = least_squares(np.clip(CURVED, -2, 8))

    def error(bounding):
        found = [
            LabelPrivateRegression(1.0, label_range=(-2, 8), bounding=bounding, noise=SeededNoise(run)).fit(
                X[:, None], CURVED, users=GROUPS
            )
            for run in range(8)
        ]
        return np.mean([np.square(FEATURES @ ([*m.coef_, m.intercept_] - target)).mean() for m in found])

    assert error("robust") < error(bounding)


def test_averages_of_residuals_give_back_the_structure_they_came_from():
    squares, means = Average(0.05, 1e-6), Average(0.05 * (0.3 + 0.7 * 0.1), 1e-6)
    found = from_averages(squares, means, 0.1)
    assert found.likely.variance == pytest.approx(0.05, rel=1e-3)
    assert found.likely.shared == pytest.approx(0.3, rel=1e-3)
    unknown = from_averages(Average(9.0, 1e3), Average(-5.0, 1e3), 0.1)
    assert unknown.likely.variance == pytest.approx(0.03, rel=1e-2)
    assert unknown.careful.variance <= 0.061


@pytest.mark.parametrize("of_means", [True, False])
def test_a_users_squares_follow_from_its_own_rows_alone(of_means):
    from apportion.data.users import Users

    rng = np.random.default_rng(1)
    values = SquaredResiduals((0.0, 1.0), np.array([0.2, 0.5]), of_means)
    columns = {"features": rng.normal(size=(9, 2)), "labels": rng.normal(size=9) * 5}
    users = Users([0, 4, 4, 9], columns)
    whole = values(users)._values
    alone = values(users.run(2, 3))._values
    np.testing.assert_array_equal(whole[4:], alone)
    assert np.abs(whole).max() <= 0.5


@pytest.mark.parametrize("budget", [Budget(1.0, 0.0), Budget(2.0, 1e-6)], ids=["pure", "gaussian"])
def test_replay_on_neighbours_stays_within_every_sensitivity(budget):
    def fit(labels, session):
        found = LabelPrivateRegression(label_range=(-2.0, 8.0)).fit(X[:, None], labels, users=GROUPS, session=session)
        return {name: getattr(found, name) for name in ("coef_", "coef_intervals_", "noise_variance_", "statement_")}

    arguments = {"budget": budget, "noise": SeededNoise(1), "neighbours": REPLACE_LABELS}
    for user, by in ((int(np.argmax(SIZES)), 99.0), (7, -99.0)):
        other = CURVED.copy()
        other[user == GROUPS] = by
        moved = audit_neighbour(fit, CURVED, other, arguments)
        assert set(moved) == {"rough coefficients", "residuals", "shared residuals", "coefficients"}
        assert max(moved.values()) <= 1 + 1e-9

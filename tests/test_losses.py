"""Losses: derivatives that are derivatives, bounds that bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.losses import Huber, Logistic, PseudoHuber, SmoothedHinge, Squared, loss_of

LOSSES = {
    "squared": Squared(),
    "logistic": Logistic(),
    "huber": Huber(0.7),
    "pseudo-Huber": PseudoHuber(0.7),
    "smoothed hinge": SmoothedHinge(0.6),
    "wide smoothed hinge": SmoothedHinge(4.0),
}
OF_CLASSES = (Logistic, SmoothedHinge)
EACH = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def labels_for(loss, labels):
    return np.sign(labels) + (labels == 0) if isinstance(loss, OF_CLASSES) else labels


@EACH
@given(st.integers(0, 1000))
def test_the_derivative_is_the_slope_of_the_value(loss, seed):
    rng = np.random.default_rng(seed)
    scores, labels = rng.uniform(-3, 3, (2, 50))
    labels = labels_for(loss, labels)
    step = 1e-5
    slope = (loss.value(scores + step, labels) - loss.value(scores - step, labels)) / (2 * step)
    np.testing.assert_allclose(loss.derivative(scores, labels), slope, atol=1e-4)


@EACH
@given(st.integers(0, 1000), st.floats(0.1, 5))
def test_no_derivative_within_reach_is_steeper_than_it_says(loss, seed, reach):
    scores, labels = np.random.default_rng(seed).uniform(-reach, reach, (2, 200))
    steepest = np.abs(loss.derivative(scores, labels_for(loss, labels))).max()
    assert steepest <= loss.steepest(reach) * (1 + 1e-12)


@EACH
@given(st.integers(0, 1000), st.floats(0.1, 5))
def test_no_derivative_within_reach_changes_faster_than_the_curvature_and_some_as_fast(loss, seed, reach):
    rng = np.random.default_rng(seed)
    scores, labels = rng.uniform(-reach, reach, (2, 200))
    labels = labels_for(loss, labels)
    scores = np.clip(scores, -reach + 1e-4, reach - 1e-4)
    change = np.abs(loss.derivative(scores + 1e-4, labels) - loss.derivative(scores - 1e-4, labels)) / 2e-4
    assert change.max() <= loss.curvature(reach) * (1 + 1e-6)
    at_most = np.abs(np.diff(loss.derivative(np.linspace(-1, 1, 2001), np.ones(2001)))).max() * 1000
    assert at_most == pytest.approx(loss.curvature(1.0), rel=0.01)


@EACH
def test_losses_are_convex_in_the_score(loss):
    scores = np.linspace(-4, 4, 400)
    for label in (-1.0, 1.0):
        values = loss.value(scores, np.full(400, label))
        assert (np.diff(values, 2) >= -1e-12).all()


def test_the_logistic_loss_does_not_overflow():
    scores, labels = np.array([-1e6, 1e6]), np.array([1.0, 1.0])
    assert Logistic().value(scores, labels).tolist() == [1e6, 0.0]
    assert Logistic().derivative(scores, labels).tolist() == [-1.0, -0.0]


def test_huber_is_the_squared_loss_near_the_label_and_a_line_far_from_it():
    scores, labels = np.array([0.5, 3.0, 4.0]), np.zeros(3)
    assert Huber(1.0).value(scores, labels).tolist() == [0.25, 5.0, 7.0]
    assert Huber(1.0).derivative(scores, labels).tolist() == [1.0, 2.0, 2.0]


def test_the_logistic_probability_is_the_one_whose_logarithm_is_the_loss():
    scores = np.linspace(-6, 6, 13)
    np.testing.assert_allclose(-np.log(Logistic().probability(scores)), Logistic().value(scores, np.ones(13)))
    assert Logistic().probability(np.array([-1e6, 0.0, 1e6])).tolist() == [0.0, 0.5, 1.0]


def test_the_smoothed_hinge_is_a_hinge_with_a_parabola_at_its_corner():
    scores, labels = np.array([2.0, 1.0, 0.5, 0.0, -1.0]), np.ones(5)
    assert SmoothedHinge(1.0).value(scores, labels).tolist() == [0.0, 0.0, 0.125, 0.5, 1.5]
    assert SmoothedHinge(1.0).derivative(scores, labels).tolist() == [0.0, 0.0, -0.5, -1.0, -1.0]
    np.testing.assert_array_equal(SmoothedHinge(1.0).value(-scores, -labels), SmoothedHinge(1.0).value(scores, labels))


@given(st.floats(1e-3, 10))
def test_the_smoothed_hinge_is_within_half_its_width_of_the_hinge(width):
    scores = np.linspace(-8, 8, 500)
    below = np.maximum(0, 1 - scores) - SmoothedHinge(width).value(scores, np.ones(500))
    assert below.min() >= -1e-12
    assert below.max() <= width / 2 + 1e-12


def test_losses_of_classes_code_labels_and_predict_them():
    for loss in (Logistic(), SmoothedHinge()):
        assert loss.coded(np.array([0.0, 1.0, -1.0])).tolist() == [-1.0, 1.0, -1.0]
        assert loss.prediction(np.array([-0.1, 0.2])).tolist() == [0.0, 1.0]
        with pytest.raises(InputError, match=r"labels 0 and 1, or -1 and 1, for the .*, got 2"):
            loss.coded(np.array([0.0, 2.0]))


def test_a_loss_is_known_by_its_name():
    assert loss_of("smoothed-hinge") == SmoothedHinge(1.0)
    assert loss_of("huber") == Huber(1.0)


@pytest.mark.parametrize("given_loss", ["hinge", 3, Squared, None])
def test_an_unknown_loss_gets_one_sentence(given_loss):
    with pytest.raises(InputError, match="Expected a loss among 'squared', 'logistic', 'huber', 'smoothed-hinge'"):
        loss_of(given_loss)


def test_a_bad_huber_threshold_is_refused():
    with pytest.raises(InputError, match="threshold > 0, got -1"):
        Huber(-1.0)


@pytest.mark.parametrize("width", [0.0, -1.0, np.inf, np.nan])
def test_a_bad_width_is_refused(width):
    with pytest.raises(InputError, match="finite width > 0 of the smoothed hinge, got"):
        SmoothedHinge(width)


@pytest.mark.parametrize("loss", [Logistic(), PseudoHuber(0.5)], ids=["logistic", "pseudo-Huber"])
def test_second_derivatives_are_those_of_the_loss_and_stay_within_their_bounds(loss):
    scores, labels = np.linspace(-30, 30, 601), np.where(np.arange(601) % 2, 1.0, -1.0)
    step = 1e-5
    bend = (loss.derivative(scores + step, labels) - loss.derivative(scores - step, labels)) / (2 * step)
    np.testing.assert_allclose(loss.second_derivative(scores, labels), bend, atol=1e-6)
    assert np.abs(loss.derivative(scores, labels)).max() <= loss.steepest(np.inf)
    assert loss.second_derivative(scores, labels).min() >= 0
    assert loss.second_derivative(scores, labels).max() <= loss.curvature(np.inf)

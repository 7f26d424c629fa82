"""Losses: derivatives that are derivatives, bounds that bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.regression import Huber, Logistic, Squared
from apportion.regression.losses import loss_of

LOSSES = {"squared": Squared(), "logistic": Logistic(), "huber": Huber(0.7)}
EACH = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def labels_for(loss, labels):
    return np.sign(labels) + (labels == 0) if isinstance(loss, Logistic) else labels


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


@pytest.mark.parametrize("given_loss", ["hinge", 3, Squared, None])
def test_an_unknown_loss_gets_one_sentence(given_loss):
    with pytest.raises(InputError, match="Expected a loss among 'squared', 'logistic', 'huber'"):
        loss_of(given_loss)


def test_a_bad_huber_threshold_is_refused():
    with pytest.raises(InputError, match="threshold > 0, got -1"):
        Huber(-1.0)

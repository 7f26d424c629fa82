"""Intervals for known noise, against closed forms, quadrature and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import erfcx, ndtr
from scipy.stats import binom, norm

from apportion.errors import InputError
from apportion.postprocessing.intervals import half_width, half_widths

LEVELS = [1e-3, 0.1, 0.5, 0.9, 0.95, 0.99, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12]


def root(tail, level, highest):
    """Where a tail function is (1 − level)/2, by bisection to the last digits."""
    return brentq(lambda w: np.log(tail(w)) - np.log1p(-level) + np.log(2), 0, highest, xtol=1e-300, rtol=1e-14)


def normal_plus_laplace_tail(w, scale):
    """P(N(0, 1) + Laplace(scale) > w) in closed form, each part without overflow or cancellation."""
    density, reach = np.exp(-w * w / 2), 1 / scale

    def mills(x):
        return erfcx(x / np.sqrt(2)) / 2

    near = density * mills(reach - w) if reach >= w else np.exp(reach * (reach / 2 - w)) * ndtr(w - reach)
    return ndtr(-w) + (near - density * mills(reach + w)) / 2


@pytest.mark.parametrize("level", LEVELS)
def test_one_kind_of_noise_has_its_textbook_quantiles(level):
    assert half_width(level, 2.5) == pytest.approx(2.5 * norm.isf((1 - level) / 2), rel=1e-9)
    assert half_width(level, 0.0, [3.0]) == pytest.approx(-3 * np.log1p(-level), rel=1e-9)
    assert half_width(level, 0.0, [3.0, 0.0, 0.0]) == pytest.approx(-3 * np.log1p(-level), rel=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scale", [1e-8, 1e-4, 0.02, 0.1, 0.5, 1.0, 3.0, 30.0, 1e4, 1e8])
def test_normal_and_laplace_agree_with_the_closed_form_from_tiny_to_huge_ratios(level, scale):
    highest = 37 if scale < 0.05 else 30 * (1 + scale)
    expected = root(lambda w: normal_plus_laplace_tail(w, scale), level, highest)
    assert half_width(level, 1.0, [scale]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("ratio", [1e-8, 1e-3, 0.3, 0.95])
def test_two_laplace_parts_agree_with_partial_fractions(level, ratio):
    square = ratio**2
    expected = root(lambda w: (np.exp(-w) - square * np.exp(-w / ratio)) / (2 - 2 * square), level, 60)
    assert half_width(level, 0.0, [1.0, ratio]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("level", LEVELS)
def test_two_equal_laplace_parts_agree_with_their_closed_form(level):
    expected = root(lambda w: (1 + w / 2) * np.exp(-w) / 2, level, 60)
    assert half_width(level, 0.0, [1.0, 1.0]) == pytest.approx(expected, rel=1e-9)
    assert half_width(level, 1e-9, [1.0, 1.0]) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    stddev=st.floats(0.1, 3.0),
    scales=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6),
    level=st.sampled_from([0.3, 0.9, 0.99]),
)
def test_probability_of_the_interval_by_quadrature_of_the_characteristic_function_is_the_level(stddev, scales, level):
    width = half_width(level, stddev, scales)

    def integrand(t):
        return width * np.sinc(width * t / np.pi) * np.exp(-np.square(stddev * t) / 2) / decay(t)

    def decay(t):
        return np.prod(1 + np.square(np.multiply(scales, t)))

    inside, error = quad(integrand, 0, 9 / stddev, epsabs=1e-11, epsrel=1e-11, limit=2000)
    assert error < 1e-8
    assert 2 / np.pi * inside == pytest.approx(level, abs=1e-8)


@pytest.mark.parametrize(
    ("stddev", "scales"),
    [(1.0, [0.7]), (0.3, [1.0, 0.2, 0.2]), (0.0, list(np.linspace(0.1, 2, 20))), (0.5, [1e-3] * 40)],
)
def test_intervals_cover_simulated_errors_as_often_as_they_say(stddev, scales):
    rng, draws = np.random.default_rng(7), 400_000
    errors = stddev * rng.standard_normal(draws)
    for scale in scales:
        errors += rng.laplace(0, scale, draws)
    for level in (0.5, 0.95):
        width = half_width(level, stddev, scales)
        low, high = binom(draws, level).isf([1 - 5e-10, 5e-10])  # false alarm 1e-9 for each level
        assert low <= np.count_nonzero(np.abs(errors) <= width) <= high
        assert np.count_nonzero(np.abs(errors) <= 0.97 * width) < low  # an interval 3 % too narrow would be seen


def test_many_errors_at_once_are_the_same_as_one_by_one():
    rng = np.random.default_rng(8)
    stddev, scales = rng.random(7), rng.random((7, 5)) ** 4
    stddev[0] = 0.0
    scales[1] = 0.0
    stddev[2], scales[2] = 0.0, 0.0
    together = half_widths(0.9, stddev, scales)
    assert together.shape == (7,)
    np.testing.assert_allclose(
        together, [half_width(0.9, *each) for each in zip(stddev, scales, strict=True)], rtol=1e-9
    )
    assert together[2] == 0.0
    np.testing.assert_allclose(
        half_widths(0.9, stddev, scales[0])[3:], half_widths(0.9, stddev[3:], scales[0]), rtol=1e-9
    )
    assert half_widths(0.9, np.ones((2, 3)), [1.0]).shape == (2, 3)


@given(factor=st.floats(1e-150, 1e150), level=st.sampled_from([0.2, 0.95]))
def test_widths_scale_with_the_noise_whatever_its_unit(factor, level):
    expected = factor * half_width(level, 0.6, [1.0, 0.4])
    assert half_width(level, 0.6 * factor, [factor, 0.4 * factor]) == pytest.approx(expected, rel=1e-9)


def test_more_noise_or_a_higher_level_is_a_wider_interval():
    base = half_width(0.9, 1.0, [1.0, 0.5])
    assert base < half_width(0.9, 1.0, [1.0, 0.5, 0.01])
    assert base < half_width(0.9, 1.001, [1.0, 0.5])
    assert base < half_width(0.9001, 1.0, [1.0, 0.5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0), "level strictly between 0 and 1, got 0.0"),
        ((1.0, 1.0), "got 1.0"),
        ((float("nan"), 1.0), "got nan"),
        ((0.5, -1.0), "normal_stddev of at least 0, got -1.0"),
        ((0.5, 1.0, [1.0, float("nan")]), "laplace_scales of at least 0, got nan"),
        ((0.5, float("inf")), "finite normal_stddev"),
    ],
)
def test_what_is_no_noise_or_no_level_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        half_width(*arguments)

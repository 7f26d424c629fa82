"""Intervals of numbers that passed a threshold: they hold given that, where plain ones do not."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.postprocessing.truncated_intervals import truncated_ends


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("true", [3.0, 5.0, 8.0])
def test_they_hold_as_often_as_they_say_given_that_the_number_passed(true, laplace):
    """Of 4000 numbers that passed; a false alarm has a chance below 1e-6, and 93 % or 97 % would be seen."""
    rng, many = np.random.default_rng(0), 2_000_000 if true < 4 else 40_000
    drawn = true + (rng.laplace(0.0, 0.5**0.5, many) if laplace else rng.standard_normal(many))
    passed = drawn[drawn >= 5.0][:4000]
    low, high = truncated_ends(passed, 1.0, 5.0, 0.95, laplace=laplace).T
    assert len(passed) == 4000
    assert np.mean((low <= true) & (true <= high)) == pytest.approx(0.95, abs=0.017)


def test_plain_intervals_of_numbers_near_the_threshold_do_not_hold():
    drawn = 3.0 + np.random.default_rng(0).standard_normal(400_000)
    passed = drawn[drawn >= 5.0]
    assert np.mean(passed - 1.96 <= 3.0) < 0.05

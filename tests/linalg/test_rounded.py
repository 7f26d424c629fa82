"""Noise without error: every path settles on the same whole number, and the numbers have exactly their distribution."""

from __future__ import annotations

import os
from decimal import Decimal

import numpy as np
import pytest
from scipy.stats import chisquare, laplace, norm

from apportion import linalg
from apportion.linalg import chacha, rounded_laplace, rounded_normals

ALPHA = 1e-9
BACKENDS = ["numpy", *(["compiled"] if linalg.compiled_available() else [])]
KEY = bytes(range(32))


def test_paths_and_digits_agree_on_every_number():
    rng = np.random.default_rng(0)
    sums = rng.integers(-(10**15), 10**15, 900)
    for shift, scales in ((0, [2.0**20, 3.7e5]), (25, [2.0**20]), (52, [3.0, 0.01]), (10, [2.0**39])):
        found = []
        for backend in BACKENDS:
            with linalg.use_backend(backend):
                found.append(linalg.add_rounded_normals(sums, shift, np.array(scales), KEY))
        digits = [rounded_normals.settled(int(s), shift, scales[k % len(scales)], KEY, k) for k, s in enumerate(sums)]
        for each in found:
            np.testing.assert_array_equal(each, digits)


def test_the_stated_error_of_a_draw_covers_its_true_error():
    """The true number of the first 52 bits, wherever the bits go on, lies within the spread of what was computed."""
    computed, spreads = (each[0] for each in chacha.normals_and_spreads(KEY, 0, 1))
    compiled = np.empty(chacha.NORMALS_AT_A_TIME)
    linalg.fill_normals(compiled, KEY)
    words = np.ascontiguousarray(chacha.chacha20_blocks(KEY, 0, chacha.BLOCKS_AT_A_TIME)).view("<u8") >> np.uint64(12)
    worst = 0.0
    for at in range(chacha.NORMALS_AT_A_TIME):
        pair, rest = divmod(at, 2 * chacha.BLOCKS_AT_A_TIME)
        is_sine, lane = divmod(rest, chacha.BLOCKS_AT_A_TIME)
        level, turn = int(words[lane, pair]), int(words[lane, 4 + pair])
        for ends in ((0, 0), (0, 2**200 - 1), (2**200 - 1, 0), (2**200 - 1, 2**200 - 1)):
            true, _ = rounded_normals._normal(
                (level << 200) + ends[0], (turn << 200) + ends[1], 252, is_sine=bool(is_sine)
            )
            for drawn in (computed[at], compiled[at]):
                worst = max(worst, float(abs(Decimal(float(drawn)) - true)) / spreads[at])
    assert 0.01 < worst < 0.5  # the bound holds with room to spare, and is not idle


def test_pi_is_pi():
    published = (
        "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
    )
    assert str(rounded_normals._PI).startswith(published)


def rounded_frequencies(draws, distribution, reach):
    """Counts of whole numbers from -reach to reach, all beyond at the ends, and what they should be."""
    edges = np.arange(-reach, reach) + 0.5
    cumulated = np.concatenate([[0.0], distribution(edges), [1.0]])
    return np.bincount(draws.clip(-reach, reach) + reach, minlength=2 * reach + 1), np.diff(cumulated)


def p_value(draws, distribution, reach):
    counts, expected = rounded_frequencies(draws, distribution, reach)
    assert (expected * len(draws) > 20).all()
    return chisquare(counts, expected / expected.sum() * counts.sum()).pvalue


@pytest.mark.parametrize("backend", BACKENDS)
def test_rounded_normals_have_exactly_their_distribution(backend):
    """False alarm 1e-9; the test sees a wrong scale of 0.5 %, a discrete Gaussian, and cutting off for rounding."""
    n, scale = 2_000_000, 3.0
    with linalg.use_backend(backend):
        draws = linalg.add_rounded_normals(np.zeros(n, np.int64), 0, np.array([scale]), os.urandom(32))

    def true(x):
        return norm.cdf(x / scale)

    assert p_value(draws, true, 11) > ALPHA
    rng = np.random.default_rng(0)
    wrong_scale = np.rint(rng.normal(0, scale * 1.005, n)).astype(np.int64)
    cut_off = np.trunc(rng.normal(0, scale, n)).astype(np.int64)
    support = np.arange(-60, 61)
    masses = np.exp(-(support**2) / (2 * scale**2))
    discrete = rng.choice(support, n, p=masses / masses.sum())
    for wrong in (wrong_scale, cut_off, discrete):
        assert p_value(wrong, true, 11) < ALPHA


def test_fractions_of_sums_shift_the_distribution():
    n, scale, shift, sum_ = 1_000_000, 2.0, 20, 3 * 2**20 + 2**18
    draws = linalg.add_rounded_normals(np.full(n, sum_), shift, np.array([scale]), os.urandom(32)) - 3
    assert p_value(draws, lambda x: norm.cdf((x - 0.25) / scale), 7) > ALPHA
    assert p_value(draws, lambda x: norm.cdf(x / scale), 7) < ALPHA


def test_low_bits_are_even():
    """Of numbers with the usual fineness of a release: their last six bits are uniform, and independent of the sum."""
    n = 1_000_000
    for sum_ in (0, 12345, 2**40 + 1):
        draws = linalg.add_rounded_normals(np.full(n, sum_), 3, np.array([2.0**20]), os.urandom(32))
        assert chisquare(np.bincount(draws & 63, minlength=64)).pvalue > ALPHA / 3


def test_rounded_laplace_has_exactly_its_distribution():
    """False alarm 1e-9; the test sees a wrong scale of 2 %."""
    n, scale = 2_000_000, 2.5
    draws = linalg.add_rounded_laplace(np.zeros(n, np.int64), 0, scale, os.urandom(32))
    assert p_value(draws, lambda x: laplace.cdf(x, scale=scale), 20) > ALPHA
    assert p_value(draws, lambda x: laplace.cdf(x, scale=scale * 1.02), 20) < ALPHA


def test_laplace_digits_agree_with_what_was_drawn():
    sums = np.random.default_rng(2).integers(-(10**12), 10**12, 500)
    for shift, scale in ((0, 2.0**20), (10, 2.0**39)):
        found = linalg.add_rounded_laplace(sums, shift, scale, KEY)
        words = np.ascontiguousarray(chacha.chacha20_blocks(KEY, 0, 125)).view("<u8").reshape(-1, 2)
        for k, s in enumerate(sums):
            level, sign = int(words[k, 0] >> np.uint64(12)), -1 if words[k, 1] >> np.uint64(63) else 1
            assert found[k] == rounded_laplace.settled(int(s), shift, sign * scale, level, KEY, k)


def test_what_cannot_be_drawn_is_refused():
    sums = np.zeros(4, np.int64)
    with pytest.raises(ValueError, match="shift from 0 to 52, got 53"):
        linalg.add_rounded_normals(sums, 53, np.ones(1), KEY)
    with pytest.raises(ValueError, match="32 bytes, got 3"):
        linalg.add_rounded_normals(sums, 0, np.ones(1), b"abc")
    with pytest.raises(ValueError, match="positive scales"):
        linalg.add_rounded_normals(sums, 0, np.zeros(1), KEY)
    with pytest.raises(ValueError, match="scale below"):
        linalg.add_rounded_laplace(sums, 0, 0.0, KEY)


@pytest.mark.parametrize("shift", [0, 7, 14])
def test_sums_that_wrap_around_release_what_the_true_sums_would_wrapped_likewise(shift):
    """Two neighbours on either side of 2^63 steps: their releases are as close, around the circle, as their sums."""
    truth = [2**63 + 5, 2**63 - 5]
    held = np.array([rounded_normals.wrapped(one) for one in truth])
    circle = 1 << (64 - shift)
    for add, scale in ((linalg.add_rounded_normals, np.array([8.0])), (linalg.add_rounded_laplace, 8.0)):
        drawn = add(held, shift, scale, KEY)
        assert (np.abs(drawn) <= circle // 2).all()
        for one, found in zip(truth, drawn.tolist(), strict=True):
            apart = (found - (one >> shift)) % circle
            assert min(apart, circle - apart) < 100

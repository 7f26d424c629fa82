"""Noise in shares: the sum of shares follows the law that is accounted for, and a share is as large as it must be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2, norm

from apportion import linalg
from apportion.engines import Processors
from apportion.errors import InputError
from apportion.privacy import SystemNoise
from apportion.privacy.contributions import ClippedParts, Output, PartialSums, UserGram
from apportion.privacy.noise_shares import NoiseShare, with_share
from contribution_cases import OwnRows, users_of

from strategies import random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


def rounded_normal(stddev, reach):
    """The probabilities of a rounded normal number."""
    edges = np.arange(-reach, reach + 2) - 0.5
    return np.diff(norm.cdf(edges / stddev))


def smoothed_normal(stddev, n_uniform, at, cells=512):
    """The density of a normal number plus so many uniform ones, by exact convolution on a fine grid."""
    box = np.full(cells, 1 / cells)
    spread = box
    for _ in range(n_uniform - 1):
        spread = np.convolve(spread, box)
    offsets = (np.arange(len(spread)) - (len(spread) - 1) / 2) / cells
    return np.array([(norm.pdf((k - offsets) / stddev) / stddev) @ spread for k in at])


@pytest.mark.parametrize("stddev", [0.4, 0.6, 0.9])
@pytest.mark.parametrize("n", [2, 4])
def test_a_sum_of_rounded_normals_is_a_function_of_a_normal_number_within_the_bound(stddev, n):
    # Lemma 2, where its epsilon is 0.4, 0.06 and 7e-4: the ratio moves with it, and stays within.
    reach = 40
    law = one = rounded_normal(stddev, reach)
    for _ in range(n - 1):
        law = np.convolve(law, one)
    middle, near = (len(law) - 1) // 2, np.arange(-4, 5)
    ratio = law[middle + near] / smoothed_normal(math.sqrt(n) * stddev, n, near)
    epsilon = 2 * sum(math.exp(-((math.pi * stddev * k) ** 2)) for k in (1, 2, 3))
    assert (1 - epsilon) ** (n - 1) - 1e-5 <= ratio.min()
    assert ratio.max() <= (1 + epsilon) ** (n - 1) + 1e-5
    assert np.abs(ratio - 1).max() > epsilon / 100  # the bound is not idle


def test_the_epsilon_of_the_smallest_allowed_share_is_as_stated():
    assert 2.1 * math.exp(-64 * math.pi**2) < 1e-273


def ones(users, weights):
    return (np.ones((users.n_users, 4000)) * 0.001,)


def shares_of(contribution, share, seed=3):
    """What one client sends beyond its sum, in steps."""
    users = users_of(random_interactions(seed, n_users=5, n_tasks=4))
    sums = PartialSums.over(users, [contribution], Processors(exact=True))
    noisy = with_share(sums, [contribution], share, SystemNoise(exact=True))
    zero = np.zeros(noisy.n_numbers, np.uint64)
    wanted = PartialSums([(sums._sums[0][share.output],)], 0)
    sent, true = (each.masked(zero, 1).view(np.int64) for each in (noisy, wanted))
    return sent - true


def test_a_share_has_its_part_of_the_variance():
    # 4000 draws; false alarm 1e-9; a share of half the variance is seen with a probability of 1 - 1e-9.
    output = Output(4000, 2.0, False, "test")
    drawn = shares_of(ClippedParts(ones, (output,)), NoiseShare(0, 0, 3.0, 16)) * output.step
    energy = float(((drawn / (3.0 * 2.0 / 4)) ** 2).sum())
    low, high = chi2.isf([1 - 0.5e-9, 0.5e-9], 4000)
    assert chi2.cdf(2 * low, 4000) > 1 - 1e-9
    assert low < energy < high


def test_entries_off_the_diagonal_get_their_own_scale():
    # 6 entries of a 3 x 3 matrix, 400 draws of each: false alarm 1e-9 for each group, a factor of 2 is seen.
    draws = np.stack([shares_of(UserGram(OwnRows()), NoiseShare(0, 0, 5.0, 4)) for _ in range(400)]).astype(float)
    diagonal = [0, 2, 5]
    ratio = np.square(np.delete(draws, diagonal, axis=1)).sum() / np.square(draws[:, diagonal]).sum()
    assert 0.5 / 1.42 < ratio < 0.5 * 1.42


def test_a_share_below_the_least_is_refused():
    output = Output(1, 1.0, False, "test")
    few = ClippedParts(lambda users, weights: (np.ones((users.n_users, 1)),), (output,))
    with pytest.raises(InputError, match="shares of noise of at least 8 steps"):
        shares_of(few, NoiseShare(0, 0, 1e-9, 1))


@pytest.mark.parametrize(("multiplier", "counted"), [(0.0, 3), (math.inf, 3), (1.0, 0)])
def test_no_noise_and_no_clients_are_refused(multiplier, counted):
    with pytest.raises(InputError, match="Expected noise above 0 from at least 1 client"):
        NoiseShare(0, 0, multiplier, counted)

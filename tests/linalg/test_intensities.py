"""How far each matrix is shrunk: intensities follow the noise, stay in [0, 1] and are pooled where d is small."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from apportion import linalg
from apportion.linalg.shrinkage import intensities, squared_distances


def distances_of_pure_noise(width, n, stddev, seed):
    rng = np.random.default_rng(seed)
    scale = np.sqrt(1 / linalg.frobenius_weights(width))
    noise = stddev * scale * rng.standard_normal((n, linalg.packed_size(width)))
    return squared_distances(noise, np.zeros(n), np.zeros(noise.shape[1]))


def test_pure_noise_is_shrunk_almost_all_the_way_at_any_width():
    for width in (3, 8, 30):
        size = linalg.packed_size(width)
        distances = distances_of_pure_noise(width, 2000, 2.0, seed=width)
        alpha = intensities(distances, np.arange(2000.0), np.full(2000, 4.0), size, 4096)
        assert alpha.min() > 0.85 * (size - 2) / size


def test_an_intensity_that_is_not_pooled_swings_at_small_width():
    distances = distances_of_pure_noise(3, 2000, 1.0, seed=1)
    alone = intensities(distances, np.arange(2000.0), np.ones(2000), 6, 1)
    pooled = intensities(distances, np.arange(2000.0), np.ones(2000), 6, 4096)
    assert alone.std() > 5 * pooled.std()


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 100))
@example(0, 1, 5e-324)
def test_shrinking_stays_between_a_matrix_and_its_target(seed, width, variance):
    rng = np.random.default_rng(seed)
    noisy = rng.standard_normal((9, linalg.packed_size(width)))
    scale, common = rng.gamma(1.0, size=9), rng.standard_normal(noisy.shape[1])
    target = np.outer(scale, common)
    shrunk, alpha = linalg.shrink_towards(noisy, scale, common, variance)
    assert (shrunk <= np.maximum(noisy, target) + 1e-12).all()
    assert (shrunk >= np.minimum(noisy, target) - 1e-12).all()
    np.testing.assert_allclose(shrunk, noisy + alpha[:, None] * (target - noisy), atol=1e-12)


def test_squared_distance_is_that_of_whole_matrices():
    rng = np.random.default_rng(4)
    one, common = rng.standard_normal((5, 10)), rng.standard_normal(10)
    whole = linalg.unpack(one) - 2.5 * linalg.unpack(common)
    np.testing.assert_allclose(
        squared_distances(one, np.full(5, 2.5), common), np.square(whole).sum(axis=(1, 2)), rtol=1e-12
    )

"""Shrinkage towards a common matrix, and projection on positive semidefinite ones."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg


def noisy_grams(seed, stddev, apart=0.0, n=800, width=5):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((width, width))
    common = linalg.pack(root @ root.T / width)
    exposure = rng.gamma(1.0, 10.0, n) + 0.1
    own = rng.standard_normal((n, width, width)) * apart
    truth = exposure[:, None] * (common + linalg.pack(own + own.swapaxes(1, 2)))
    scales = linalg.pack(np.where(np.eye(width) > 0, 1.0, np.sqrt(0.5)))
    noise = stddev * scales * rng.standard_normal(truth.shape)
    return truth, truth + noise, exposure, common, 1 / np.square(scales)


@pytest.mark.parametrize("apart", [0.0, 0.02, 0.3])
def test_shrinking_is_better_than_the_noisy_and_the_common_matrix(apart):
    truth, noisy, exposure, common, metric = noisy_grams(1, stddev=3.0, apart=apart)
    shrunk, _ = linalg.shrink_towards(noisy, exposure, common, 9.0)

    def risk(estimate):
        return float((np.square(estimate - truth) @ metric).mean())

    assert risk(shrunk) < risk(noisy)
    assert risk(shrunk) <= 1.2 * risk(np.outer(exposure, common)) + 0.02 * risk(noisy)


def test_without_noise_nothing_is_shrunk():
    truth, _, exposure, common, _ = noisy_grams(2, stddev=1.0, apart=0.2)
    np.testing.assert_allclose(linalg.shrink_towards(truth, exposure, common, 0.0)[0], truth, rtol=1e-12)


def test_projection_raises_negative_eigenvalues_and_leaves_others():
    rng = np.random.default_rng(3)
    full = rng.standard_normal((50, 6, 6))
    full = full + full.swapaxes(1, 2)
    projected = linalg.unpack(linalg.project_psd(linalg.pack(full), floor=0.1))
    before, after = np.linalg.eigvalsh(full), np.linalg.eigvalsh(projected)
    np.testing.assert_allclose(after, np.maximum(before, 0.1), atol=1e-9)
    already = full @ full.swapaxes(1, 2) + np.eye(6)
    np.testing.assert_allclose(linalg.unpack(linalg.project_psd(linalg.pack(already))), already, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="-1"):
        linalg.project_psd(linalg.pack(full), floor=-1)

"""Statistical assertions with a stated false-alarm rate and a stated power."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2, kstest


def assert_scale(samples, *, stddev, alpha=1e-9, detect=1.05):
    """Mean-zero normal samples have this standard deviation; a factor of `detect` would be seen."""
    n, energy = samples.size, float(np.square(samples / stddev).sum())
    low, high = chi2.isf([1 - alpha / 2, alpha / 2], n)
    assert chi2.cdf(high / detect**2, n) <= alpha, f"{n} draws cannot see a factor {detect}"
    assert low < energy < high, f"stddev {stddev} rejected at {alpha}: {np.sqrt(energy / n)} times"


def assert_distribution(samples, cdf, *, alpha=1e-9):
    """Samples follow the distribution function (Kolmogorov-Smirnov)."""
    result = kstest(np.ravel(samples), cdf)
    assert result.pvalue > alpha, f"rejected with p = {result.pvalue}"

"""Are draws of noise independent of each other, at every distance?

A stream that repeats, or two draws that share part of a stream, correlate at some lag: equal numbers are a fixed
distance apart. `dependence` looks at all lags at once. Its threshold holds for independent standard normal
numbers without any approximation: the product of two of them has the moment generating function (1 - t²)^(-1/2), and
Chernoff's bound on a sum of n such products is added up over the lags (`largest_sum`). Products of a stream with itself
share numbers. In every other block of a lag's length they do not, so the bound is applied to the even and the odd
blocks separately.

Noise with another scale, or drawn for another shape, is detected too, because a correlation does not depend on scale.
Noise of another distribution is first turned into normal numbers (`as_normal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.replay import Record

Floats = NDArray[np.float64]

LEAST_OVERLAP = 64
"""Lags that leave fewer products than this are not looked at."""


@dataclass(frozen=True)
class Dependence:
    """The lag at which two streams correlate most.

    Attributes:
        lag: by how many numbers the second stream is moved to the right.
        correlation: the mean of the products there.
        excess: its size over the threshold; above 1 the streams are not independent.
    """

    lag: int
    correlation: float
    excess: float

    @property
    def found(self) -> bool:
        """Whether the streams depend on each other."""
        return self.excess > 1.0


def dependence(one: NDArray[np.floating], two: NDArray[np.floating] | None = None, alpha: float = 1e-9) -> Dependence:
    """Look for dependence of two streams of standard normal numbers, or of one stream on itself.

    Args:
        one: numbers in the order in which they were drawn.
        two: the other stream; None for the same one, at every lag but 0.
        alpha: the largest probability of finding dependence where there is none.
    """
    first = np.asarray(one, np.float64).reshape(-1)
    second = first if two is None else np.asarray(two, np.float64).reshape(-1)
    lags, sums = _products(first, second)
    overlaps = np.minimum(len(first), len(second) + lags) - np.maximum(0, lags)
    kept = (overlaps >= LEAST_OVERLAP) & ((lags > 0) if two is None else True)
    if not kept.any():
        return Dependence(0, 0.0, 0.0)
    lags, sums, overlaps = lags[kept], sums[kept], overlaps[kept]
    allowed = (
        _allowed_alone(lags, overlaps, alpha / len(lags)) if two is None else largest_sum(overlaps, alpha / len(lags))
    )
    excess = np.abs(sums) / allowed
    most = int(np.argmax(excess))
    return Dependence(int(lags[most]), float(sums[most] / overlaps[most]), float(excess[most]))


def largest_sum(n: NDArray[np.integer], alpha: float) -> Floats:
    """Return a bound on a sum of n products of independent normal numbers; it fails with probability at most alpha.

    The logarithm of the sum's moment generating function, -n log(1 - t²) / 2, is at most n t² / (2 (1 - t)). Chernoff's
    bound then gives √(2 n L) + L with L = log(2 / alpha).
    """
    length = np.log(2 / alpha)
    return np.where(n > 0, np.sqrt(2.0 * n * length) + length, 0.0)


def repeated_runs(draws: Sequence[NDArray[np.floating]], length: int = 4) -> int:
    """Return how many runs of numbers occur more than once, in one draw or in several, bit for bit.

    Runs of four numbers of at least 24 random bits each never repeat by chance.
    """
    runs = [
        _fingerprints(np.asarray(draw, np.float64).reshape(-1), length) for draw in draws if np.size(draw) >= length
    ]
    every = np.concatenate(runs) if runs else np.empty(0, np.uint64)
    return len(every) - len(np.unique(every))


def noise_of(records: Sequence[Record]) -> list[Floats]:
    """Return the noise of each Gaussian release of a recorded run, in standard deviations."""
    return [
        np.asarray((record.released - record.hidden) / (record.scale * _spread(record)), np.float64).reshape(-1)
        for record in records
        if record.mechanism.key == "gaussian" and isinstance(record.hidden, np.ndarray)
    ]


def as_normal(uniform: NDArray[np.floating]) -> Floats:
    """Return normal numbers from uniform ones, one by one."""
    from scipy.special import ndtri

    return np.asarray(ndtri(np.asarray(uniform, np.float64)))


def _spread(record: Record) -> NDArray[np.floating] | float:
    return 1.0 if record.scales is None else record.scales


def _allowed_alone(lags: NDArray[np.int64], overlaps: NDArray[np.int64], alpha: float) -> Floats:
    """Return the same for a stream with itself.

    Products of even blocks are independent, and so are products of odd blocks.
    """
    whole, rest = np.divmod(overlaps, 2 * lags)
    even = whole * lags + np.minimum(rest, lags)
    return largest_sum(even, alpha / 2) + largest_sum(overlaps - even, alpha / 2)


def _products(one: Floats, two: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return Σ one[i] two[i - lag] for every lag, by Fourier transform."""
    size = 1 << (len(one) + len(two)).bit_length()
    spectrum = np.fft.rfft(one, size) * np.conj(np.fft.rfft(two, size))
    sums = np.fft.irfft(spectrum, size)
    lags = np.arange(-len(two) + 1, len(one))
    return lags, sums[lags]


def _fingerprints(numbers: Floats, length: int) -> NDArray[np.uint64]:
    """Return a 64-bit hash of every run of this many numbers."""
    bits = numbers.view(np.uint64)
    mixed = np.zeros(len(bits) - length + 1, np.uint64)
    for k in range(length):
        mixed = (mixed ^ bits[k : len(bits) - length + 1 + k]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed

"""Batches of segments of similar length, by which NumPy and torch avoid a loop over observations.

Segments are grouped by length rounded up to a power of two, and each group is divided into batches whose padded rows
stay below a bound on memory. A segment that is too long for that is processed in strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Batch:
    """Some segments, and the strides [start, stop) in which their observations are processed."""

    segments: NDArray[np.int64]
    strides: tuple[tuple[int, int], ...]


def padded_batches(lengths: NDArray[np.int64], dim: int, max_elements: int) -> Iterator[Batch]:
    """Yield batches that cover every segment once.

    Args:
        lengths: number of observations per segment.
        dim: columns of the features.
        max_elements: bound on segments x length x dim of a batch, and on segments x dim x dim.
    """
    by_length = np.argsort(lengths, kind="stable")
    padded = _next_power_of_two(lengths[by_length])
    edges = np.flatnonzero(np.diff(padded, prepend=-1, append=-1))
    for first, last in pairwise(edges):
        length = int(padded[first])
        per_segment = dim * max(dim, length)
        count = int(max(1, max_elements // per_segment))
        stride = max(1, max_elements // (dim * min(count, int(last - first))))
        longest = int(lengths[by_length[last - 1]])
        strides = tuple((a, min(a + stride, longest)) for a in range(0, longest, stride))
        for begin in range(first, last, count):
            yield Batch(by_length[begin : min(begin + count, last)], strides)


def _next_power_of_two(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    exponents = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    return np.where(lengths > 0, np.int64(1) << exponents, 0)

"""Where noise comes from: the operating system for releases, a seed for tests.

Everything that a seeded source made is marked "not for release" in the statement.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg


class NoiseSource(Protocol):
    """Independent draws; a source that is predictable says so."""

    @property
    def releasable(self) -> bool:
        """Whether what it made may leave the building."""

    @property
    def description(self) -> str:
        """One line for the statement."""

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Standard normal draws."""

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draws from the open interval (0, 1)."""


class SystemNoise:
    """Noise keyed by the operating system's entropy; every call takes a fresh key."""

    releasable = True
    description = "operating system entropy: a fresh key for each draw, expanded by ChaCha20"

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Standard normal draws; the key is used once and forgotten."""
        out = np.empty(shape, dtype=dtype)
        linalg.fill_normals(out, os.urandom(32))
        return out

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draws from (0, 1) with 52 random bits, never 0 or 1."""
        bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52


class SeededNoise:
    """Reproducible noise for tests and studies; what it makes is not private."""

    releasable = False

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.description = f"seeded generator (seed {seed}): reproducible, therefore NOT FOR RELEASE"
        self._generator = np.random.default_rng([seed, 0x6E6F697365])  # not the stream of a public default_rng(seed)

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Standard normal draws from the seeded stream."""
        return self._generator.standard_normal(shape).astype(dtype)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draws from (0, 1) from the seeded stream."""
        return np.asarray(self._generator.integers(0, 2**52, size) + 0.5) * 2.0**-52

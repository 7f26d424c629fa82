"""Where noise comes from: the operating system for releases, a seed for tests.

Everything that a seeded source made is marked "not for release" in the statement. A source may be *exact*: then sums
are whole numbers of a public step, and noise is added to them without rounding errors (docs/proofs/exact.md).
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg
from apportion.errors import InputError


class NoiseSource(Protocol):
    """Independent draws; a source that is predictable says so."""

    @property
    def releasable(self) -> bool:
        """Whether what it made may leave the building."""

    @property
    def description(self) -> str:
        """One line for the statement."""

    @property
    def exact(self) -> bool:
        """Whether sums and noise are to be exact; such a session releases only sums on a lattice."""

    def key(self) -> bytes:
        """32 secret bytes that were never used before."""

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Standard normal draws."""

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draws from the open interval (0, 1)."""


class SystemNoise:
    """Noise keyed by the operating system's entropy; every call takes a fresh key.

    Args:
        exact: whether sums and noise are to be exact.
    """

    releasable = True
    description = "operating system entropy: a fresh key for each draw, expanded by ChaCha20"

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact

    def key(self) -> bytes:
        """32 bytes from the operating system."""
        return os.urandom(32)

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Standard normal draws; the key is used once and forgotten."""
        out = np.empty(shape, dtype=dtype)
        linalg.fill_normals(out, self.key())
        return out

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draws from (0, 1) with 52 random bits, never 0 or 1."""
        bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52


class SeededNoise:
    """Reproducible noise for tests and studies; what it makes is not private."""

    releasable = False

    def __init__(self, seed: int, *, exact: bool = False) -> None:
        self.seed = seed
        self.exact = exact
        self.description = f"seeded generator (seed {seed}): reproducible, therefore NOT FOR RELEASE"
        self._generator = np.random.default_rng([seed, 0x6E6F697365])  # not the stream of a public default_rng(seed)

    def key(self) -> bytes:
        """32 bytes of the seeded stream."""
        return self._generator.bytes(32)

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Standard normal draws from the seeded stream."""
        return self._generator.standard_normal(shape).astype(dtype)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Draws from (0, 1) from the seeded stream."""
        return np.asarray(self._generator.integers(0, 2**52, size) + 0.5) * 2.0**-52


def noise_source(given: NoiseSource | str | None) -> NoiseSource:
    """Return the source that a name stands for: "secure" (also for None) or "exact". A source is returned as it is."""
    if given is None or given == "secure":
        return SystemNoise()
    if given == "exact":
        return SystemNoise(exact=True)
    if isinstance(given, str):
        raise InputError(f"Expected noise to be 'secure', 'exact' or a noise source, got {given!r}.")
    return given

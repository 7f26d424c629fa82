"""Noise sources: the operating system for releases, a seed for tests.

The statement marks everything made with a seeded source "not for release". A source may be *exact*: then sums are whole
numbers of a public step, and noise is added to them without rounding errors (docs/proofs/exact.md).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion import linalg
from apportion.errors import InputError

_STREAM = 0x6E6F697365  # separates this stream from that of a public default_rng(seed)


class NoiseSource(Protocol):
    """A source of independent draws. A predictable source says so."""

    @property
    def releasable(self) -> bool:
        """Whether results made with it may be published."""

    @property
    def description(self) -> str:
        """One line for the statement."""

    @property
    def exact(self) -> bool:
        """Whether sums and noise are exact. Such a session releases only sums on a lattice."""

    def key(self) -> bytes:
        """Return 32 secret bytes that were never used before."""

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return standard normal draws."""

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return draws from the open interval (0, 1)."""


class KeyedNoise(ABC):
    """Noise of which every draw is the stream of a key of its own."""

    @abstractmethod
    def key(self) -> bytes:
        """Return 32 secret bytes that were never used before."""

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return standard normal draws. The key is used once and forgotten."""
        out = np.empty(shape, dtype=dtype)
        linalg.fill_normals(out, self.key())
        return out

    @property
    def plain(self) -> bool:
        """Whether normal draws are those of this class, so that `added_to` adds the same ones."""
        return type(self).normal is KeyedNoise.normal

    def added_to(
        self,
        values: NDArray[np.float64] | linalg.MostlyZero,
        stddev: float,
        step: float,
        dtype: DTypeLike = np.float64,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Return values with the same draws times `stddev`, rounded to multiples of a power of two, in one pass."""
        return linalg.add_normals(values, stddev, step, self.key(), dtype, out=out)


class SystemNoise(KeyedNoise):
    """Noise keyed by the operating system's entropy. Every call takes a fresh key.

    Args:
        exact: whether sums and noise are exact.
    """

    releasable = True
    description = "operating system entropy: a fresh key for each draw, expanded by ChaCha20"

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact

    def key(self) -> bytes:
        """Return 32 bytes from the operating system."""
        return os.urandom(32)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return draws from (0, 1) with 52 random bits, never 0 or 1."""
        bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52


class SeededNoise:
    """Reproducible noise for tests and studies. Results made with it are not private."""

    releasable = False

    def __init__(self, seed: int, *, exact: bool = False) -> None:
        self.seed = seed
        self.exact = exact
        self.description = f"seeded generator (seed {seed}): reproducible, therefore NOT FOR RELEASE"
        self._generator = np.random.default_rng([seed, _STREAM])

    def at(self, place: str) -> SeededNoise:
        """Return a source for one draw. It depends only on the seed and the place, not on earlier draws."""
        made = SeededNoise(self.seed, exact=self.exact)
        made._generator = np.random.default_rng([self.seed, _STREAM, *place.encode()])
        return made

    def key(self) -> bytes:
        """Return 32 bytes of the seeded stream."""
        return self._generator.bytes(32)

    def normal(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return standard normal draws from the seeded stream."""
        return self._generator.standard_normal(shape).astype(dtype)

    def uniform(self, size: int) -> NDArray[np.float64]:
        """Return draws from (0, 1) from the seeded stream."""
        return np.asarray(self._generator.integers(0, 2**52, size) + 0.5) * 2.0**-52


def noise_source(given: NoiseSource | str | None) -> NoiseSource:
    """Return the source that a name stands for: "secure" (the default, None) or "exact". Return a source unchanged."""
    if given is None or given == "secure":
        return SystemNoise()
    if given == "exact":
        return SystemNoise(exact=True)
    if isinstance(given, str) or not hasattr(given, "exact") or not hasattr(given, "key"):
        raise InputError(f"Expected noise to be 'secure', 'exact' or a noise source, got {given!r}.", argument="noise")
    return given

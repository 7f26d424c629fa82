"""How a curator interprets a released matrix, and what it sends back: the projection M of a round, or a covariance Ω.

All of it is post-processing of a released symmetric matrix, the standard deviation of its noise and public numbers.
Noise with standard deviation σ on the diagonal and σ/√2 off it has its spectrum in ±σ√(2d), up to about σ (its edge;
Wigner). A direction of strength θ appears in the release at θ + σ²d/(2θ), and only if θ > σ√(d/2), half the edge. The
expected part that survives the noise is √(λ² - edge²). Sums of m random directions have a spread of their own, which
counts as noise of variance 2 tr/d² in addition to that of the release.

If nothing exceeds the noise, every structure sends the identity, and parties learn alone (Proposition 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

Floats = NDArray[np.float64]

_MOSTLY = 0.5  # part of a direction that must lie in the models' features, not in the constant beside them
_LEAST_LEVEL = 1e-2  # level of directions within the noise, relative to the mean strength
_SHIFT = 1.5  # shift of all eigenvalues, in edges of the noise: the lowest is then half an edge above zero
_MARGIN = (
    2.0  # margin beyond the edge, in standard deviations of the noise, for a projection, which parties cannot weigh
)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The eigendecomposition of a released matrix.

    Attributes:
        values: its eigenvalues, ascending.
        vectors: their vectors, as columns.
        level: the typical eigenvalue of directions within the noise.
        strengths: what is left of each eigenvalue above the level after the noise is removed; 0 for those within the
            noise.
        edge: how far noise alone reaches.
    """

    values: Floats
    vectors: Floats
    level: float
    strengths: Floats
    edge: float

    @property
    def standing_out(self) -> int:
        """The number of directions that exceed the noise."""
        return int(np.count_nonzero(self.strengths))


@dataclass(frozen=True, eq=False)
class CuratorAnswer:
    """What a curator derives from one release: M or Ω, which it sends back, and the numbers behind it.

    Attributes:
        shared: the matrix sent to the parties; the identity if nothing exceeds the noise.
        values: eigenvalues of the release, or its entries if only a diagonal was released.
        kept: the number of directions, or features, that exceed the noise.
    """

    shared: Floats
    values: Floats
    kept: int


class Structure(Protocol):
    """Turns a released matrix into what parties receive."""

    @property
    def diagonal(self) -> bool:
        """Whether it uses only the diagonal."""

    def read(self, released: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return what to send back.

        Args:
            released: a symmetric matrix, or its diagonal, of a sum of parts whose norm is at most 1.
            stddev: the standard deviation of the noise on its diagonal.
            largest: the number of tasks, which no direction of the sum can exceed; infinity if it is not public.
        """


def taken_apart(released: Floats, stddev: float, largest: float, margin: float) -> Spectrum:
    """Return the eigenvalues that exceed the noise, and the strengths behind them.

    Args:
        released: a symmetric matrix.
        stddev: the standard deviation of the noise on its diagonal.
        largest: the number of tasks, infinity if it is not public.
        margin: how far beyond the edge an eigenvalue must lie, in standard deviations of the noise. Noise alone puts an
            eigenvalue there with probability at most exp(-margin²/2), in practice far less.
    """
    values, vectors = np.linalg.eigh(released)
    dimension, total = len(values), _total(released, stddev, largest)
    deviation = math.sqrt(stddev**2 + 2 * total / dimension**2)
    edge = deviation * math.sqrt(2 * dimension)
    level, strengths = total / dimension, np.zeros(dimension)
    for _ in range(dimension):  # the level falls as directions are removed
        beyond = values - level
        result = np.sqrt(np.maximum(beyond**2 - edge**2, 0.0))
        strengths = np.where(beyond > edge + margin * deviation, result, 0.0)
        lower = max(total - float(strengths.sum()), 0.0) / dimension
        if lower >= level * (1 - 1e-12):
            break
        level = lower
    return Spectrum(values, vectors, level, strengths, edge)


def _total(released: Floats, stddev: float, largest: float) -> float:
    """Return the trace without its noise, shrunk towards the number of tasks, if that is public."""
    trace = max(float(np.trace(released)), 0.0)
    if not math.isfinite(largest):
        return trace
    noise, spread = stddev**2 * len(released), (largest / 2) ** 2
    return min((spread * trace + noise * largest) / (spread + noise), largest)


def visible(stddev: float, dimension: int, largest: float) -> bool:
    """Whether the strongest possible sum would be visible in the noise."""
    return largest > stddev * math.sqrt(dimension / 2)


def _caution(stddev: float, dimension: int, largest: float) -> float:
    """Return a margin for EM. The more models must share a direction to make it visible, the less likely it exists.

    Parties weigh what they receive against their own rows, so a small margin suffices. The formula and its factor were
    chosen on generated tasks: at ε = 0.1 hardly any party is misled, and at 1 hardly any direction is lost.
    """
    needed = stddev * math.sqrt(dimension / 2) / largest
    return 3 * _MARGIN * needed**2 if math.isfinite(largest) else _MARGIN


@dataclass(frozen=True)
class Covariance:
    """Ω for private EM, of trace d: directions that exceed the noise, by strength, above the level of all others."""

    diagonal: bool = False

    def read(self, released: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return U diag(strengths + level) Uᵀ, scaled to trace d."""
        return self._of(released, released, stddev, largest, 0.0)

    def read_beside(self, mean: Floats, part: float, released: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return the same from the second moment of (u, α), which contains the mean of u beside its second moment.

        With α = a/√2 the noise of the mean is that of all other entries off the diagonal, so a direction that is common
        to all parties stands out further. At a² = 2/d, the constant α is as strong as any direction if none stands out.

        Args:
            mean: the released sum of α u.
            part: α².
            released: the released sum of u uᵀ.
            stddev: the standard deviation of the noise on its diagonal.
            largest: the number of tasks.
        """
        whole = np.block([[released, mean[:, None]], [mean[None, :], np.array([[part * largest]])]])
        return self._of(released, whole, stddev, largest, part)

    def _of(self, released: Floats, whole: Floats, stddev: float, largest: float, part: float) -> CuratorAnswer:
        """Return Ω from a matrix that contains the released one and possibly one more row and column."""
        dimension = len(released)
        spectrum = taken_apart(whole, stddev, largest * (1 + part), _caution(stddev, dimension, largest))
        values = np.asarray(np.linalg.eigvalsh(released), np.float64)
        inside = spectrum.vectors[:dimension]
        out = (spectrum.strengths > 0) & (np.square(inside).sum(axis=0) > _MOSTLY)
        if not (out.any() and visible(stddev, dimension, largest)):
            return CuratorAnswer(np.eye(dimension), values, 0)
        strengths = np.where(out, spectrum.strengths, 0.0)
        level = max(spectrum.level, _LEAST_LEVEL * float(strengths.sum()) / dimension)
        shared = (inside * strengths) @ inside.T + level * np.eye(dimension)
        shared = shared * (dimension / np.trace(shared))
        return CuratorAnswer((shared + shared.T) / 2, values, int(np.count_nonzero(out)))


@dataclass(frozen=True)
class LowRank:
    """M = U max(0, 1 - λ/√Λ) Uᵀ of Algorithm 2, the trace norm's proximal step; Λ is shifted by 1.5 edges.

    Attributes:
        penalty: λ in units of √(tr/d), the value of Λ if all directions were equally strong.
    """

    penalty: float
    diagonal: bool = False

    def read(self, released: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return the projection of the released matrix."""
        return _projected(released, stddev, largest, self._factors)

    def _factors(self, values: Floats, unit: float) -> Floats:
        return np.maximum(0.0, 1 - self.penalty * unit / np.sqrt(np.maximum(values, 1e-300)))


@dataclass(frozen=True)
class Relations:
    """Task relations, computed from a release of d x d numbers.

    The task-relationship penalty tr(W R⁻¹ Wᵀ) is least over R of trace 1 at R = (WᵀW)^½ / tr((WᵀW)^½), and there
    W R⁻¹ = (W Wᵀ)^(-½) W tr((W Wᵀ)^½): what a party needs of the m x m matrix of relations follows from the d x d sum.
    Its proximal step multiplies by √Λ / (√Λ + λ mean √Λ), relative to the strongest direction, so that equal directions
    are not shrunk.

    Attributes:
        penalty: λ.
    """

    penalty: float
    diagonal: bool = False

    def read(self, released: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return the projection of the released matrix."""
        return _projected(released, stddev, largest, self._factors)

    def _factors(self, values: Floats, unit: float) -> Floats:
        roots = np.sqrt(np.maximum(values, 0.0))
        factors = roots / (roots + self.penalty * max(float(roots.mean()), 1e-300))
        return np.asarray(factors / factors.max())


@dataclass(frozen=True)
class GroupSparse:
    """M = diag(max(0, 1 - λ/√Σ_jj)) of Algorithm 3; only the diagonal is released.

    Attributes:
        penalty: λ in units of the square root of the mean entry.
    """

    penalty: float
    diagonal: bool = True

    def read(self, released: Floats, stddev: float, largest: float) -> CuratorAnswer:
        """Return the projection of the released diagonal, shifted by the reach of noise alone."""
        dimension, total = len(released), max(float(released.sum()), 0.0)
        reach = stddev * (math.sqrt(2 * math.log(2 * dimension)) + 1.0)
        apart = np.abs(released - np.median(released)) > reach
        if not (apart.any() and largest > stddev):
            return CuratorAnswer(np.eye(dimension), released, 0)
        shifted = np.maximum(released + _SHIFT * reach, 0.0)
        unit = math.sqrt(total / dimension)
        factors = np.maximum(0.0, 1 - self.penalty * unit / np.sqrt(np.maximum(shifted, 1e-300)))
        return CuratorAnswer(np.diag(factors), released, int(np.count_nonzero(apart)))


def structure_of(name: str, penalty: float) -> Structure:
    """Return the structure with this name."""
    if name == "em":
        return Covariance()
    if name in ("low-rank", "low-rank+sparse"):
        return LowRank(penalty)
    if name == "group-sparse":
        return GroupSparse(penalty)
    if name == "relations":
        return Relations(penalty)
    known = "'em', 'low-rank', 'group-sparse', 'low-rank+sparse' or 'relations'"
    raise InputError(f"Expected one of the structures {known}, got {name!r}.", argument="structure")


def _projected(
    released: Floats, stddev: float, largest: float, factors_of: Callable[[Floats, float], Floats]
) -> CuratorAnswer:
    spectrum, dimension = taken_apart(released, stddev, largest, _MARGIN), len(released)
    if not (spectrum.standing_out and visible(stddev, dimension, largest)):
        return CuratorAnswer(np.eye(dimension), spectrum.values, 0)
    shift = _SHIFT * stddev * math.sqrt(2 * dimension)
    unit = math.sqrt(max(float(np.trace(released)), 0.0) / dimension)
    factors = factors_of(spectrum.values + shift, unit)
    shared = (spectrum.vectors * factors) @ spectrum.vectors.T
    return CuratorAnswer((shared + shared.T) / 2, spectrum.values, spectrum.standing_out)

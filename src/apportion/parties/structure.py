"""What a curator reads from a released matrix and sends back: the projection M of a round, or a covariance Ω.

All of it is post-processing: it sees a released symmetric matrix, the standard deviation of its noise and public
numbers. Noise with deviation σ on the diagonal and σ/√2 off it has its spectrum in ±σ√(2d), up to about σ (its edge;
Wigner). In what is released a direction of strength θ shows at θ + σ²d/(2θ), and only where θ > σ√(d/2), half the
edge; what the noise leaves of it in expectation is √(λ² - edge²). Sums of m directions at random have a spread of
their own, which counts as noise of variance 2 tr/d² beside that of the release.

Where nothing stands out of the noise, every structure sends the identity: parties then learn alone (Proposition 1).
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

_LEAST_LEVEL = 1e-2  # of directions that do not stand out, relative to the mean strength
_SHIFT = 1.5  # of all eigenvalues, in edges of the noise: the lowest is then half an edge above zero
_MARGIN = 2.0  # beyond the edge, in deviations of the noise, for a projection, which nobody weighs against its own rows


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A released matrix taken apart.

    Attributes:
        values: its eigenvalues, ascending.
        vectors: their vectors, as columns.
        level: where the eigenvalues of no direction in particular lie.
        strengths: what is left of each eigenvalue beyond the level once noise is taken off; 0 for all that do not
            stand out.
        edge: how far noise alone reaches.
    """

    values: Floats
    vectors: Floats
    level: float
    strengths: Floats
    edge: float

    @property
    def standing_out(self) -> int:
        """How many directions stand out."""
        return int(np.count_nonzero(self.strengths))


@dataclass(frozen=True, eq=False)
class Found:
    """What a curator found in one release: M or Ω, which is sent back, and what it was read from.

    Attributes:
        shared: the matrix that is sent to the parties; the identity if nothing stands out.
        values: eigenvalues of the release, or its entries where only a diagonal was released.
        kept: how many directions, or features, stand out.
    """

    shared: Floats
    values: Floats
    kept: int


class Structure(Protocol):
    """How a released matrix becomes what parties are sent."""

    @property
    def diagonal(self) -> bool:
        """Whether it reads the diagonal alone."""

    def read(self, released: Floats, stddev: float, largest: float) -> Found:
        """What to send back.

        Args:
            released: a symmetric matrix, or its diagonal, of a sum of parts whose norm is at most 1.
            stddev: of the noise on its diagonal.
            largest: the number of tasks, which no direction of the sum can exceed; infinity if it is not public.
        """


def taken_apart(released: Floats, stddev: float, largest: float, margin: float) -> Spectrum:
    """Eigenvalues that stand out of noise, and how strong what is behind them is.

    Args:
        released: a symmetric matrix.
        stddev: of the noise on its diagonal.
        largest: the number of tasks, infinity if it is not public.
        margin: how far beyond the edge an eigenvalue must lie, in deviations of the noise. Noise alone has one there
            with probability at most exp(-margin²/2), and far less.
    """
    values, vectors = np.linalg.eigh(released)
    dimension, total = len(values), _total(released, stddev, largest)
    deviation = math.sqrt(stddev**2 + 2 * total / dimension**2)
    edge = deviation * math.sqrt(2 * dimension)
    level, strengths = total / dimension, np.zeros(dimension)
    for _ in range(dimension):  # the level falls as directions are taken out of it
        beyond = values - level
        found = np.sqrt(np.maximum(beyond**2 - edge**2, 0.0))
        strengths = np.where(beyond > edge + margin * deviation, found, 0.0)
        lower = max(total - float(strengths.sum()), 0.0) / dimension
        if lower >= level * (1 - 1e-12):
            break
        level = lower
    return Spectrum(values, vectors, level, strengths, edge)


def _total(released: Floats, stddev: float, largest: float) -> float:
    """The trace without its noise, drawn towards the number of tasks, give or take half of it, where that is public."""
    trace = max(float(np.trace(released)), 0.0)
    if not math.isfinite(largest):
        return trace
    noise, spread = stddev**2 * len(released), (largest / 2) ** 2
    return min((spread * trace + noise * largest) / (spread + noise), largest)


def visible(stddev: float, dimension: int, largest: float) -> bool:
    """Whether the strongest sum that there can be would show in the noise."""
    return largest > stddev * math.sqrt(dimension / 2)


def _caution(stddev: float, dimension: int, largest: float) -> float:
    """A margin for EM: the more of all models must lie along a direction for it to show, the less likely there is one.

    Parties weigh what they are sent against their own rows, so that little is needed. The form and its factor were
    chosen on generated tasks, so that at ε = 0.1 hardly a party is led astray and at 1 hardly a direction is lost.
    """
    needed = stddev * math.sqrt(dimension / 2) / largest
    return 3 * _MARGIN * needed**2 if math.isfinite(largest) else _MARGIN


@dataclass(frozen=True)
class Covariance:
    """Ω for private EM, of trace d: directions that stand out, by their strengths, above the level of all others."""

    diagonal: bool = False

    def read(self, released: Floats, stddev: float, largest: float) -> Found:
        """U diag(strengths + level) Uᵀ."""
        dimension = len(released)
        spectrum = taken_apart(released, stddev, largest, _caution(stddev, dimension, largest))
        if not (spectrum.standing_out and visible(stddev, dimension, largest)):
            return Found(np.eye(dimension), spectrum.values, 0)
        level = max(spectrum.level, _LEAST_LEVEL * float(spectrum.strengths.mean()))
        values = spectrum.strengths + level
        shared = (spectrum.vectors * (values * (dimension / values.sum()))) @ spectrum.vectors.T
        return Found((shared + shared.T) / 2, spectrum.values, spectrum.standing_out)


@dataclass(frozen=True)
class LowRank:
    """M = U max(0, 1 - λ/√Λ) Uᵀ of Algorithm 2, the trace norm's proximal step; Λ is shifted by 1.5 edges.

    Attributes:
        penalty: λ in units of √(tr/d), what Λ would be if no direction were stronger than another.
    """

    penalty: float
    diagonal: bool = False

    def read(self, released: Floats, stddev: float, largest: float) -> Found:
        """The projection of the released matrix."""
        return _projected(released, stddev, largest, self._factors)

    def _factors(self, values: Floats, unit: float) -> Floats:
        return np.maximum(0.0, 1 - self.penalty * unit / np.sqrt(np.maximum(values, 1e-300)))


@dataclass(frozen=True)
class Relations:
    """Task relations, computed after a release of d x d numbers.

    The task-relationship penalty tr(W R⁻¹ Wᵀ) is least over R of trace 1 at R = (WᵀW)^½ / tr((WᵀW)^½), and there
    W R⁻¹ = (W Wᵀ)^(-½) W tr((W Wᵀ)^½): what a party needs of the m x m matrix of relations follows from the d x d sum.
    Its proximal step multiplies by √Λ / (√Λ + λ mean √Λ); relative to the strongest direction, so that it shrinks none
    if all are alike.

    Attributes:
        penalty: λ.
    """

    penalty: float
    diagonal: bool = False

    def read(self, released: Floats, stddev: float, largest: float) -> Found:
        """The projection of the released matrix."""
        return _projected(released, stddev, largest, self._factors)

    def _factors(self, values: Floats, unit: float) -> Floats:
        roots = np.sqrt(np.maximum(values, 0.0))
        factors = roots / (roots + self.penalty * max(float(roots.mean()), 1e-300))
        return np.asarray(factors / factors.max())


@dataclass(frozen=True)
class GroupSparse:
    """M = diag(max(0, 1 - λ/√Σ_jj)) of Algorithm 3; only the diagonal is released.

    Attributes:
        penalty: λ in units of the root of the entries' mean.
    """

    penalty: float
    diagonal: bool = True

    def read(self, released: Floats, stddev: float, largest: float) -> Found:
        """The projection of the released diagonal, shifted by how far noise alone reaches."""
        dimension, total = len(released), max(float(released.sum()), 0.0)
        reach = stddev * (math.sqrt(2 * math.log(2 * dimension)) + 1.0)
        apart = np.abs(released - np.median(released)) > reach
        if not (apart.any() and largest > stddev):
            return Found(np.eye(dimension), released, 0)
        shifted = np.maximum(released + _SHIFT * reach, 0.0)
        unit = math.sqrt(total / dimension)
        factors = np.maximum(0.0, 1 - self.penalty * unit / np.sqrt(np.maximum(shifted, 1e-300)))
        return Found(np.diag(factors), released, int(np.count_nonzero(apart)))


def structure_of(name: str, penalty: float) -> Structure:
    """A structure by its name."""
    if name == "em":
        return Covariance()
    if name in ("low-rank", "low-rank+sparse"):
        return LowRank(penalty)
    if name == "group-sparse":
        return GroupSparse(penalty)
    if name == "relations":
        return Relations(penalty)
    known = "'em', 'low-rank', 'group-sparse', 'low-rank+sparse' or 'relations'"
    raise InputError(f"Expected a structure among {known}, got {name!r}.")


def _projected(released: Floats, stddev: float, largest: float, factors_of: Callable[[Floats, float], Floats]) -> Found:
    spectrum, dimension = taken_apart(released, stddev, largest, _MARGIN), len(released)
    if not (spectrum.standing_out and visible(stddev, dimension, largest)):
        return Found(np.eye(dimension), spectrum.values, 0)
    shift = _SHIFT * stddev * math.sqrt(2 * dimension)
    unit = math.sqrt(max(float(np.trace(released)), 0.0) / dimension)
    factors = factors_of(spectrum.values + shift, unit)
    shared = (spectrum.vectors * factors) @ spectrum.vectors.T
    return Found((shared + shared.T) / 2, spectrum.values, spectrum.standing_out)

"""What exceeds the noise in a released matrix, in words: directions by their strongest features, or features.

Symmetric noise with a standard deviation of σ on the diagonal and σ/√2 off it has eigenvalues within ±σ√(2d) (Wigner).
Around a component that all directions share, eigenvalues lie this far from the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.parties import Released
from apportion.report.wording import number

Floats = NDArray[np.float64]

_MOST_DIRECTIONS = 10
_MOST_FEATURES = 5


@dataclass(frozen=True)
class Finding:
    """The content of a released matrix, and how far its noise reaches.

    Attributes:
        what: what its values are called.
        zone: (low, high) of values that noise alone can produce.
        kept: positions of the values that exceed the noise.
        header: header of the table of these values.
        lines: lines of that table.
        left_out: number of such values missing from the table.
    """

    what: str
    zone: tuple[float, float]
    kept: tuple[int, ...]
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    left_out: int


def found_in(released: Released, features: Sequence[str], unit: float) -> Finding:
    """Interpret one round's release.

    Args:
        released: the release of one round.
        features: names of the features.
        unit: K², by which the values were divided.
    """
    if released.matrix.ndim == 1:
        return _features_found(released, features, unit)
    values, vectors = np.linalg.eigh(released.matrix / unit)
    level, edge = float(np.median(values)), released.stddev / unit * math.sqrt(2 * len(values))
    order = np.argsort(-values, kind="stable")[: released.kept]
    lines = tuple(
        (str(place), number(float(values[at])), _loadings(vectors[:, at], features))
        for place, at in enumerate(order[:_MOST_DIRECTIONS], 1)
    )
    header = ("Direction", "Eigenvalue", "Strongest features and their loadings")
    return Finding("eigenvalues", (level - edge, level + edge), _places(order), header, lines, len(order) - len(lines))


def _features_found(released: Released, features: Sequence[str], unit: float) -> Finding:
    values, stddev = released.values, released.stddev / unit
    middle = float(np.median(values))
    reach = stddev * (math.sqrt(2 * math.log(2 * len(values))) + 1.0)  # as the curator computes it
    order = np.argsort(-np.abs(values - middle), kind="stable")[: released.kept]
    order = order[np.argsort(-values[order], kind="stable")]
    factors = np.diag(released.shared)
    lines = tuple(
        (features[at], number(float(values[at])), number(float(factors[at]))) for at in order[:_MOST_DIRECTIONS]
    )
    header = ("Feature", "Released entry", "Factor applied to models")
    return Finding("entries", (middle - reach, middle + reach), _places(order), header, lines, len(order) - len(lines))


def _loadings(vector: Floats, features: Sequence[str]) -> str:
    """Format the largest entries of a direction, with the sign that makes the largest positive."""
    order = np.argsort(-np.abs(vector), kind="stable")[:_MOST_FEATURES]
    sign = 1.0 if vector[order[0]] >= 0 else -1.0
    return ", ".join(f"{features[at]} {sign * float(vector[at]):+.2f}" for at in order)


def _places(order: NDArray[np.intp]) -> tuple[int, ...]:
    return tuple(int(at) for at in order)

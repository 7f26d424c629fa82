"""What stands out in a released matrix, in words: directions by their strongest features, or features themselves.

Symmetric noise with a standard deviation of σ on the diagonal and σ/√2 off it has eigenvalues within ±σ√(2d) (Wigner);
around what is common to all directions, they lie as far from the median.
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
    """What is in a released matrix, and how far its noise reaches.

    Attributes:
        what: its values are called.
        zone: (low, high) that the values of nothing but noise lie in.
        kept: positions of the values that stand out.
        header: of the table of what stands out.
        lines: of that table.
        left_out: how many more stand out than the table has.
    """

    what: str
    zone: tuple[float, float]
    kept: tuple[int, ...]
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    left_out: int


def found_in(released: Released, features: Sequence[str], unit: float) -> Finding:
    """Read a release once more.

    Args:
        released: of one round.
        features: their names.
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
    header = ("Direction", "Eigenvalue", "Strongest features, by their part in it")
    return Finding("eigenvalues", (level - edge, level + edge), _places(order), header, lines, len(order) - len(lines))


def _features_found(released: Released, features: Sequence[str], unit: float) -> Finding:
    values, stddev = released.values, released.stddev / unit
    middle = float(np.median(values))
    reach = stddev * (math.sqrt(2 * math.log(2 * len(values))) + 1.0)  # as the curator has it
    order = np.argsort(-np.abs(values - middle), kind="stable")[: released.kept]
    order = order[np.argsort(-values[order], kind="stable")]
    factors = np.diag(released.shared)
    lines = tuple(
        (features[at], number(float(values[at])), number(float(factors[at]))) for at in order[:_MOST_DIRECTIONS]
    )
    header = ("Feature", "Released entry", "What models are multiplied by")
    return Finding("entries", (middle - reach, middle + reach), _places(order), header, lines, len(order) - len(lines))


def _loadings(vector: Floats, features: Sequence[str]) -> str:
    """The largest entries of a direction, the largest of all positive."""
    order = np.argsort(-np.abs(vector), kind="stable")[:_MOST_FEATURES]
    sign = 1.0 if vector[order[0]] >= 0 else -1.0
    return ", ".join(f"{features[at]} {sign * float(vector[at]):+.2f}" for at in order)


def _places(order: NDArray[np.intp]) -> tuple[int, ...]:
    return tuple(int(at) for at in order)

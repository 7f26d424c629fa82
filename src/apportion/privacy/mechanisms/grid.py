"""The public grid that releases are rounded to.

A sum with noise is rounded to a grid a millionth as fine as the noise. The last bits of a floating-point sum reveal
what was added: without the grid, a likelihood-ratio audit of Laplace releases found an ε of 3.5 where 2 was claimed.
The grid is public, and it is coarser than the rounding errors of numbers not much larger than their noise.

The exact forms take sums in whole steps of a lattice. They return what the same mechanism on real numbers would return,
rounded to a public grid, without any error in between (docs/proofs/exact.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

UPWARDS = 1 + 2.0**-48  # quotients and products of a few float64 numbers are below the true ones by less
_FINER = 20  # powers of two between the scale of the noise and the grid of the release
_FLOAT32 = 120  # powers of two up to this have an inverse in float32


def grid_of(scale: float) -> tuple[float, bool]:
    """Return the step of the grid for noise of this scale, and whether it has an inverse, also in float32."""
    power = math.floor(math.log2(scale)) - _FINER
    return 2.0**power, abs(power) <= _FLOAT32


def on_grid(values: NDArray[Any], scale: float) -> NDArray[Any]:
    """Round in place to multiples of a power of two, about 2⁻²⁰ of the noise's scale."""
    step, inverts = grid_of(scale)
    if inverts:
        values *= 1.0 / step  # exact, like the next product, and faster than the quotient
    else:
        values /= step
    np.rint(values, out=values)
    values *= step
    return values


def finer_steps(step: float, scale: float) -> int:
    """Return the power of two by which the grid of the release is coarser than the lattice of the sums."""
    return min(max(math.floor(math.log2(scale)) - _FINER - round(math.log2(step)), 0), 52)

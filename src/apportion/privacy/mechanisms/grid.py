"""The public grid that releases are rounded to.

A sum with noise is rounded to a grid a millionth as fine as the noise. The last bits of a floating-point sum tell what
was added to what: without the grid a likelihood-ratio audit of Laplace releases found an ε of 3.5 where 2 was claimed.
The grid is public, and coarse beside the rounding of numbers that are not much larger than their noise.

The exact forms take sums in whole steps of a lattice and return what the same mechanism on real numbers would, rounded
to a public grid, without any error in between (docs/proofs/exact.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

UPWARDS = 1 + 2.0**-48  # quotients and products of a few float64 numbers are below the true ones by less
_FINER = 20  # powers of two from the scale of the noise to the grid of what is released


def on_grid(values: NDArray[Any], scale: float) -> NDArray[Any]:
    """Round to multiples of a power of two, about 2⁻²⁰ of the noise's scale; in place."""
    step = 2.0 ** (math.floor(math.log2(scale)) - _FINER)
    values /= step  # exact, as the next product is
    np.rint(values, out=values)
    values *= step
    return values


def finer_steps(step: float, scale: float) -> int:
    """By which power of two the grid of what is released is coarser than the lattice of the sums."""
    return min(max(math.floor(math.log2(scale)) - _FINER - round(math.log2(step)), 0), 52)

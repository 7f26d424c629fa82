"""exp and the logistic function, computed in one order of operations: the same bits on every processor.

NumPy uses another implementation of exp if the processor has wider vectors, and the last bit differs. Results that
users compute for themselves must not depend on the processor.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_HIGH_LN2: Final = float.fromhex("0x1.62e42fee00000p-1")  # log 2 to 32 bits, so that products with it are exact
_LOW_LN2: Final = float.fromhex("0x1.a39ef35793c76p-33")  # the remainder of log 2
_COEFFICIENTS: Final = tuple(1 / math.factorial(k) for k in range(13, -1, -1))
_FAR: Final = 700.0  # beyond this, exp is next to 0 or overflows


def fixed_exp(values: Any) -> Floats:
    """Return exp(x), to about two units in the last place. It is 0 for x below -700, and x above 700 counts as 700.

    >>> abs(float(fixed_exp(np.array([1.0]))[0]) - math.e) < 1e-15
    True
    """
    x = np.clip(np.asarray(values, np.float64), -_FAR, _FAR)
    doublings = np.rint(x / math.log(2))
    rest = (x - doublings * _HIGH_LN2) - doublings * _LOW_LN2
    sums = np.full_like(rest, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        sums = sums * rest + coefficient
    return np.where(np.asarray(values) < -_FAR, 0.0, np.ldexp(sums, doublings.astype(np.int32)))


def fixed_logistic(values: Any) -> Floats:
    """Return 1 / (1 + exp(−x)), without overflow.

    >>> fixed_logistic(np.array([0.0]))
    array([0.5])
    """
    x = np.asarray(values, np.float64)
    small = fixed_exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))

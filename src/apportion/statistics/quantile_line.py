"""Where a quantile may be: a public base distribution on the line, or a public list of candidates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from apportion.errors import InputError
from apportion.estimators.private import refuse_narrow
from apportion.privacy import Base, UniformBase
from apportion.privacy.ranks import Candidates

_MOST = 1_000_000  # candidates
_POINTS = 1 << 16  # of a line, where rows are not together


def line_of(
    value_range: tuple[float, float] | None, step: float | None, candidates: ArrayLike | None, base: Base | None
) -> tuple[Base | Candidates, str]:
    """Return where quantiles may be, and a phrase about it for the statement."""
    if sum(given is not None for given in (value_range, candidates, base)) != 1:
        raise InputError("Expected one of value_range, base and candidates.", argument=None)
    if step is not None and value_range is None:
        raise InputError(f"Expected a value_range with a step, got a step of {step:g} alone.", argument="step")
    if candidates is not None:
        listed = Candidates.listed(candidates)
        return listed, f"a list of {len(listed.points)} candidates"
    if base is not None:
        return _of_base(base), f"the base distribution, {_words(base)}"
    assert value_range is not None
    low, high = float(value_range[0]), float(value_range[1])
    if low < high:  # else `UniformBase` says what is wrong
        refuse_narrow(low, high)
    about = f"the range of values, {low:.12g} to {high:.12g}"
    uniform = UniformBase(low, high)
    return (uniform, about) if step is None else (_scale(low, high, step), f"{about} in steps of {step:.12g}")


def points_of(base: Base) -> tuple[Candidates, list[str]]:
    """Return points of a line between which it has equal mass, as candidates, and a phrase about them."""
    middles = (np.arange(_POINTS) + 0.5) / _POINTS
    return Candidates.listed(base.ppf(middles)), [f"that quantiles are sought among {_POINTS} points of equal mass"]


def _scale(low: float, high: float, step: float) -> Candidates:
    if not (0 < step <= high - low and (high - low) / step < _MOST):
        raise InputError(
            f"Expected a step above 0 that divides the range into at least 1 and less than {_MOST}, got {step}.",
            argument="step",
        )
    return Candidates.listed(low + step * np.arange(math.floor((high - low) / step + 1e-9) + 1))


def _of_base(base: Base) -> Base | Candidates:
    """Return the base; a discrete distribution of SciPy becomes a list of candidates, which must be finite."""
    if not hasattr(base, "pmf"):
        return base
    low, high = base.support()
    if not (math.isfinite(low) and math.isfinite(high) and high - low < _MOST):
        raise InputError(
            f"Expected a discrete base with less than {_MOST} points, got one from {low:g} to {high:g}.",
            argument="base",
        )
    points = np.arange(low, high + 1, dtype=np.float64)
    masses = np.asarray(base.pmf(points), np.float64)
    return Candidates(points[masses > 0], masses[masses > 0])


def _words(base: Any) -> str:
    named = getattr(getattr(base, "dist", None), "name", None)  # SciPy's frozen distributions
    if named is None:
        return type(base).__name__
    settings = [*map(repr, getattr(base, "args", ())), *(f"{k}={v!r}" for k, v in getattr(base, "kwds", {}).items())]
    return f"{named}({', '.join(settings)})"

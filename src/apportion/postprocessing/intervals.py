"""How wide an interval must be around an estimate whose error has a known distribution.

The error is Z = N(0, s²) + Σ_k Laplace(b_k), all independent, with known s and b: an error of sampling, which is about
normal, and the noise of privacy. With K(z) = s² z²/2 − Σ_k log(1 − b_k² z²), the logarithm of E[exp(zZ)],

    P(Z > w) = 1/(2πi) ∫ exp(K(z) − z w) dz / z

along any path that rises across the real line between 0 and the first pole 1/max b and ends where the integrand has
died away. Here the path is the right branch of a hyperbola z(u) = x + a cosh(u + iθ): it crosses at the saddle point,
where nothing cancels, bends around all the poles and leaves at the angle θ = π/3, where both exp(s² z²/2) and exp(−zw)
vanish. The trapezoidal rule in u then converges geometrically, whether the scales are alike or orders of magnitude
apart, and however far out w is.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError

Floats = NDArray[np.float64]

_ANGLE = math.pi / 3  # between π/4, where exp(s² z²/2) stops falling, and π/2, where the pole at 0 may lie
_STEP, _NODES = 0.04, 550  # up to where |b z| is about exp(20), with b the largest scale
_PATH = np.cosh(_STEP * np.arange(_NODES) + 1j * _ANGLE)
_VELOCITY = np.sinh(_STEP * np.arange(_NODES) + 1j * _ANGLE)
_COSINE = math.cos(_ANGLE)
_BISECTIONS, _MOST_STEPS = 14, 60
_TOLERANCE, _ROUNDING = 1e-10, 1e-14


def half_width(level: float, normal_stddev: float = 0.0, laplace_scales: ArrayLike = ()) -> float:
    """Return the smallest w with P(|Z| ≤ w) ≥ level, for one error Z = N(0, stddev²) + Σ_k Laplace(scale_k).

    >>> round(half_width(0.95, normal_stddev=1.0), 6)
    1.959964
    >>> round(half_width(0.95, laplace_scales=[1.0]), 6)
    2.995732
    """
    return float(half_widths(level, normal_stddev, laplace_scales))


def student_half_width(level: float, degrees: int) -> float:
    """Return the w with P(|T| ≤ w) = level for Student's T with this many degrees of freedom.

    >>> round(student_half_width(0.95, 9), 6)
    2.262157
    """
    from scipy.special import stdtrit

    if not 0 < level < 1 or degrees < 1:
        raise InputError(
            f"Expected a level in (0, 1) and at least 1 degree of freedom, got {level} and {degrees}.", argument=None
        )
    return float(stdtrit(degrees, (1 + level) / 2))


def half_widths(level: float, normal_stddev: ArrayLike = 0.0, laplace_scales: ArrayLike = ()) -> Floats:
    """Return half-widths for many errors at once, to about ten digits.

    Args:
        level: the probability of each interval by itself, in (0, 1).
        normal_stddev: s of each error.
        laplace_scales: b; the last axis lists the Laplace parts of one error, the axes before it are the errors.

    Returns:
        One half-width per error; 0 if nothing is random.
    """
    if not 0 < level < 1:
        raise InputError(f"Expected a level strictly between 0 and 1, got {level}.", argument="level")
    scales = np.atleast_1d(_checked("laplace_scales", laplace_scales))
    stddev, largest = np.broadcast_arrays(_checked("normal_stddev", normal_stddev), scales.max(axis=-1, initial=0.0))
    unit = np.maximum(stddev, largest)
    widths = np.zeros(unit.shape)
    random = unit > 0
    parts = np.broadcast_to(scales, (*unit.shape, scales.shape[-1]))[random]
    relative = _solved(level, stddev[random] / unit[random], parts / unit[random][:, None])
    widths[random] = unit[random] * relative
    return widths


def tails(width: float, normal_stddev: Floats, laplace_scales: Floats) -> tuple[Floats, Floats]:
    """Return P(Z > width), and the density there, for errors Z = N(0, stddev²) + Σ_k Laplace(scale_k), to five digits.

    Args:
        width: above 0.
        normal_stddev: s of each error.
        laplace_scales: the same for all errors; without any, each stddev is above 0.

    >>> tails(1.959964, np.array([1.0]), np.zeros(1))[0].round(4)
    array([0.025])
    """
    unit = float(laplace_scales.max(initial=0.0))
    if unit == 0:
        from scipy.special import ndtr

        steps = width / normal_stddev
        return ndtr(-steps), np.exp(-np.square(steps) / 2) / (math.sqrt(2 * math.pi) * normal_stddev)
    scales = np.broadcast_to(laplace_scales / unit, (len(normal_stddev), len(laplace_scales)))
    widths = np.full(len(normal_stddev), width / unit)
    log_tail, hazard = _log_tail_and_hazard(widths, normal_stddev / unit, scales, every=4)
    return np.exp(log_tail), np.exp(log_tail) * hazard / unit


def _checked(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, np.float64)
    if array.size and not (array.min() >= 0 and array.max() < math.inf):  # also refuses NaN
        raise InputError(f"Expected finite {name} of at least 0, got {array.min()} to {array.max()}.", argument=name)
    return array


def _solved(level: float, stddev: Floats, scales: Floats) -> Floats:
    """Solve log P(Z > w) = log((1 − level)/2) by Newton's method, from the solution for normal Z.

    The density is log-concave, so log P(Z > w) is concave and falls: after one step every iterate is at or beyond the
    root and moves towards it.
    """
    target = math.log1p(-level) - math.log(2)
    if not scales.any():
        return np.asarray(stddev * -NormalDist().inv_cdf((1 - level) / 2))
    if scales.shape[1] == 1 and not stddev.any():
        return np.asarray(scales[:, 0] * -math.log1p(-level))
    widths = -NormalDist().inv_cdf((1 - level) / 2) * np.sqrt(np.square(stddev) + 2 * np.square(scales).sum(axis=1))
    for _ in range(_MOST_STEPS):
        log_tail, hazard = _log_tail_and_hazard(widths, stddev, scales)
        moves = (log_tail - target) / hazard
        widths = np.maximum(widths + moves, 0.0)
        if (np.abs(moves) <= _TOLERANCE * widths + _ROUNDING).all():
            break
    return np.asarray(widths)


def _log_tail_and_hazard(widths: Floats, stddev: Floats, scales: Floats, every: int = 1) -> tuple[Floats, Floats]:
    """Return the logarithm of P(Z > w), and the density at w over P(Z > w). By symmetry, half of the path is enough.

    Every fourth node of the path is enough for about five digits.
    """
    largest = scales.max(axis=1, initial=0.0)
    nearest = np.divide(1.0, largest, out=np.full(len(stddev), np.inf), where=largest > 0)
    crossing = _saddle(widths, stddev, scales, nearest)
    spread = np.minimum((nearest - crossing) / (1 - _COSINE), crossing / _COSINE)
    z = crossing[:, None] + spread[:, None] * (_PATH[::every] - _COSINE)
    exponent = np.square(stddev[:, None] * z) / 2 - widths[:, None] * z
    for scale in scales.T:
        exponent -= np.log(1 - np.square(scale[:, None] * z))
    peak = exponent[:, 0].real
    terms = np.exp(exponent - peak[:, None]) * (spread[:, None] * _VELOCITY[::every])
    terms[:, 0] /= 2  # the middle of the path belongs to both halves
    tail, density = (terms / z).imag.sum(axis=1), terms.imag.sum(axis=1)
    return peak + np.log(tail * (every * _STEP / math.pi)), density / tail


def _saddle(widths: Floats, stddev: Floats, scales: Floats, nearest: Floats) -> Floats:
    """Return the point where exp(K(c) − c w)/c is least between 0 and the nearest pole.

    It is the root of K'(c) − 1/c = w, found by bisection.
    """
    variance = np.square(stddev)
    normal = np.divide(widths + np.hypot(widths, 2 * stddev), 2 * variance, out=nearest.copy(), where=variance > 0)
    low, high = np.zeros(len(widths)), np.minimum(nearest, normal)  # the root without the Laplace parts
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        products = np.square(scales * middle[:, None])
        above = variance * middle**2 + (2 * products / (1 - products)).sum(axis=1) - 1 > widths * middle
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)

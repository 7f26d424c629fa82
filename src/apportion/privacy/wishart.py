"""Additive Wishart noise on a sum of models' outer products: its exact cost and its draws.

The release is Σ w wᵀ + E with E = s G Gᵀ, G of d x k standard normals: a Wishart matrix of k degrees of freedom. It
stays positive semidefinite, but it is not pure differential privacy, as was once published for k = d + 1: without a
task of model w, the release may be one from which w wᵀ cannot be taken away. With m = k − d + 1 > 2 and c = ||w||²/s,
telling the presence of a task from its absence is telling c + χ²_m from χ²_m (docs/proofs/wishart.md):

    absent:  δ(ε) = F(x) − e^ε F(x − c),            x = c r/(r − 1),   r = exp((ε + c/2)/(m/2 − 1))
    present: δ(ε) = 1 − F(x − c) − e^ε (1 − F(x)),  x = c/(1 − r),     r = exp((ε − c/2)/(m/2 − 1)),  0 beyond ε = c/2

with F the distribution function of χ²_m. Both grow with c, so that a model at its norm's bound is the worst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.packed import pack, packed_dim
from apportion.privacy.bounded_sum import _KEY, BoundedSum, symmetric_scales
from apportion.privacy.bounds import ObservationRows, Rows
from apportion.privacy.mechanisms import on_grid
from apportion.privacy.neighbours import ADD_REMOVE, ADD_REMOVE_TASK, Neighbours
from apportion.privacy.noise import NoiseSource

LEAST_SPARE = 3  # degrees of freedom beyond the dimension less one: with 2 the loss is infinite too often
_SLACK = 1e-12  # of the rounding of distribution functions
_TAIL = 1e-16  # probability of losses that are not kept apart
_FAR = 20.0  # beyond this a loss is taken for infinite, which adds at most e^(ε − 20) of its probability to δ
_AT_A_TIME = 4_000_000  # normals drawn at once

Floats = NDArray[np.float64]


class OuterSum(BoundedSum):
    """Σ w wᵀ over models whose norms are at most K, packed: what Wishart noise may be added to.

    Every part has rank one, which the cost of Wishart noise rests on; other sums of matrices are refused.
    """

    __slots__ = ()

    def __init__(self, key: object, value: Any, model_norm: float, derivation: str, neighbours: Neighbours) -> None:
        super().__init__(
            key, value, model_norm**2, derivation, symmetric_scales(value.shape[-1]), neighbours=neighbours
        )

    @classmethod
    def of(cls, models: Rows, neighbours: Neighbours = ADD_REMOVE_TASK) -> OuterSum:
        """The sum over all models, one a row; `neighbours` adds or removes one of them."""
        if neighbours not in (ADD_REMOVE, ADD_REMOVE_TASK):
            raise InputError(f"Expected neighbours of which one adds or removes a model, got: {neighbours.relation}.")
        if isinstance(models, ObservationRows):
            raise InputError("Expected one model per task, got rows of observations.")
        held = np.asarray(models._values, np.float64)
        text = f"squared model norm {models.norm:g}^2, one outer product a task"
        return cls(_KEY, np.asarray(pack(held.T @ held)), models.norm, text, neighbours)

    @property
    def dimension(self) -> int:
        """Number of features d of a model."""
        return packed_dim(self.shape[-1])


@dataclass(frozen=True)
class WishartShare:
    """What each of several releases with Wishart noise may cost; all of them were planned together.

    Attributes:
        fraction: an even part of what the plan's Gaussian releases left, for display: cost does not add up linearly.
        noise_multiplier: scale s of the noise over the squared bound of a model's norm.
        spare_degrees: m, degrees of freedom beyond the dimension less one.
        steps: how many such releases were planned.
    """

    fraction: float
    noise_multiplier: float
    spare_degrees: int
    steps: int

    @property
    def mu(self) -> float:
        """Of the Gaussian law that one release tends to with many degrees of freedom; not a bound."""
        return 1 / (self.noise_multiplier * math.sqrt(2 * self.spare_degrees))

    def degrees(self, dimension: int) -> int:
        """All degrees of freedom of the noise on d x d matrices."""
        return self.spare_degrees + dimension - 1


def delta_of(epsilon: float, noise_multiplier: float, spare_degrees: int) -> float:
    """Return δ(ε) of one release under add/remove of one task, rounded up.

    >>> round(delta_of(1.0, 0.25, 20), 5)
    0.08307
    """
    return max(
        absent_delta(epsilon, noise_multiplier, spare_degrees), present_delta(epsilon, noise_multiplier, spare_degrees)
    )


def absent_delta(epsilon: float, noise_multiplier: float, spare_degrees: int) -> float:
    """The direction that costs more: how much likelier an output is without the task than e^ε times with it."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    if epsilon <= -shift / 2:
        return -math.expm1(epsilon)
    edge = shift / -math.expm1(-(epsilon + shift / 2) / power)
    above, below = _below(edge, spare_degrees), _below(edge - shift, spare_degrees)
    return _rounded_up(above, math.exp(min(epsilon, 700.0)) * below)


def present_delta(epsilon: float, noise_multiplier: float, spare_degrees: int) -> float:
    """How much likelier an output is with the task than e^ε times without it."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    if epsilon >= shift / 2:
        return 0.0
    edge = shift / -math.expm1((epsilon - shift / 2) / power)
    return _rounded_up(_above(edge - shift, spare_degrees), math.exp(epsilon) * _above(edge, spare_degrees))


def losses(noise_multiplier: float, spare_degrees: int, interval: float) -> tuple[Losses, Losses]:
    """The privacy losses of one release on a grid, rounded up: with the task against without it, and the reverse."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    most = _largest_kept(shift, power, spare_degrees)
    # absent: the loss at x falls from infinity at x = c to -c/2
    first, last = math.floor(-shift / 2 / interval), math.ceil(most / interval)
    at = np.arange(first, last + 1) * interval
    with np.errstate(divide="ignore"):
        edges = shift / -np.expm1(-np.maximum(at + shift / 2, 0.0) / power)
    below = _below(edges, spare_degrees)
    absent = Losses(first + 1, -np.diff(below), float(below[-1]))
    # present: the loss at c + x grows to c/2; the little below the grid is moved up to its first point
    at = np.arange(-last, -first + 1) * interval
    with np.errstate(divide="ignore"):
        edges = shift / -np.expm1(np.minimum(at - shift / 2, 0.0) / power)
    reached = _below(edges - shift, spare_degrees)
    reached[-1] = 1.0
    present = Losses(-last, np.diff(reached, prepend=0.0), 0.0)
    return present, absent


@dataclass(frozen=True)
class Losses:
    """Probabilities of losses on a grid.

    Attributes:
        first: the smallest loss, in steps of the grid.
        masses: of it and of those that follow.
        infinite: probability of larger losses, infinite ones among them.
    """

    first: int
    masses: Floats
    infinite: float


def rough_loss(noise_multiplier: float, spare_degrees: int, count: int) -> float:
    """About the largest loss of several releases that is on the grid."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    return count * (shift / 2) + math.sqrt(count) * _largest_kept(shift, power, spare_degrees)


def add_wishart(value: Any, scale: float, degrees: int, noise: NoiseSource) -> Any:
    """Return the packed value + s G Gᵀ, on a grid a millionth as fine as the scale."""
    width = packed_dim(value.shape[-1])
    drawn = np.zeros((width, width))
    at_once = max(1, _AT_A_TIME // width)
    for done in range(0, degrees, at_once):
        normals = noise.normal((width, min(at_once, degrees - done)), np.float64)
        drawn += normals @ normals.T
    return on_grid(np.asarray(value + scale * pack(drawn), np.float64), scale)


def _largest_kept(shift: float, power: float, spare_degrees: int) -> float:
    """The largest loss on the grid; what is beyond counts as infinite, and is little or nearly as bad as that."""
    from scipy.special import gammaincinv

    lost = float(_below(shift, spare_degrees))
    edge = max(2 * float(gammaincinv(spare_degrees / 2, min(lost * 1.001 + _TAIL, 1.0))), shift * (1 + 1e-15))
    return min(-power * math.log1p(-shift / edge) - shift / 2, _FAR + 2 * shift)


def _shift_and_power(noise_multiplier: float, spare_degrees: int) -> tuple[float, float]:
    """The shift c of the chi-square, and m/2 − 1."""
    if spare_degrees < LEAST_SPARE or not noise_multiplier > 0:
        asked = f"{spare_degrees} and {noise_multiplier}"
        raise InputError(f"Expected at least {LEAST_SPARE} spare degrees of freedom and noise above 0, got {asked}.")
    return 1 / noise_multiplier, spare_degrees / 2 - 1


def _below(x: Any, degrees: int) -> Any:
    from scipy.special import gammainc

    return gammainc(degrees / 2, np.maximum(x, 0.0) / 2)


def _above(x: Any, degrees: int) -> Any:
    from scipy.special import gammaincc

    return gammaincc(degrees / 2, np.maximum(x, 0.0) / 2)


def _rounded_up(more: float, less: float) -> float:
    return float(min(1.0, max(0.0, more - less) + _SLACK * more))

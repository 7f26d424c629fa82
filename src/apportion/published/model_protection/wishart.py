"""Additive Wishart noise on a sum of models' outer products: its exact cost and its draws.

The release is Σ w wᵀ + E with E = s G Gᵀ, G of d x k standard normals: a Wishart matrix of k degrees of freedom. It
stays positive semidefinite, but it is not purely differentially private, as was once published for k = d + 1: without a
task of model w, the release may be a matrix from which w wᵀ cannot be subtracted. With m = k − d + 1 > 2 and c =
||w||²/s, distinguishing the presence of a task from its absence is as hard as distinguishing c + χ²_m from χ²_m
(docs/proofs/wishart.md):

    absent:  δ(ε) = F(x) − e^ε F(x − c),            x = c r/(r − 1),   r = exp((ε + c/2)/(m/2 − 1))
    present: δ(ε) = 1 − F(x − c) − e^ε (1 − F(x)),  x = c/(1 − r),     r = exp((ε − c/2)/(m/2 − 1)),  0 beyond ε = c/2

with F the distribution function of χ²_m. Both grow with c, so a model at the bound of its norm is the worst case.

It is kept for comparison: the curator's Gaussian release is better at the same cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.packed import pack, packed_dim
from apportion.privacy.accounting import Part, check_noise
from apportion.privacy.bounds import FloatArray
from apportion.privacy.mechanisms import Opened, PlannedMechanism
from apportion.privacy.mechanisms.gaussian import scaled_distance
from apportion.privacy.mechanisms.grid import on_grid
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.privacy.noise import NoiseSource
from apportion.privacy.task_sums import OuterSum

LEAST_SPARE = 3  # spare degrees of freedom (beyond the dimension minus one): with 2 the loss is infinite too often
_SLACK = 1e-12  # covers the rounding of distribution functions
_TAIL = 1e-16  # probability of losses beyond the grid
_FAR = 20.0  # larger losses count as infinite, which adds at most e^(ε − 20) of their probability to δ
_AT_A_TIME = 4_000_000  # normals drawn at a time

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WishartPart(Part):
    """`count` sums of outer products with Wishart noise of scale `noise_multiplier` times a model's squared norm bound.

    Attributes:
        noise_multiplier: s / K².
        spare_degrees: degrees of freedom beyond the dimension minus one.
        count: the number of sums.
    """

    noise_multiplier: float
    spare_degrees: int
    count: int = 1

    def __post_init__(self) -> None:
        check_noise(self.noise_multiplier, self.count)
        _refuse_few(self.spare_degrees)

    @property
    def words(self) -> str:
        """Return its name and its noise."""
        return f"Wishart, noise {self.noise_multiplier:g}, {self.spare_degrees} spare degrees of freedom"

    @property
    def noiseless(self) -> bool:
        """Whether the noise multiplier is 0."""
        return self.noise_multiplier == 0

    @property
    def rough_loss(self) -> float:
        """Estimate the largest loss on the grid."""
        return rough_loss(self.noise_multiplier, self.spare_degrees, self.count)

    def distribution(self, interval: float) -> Any:
        """Return both directions, composed with themselves."""
        from dp_accounting.pld.pld_pmf import DensePLDPmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        ways = losses(self.noise_multiplier, self.spare_degrees, interval)
        present, absent = (DensePLDPmf(interval, way.first, way.masses, way.infinite, True) for way in ways)
        return PrivacyLossDistribution(present, absent).self_compose(self.count)


@dataclass(frozen=True)
class Wishart(PlannedMechanism):
    """Adds s G Gᵀ to Σ w wᵀ, including its mean; s is the noise multiplier times the bound K² of a squared norm.

    Args:
        spare_degrees: m, degrees of freedom beyond the dimension minus one; more are closer to Gaussian noise.
    """

    spare_degrees: int

    key = "wishart"
    takes = OuterSum
    relations = (ADD_REMOVE_TASK,)

    def __post_init__(self) -> None:
        _refuse_few(self.spare_degrees)

    @property
    def words(self) -> str:
        """The name of the mechanism and its degrees of freedom."""
        return f"additive Wishart ({self.spare_degrees} spare degrees of freedom)"

    def degrees(self, dimension: int) -> int:
        """Return all degrees of freedom of the noise on d x d matrices."""
        return self.spare_degrees + dimension - 1

    def part(self, noise_multiplier: float, count: int) -> WishartPart:
        """Return `count` releases."""
        return WishartPart(noise_multiplier, self.spare_degrees, count)

    def mu(self, noise_multiplier: float) -> None:
        """Return None: it has no μ."""
        return None

    def sensitivity(self, statistic: OuterSum) -> float:
        """Return K², in Frobenius norm."""
        return statistic.l2_sensitivity

    def stddev(self, statistic: OuterSum, scale: float) -> float:
        """Return the standard deviation of an entry on the diagonal."""
        return scale * math.sqrt(2 * self.degrees(statistic.dimension))

    def draw(self, opened: Opened, scale: float, noise: NoiseSource) -> Any:
        """Return the packed sum with noise."""
        return add_wishart(opened.value, scale, self.degrees(packed_dim(opened.value.shape[-1])), noise)

    def distance(self, one: Any, other: Any, scales: FloatArray | None) -> float:
        """Return the Frobenius norm of the difference."""
        return scaled_distance(one, other, scales)


def delta_of(epsilon: float, noise_multiplier: float, spare_degrees: int) -> float:
    """Return δ(ε) of one release under add/remove of one task, rounded up.

    >>> round(delta_of(1.0, 0.25, 20), 5)
    0.08307
    """
    return max(
        absent_delta(epsilon, noise_multiplier, spare_degrees), present_delta(epsilon, noise_multiplier, spare_degrees)
    )


def absent_delta(epsilon: float, noise_multiplier: float, spare_degrees: int) -> float:
    """Return δ in the more expensive direction: an output without the task against e^ε times with it."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    if epsilon <= -shift / 2:
        return -math.expm1(epsilon)
    edge = shift / -math.expm1(-(epsilon + shift / 2) / power)
    above, below = _below(edge, spare_degrees), _below(edge - shift, spare_degrees)
    return _rounded_up(above, math.exp(min(epsilon, 700.0)) * below)


def present_delta(epsilon: float, noise_multiplier: float, spare_degrees: int) -> float:
    """Return δ in the other direction: an output with the task against e^ε times without it."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    if epsilon >= shift / 2:
        return 0.0
    edge = shift / -math.expm1((epsilon - shift / 2) / power)
    return _rounded_up(_above(edge - shift, spare_degrees), math.exp(epsilon) * _above(edge, spare_degrees))


def losses(noise_multiplier: float, spare_degrees: int, interval: float) -> tuple[Losses, Losses]:
    """Return the privacy losses of one release on a grid, rounded up, in both directions."""
    shift, power = _shift_and_power(noise_multiplier, spare_degrees)
    most = _largest_kept(shift, power, spare_degrees)
    # absent: the loss at x falls from infinity at x = c to -c/2
    first, last = math.floor(-shift / 2 / interval), math.ceil(most / interval)
    at = np.arange(first, last + 1) * interval
    with np.errstate(divide="ignore"):
        edges = shift / -np.expm1(-np.maximum(at + shift / 2, 0.0) / power)
    below = _below(edges, spare_degrees)
    absent = Losses(first + 1, -np.diff(below), float(below[-1]))
    # present: the loss at c + x grows to c/2; the little mass below the grid moves up to its first point
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
        masses: probabilities of it and the following losses.
        infinite: probability of larger losses, including infinite ones.
    """

    first: int
    masses: Floats
    infinite: float


def rough_loss(noise_multiplier: float, spare_degrees: int, count: int) -> float:
    """Estimate the largest loss of several releases on the grid."""
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
    """Return the largest loss on the grid; larger losses count as infinite."""
    from scipy.special import gammaincinv

    lost = float(_below(shift, spare_degrees))
    edge = max(2 * float(gammaincinv(spare_degrees / 2, min(lost * 1.001 + _TAIL, 1.0))), shift * (1 + 1e-15))
    return min(-power * math.log1p(-shift / edge) - shift / 2, _FAR + 2 * shift)


def _shift_and_power(noise_multiplier: float, spare_degrees: int) -> tuple[float, float]:
    """Return the shift c of the chi-square, and m/2 − 1."""
    _refuse_few(spare_degrees)
    if not noise_multiplier > 0:
        raise InputError(f"Expected a noise multiplier above 0, got {noise_multiplier}.", argument="noise_multiplier")
    return 1 / noise_multiplier, spare_degrees / 2 - 1


def _refuse_few(spare_degrees: int) -> None:
    if spare_degrees < LEAST_SPARE:
        raise InputError(
            f"Expected at least {LEAST_SPARE} spare degrees of freedom, got {spare_degrees}.", argument="spare_degrees"
        )


def _below(x: Any, degrees: int) -> Any:
    from scipy.special import gammainc

    return gammainc(degrees / 2, np.maximum(x, 0.0) / 2)


def _above(x: Any, degrees: int) -> Any:
    from scipy.special import gammaincc

    return gammaincc(degrees / 2, np.maximum(x, 0.0) / 2)


def _rounded_up(more: float, less: float) -> float:
    return float(min(1.0, max(0.0, more - less) + _SLACK * more))

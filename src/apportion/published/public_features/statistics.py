"""Protected statistics of the items, and the quadratic that an encoder is trained on afterwards.

The gradient of a squared loss in an encoder's parameters is Σ_i J_iᵀ (A_i v_i − b_i), where the Jacobian J_i and the
vector v_i of item i are public once the encoder is, and

    A_i = Σ_j w_ij u_j u_jᵀ,        b_i = Σ_j w_ij y_ij u_j

are all that depends on the users (Proposition 1). So these are released with noise, and everything done with them
afterwards is post-processing. This module turns them into a quadratic ½ vᵀ P_i v − h_i · v per item. The plain one has
P = Â + ridge, h = b̂. The noise-aware one uses b̂ = A v + e with cov(e) = σ² I + s² w̄ A, so that P = A cov(e)⁻¹ A and
h = A cov(e)⁻¹ b̂, with A shrunk towards the shape that all items share.

Krichene et al., "Private Learning with Public Features" (2024), section 3, with the penalty after the release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.allocation import Expected
from apportion.allocation.weightings import OnSample
from apportion.engines import Engine, add_up_one
from apportion.privacy import BoundedSum, PlannedShare, Purpose, ReleaseName, SampledGaussian, Session, Share
from apportion.privacy.contributions import Contribution, TaskGrams, TaskMoments, Weighting
from apportion.published.skew.updates import ClippedRawLabels, Round

Floats = NDArray[np.float64]
Form = Callable[[Weighting], Contribution]

_SMALLEST = 1e-12


@dataclass(frozen=True)
class Released:
    """Released statistics of all items.

    Attributes:
        matrices: packed Â_i, one row per item.
        matrix_stddev: noise on the diagonal; 1/√2 of it off the diagonal.
        vectors: b̂_i, one row per item.
        vector_stddev: noise on every entry.
    """

    matrices: Floats
    matrix_stddev: float
    vectors: Floats
    vector_stddev: float

    def of(self, items: NDArray[np.bool_]) -> Released:
        """Return the statistics of some items."""
        return replace(self, matrices=self.matrices[items], vectors=self.vectors[items])


@dataclass(frozen=True)
class Surrogate:
    """Σ_i ½ v_iᵀ P_i v_i − h_i · v_i, a quadratic in the items' vectors; all of it released.

    Attributes:
        curvature: P, items x d x d, positive semidefinite.
        slope: h, items x d.
    """

    curvature: Floats
    slope: Floats

    def value(self, items: Floats) -> float:
        """Return the quadratic at these item vectors."""
        bent = np.einsum("mij,mi,mj->", self.curvature, items, items)
        return float(0.5 * bent - (self.slope * items).sum())

    def spread(self, items: NDArray[np.bool_]) -> Surrogate:
        """Return the quadratic of some items as one of all items, with 0 for the others."""
        if items.all():
            return self
        curvature = np.zeros((len(items), *self.curvature.shape[1:]))
        slope = np.zeros((len(items), self.slope.shape[1]))
        curvature[items], slope[items] = self.curvature, self.slope
        return Surrogate(curvature, slope)

    def under(self, precision: Floats) -> Conditioned:
        """Return this quadratic under a prior of this precision on every item's vector."""
        inverse = linalg.inverse_or_zero(self.curvature + np.diag(precision))
        return Conditioned(self, precision, np.asarray(inverse, np.float64))

    def profiled(self, precision: Floats) -> Surrogate:
        """See `Conditioned.profiled`."""
        return self.under(precision).profiled()

    def corrected(self, means: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """See `Conditioned.corrected`."""
        return self.under(precision).corrected(means)


@dataclass(frozen=True)
class Conditioned:
    """A quadratic in v and a prior N(m_i, diag(precision)⁻¹) on it, for any means m; its inverses are kept.

    Attributes:
        quadratic: ½ vᵀPv − h·v.
        precision: Λ, one number per coordinate.
        inverse: (P + Λ)⁻¹, items x d x d.
    """

    quadratic: Surrogate
    precision: Floats
    inverse: Floats

    def profiled(self) -> Surrogate:
        """Return the quadratic in m that is left when v is solved for.

        The minimum over v of ½ vᵀPv − h·v + ½ (v−m)ᵀΛ(v−m) is, up to a constant, the quadratic with Λ − Λ(P+Λ)⁻¹Λ and
        Λ(P+Λ)⁻¹h.
        """
        precision = self.precision
        left = np.diag(precision) - precision[:, None] * self.inverse * precision
        slope = precision * _times(self.inverse, self.quadratic.slope)
        return Surrogate((left + left.transpose(0, 2, 1)) / 2, slope)

    def corrected(self, means: Floats) -> tuple[Floats, Floats]:
        """Return each item's own minimum, and the variance of its entries."""
        solved = _times(self.inverse, self.quadratic.slope + self.precision * means)
        return solved, np.ascontiguousarray(np.einsum("mii->mi", self.inverse))


def release_statistics(
    this_round: Round,
    session: Session,
    engine: Engine,
    shares: tuple[Any, Any],
    label_bound: float,
    draw: int | None = None,
) -> Released:
    """Release Â and b̂ of every item, over all users or over a Poisson sample of them.

    Args:
        this_round: data, weights, and user vectors with their bound.
        session: charges and draws.
        engine: forms the sums.
        shares: the shares for matrices and for vectors; each is a `Share`, or a `PlannedShare` for sums over a sample
            of the users, which are divided by its probability.
        label_bound: labels are clipped to this.
        draw: the number of the draw in this round, if there are several.

    Privacy: add or remove one user; norm of one user's part at most Γ² for matrices and Γ · label_bound for vectors.
    """
    labels = ClippedRawLabels(this_round.labels, label_bound)

    def matrices(weights: Weighting) -> Contribution:
        return TaskGrams(weights, this_round.rows)

    def vectors(weights: Weighting) -> Contribution:
        return TaskMoments(weights, this_round.rows, labels)

    names = [
        purpose.at(round=this_round.number, draw=draw) for purpose in (Purpose.ITEM_MATRICES, Purpose.ITEM_VECTORS)
    ]
    release = partial(released_sum, this_round, session, engine)
    first, first_stddev = release(names[0], matrices, shares[0])
    second, second_stddev = release(names[1], vectors, shares[1])
    return Released(first, first_stddev, second, second_stddev)


def released_sum(
    this_round: Round,
    session: Session,
    engine: Engine,
    name: ReleaseName,
    form: Form,
    share: Share | PlannedShare[SampledGaussian],
) -> tuple[Any, float]:
    """Return one release and the noise of its entries; a sum over a sample is divided by its public probability."""
    bounds: list[float] = []

    def formed(weights: Weighting) -> BoundedSum:
        made = add_up_one(engine, this_round.users, form(weights))
        bounds.append(made.l2_sensitivity)
        return made

    if isinstance(share, PlannedShare):
        drawn = session.release_sampled(name, lambda sample: formed(OnSample(this_round.weights, sample)), share)
        drawn = drawn / share.mechanism.probability
        return np.asarray(drawn, np.float64), bounds[0] / share.mu / share.mechanism.probability
    drawn = session.release(name, formed(this_round.weights), share)
    return np.asarray(drawn, np.float64), bounds[0] / share.mu


def with_unobserved(matrices: Floats, shared: Floats | None, unobserved: float, typical: Floats) -> Floats:
    """Return packed matrices plus the unobserved pairs of clicks: every user's part, weighted like the item's own."""
    if shared is None:
        return matrices
    return np.asarray(matrices + unobserved * typical[:, None] * linalg.pack(shared))


def plain_surrogate(released: Released, ridge: float, unobserved: Any = None) -> Surrogate:
    """Return Â projected to the positive semidefinite cone plus a ridge in units of its noise, and b̂ unchanged.

    Args:
        released: the statistics.
        ridge: penalty, in standard deviations of the noise of a matrix's diagonal.
        unobserved: adds the unobserved pairs of clicks to packed matrices; None for ratings.
    """
    repaired = np.asarray(linalg.project_psd(released.matrices), np.float64)
    full = linalg.unpack(repaired if unobserved is None else unobserved(repaired))
    base = ridge * released.matrix_stddev * np.eye(full.shape[1])
    return Surrogate(np.asarray(full + base, np.float64), released.vectors)


def noise_aware_surrogate(
    released: Released, expected: Expected, residual_variance: float, item_square: float, unobserved: Any = None
) -> Surrogate:
    """Return P = A cov⁻¹ A and h = A cov⁻¹ b̂, along the eigenvectors of the shrunk A.

    Args:
        released: the statistics.
        expected: released or public estimates of Σ_j w_ij and of the weight of one observation.
        residual_variance: s², the variance of a label around its prediction.
        item_square: mean square of an entry of the items' vectors, for the effect of the error of A on A v.
        unobserved: adds the unobserved pairs of clicks to packed matrices; None for ratings.
    """
    shrunk, left = _towards_common_shape(released, expected.total)
    if unobserved is not None:
        shrunk = unobserved(linalg.project_psd(shrunk))
    values, vectors = np.linalg.eigh(np.asarray(linalg.unpack(shrunk), np.float64))
    values = np.maximum(values, 0.0)
    width = values.shape[1]
    known = released.vector_stddev**2 + left * (width + 1) / 2 * item_square
    noise = np.maximum(known[:, None] + residual_variance * expected.typical[:, None] * values, _SMALLEST)
    transposed = vectors.transpose(0, 2, 1)
    curvature = (vectors * (np.square(values) / noise)[:, None, :]) @ transposed
    return Surrogate(curvature, _times(vectors, values / noise * _times(transposed, released.vectors)))


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Return every item's matrix times its vector."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def shrink(released: Released, exposure: Floats) -> tuple[Floats, Floats]:
    """Return matrices moved towards t_i C, with C the common shape, and the variance of their remaining noise.

    They are positive semidefinite.
    """
    moved, left = _towards_common_shape(released, exposure)
    return np.asarray(linalg.project_psd(moved), np.float64), left


def _towards_common_shape(released: Released, exposure: Floats) -> tuple[Floats, Floats]:
    """Do what `shrink` says, before the projection to the cone.

    t_i is proportional to the expected Σ_j w_ij; the factor, and C itself, come from the sum of all matrices, in which
    the noise is small.
    """
    shape, trace = linalg.common_shape(released.matrices)
    scales = trace * np.maximum(exposure, 0.0) / max(float(np.maximum(exposure, 0.0).sum()), _SMALLEST)
    variance = released.matrix_stddev**2
    shrunk, intensity = linalg.shrink_towards(released.matrices, scales, shape, variance)
    return np.asarray(shrunk, np.float64), variance * (1 - intensity)

"""Bugs of one release or of a few: small mechanisms that draw many outputs at once, for the tester."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import chi2

from apportion.privacy.mechanisms.laplace import add_laplace
from planted.cases import Case, exactly, judged, stddev_for

EPSILON, DELTA = 1.0, 1e-5


def clipped(rows, norm=1.0):
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.minimum(1, norm / np.maximum(lengths, 1e-300))


def noise(rng, *shape):
    return stddev_for(EPSILON, DELTA) * rng.standard_normal(shape)


# -- E8: the penalty on an item's vector is summed over private examples --

ITEM = np.array([2.0, 1.0])
PENALTY = 1.5


def item_gradient(rows, rng, draws, *, penalty_inside):
    """Σ over users of a clipped gradient, with the penalty's in each user's part or added once, afterwards."""
    parts = clipped(rows)
    if penalty_inside:
        parts = parts + PENALTY * ITEM
    released = parts.sum(axis=0) + noise(rng, draws, 2)
    return released if penalty_inside else released + PENALTY * ITEM


# -- clip on the sum --


def clipped_total(values, rng, draws, *, each):
    """Of values of any size, in [-1, 1] each or only their sum; Laplace noise for a sensitivity of 1."""
    total = np.clip(values, -1, 1).sum() if each else np.clip(values.sum(), -1, 1)
    return total + rng.laplace(scale=1 / EPSILON, size=draws)


# -- E14: the Wishart mechanism --

WIDTH = 3
MODEL = np.array([1.0, 0.0, 0.0])  # of norm K = 1


def plus_wishart(models, rng, draws, *, degrees, scale):
    """Σ w wᵀ plus a Wishart matrix."""
    rows = rng.standard_normal((draws, degrees, WIDTH)) * np.sqrt(scale)
    return models.T @ models + np.einsum("nki,nkj->nij", rows, rows)


def smallest_eigenvalue(released):
    """Of what is left when the model in question is taken away: negative only if it was never there."""
    return float(np.linalg.eigvalsh(released - np.outer(MODEL, MODEL))[0])


def wishart_delta(epsilon, degrees, scale):
    """δ of adding a Wishart matrix to a sum of w wᵀ with ||w|| = 1, when a task leaves ."""
    c, m = 1 / scale, degrees - WIDTH + 1
    ratio = np.exp((epsilon + c / 2) / (m / 2 - 1))
    at = c * ratio / (ratio - 1)
    return float(chi2.cdf(at, m) - np.exp(epsilon) * chi2.cdf(at - c, m))


# -- E15: noise on a task's own model --

MODEL_EPSILON = 0.25


def noisy_model(model, rng, draws, *, upside_down):
    """A model of norm at most 1 plus b of density exp(-ε ||b|| / 2): its length is a Gamma variable."""
    scale = 2 * MODEL_EPSILON if upside_down else 2 / MODEL_EPSILON
    directions = rng.standard_normal((draws, 2))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return clipped(model) + rng.gamma(2, scale, draws)[:, None] * directions


def covariance_of_noisy(models, rng, draws, *, clip_again):
    """Σ over tasks of w wᵀ of noisy models, with noise for parts of Frobenius norm at most 1."""
    total = noise(rng, draws, 3)
    total[:, 1] /= np.sqrt(2)  # off the diagonal, where an entry stands for two
    for model in models:
        noisy = noisy_model(model, rng, draws, upside_down=False)
        noisy = clipped(noisy) if clip_again else noisy
        total += np.stack([noisy[:, 0] ** 2, noisy[:, 0] * noisy[:, 1], noisy[:, 1] ** 2], axis=1)
    return total


# -- noise that is not fresh --


def rounds(values, rng, draws, *, reuse):
    """The sum and the sum of squares, each with noise for half of the budget's μ²."""
    fresh = np.sqrt(2) * noise(rng, draws, 2)
    if reuse:
        fresh[:, 1] = fresh[:, 0]
    inside = np.clip(values, 0, 1)
    return np.array([inside.sum(), np.square(inside).sum()]) + fresh


def seeded(values, rng, draws, *, by_data):
    """A total whose noise comes from a generator that was seeded with the data."""
    total = np.clip(values, 0, 1).sum()
    if not by_data:
        return total + noise(rng, draws)
    return np.full(draws, total + noise(np.random.default_rng(int(1000 * total)), 1)[0])


# -- a mean by a normaliser that nobody noised --


def mean(values, rng, draws, *, exact_size):
    """A mean of values in [0, 1] among 20 public places: the sum is noised, the number of users must be, too."""
    total, size = np.clip(values, 0, 1).sum(), len(values)
    if exact_size:
        return (total + rng.laplace(scale=1 / EPSILON, size=draws)) / size, np.full(draws, size)
    halves = rng.laplace(scale=2 / EPSILON, size=(2, draws))
    return total + halves[0], size + halves[1]


def mean_as_matrix(values, rng, draws, *, exact_size):
    return np.stack(mean(values, rng, draws, exact_size=exact_size), axis=1)


# -- the last bits of floating-point numbers --

TOTALS = 0.1, 1.1  # neighbours at the full sensitivity of 1


@dataclass(frozen=True)
class Uniform:
    """A noise source that draws uniform numbers from a generator."""

    rng: np.random.Generator

    def uniform(self, size):
        return (self.rng.integers(0, 2**52, size) + 0.5) * 2.0**-52


def laplace_total(total, rng, draws, *, on_grid):
    """A total with Laplace noise, as the library draws it, or without the grid that hides the last bits."""
    if on_grid:
        return add_laplace(np.full(draws, total), 1 / EPSILON, Uniform(rng))
    centred = Uniform(rng).uniform(draws) - 0.5
    return total - np.sign(centred) * np.log1p(-2 * np.abs(centred)) / EPSILON


def ratio_to_the_last_bit(released):
    """The likelihood ratio: constant beyond both ends, but for rounding, which depends on what was added to what."""
    return EPSILON * (abs(released - TOTALS[0]) - abs(released - TOTALS[1]))


# -- discrete noise accounted as continuous --

LATTICE_STDDEV = 3.0


def discrete_gaussian():
    """Probabilities of the noise on -100 ... 100, and of the same one further: a sensitivity of one step."""
    at = np.arange(-100, 102)
    weights = np.exp(-np.square(at) / (2 * LATTICE_STDDEV**2))
    shifted = np.exp(-np.square(at - 1) / (2 * LATTICE_STDDEV**2))
    return weights / weights.sum(), shifted / shifted.sum()


def lattice_delta(epsilon, *, discrete):
    from apportion.privacy import gaussian

    p, q = discrete_gaussian()
    if not discrete:
        return gaussian.delta_of(epsilon, 1 / LATTICE_STDDEV)
    return max(float(np.maximum(one - np.exp(epsilon) * two, 0).sum()) for one, two in ((p, q), (q, p)))


LATTICE_EPSILON = 26 / 18  # midway between two privacy losses that the lattice can have: there the profiles differ most


def cases():
    """Every bug of this file."""

    def pair(name, source, mechanism, wrong, honest, data, neighbour, epsilon=EPSILON, delta=DELTA, **kwargs):
        audits = (
            partial(judged, partial(mechanism, **setting), data, neighbour, epsilon, delta, **kwargs)
            for setting in (wrong, honest)
        )
        return Case(name, source, "tester", *audits)

    others = np.array([[0.3, -0.2], [0.0, 0.5]])
    yield pair(
        "penalty of an item inside the sum over examples", "E8", item_gradient,
        {"penalty_inside": True}, {"penalty_inside": False}, np.vstack([others, ITEM]), others,
    )  # fmt: skip
    yield pair(
        "clip on the sum", "E2", clipped_total, {"each": False}, {"each": True},
        np.array([-5.0, 20.0]), np.array([-5.0]), delta=0.0,
    )  # fmt: skip
    models = np.array([[0.0, 0.6, 0.0], MODEL])
    yield Case(
        "Wishart noise of d + 1 degrees of freedom", "E14", "tester",
        partial(
            judged, partial(plus_wishart, degrees=WIDTH + 1, scale=1 / (2 * EPSILON)), models, models[:1], EPSILON,
            draws=4000, statistic=smallest_eigenvalue,
        ),
        partial(
            judged, partial(plus_wishart, degrees=12, scale=2.0), models, models[:1], EPSILON,
            wishart_delta(EPSILON, 12, 2.0), draws=4000, statistic=smallest_eigenvalue,
        ),
    )  # fmt: skip
    yield pair(
        "density of a model's noise upside down", "E15", noisy_model, {"upside_down": True}, {"upside_down": False},
        np.array([1.0, 0.0]), np.array([-1.0, 0.0]), MODEL_EPSILON, 0.0,
    )  # fmt: skip
    two_models = np.array([[0.0, 0.5], [1.0, 0.0]])
    yield pair(
        "clip before the noise, none after", "E15", covariance_of_noisy, {"clip_again": False}, {"clip_again": True},
        two_models, two_models[:1],
    )  # fmt: skip
    values = np.array([0.5, 0.9, 1.0])
    yield pair(
        "noise reused across rounds", "habit", rounds, {"reuse": True}, {"reuse": False}, values, values[1:]
    )  # fmt: skip
    yield pair(
        "noise seeded by the data", "habit", seeded, {"by_data": True}, {"by_data": False}, values, values[:2]
    )  # fmt: skip
    yield pair(
        "mean over the exact number of users", "habit", mean_as_matrix, {"exact_size": True}, {"exact_size": False},
        values, values[:2], delta=0.0,
    )  # fmt: skip
    yield pair(
        "floating-point noise without a grid", "habit", laplace_total, {"on_grid": False}, {"on_grid": True},
        *reversed(TOTALS), delta=0.0, draws=100_000, statistic=ratio_to_the_last_bit,
    )  # fmt: skip
    yield Case(
        "discrete noise accounted as continuous", "habit", "likelihood",
        partial(exactly, *discrete_gaussian(), LATTICE_EPSILON, lattice_delta(LATTICE_EPSILON, discrete=False)),
        partial(exactly, *discrete_gaussian(), LATTICE_EPSILON, lattice_delta(LATTICE_EPSILON, discrete=True)),
    )  # fmt: skip

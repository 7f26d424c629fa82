"""A round on ratings in NumPy: the reference for the compiled kernel, and what runs without it.

Operation by operation what `_rating_round.hpp` does, for many users at once; the two agree in every bit. Each array has
one entry per user or per observation, and loops run over the few columns of the features. No BLAS, no LAPACK.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.fixed_sums import FixedSums, Floats, Runs, clip_factors, squared_lengths
from apportion.linalg.rating_settings import RatingRound, TaskWeights

Observed = NDArray[np.floating[Any]]


def rows_and_votes(
    runs: Runs, tasks: NDArray[np.int32], values: Observed, weights: Observed | TaskWeights, about: RatingRound
) -> tuple[Floats, Floats]:
    """Each observation's row for its task and each user's vote on shared moments, before they are clipped.

    Both are zero for users who take no part (no weight other than 0) and where a number is not finite: the user's
    regression has no solution, or its part is too long to have a norm.
    """
    sums = runs.sums()
    with np.errstate(all="ignore"):  # what is not finite becomes zero below
        own_weights = _weights(runs, sums, tasks, weights)
        labels = _labels(values, about)
        features = np.ascontiguousarray(about.features[tasks].T)
        tastes, residuals, solved = _left_out(runs, sums, features, about.trust[tasks], labels, about)
        rows = (own_weights * residuals)[:, None] * (tastes * about.scales)
        squares = sums(squared_lengths(rows))
        votes = _votes(sums, own_weights, residuals, tastes, np.sqrt(squares), about)
        good = solved & np.isfinite(squares) & np.isfinite(squared_lengths(votes))
    good &= np.bincount(runs.owner, own_weights != 0, minlength=runs.n_users) > 0
    return np.where(good[runs.owner][:, None], rows, 0.0), np.where(good[:, None], votes, 0.0)


def _weights(runs: Runs, sums: FixedSums, tasks: NDArray[np.int32], weights: Observed | TaskWeights) -> Floats:
    """Weights of observations: as given, or those of their tasks with each user's squares brought to 1."""
    if not isinstance(weights, TaskWeights):
        return np.asarray(weights, np.float64)
    raw = weights.values[tasks]
    norms = np.sqrt(sums(raw * raw))
    factors = weights.norm / np.where(norms > weights.least_norm, norms, weights.least_norm)
    return np.asarray(raw * factors[runs.owner])


def _labels(values: Observed, about: RatingRound) -> Floats:
    low, high = about.value_range
    raised = np.where(np.asarray(values, np.float64) > low, np.asarray(values, np.float64), low)
    return np.asarray((np.where(raised < high, raised, high) - about.centre) / about.unit)


def _left_out(
    runs: Runs, sums: FixedSums, features: Floats, trust: Floats, labels: Floats, about: RatingRound
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Each observation's taste and residual without that observation, and which users have a solution at all.

    Removing a row from a ridge regression moves the solution by −P⁻¹ f c e / (1 − h), where e is the residual and
    h = c fᵀ P⁻¹ f the leverage (Sherman-Morrison).
    """
    inverse, solution, solved = _solve(sums, features, trust, labels, about)
    owner = runs.owner
    residuals = labels - _dot(features, [column[owner] for column in solution])
    halves = [_dot(features[: r + 1], [inverse[r][c][owner] for c in range(r + 1)]) for r in range(about.dim)]
    leverage = trust * _dot(halves, halves)
    step = (trust * residuals) / (1 - np.where(leverage < about.most_leverage, leverage, about.most_leverage))
    own = []
    for c in range(about.dim):
        direction = _dot(halves[c:], [inverse[r][c][owner] for r in range(c, about.dim)])
        own.append(solution[c][owner] - direction * step)
    if about.starting:
        return _standing_in(own[1:], about), (labels - own[0]) - features[1], solved
    return np.stack(own[1:], axis=1), labels - _dot(features, own), solved


def _standing_in(tastes: list[Floats], about: RatingRound) -> Floats:
    """Where item vectors are stand-ins: a factor of 1 on item biases, and a taste of public length."""
    lengths = np.sqrt(_dot(tastes[1:], tastes[1:])) if len(tastes) > 1 else np.zeros(len(tastes[0]))
    stretch = about.start_norm / np.where(lengths > about.shortest_taste, lengths, about.shortest_taste)
    return np.stack([np.ones(len(lengths)), *[taste * stretch for taste in tastes[1:]]], axis=1)


def _solve(
    sums: FixedSums, features: Floats, trust: Floats, labels: Floats, about: RatingRound
) -> tuple[list[list[Floats]], list[Floats], NDArray[np.bool_]]:
    """L⁻¹ for base + Gram = L Lᵀ, the solution L⁻ᵀ L⁻¹ (base_rhs + moment), and which users have one."""
    trusted = trust * features
    matrix = [[sums(trusted[r] * features[c]) + about.base[r, c] for c in range(r + 1)] for r in range(about.dim)]
    rhs = [sums(trusted[r] * labels) + about.base_rhs[r] for r in range(about.dim)]
    lower, reciprocals, solved = _factor(matrix)
    inverse = _inverse(lower, reciprocals)
    middle = [_dot(inverse[r], rhs[: r + 1]) for r in range(about.dim)]
    solution = [_dot([inverse[r][c] for r in range(c, about.dim)], middle[c:]) for c in range(about.dim)]
    return inverse, solution, solved


def _factor(matrix: list[list[Floats]]) -> tuple[list[list[Floats]], list[Floats], NDArray[np.bool_]]:
    """Lower Cholesky factors without their diagonal, its reciprocals, and which matrices are positive definite."""
    lower: list[list[Floats]] = [[] for _ in matrix]
    reciprocals: list[Floats] = []
    solved = np.ones(len(matrix[0][0]), bool)
    for j in range(len(matrix)):
        for i in range(j, len(matrix)):
            entry = matrix[i][j]
            for k in range(j):
                entry = entry - lower[j][k] * lower[i][k]
            if i == j:
                solved &= (entry > 0) & (entry < np.inf)
                reciprocals.append(1 / np.sqrt(np.where(solved, entry, 1.0)))
            else:
                lower[i].append(entry * reciprocals[j])
    return lower, reciprocals, solved


def _inverse(lower: list[list[Floats]], reciprocals: list[Floats]) -> list[list[Floats]]:
    """Lower triangle of L⁻¹."""
    inverse: list[list[Floats]] = []
    for r, reciprocal in enumerate(reciprocals):
        row = [_dot(lower[r][c:], [inverse[k][c] for k in range(c, r)]) * -reciprocal for c in range(r)]
        inverse.append([*row, reciprocal])
    return inverse


def _dot(left: Any, right: Any) -> Floats:
    """Sum of products of arrays, pair by pair, from the first on."""
    total = left[0] * right[0]
    for a, b in zip(left[1:], right[1:], strict=True):
        total = total + a * b
    return np.asarray(total)


def _votes(
    sums: FixedSums, weights: Floats, residuals: Floats, tastes: Floats, lengths: Floats, about: RatingRound
) -> Floats:
    """A user's vote on the moments that all tasks share: (1, s², e², clipped e², e, q qᵀ), each a weighted mean.

    A user of little weight has little say; the vote counts in full from a total weight of `full_vote`.
    """
    total = sums(weights)
    weight = np.where(total > about.least_weight, total, about.least_weight)
    say = np.where(weight / about.full_vote < 1, weight / about.full_vote, 1.0)
    ratio = about.clip_norm / np.where(lengths > about.shortest_part, lengths, about.shortest_part)
    kept = np.where(ratio < 1, ratio, 1.0)
    squared = say * sums(np.square(weights * residuals))
    slopes = say * kept * sums(weights * np.square(tastes[:, 0])) / weight
    means = say * sums(weights * residuals) / weight
    columns = [say, slopes, squared, kept * kept * squared, means]
    latent = about.dim - 2
    common = say * kept / weight / max(latent, 1)
    pairs = [(r, c) for r in range(latent) for c in range(r + 1)]
    for (r, c), scale in zip(pairs, about.summary_scales, strict=True):
        columns.append(sums((weights * tastes[:, 1 + r]) * tastes[:, 1 + c]) * (common / scale))
    return np.stack(columns, axis=1)


def clipped_votes(votes: Floats, norm: float, step: float) -> NDArray[np.int64]:
    """Whole steps of each user's vote, clipped to `norm`."""
    factors = clip_factors(np.sqrt(squared_lengths(votes)), norm)
    return np.asarray(np.trunc(votes * factors[:, None] * (1 / step)), np.int64)

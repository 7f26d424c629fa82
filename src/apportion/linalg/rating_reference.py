"""A round on ratings in NumPy: the reference for the compiled kernel, and the code that runs without it.

It does what `_rating_round.hpp` does, operation by operation, for many users at once. The two agree in every bit. Each
array has one entry per user or per observation, and loops run over the few columns of the features. No BLAS, no LAPACK.

`arrays` is the array library: NumPy, or torch for a GPU (`rating_on_torch`). Both round every operation used here once,
so they agree, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from apportion.linalg.fixed_sums import clip_factors, dot, squared_lengths
from apportion.linalg.rating_settings import RatingRound

Sums = Callable[[Any], Any]  # from one number per observation to one sum per user


class AnyRuns(Protocol):
    """Runs of observations, one per user; see `fixed_sums.Runs`."""

    @property
    def owner(self) -> Any:
        """For each observation, the position of its user."""

    def sums(self) -> Sums:
        """Return sums over these runs."""


def rows_and_votes(
    runs: AnyRuns, tasks: Any, values: Any, weights: Any, this_round: RatingRound, arrays: Any = np
) -> tuple[Any, Any]:
    """Return each observation's row for its task and each user's vote on shared moments, before they are clipped.

    Both are zero for users who take no part (all weights are 0), and for users with a number that is not finite: the
    regression has no solution, or the part is too long to have a norm.
    """
    sums, owner = runs.sums(), runs.owner
    with np.errstate(all="ignore"):  # numbers that are not finite become zero below
        labels = _labels(values, this_round, arrays)
        features = [this_round.features[:, c][tasks] for c in range(this_round.dim)]
        tastes, residuals, solved = _left_out(
            owner, sums, features, this_round.trust[tasks], labels, this_round, arrays
        )
        rows = (weights * residuals)[:, None] * (tastes * this_round.scales)
        rows[:, 1:] = rows[:, 1:] * this_round.vector_weights[tasks][:, None]
        squares = sums(squared_lengths(rows))
        votes = _votes(sums, weights, residuals, tastes, arrays.sqrt(squares), this_round, arrays)
        good = solved & arrays.isfinite(squares) & arrays.isfinite(squared_lengths(votes))
        good = good & (sums(abs(weights)) > 0)
    return arrays.where(good[owner][:, None], rows, 0.0), arrays.where(good[:, None], votes, 0.0)


def _labels(values: Any, this_round: RatingRound, arrays: Any) -> Any:
    low, high = this_round.value_range
    raised = arrays.where(values > low, values, low)
    return (arrays.where(raised < high, raised, high) - this_round.centre) / this_round.unit


def _left_out(
    owner: Any, sums: Sums, features: list[Any], trust: Any, labels: Any, this_round: RatingRound, arrays: Any
) -> tuple[Any, Any, Any]:
    """Return each observation's taste and residual without that observation, and which users have a solution at all.

    Removing a row from a ridge regression moves the solution by −P⁻¹ f c e / (1 − h), where e is the residual and
    h = c fᵀ P⁻¹ f the leverage (Sherman-Morrison).
    """
    inverse, solution, solved = _solve(sums, features, trust, labels, this_round, arrays)
    residuals = labels - dot(features, [column[owner] for column in solution])
    halves = [dot(features[: r + 1], [inverse[r][c][owner] for c in range(r + 1)]) for r in range(this_round.dim)]
    leverage = trust * dot(halves, halves)
    step = (trust * residuals) / (
        1 - arrays.where(leverage < this_round.most_leverage, leverage, this_round.most_leverage)
    )
    own = []
    for c in range(this_round.dim):
        direction = dot(halves[c:], [inverse[r][c][owner] for r in range(c, this_round.dim)])
        own.append(solution[c][owner] - direction * step)
    if this_round.starting:
        return _standing_in(own[1:], this_round, arrays), (labels - own[0]) - features[1], solved
    return _beside(own[1:], arrays), labels - dot(features, own), solved


def _beside(columns: list[Any], arrays: Any) -> Any:
    """Return columns side by side, each in one piece of memory: they are read one by one."""
    return arrays.stack(columns).T


def _standing_in(tastes: list[Any], this_round: RatingRound, arrays: Any) -> Any:
    """Return factors and tastes while item vectors are stand-ins: 1 on item biases, and a taste of public length."""
    latent = tastes[1:]
    lengths = arrays.sqrt(dot(latent, latent)) if latent else arrays.zeros_like(tastes[0])
    stretch = this_round.start_norm / arrays.where(
        lengths > this_round.shortest_taste, lengths, this_round.shortest_taste
    )
    return _beside([arrays.ones_like(lengths), *[taste * stretch for taste in latent]], arrays)


def _solve(
    sums: Sums, features: list[Any], trust: Any, labels: Any, this_round: RatingRound, arrays: Any
) -> tuple[list[list[Any]], list[Any], Any]:
    """Return L⁻¹ for base + Gram = L Lᵀ, the solution L⁻ᵀ L⁻¹ (base_rhs + moment), and which users have one."""
    return solved_with(this_round.base, this_round.base_rhs, *user_moments(sums, features, trust, labels), arrays)


def user_moments(sums: Sums, features: list[Any], trust: Any, labels: Any) -> tuple[list[list[Any]], list[Any]]:
    """Return each user's Gram matrix, as its lower triangle, and moment: Σ_i c_i f_i f_iᵀ and Σ_i c_i y_i f_i."""
    trusted = [trust * column for column in features]
    grams = [[sums(left * right) for right in features[: r + 1]] for r, left in enumerate(trusted)]
    return grams, [sums(column * labels) for column in trusted]


def solved_with(
    base: Any, base_rhs: Any, grams: list[list[Any]], moments: list[Any], arrays: Any = np
) -> tuple[list[list[Any]], list[Any], Any]:
    """Do the same for one prior: return L⁻¹, every user's solution, and which users have one."""
    dim = len(grams)
    matrix = [[grams[r][c] + base[r, c] for c in range(r + 1)] for r in range(dim)]
    rhs = [moments[r] + base_rhs[r] for r in range(dim)]
    lower, reciprocals, solved = _factor(matrix, arrays)
    inverse = _inverse(lower, reciprocals)
    middle = [dot(inverse[r], rhs[: r + 1]) for r in range(dim)]
    solution = [dot([inverse[r][c] for r in range(c, dim)], middle[c:]) for c in range(dim)]
    return inverse, solution, solved


def _factor(matrix: list[list[Any]], arrays: Any) -> tuple[list[list[Any]], list[Any], Any]:
    """Return lower Cholesky factors without their diagonal, its reciprocals, and which matrices have a factor."""
    lower: list[list[Any]] = [[] for _ in matrix]
    reciprocals: list[Any] = []
    solved = arrays.ones_like(matrix[0][0]) > 0
    for j in range(len(matrix)):
        for i in range(j, len(matrix)):
            entry = matrix[i][j]
            for k in range(j):
                entry = entry - lower[j][k] * lower[i][k]
            if i == j:
                solved = solved & (entry > 0) & (entry < np.inf)
                reciprocals.append(1 / arrays.sqrt(arrays.where(solved, entry, 1.0)))
            else:
                lower[i].append(entry * reciprocals[j])
    return lower, reciprocals, solved


def _inverse(lower: list[list[Any]], reciprocals: list[Any]) -> list[list[Any]]:
    """Return the lower triangle of L⁻¹."""
    inverse: list[list[Any]] = []
    for r, reciprocal in enumerate(reciprocals):
        row = [dot(lower[r][c:], [inverse[k][c] for k in range(c, r)]) * -reciprocal for c in range(r)]
        inverse.append([*row, reciprocal])
    return inverse


def _votes(
    sums: Sums, weights: Any, residuals: Any, tastes: Any, lengths: Any, this_round: RatingRound, arrays: Any
) -> Any:
    """Return each user's vote on shared moments: (1, s², e², clipped e², e, q qᵀ), each a weighted mean.

    A user with little weight has little influence. The vote counts in full from a total weight of `full_vote` on.
    """
    total = sums(weights)
    weight = arrays.where(total > this_round.least_weight, total, this_round.least_weight)
    say = arrays.where(weight / this_round.full_vote < 1, weight / this_round.full_vote, 1.0)
    ratio = this_round.clip_norm / arrays.where(lengths > this_round.shortest_part, lengths, this_round.shortest_part)
    kept = arrays.where(ratio < 1, ratio, 1.0)
    weighted = weights * residuals
    squared = say * sums(weighted * weighted)
    slopes = say * kept * sums(weights * (tastes[:, 0] * tastes[:, 0])) / weight
    columns = [say, slopes, squared, kept * kept * squared, say * sums(weighted) / weight]
    latent = this_round.dim - 2
    common = say * kept / weight / max(latent, 1)
    pairs = [(r, c) for r in range(latent) for c in range(r + 1)]
    for (r, c), scale in zip(pairs, this_round.summary_scales, strict=True):
        columns.append(sums((weights * tastes[:, 1 + r]) * tastes[:, 1 + c]) * (common / float(scale)))
    return _beside(columns, arrays)


def clipped_votes(votes: Any, norm: float, step: float, arrays: Any = np) -> Any:
    """Return each user's vote in whole steps, clipped to `norm`."""
    factors = clip_factors(arrays.sqrt(squared_lengths(votes)), norm, arrays)
    return arrays.trunc(votes * factors[:, None] * (1 / step))

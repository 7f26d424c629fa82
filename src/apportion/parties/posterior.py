"""What one party learns from its own rows under a given prior. Everything is local; many parties are solved at once.

Model: y = X w + noise of variance v, w ~ N(0, r v Ω), with a public Ω = L Lᵀ. The ratio r and v are the party's own: v
has its most likely value, and r is averaged over a grid, weighted by the evidence. The grid is over the fraction of
variance that the model explains, h = r t / (1 + r t) with t = tr(X Ω Xᵀ)/n, with prior Beta(1, ½), so that labels with
hardly any noise are not ruled out. With K = X Ω Xᵀ = U diag(λ) Uᵀ and a = Uᵀy,

    log evidence(r) = -½ Σ log(1 + rλ) - ½ n log(Σ a²/(1 + rλ) / n),    mean = Ω Xᵀ U diag(r / (1 + rλ)) a.

A prior may also have a mean: w ~ N(f c, r v Ω), with the party's centre c and a factor f. Like r, f is averaged over a
grid, around a spread that all parties share. It is the same model applied to y - f X c.

For labels of two classes, the same prior (v = 1) is combined with the logistic likelihood by Laplace's approximation. A
prior that lets a few features stand out is in `few_features`, and the choice between priors in `choice`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.fixed_exp import fixed_logistic
from apportion.parties.few_features import EARLY, few_features
from apportion.parties.grids import NEAR, NEAR_SCORES, SCORES, WIDE, Centre, Grid, grid_about
from apportion.parties.tasks import Block, TaskRows, blocks_of

Floats = NDArray[np.float64]

_NEWTON_STEPS = 8  # Newton steps, starting from the mode of the previous ratio
_HALVINGS = 5
_ROWS_OF_DOUBT = 2.0  # a variance from n rows has an error of 2/n in its log, and variances differ by about 1
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Learned:
    """What all parties learned under one prior.

    Attributes:
        mean: the model of each party, [tasks, features], in the units of its own data.
        evidence: its log evidence, up to a constant of the party.
        early: the same for the fraction `EARLY` of its rows' information; 0 for a loss that has no such method.
        ratio: the likeliest r of each party, in the units of its block's rows.
        size: length of w, relative to a model that explains all of a party's labels with features that are not
            correlated; from 0 to 1. It is the geometric mean of two lengths: that of the posterior mean, which is
            shrunk, and the root of r v d, which the prior of r enlarges if there are few rows.
    """

    mean: Floats
    evidence: Floats
    early: Floats
    ratio: Floats
    size: Floats

    @property
    def foresight(self) -> Floats:
        """How well the earlier part of the rows' information predicts the later part: a part of a log Bayes factor."""
        return np.asarray(self.evidence - self.early)


@dataclass(frozen=True, eq=False)
class Prior:
    """Ω = D Dᵀ + level I.

    Attributes:
        directions: D, [features, any number].
        level: the level of every direction.
    """

    directions: Floats
    level: float

    @property
    def factor(self) -> Floats:
        """Return the symmetric root of Ω."""
        values, vectors = np.linalg.eigh(self.directions @ self.directions.T)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0) + self.level)) @ vectors.T)


class Local(Protocol):
    """The rows of all parties, and what they learn from them."""

    n_tasks: int
    dimension: int
    blocks: list[Block]
    data: TaskRows

    def learn(self, prior: Prior | None, centre: Centre | None = None) -> Learned:
        """Return what each party learns under a prior; None for the identity, and for a mean of 0."""

    def lengths(self, size: float, direction: Floats | None = None) -> Floats:
        """Return the length of a model of this size, in the units of each party's data.

        Args:
            size: the root of the share of the labels' variance that the model explains.
            direction: the direction of the model; None if features are uncorrelated and have the same variance.
        """

    def few(self) -> Learned | None:
        """Return what each party learns if a few features may stand out; None for a loss without such a method."""

    def gradient(self, block: Block, models: Floats) -> Floats:
        """Return the gradient of each party's loss at its model, in the units of its rows."""

    def curvature(self, block: Block) -> Floats:
        """Return the largest curvature of each party's loss."""


def local_side(data: TaskRows, loss: str) -> Local:
    """Return the parties' side for a loss."""
    if loss == "squared":
        return SquaredLocal(data)
    if loss == "logistic":
        return LogisticLocal(data)
    raise InputError(f"Expected the loss 'squared' or 'logistic', got {loss!r}.", argument="loss")


class SquaredLocal:
    """Parties whose loss is the squared error."""

    def __init__(self, data: TaskRows) -> None:
        self.n_tasks, self.dimension, self.data = data.n_tasks, data.dimension, data
        self.blocks = blocks_of(data, turned=True)
        self._grams = [block.rows @ block.rows.transpose(0, 2, 1) for block in self.blocks]

    def learn(self, prior: Prior | None, centre: Centre | None = None) -> Learned:
        """Return what each party learns under a prior."""
        result = _empty(self.n_tasks, self.dimension)
        grid = WIDE if centre is None else grid_about(centre, NEAR)
        for block, gram in zip(self.blocks, self._grams, strict=True):
            spread, turn = np.linalg.eigh(gram if prior is None else _kernel(block, gram, prior))
            back = turn.transpose(0, 2, 1)
            own = None if centre is None else centre.models[block.tasks] / block.units[:, None]
            seen = _apart_from(_times(back, block.labels), None if own is None else _times(block.rows, own), back, grid)
            ratios, weights, evidence, early = _weighed(block, np.maximum(spread, 0.0), seen, grid)
            mean = _times(block.rows.transpose(0, 2, 1), _times(turn, _shrunk(weights, ratios, spread, seen)))
            if prior is not None:
                mean = prior.level * mean + _times(prior.directions, _times(prior.directions.T, mean))
            if own is not None:
                mean = mean + _each_times(weights.sum(axis=2), grid.factors)[:, None] * own
            likeliest = np.take_along_axis(ratios, weights.sum(axis=1).argmax(1)[:, None], 1)[:, 0]
            size = _size(block, mean, _explained(block, spread, seen[:, 0], weights[:, 0], grid))
            _store(result, block, mean, evidence, early, likeliest, size)
        return result

    def lengths(self, size: float, direction: Floats | None = None) -> Floats:
        """Return √(Σy² / Σ(x·u)²) times the size. Without a direction u, Σx²/d takes the place of Σ(x·u)²."""
        result = np.zeros(self.n_tasks)
        for block in self.blocks:
            squares = _squares_along(block, direction)
            labels = np.square(block.labels).sum(axis=1) + block.rest
            length = np.sqrt(labels / np.maximum(squares, _TINY)) * (squares > _TINY)
            result[block.tasks] = size * length * block.units
        return result

    def few(self) -> Learned:
        """Return what each party learns if a few features may stand out."""
        result = _empty(self.n_tasks, self.dimension)
        total = WIDE.total  # the weights of the grid of r do not add up to 1
        for block, gram in zip(self.blocks, self._grams, strict=True):
            mean, evidence, early = few_features(block, gram)
            _store(result, block, mean, evidence + total, early + total, np.ones(len(mean)), np.zeros(len(mean)))
        return result

    def gradient(self, block: Block, models: Floats) -> Floats:
        """Return Xᵀ(Xw - y)."""
        return _times(block.rows.transpose(0, 2, 1), _times(block.rows, models) - block.labels)

    def curvature(self, block: Block) -> Floats:
        """Return the largest eigenvalue of XᵀX."""
        return _largest(block)


class LogisticLocal:
    """Parties with labels of two classes; the higher class is the positive one."""

    def __init__(self, data: TaskRows) -> None:
        known = np.isin(data.labels, [-1.0, 0.0, 1.0])
        if not known.all():
            at = int(np.argmin(known))
            raise InputError(
                f"Expected labels of -1 or 0, and 1, got {data.labels[at]:g} in row {at + 1}.", argument="y"
            )
        coded = TaskRows(data.ids, data.features, np.where(data.labels > 0, 1.0, -1.0), data.indptr)
        self.n_tasks, self.dimension, self.data = data.n_tasks, data.dimension, data
        self.blocks = blocks_of(coded, turned=False)

    def learn(self, prior: Prior | None, centre: Centre | None = None) -> Learned:
        """Return what each party learns under a prior."""
        result = _empty(self.n_tasks, self.dimension)
        factor = None if prior is None else prior.factor
        grid = SCORES if centre is None else grid_about(centre, NEAR_SCORES)
        for block in self.blocks:
            own = None if centre is None else centre.models[block.tasks] / block.units[:, None]
            rows = block.rows if factor is None else block.rows @ factor
            unit = np.maximum(np.einsum("mkd,mkd->m", rows, rows) / np.maximum(block.sizes, 1), _TINY)
            ratios = grid.ratios[None, :] / np.where(unit > _TINY, unit, 1.0)[:, None]
            modes, logs = _modes(rows, block, ratios, grid, None if own is None else _times(block.rows, own))
            weights, total = normalised(logs)
            mean = np.asarray(sum(weights[:, k, None] * mode for k, mode in enumerate(modes)))
            mean = mean if factor is None else _times(factor, mean)
            by_factor = weights.reshape(len(weights), len(grid.factors), -1)
            if own is not None:
                mean = mean + _each_times(by_factor.sum(axis=2), grid.factors)[:, None] * own
            likeliest = np.take_along_axis(ratios, by_factor.sum(axis=1).argmax(1)[:, None], 1)[:, 0]
            scores = np.sqrt(_each_times(by_factor.sum(axis=1), grid.ratios) * _relative(block, mean, block.sizes))
            _store(result, block, mean, total, np.zeros_like(total), likeliest, np.sqrt(scores / (1 + scores)))
        return result

    def lengths(self, size: float, direction: Floats | None = None) -> Floats:
        """Return √(n / Σ(x·u)²) times the root of the variance of scores of this size."""
        result = np.zeros(self.n_tasks)
        for block in self.blocks:
            squares = _squares_along(block, direction)
            length = np.sqrt(block.sizes / np.maximum(squares, _TINY)) * (squares > _TINY)
            result[block.tasks] = length * block.units
        return np.asarray(result * (size / np.sqrt(1 - size**2)))

    def few(self) -> Learned | None:
        """Return None: there is no such method."""
        return None

    def gradient(self, block: Block, models: Floats) -> Floats:
        """Return -Σ y x / (1 + exp(y x·w))."""
        signs = block.labels * block.present
        pull = signs * fixed_logistic(-signs * _times(block.rows, models))
        return -_times(block.rows.transpose(0, 2, 1), pull)

    def curvature(self, block: Block) -> Floats:
        """Return a quarter of the largest eigenvalue of XᵀX."""
        return _largest(block) / 4


def _squares_along(block: Block, direction: Floats | None) -> Floats:
    """Return Σ(x·u)² of every task, shrunk towards Σx²/d.

    Without a direction, or with one of length 0, return Σx²/d.
    """
    even = np.square(block.rows).sum(axis=(1, 2)) / block.rows.shape[2]
    length = 0.0 if direction is None else float(np.linalg.norm(direction))
    if direction is None or length == 0:
        return np.asarray(even)
    along = np.square(_times(block.rows, np.tile(direction / length, (len(block.rows), 1)))).sum(axis=1)
    trust = block.sizes / (block.sizes + _ROWS_OF_DOUBT)
    return np.asarray(trust * along + (1 - trust) * even)


def _kernel(block: Block, gram: Floats, prior: Prior) -> Floats:
    """Return X Ω Xᵀ of every task. A few directions cost little compared with X Xᵀ, which is kept."""
    along = block.rows @ prior.directions
    return np.asarray(prior.level * gram + along @ along.transpose(0, 2, 1))


def _apart_from(labels: Floats, centre: Floats | None, back: Floats, grid: Grid) -> Floats:
    """Return Uᵀ(y - f X c) for every f, [tasks, f, places]."""
    if centre is None:
        return labels[:, None, :]
    return np.asarray(labels[:, None, :] - grid.factors[None, :, None] * _times(back, centre)[:, None, :])


def _weighed(block: Block, spread: Floats, seen: Floats, grid: Grid) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the grid of r, the weight of each f and r, and the log evidence of all and of a fraction."""
    unit = spread.sum(axis=1) / np.maximum(block.sizes, 1)
    ratios = grid.ratios[None, :] / np.where(unit > _TINY, unit, 1.0)[:, None]
    shape = (len(spread), len(grid.factors), len(grid.ratios))
    weights, evidence = normalised(_fit(block, spread, seen, ratios, 1.0, grid))
    _, early = normalised(_fit(block, spread, seen, ratios, EARLY, grid))
    return ratios, weights.reshape(shape), evidence, early


def _fit(block: Block, spread: Floats, seen: Floats, ratios: Floats, part: float, grid: Grid) -> Floats:
    """Return the log evidence of every f and r times its prior, for a fraction of the rows' information."""
    inflated = 1 + part * ratios[:, :, None] * spread[:, None, :]
    narrowing, sizes = -0.5 * np.log(inflated).sum(axis=2), 0.5 * part * block.sizes[:, None]
    fits = []
    for k, logs in enumerate(grid.logs):
        left = part * ((np.square(seen[:, k])[:, None, :] / inflated).sum(axis=2) + block.rest[:, None])
        fits.append(narrowing - sizes * np.log(np.maximum(left, _TINY)) + logs)
    return np.concatenate(fits, axis=1)


def _relative(block: Block, models: Floats, labels: Floats) -> Floats:
    """Return |w|² Σx² / (d Σy²): the share of the labels that a model explains if features are not correlated."""
    squares = np.square(block.rows).sum(axis=(1, 2)) / models.shape[1]
    return np.asarray(np.square(models).sum(axis=1) * squares / np.maximum(labels, _TINY))


def _size(block: Block, mean: Floats, explained: Floats) -> Floats:
    labels = np.square(block.labels).sum(axis=1) + block.rest
    return np.asarray(np.sqrt(explained * np.minimum(np.sqrt(_relative(block, mean, labels)), 1.0)))


def _explained(block: Block, spread: Floats, seen: Floats, weights: Floats, grid: Grid) -> Floats:
    """Return √(r t v n / Σy²), averaged over the grid: the mean of d |w|² Σx² / (n Σy²) under N(0, r v I)."""
    unit = spread.sum(axis=1) / np.maximum(block.sizes, 1)
    ratios = grid.ratios[None, :] / np.where(unit > _TINY, unit, 1.0)[:, None]
    inflated = 1 + ratios[:, :, None] * np.maximum(spread, 0.0)[:, None, :]
    left = (np.square(seen)[:, None, :] / inflated).sum(axis=2) + block.rest[:, None]
    whole = np.maximum(np.square(block.labels).sum(axis=1) + block.rest, _TINY)
    return np.asarray(np.sqrt(np.minimum((weights * grid.ratios * left).sum(axis=1) / whole, 1.0)))


def _shrunk(weights: Floats, ratios: Floats, spread: Floats, seen: Floats) -> Floats:
    """Return Σ_f,r weight · r / (1 + rλ) Uᵀ(y - f X c)."""
    shares = ratios[:, :, None] / (1 + ratios[:, :, None] * np.maximum(spread, 0.0)[:, None, :])
    parts = [(weights[:, k, :, None] * shares).sum(axis=1) * seen[:, k] for k in range(seen.shape[1])]
    return np.asarray(sum(parts))


def normalised(logs: Floats) -> tuple[Floats, Floats]:
    """Return weights proportional to exp(logs), and the log of their sum, along the second axis."""
    top = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - top)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total, (top + np.log(total))[:, 0]


def _modes(
    rows: Floats, block: Block, ratios: Floats, grid: Grid, centre: Floats | None
) -> tuple[list[Floats], Floats]:
    """Return the mode of every f and r, and the log evidence of each times its prior, [tasks, f and r]."""
    modes, logs = [], []
    for factor, weights in zip(grid.factors, grid.logs, strict=True):
        ahead = None if centre is None else factor * centre
        mode: Floats | None = None
        for k, weight in enumerate(weights):
            mode, evidence = _laplace(rows, block, ratios[:, k], mode, ahead)
            modes.append(mode)
            logs.append(evidence + weight)
    return modes, np.stack(logs, axis=1)


def _laplace(
    rows: Floats, block: Block, ratio: Floats, start: Floats | None, ahead: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return mode and log evidence of logistic labels under N(0, r I), by Newton steps, halved if they overshoot.

    Args:
        rows: features.
        block: labels.
        ratio: r.
        start: a mode to start from.
        ahead: scores that the rows have at a model of 0.
    """
    signs = block.labels * block.present
    ahead = np.zeros_like(signs) if ahead is None else ahead
    mode = np.zeros((len(rows), rows.shape[2])) if start is None else start
    value = _energy(rows, block, signs, mode, ratio, ahead)
    for _ in range(_NEWTON_STEPS):
        odds = fixed_logistic(-signs * (_times(rows, mode) + ahead))
        slope = -_times(rows.transpose(0, 2, 1), signs * odds) + mode / ratio[:, None]
        step = np.linalg.solve(_hessian(rows, odds, block, ratio), slope[:, :, None])[:, :, 0]
        length = np.ones(len(rows))
        for _ in range(_HALVINGS):
            tried = _energy(rows, block, signs, mode - length[:, None] * step, ratio, ahead)
            length = np.where(tried > value, length / 2, length)
        moved = mode - length[:, None] * step
        tried = _energy(rows, block, signs, moved, ratio, ahead)
        better = tried <= value
        mode, value = np.where(better[:, None], moved, mode), np.where(better, tried, value)
    odds = fixed_logistic(-signs * (_times(rows, mode) + ahead))
    _, logdet = np.linalg.slogdet(_hessian(rows, odds, block, ratio) * ratio[:, None, None])
    return mode, -value - 0.5 * logdet


def _energy(rows: Floats, block: Block, signs: Floats, models: Floats, ratio: Floats, ahead: Floats) -> Floats:
    losses = np.logaddexp(0.0, -signs * (_times(rows, models) + ahead)) * block.present
    return np.asarray(losses.sum(axis=1) + np.square(models).sum(axis=1) / (2 * ratio))


def _hessian(rows: Floats, odds: Floats, block: Block, ratio: Floats) -> Floats:
    weighed = (odds * (1 - odds) * block.present)[:, :, None] * rows
    return np.asarray(rows.transpose(0, 2, 1) @ weighed + np.eye(rows.shape[2]) / ratio[:, None, None])


def _largest(block: Block) -> Floats:
    rows = block.rows
    small = rows @ rows.transpose(0, 2, 1) if rows.shape[1] < rows.shape[2] else rows.transpose(0, 2, 1) @ rows
    return np.asarray(np.linalg.eigvalsh(small)[:, -1].clip(0))


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Return A v for every task, one product per task, so that no task depends on the others."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


def _each_times(weights: Floats, values: Floats) -> Floats:
    """Return Σ weight · value for every task. A matrix-vector product would add up in another order."""
    return np.asarray((weights * values).sum(axis=1))


def _empty(n_tasks: int, dimension: int) -> Learned:
    evidence, early, size = np.zeros((3, n_tasks))
    return Learned(np.zeros((n_tasks, dimension)), evidence, early, np.ones(n_tasks), size)


def _store(
    result: Learned, block: Block, mean: Floats, evidence: Floats, early: Floats, ratio: Floats, size: Floats
) -> None:
    result.mean[block.tasks] = np.nan_to_num(mean * block.units[:, None])
    result.evidence[block.tasks] = np.nan_to_num(evidence)
    result.early[block.tasks] = np.nan_to_num(early)
    result.ratio[block.tasks] = ratio
    result.size[block.tasks] = np.nan_to_num(size)

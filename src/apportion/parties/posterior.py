"""What one party learns from its own rows under a given prior. Everything is local; many parties are solved at once.

Model: y = X w + noise of variance v, w ~ N(0, r v Ω), with a public Ω = L Lᵀ. The ratio r and v are the party's own: v
has its most likely value, and r is averaged over a grid, weighted by the evidence. The grid is over the fraction of
variance that the model explains, h = r t / (1 + r t) with t = tr(X Ω Xᵀ)/n, with prior Beta(1, ½), so that labels with
hardly any noise are not ruled out. With K = X Ω Xᵀ = U diag(λ) Uᵀ and a = Uᵀy,

    log evidence(r) = -½ Σ log(1 + rλ) - ½ n log(Σ a²/(1 + rλ) / n),    mean = Ω Xᵀ U diag(r / (1 + rλ)) a.

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
from apportion.parties.tasks import Block, TaskRows, blocks_of

Floats = NDArray[np.float64]

_RATIOS = np.exp(np.linspace(np.log(1e-2), np.log(1e5), 24))  # r t: variance explained over variance left
_SCORE_VARIANCES = np.exp(np.linspace(np.log(0.05), np.log(50.0), 8))  # r t of scores of two classes
_NEWTON_STEPS = 8  # Newton steps, from the mode of the previous ratio
_HALVINGS = 5
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Learned:
    """What all parties learned under one prior.

    Attributes:
        mean: the model of each, [tasks, features], in the units of its own data.
        evidence: its log evidence, up to a constant of the party.
        early: the same for the fraction `EARLY` of its rows' information; 0 for a loss that has no such method.
        ratio: the likeliest r of each, in the units of its block's rows.
    """

    mean: Floats
    evidence: Floats
    early: Floats
    ratio: Floats

    @property
    def foresight(self) -> Floats:
        """How well the earlier part of the rows' information predicts the later part: part of a log Bayes factor."""
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

    def learn(self, prior: Prior | None) -> Learned:
        """Return what each party learns under a prior; None for the identity."""

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
        self.n_tasks, self.dimension = data.n_tasks, data.dimension
        self.blocks = blocks_of(data, turned=True)
        self._grams = [block.rows @ block.rows.transpose(0, 2, 1) for block in self.blocks]

    def learn(self, prior: Prior | None) -> Learned:
        """Return what each party learns under a prior."""
        result = _empty(self.n_tasks, self.dimension)
        for block, gram in zip(self.blocks, self._grams, strict=True):
            spread, turn = np.linalg.eigh(gram if prior is None else _kernel(block, gram, prior))
            spread, seen = np.maximum(spread, 0.0), _times(turn.transpose(0, 2, 1), block.labels)
            ratios, weights, evidence, early = _weighed(block, spread, seen)
            shrunk = (weights[:, :, None] * ratios[:, :, None] / (1 + ratios[:, :, None] * spread[:, None, :])).sum(1)
            mean = _times(block.rows.transpose(0, 2, 1), _times(turn, shrunk * seen))
            if prior is not None:
                mean = prior.level * mean + _times(prior.directions, _times(prior.directions.T, mean))
            likeliest = np.take_along_axis(ratios, weights.argmax(1)[:, None], 1)[:, 0]
            _store(result, block, mean, evidence, early, likeliest)
        return result

    def few(self) -> Learned:
        """Return what each party learns if a few features may stand out."""
        result = _empty(self.n_tasks, self.dimension)
        total = float(np.logaddexp.reduce(_prior(_RATIOS)[0]))  # weights of the grid of r do not add up to 1
        for block, gram in zip(self.blocks, self._grams, strict=True):
            mean, evidence, early = few_features(block, gram)
            _store(result, block, mean, evidence + total, early + total, np.ones(len(mean)))
        return result

    def gradient(self, block: Block, models: Floats) -> Floats:
        """Xᵀ(Xw - y)."""
        return _times(block.rows.transpose(0, 2, 1), _times(block.rows, models) - block.labels)

    def curvature(self, block: Block) -> Floats:
        """The largest eigenvalue of XᵀX."""
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
        self.n_tasks, self.dimension = data.n_tasks, data.dimension
        self.blocks = blocks_of(coded, turned=False)

    def learn(self, prior: Prior | None) -> Learned:
        """Return what each party learns under a prior."""
        result = _empty(self.n_tasks, self.dimension)
        factor = None if prior is None else prior.factor
        for block in self.blocks:
            rows = block.rows if factor is None else block.rows @ factor
            unit = np.maximum(np.einsum("mkd,mkd->m", rows, rows) / np.maximum(block.sizes, 1), _TINY)
            ratios = _SCORE_VARIANCES[None, :] / np.where(unit > _TINY, unit, 1.0)[:, None]
            tried: list[tuple[Floats, Floats]] = []
            for k in range(len(_SCORE_VARIANCES)):
                tried.append(_laplace(rows, block, ratios[:, k], tried[-1][0] if tried else None))
            even = np.log(_SCORE_VARIANCES) - 2 * np.log1p(_SCORE_VARIANCES)  # the prior of h is uniform
            evidence = np.stack([one[1] for one in tried], axis=1) + even
            weights, total = normalised(evidence)
            mean = sum(weights[:, k, None] * tried[k][0] for k in range(len(tried)))
            mean = np.asarray(mean) if factor is None else _times(factor, np.asarray(mean))
            likeliest = np.take_along_axis(ratios, weights.argmax(1)[:, None], 1)[:, 0]
            _store(result, block, mean, total, np.zeros_like(total), likeliest)
        return result

    def few(self) -> Learned | None:
        """Return None: there is no such method."""
        return None

    def gradient(self, block: Block, models: Floats) -> Floats:
        """-Σ y x / (1 + exp(y x·w))."""
        signs = block.labels * block.present
        pull = signs * fixed_logistic(-signs * _times(block.rows, models))
        return -_times(block.rows.transpose(0, 2, 1), pull)

    def curvature(self, block: Block) -> Floats:
        """A quarter of the largest eigenvalue of XᵀX."""
        return _largest(block) / 4


def _kernel(block: Block, gram: Floats, prior: Prior) -> Floats:
    """Return X Ω Xᵀ of every task: a few directions cost little next to X Xᵀ, which is kept."""
    along = block.rows @ prior.directions
    return np.asarray(prior.level * gram + along @ along.transpose(0, 2, 1))


def _weighed(block: Block, spread: Floats, seen: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the grid of r, the weight of each point, and the log evidence of all and of a fraction."""
    unit = spread.sum(axis=1) / np.maximum(block.sizes, 1)
    ratios = _RATIOS[None, :] / np.where(unit > _TINY, unit, 1.0)[:, None]
    weights, evidence = normalised(_fit(block, spread, seen, ratios, 1.0))
    _, early = normalised(_fit(block, spread, seen, ratios, EARLY))
    return ratios, weights, evidence, early


def _fit(block: Block, spread: Floats, seen: Floats, ratios: Floats, part: float) -> Floats:
    """Return the log evidence of every r times its prior, for a fraction of the rows' information."""
    inflated = 1 + part * ratios[:, :, None] * spread[:, None, :]
    left = part * ((np.square(seen)[:, None, :] / inflated).sum(axis=2) + block.rest[:, None])
    fit = -0.5 * np.log(inflated).sum(axis=2) - 0.5 * part * block.sizes[:, None] * np.log(np.maximum(left, _TINY))
    return np.asarray(fit + _prior(_RATIOS))


def _prior(ratios: Floats) -> Floats:
    """Return the log density of the explained fraction h, Beta(1, ½), on a grid even in log r: log h(1 - h)^½."""
    return np.asarray(np.log(ratios) - 1.5 * np.log1p(ratios))[None, :]


def normalised(logs: Floats) -> tuple[Floats, Floats]:
    """Return weights proportional to exp(logs), and the log of their sum, along the second axis."""
    top = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - top)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total, (top + np.log(total))[:, 0]


def _laplace(rows: Floats, block: Block, ratio: Floats, start: Floats | None) -> tuple[Floats, Floats]:
    """Return mode and log evidence of logistic labels under N(0, r I), by Newton steps, halved if they overshoot."""
    signs = block.labels * block.present
    mode = np.zeros((len(rows), rows.shape[2])) if start is None else start
    value = _energy(rows, block, signs, mode, ratio)
    for _ in range(_NEWTON_STEPS):
        odds = fixed_logistic(-signs * _times(rows, mode))
        slope = -_times(rows.transpose(0, 2, 1), signs * odds) + mode / ratio[:, None]
        step = np.linalg.solve(_hessian(rows, odds, block, ratio), slope[:, :, None])[:, :, 0]
        length = np.ones(len(rows))
        for _ in range(_HALVINGS):
            tried = _energy(rows, block, signs, mode - length[:, None] * step, ratio)
            length = np.where(tried > value, length / 2, length)
        moved = mode - length[:, None] * step
        tried = _energy(rows, block, signs, moved, ratio)
        better = tried <= value
        mode, value = np.where(better[:, None], moved, mode), np.where(better, tried, value)
    odds = fixed_logistic(-signs * _times(rows, mode))
    _, logdet = np.linalg.slogdet(_hessian(rows, odds, block, ratio) * ratio[:, None, None])
    return mode, -value - 0.5 * logdet


def _energy(rows: Floats, block: Block, signs: Floats, models: Floats, ratio: Floats) -> Floats:
    losses = np.logaddexp(0.0, -signs * _times(rows, models)) * block.present
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


def _empty(n_tasks: int, dimension: int) -> Learned:
    return Learned(np.zeros((n_tasks, dimension)), np.zeros(n_tasks), np.zeros(n_tasks), np.ones(n_tasks))


def _store(result: Learned, block: Block, mean: Floats, evidence: Floats, early: Floats, ratio: Floats) -> None:
    result.mean[block.tasks] = np.nan_to_num(mean * block.units[:, None])
    result.evidence[block.tasks] = np.nan_to_num(evidence)
    result.early[block.tasks] = np.nan_to_num(early)
    result.ratio[block.tasks] = ratio

"""A party's own model with a few features that may stand out. Everything is local; many parties are solved at once.

Model: y = X (b + s) + noise of variance v, b ~ N(0, r v I), and each entry of s is 0 or, with probability π, from
N(0, g v). So a few features may matter a lot while many matter little. With K = X Xᵀ = U diag(λ) Uᵀ the dense part b is
integrated out exactly, which leaves a sparse model of diag(1 + rλ)^(-½) Uᵀ y. Its posterior is approximated by one with
independent entries (coordinate ascent from 0, with the best v after every sweep), and the evidence by the bound that
this ascent maximises. The bound is never too high, so a party adopts this model only if its rows support it. A few
pairs of r and g are tried and averaged by their bounds.

If there are many features, only those correlated with the labels may stand out. The other entries of s are 0, which
only lowers the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.parties.tasks import Block

Floats = NDArray[np.float64]

EARLY = 0.5
"""The fraction of the rows' information after which a prior is judged by how well it predicts the rest."""

_DENSE = np.array([0.3, 3.0])  # r t, with t = tr(X Xᵀ)/n: variance explained by all features over variance left
_SPARSE = np.array([2.0, 10.0, 50.0])  # π g t: the same for features that stand out
_SHARE, _COUNT = 0.25, 8.0  # π: expected number of features that stand out, and at most this share of all
_TRIED = 32  # number of features per party that may stand out: those most correlated with its labels
_SWEEPS = 12
_LEAST_VARIANCE = 1e-12  # least noise, relative to the labels' squares
_FAR = 500.0  # log odds beyond this count as certain
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class _Cases:
    """Sparse problems: every party with every r in turn. Cases are the last axis.

    Attributes:
        gram: products of the features that are tried, [tried, tried, cases].
        pull: their products with the labels, [tried, cases].
        squares: sums of squares of the labels.
        sizes: numbers of rows.
        unit: t of each case.
        dimension: number of features, tried or not.
        constant: the constant in the bound for the dense part that was integrated out.
    """

    gram: Floats
    pull: Floats
    squares: Floats
    sizes: Floats
    unit: Floats
    dimension: int
    constant: Floats


@dataclass(frozen=True, eq=False)
class _Turned:
    """Parties' rows in the coordinates of U.

    Attributes:
        rows: Uᵀ X, [tasks, places, features].
        labels: Uᵀ y.
        spread: λ.
        ratios: r, [tasks, tried].
        unit: t.
    """

    rows: Floats
    labels: Floats
    spread: Floats
    ratios: Floats
    unit: Floats


def few_features(block: Block, gram: Floats) -> tuple[Floats, Floats, Floats]:
    """Return each party's posterior mean, in the units of its block's rows, and bounds on its log evidence.

    The first bound is for all of the rows' information, the second for the fraction `EARLY` of it (a power of the
    likelihood). Both agree with `posterior` up to the same constants of the party.

    Args:
        block: the parties' rows.
        gram: X Xᵀ of each party.
    """
    spread, turn = np.linalg.eigh(gram)
    spread, turned = np.maximum(spread, 0.0), turn.transpose(0, 2, 1)
    unit = spread.sum(axis=1) / np.maximum(block.sizes, 1.0)
    unit = np.where(unit > _TINY, unit, 1.0)
    rows = _Turned(turned @ block.rows, _times(turned, block.labels), spread, _DENSE / unit[:, None], unit)
    mean, evidence = _learned(block, rows, 1.0)
    _, early = _learned(block, rows, EARLY)
    return mean, evidence, early


def _learned(block: Block, turned: _Turned, part: float) -> tuple[Floats, Floats]:
    """Return posterior mean and bound for a fraction of the rows' information."""
    inflated = 1 + part * turned.ratios[:, :, None] * turned.spread[:, None, :]
    scale = np.sqrt(part / inflated)
    whitened, labels = turned.rows[:, None] * scale[..., None], turned.labels[:, None, :] * scale
    tried = _tried(whitened, labels)
    columns = whitened if tried is None else np.take_along_axis(whitened, tried[:, :, None, :], axis=3)
    result, bound = _ascended(_cases(block, columns, labels, inflated, turned.unit, part))
    sparse = _spread_out(result, tried, whitened.shape)  # [tasks, r, g, features]
    left = labels[..., None] - whitened @ sparse.transpose(0, 1, 3, 2)
    pulled = (whitened.transpose(0, 1, 3, 2) @ left).transpose(0, 1, 3, 2)
    n_tasks, n_pairs = len(whitened), len(_DENSE) * len(_SPARSE)
    means = (sparse + turned.ratios[:, :, None, None] * pulled).reshape(n_tasks, n_pairs, -1)
    weights, evidence = _weighed(bound.reshape(n_tasks, n_pairs))
    return _times(means.transpose(0, 2, 1), weights), evidence


def _tried(whitened: Floats, labels: Floats) -> NDArray[np.int64] | None:
    """Return which features may stand out in each case, in order; None for all."""
    if whitened.shape[3] <= _TRIED:
        return None
    pull = (labels[:, :, None, :] @ whitened)[:, :, 0, :]
    strength = np.square(pull) / np.maximum(np.square(whitened).sum(axis=2), _TINY)
    return np.sort(np.argsort(-strength, axis=2, kind="stable")[:, :, :_TRIED], axis=2)


def _cases(block: Block, columns: Floats, labels: Floats, inflated: Floats, unit: Floats, part: float) -> _Cases:
    tried, n_cases = columns.shape[3], columns.shape[0] * columns.shape[1]
    turned = columns.transpose(0, 1, 3, 2)
    gram = (turned @ columns).reshape(n_cases, tried, tried)
    pull = (turned @ labels[..., None]).reshape(n_cases, tried)
    return _Cases(
        gram=np.ascontiguousarray(gram.transpose(1, 2, 0)),
        pull=np.ascontiguousarray(pull.T),
        squares=(np.square(labels).sum(axis=2) + part * block.rest[:, None]).reshape(n_cases),
        sizes=part * np.repeat(block.sizes, len(_DENSE)),
        unit=np.repeat(unit, len(_DENSE)),
        dimension=block.rows.shape[2],
        constant=-0.5 * np.log(inflated).sum(axis=2).reshape(n_cases),
    )


def _ascended(cases: _Cases) -> tuple[Floats, Floats]:
    """Return means of the sparse part, [tried, cases, g], and the bound of each case and g, [cases, g]."""
    share = min(_SHARE, _COUNT / cases.dimension)
    slab = _SPARSE / (share * cases.unit[:, None])  # g
    diagonal = np.einsum("kkc->kc", cases.gram)[:, :, None]
    precision = diagonal + 1 / slab  # over v
    narrowing = 0.5 * np.log(precision * slab)
    offset = np.log(share / (1 - share)) - narrowing
    shape = precision.shape
    means, fitted, chance, seconds = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    squares, sizes = cases.squares[:, None], cases.sizes[:, None]
    rows = np.maximum(sizes, EARLY)
    variance = before = np.broadcast_to(squares / rows + _TINY, shape[1:])
    least = _LEAST_VARIANCE * variance
    for _ in range(_SWEEPS):
        before = variance
        for k in range(len(means)):
            free = cases.pull[k][:, None] - fitted[k] + diagonal[k] * means[k]
            mode = free / precision[k]
            odds = offset[k] + 0.5 * free * mode / variance
            chance[k] = 1 / (1 + np.exp(-np.clip(odds, -_FAR, _FAR)))
            moved = chance[k] * mode
            fitted += cases.gram[k][:, :, None] * (moved - means[k])
            means[k], seconds[k] = moved, chance[k] * (np.square(mode) + variance / precision[k])
        loss = np.maximum(squares - 2 * (means * cases.pull[:, :, None]).sum(axis=0) + (means * fitted).sum(axis=0), 0)
        loss = loss + ((seconds - np.square(means)) * diagonal).sum(axis=0) + seconds.sum(axis=0) / slab
        variance = np.maximum(loss / (rows + chance.sum(axis=0)), least)
    apart = _apart(chance, share) + (len(means) - cases.dimension) * np.log1p(
        -share
    )  # entries of features that are not tried are 0
    narrowed = (chance * (0.5 * np.log(before / variance) - narrowing)).sum(axis=0)
    return means, -0.5 * sizes * np.log(rows * variance) - apart + narrowed + cases.constant[:, None]


def _apart(chance: Floats, share: float) -> Floats:
    """Return the Kullback-Leibler divergence of the posterior probabilities of standing out from the prior."""
    inside = chance * np.log(np.maximum(chance, _TINY) / share)
    outside = (1 - chance) * np.log(np.maximum(1 - chance, _TINY) / (1 - share))
    return np.asarray((inside + outside).sum(axis=0))


def _spread_out(result: Floats, tried: NDArray[np.int64] | None, shape: tuple[int, ...]) -> Floats:
    """Return means [tried, cases, g] as [tasks, r, g, features]."""
    n_tasks, n_dense, _, dimension = shape
    means = np.ascontiguousarray(result.transpose(1, 2, 0)).reshape(n_tasks, n_dense, len(_SPARSE), -1)
    if tried is None:
        return means
    whole = np.zeros((n_tasks, n_dense, len(_SPARSE), dimension))
    np.put_along_axis(whole, np.broadcast_to(tried[:, :, None, :], means.shape), means, axis=3)
    return whole


def _weighed(bounds: Floats) -> tuple[Floats, Floats]:
    """Return the weights of the pairs, which are equally likely a priori, and the evidence of all pairs together."""
    top = bounds.max(axis=1, keepdims=True)
    weights = np.exp(bounds - top)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total, (top + np.log(total / bounds.shape[1]))[:, 0]


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """Return A v for every task, one product per task, so that no task depends on the others."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])

"""The user's half of a round on ratings: a local regression, then what the user contributes.

Everything here is computed from one user's own rows and from released values. User j solves for (b, s, q): own bias,
own factor on item biases, own taste; then contributes w_ij e_ij (1 or s, q) for each task i it rated, e the residual.
The (s, q) that meets the residual of task i is the solution *without* that task: otherwise the label is on both sides
of the regression that the items solve later, which biases it (the effect grows with the dimension).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.engines.protocol import UserChunk
from apportion.privacy.bounded_sum import symmetric_scales
from apportion.recommend.model import FoldIn

Floats = NDArray[np.floating[Any]]

_MOST_LEVERAGE = 0.95
_LARGEST = 1e50  # of a user's own numbers, so that all their products are finite; they are clipped later
_WEIGHT_OF_A_FULL_VOTE = 10.0


@dataclass(frozen=True)
class Round:
    """What a user needs to know to take part in a round; all of it released or public.

    Attributes:
        fold_in: the local regression; features are (1, item bias, item vector).
        centre: the released mean, in the units of the values.
        unit: values per unit of label.
        value_range: public range of the values.
        scales: relative size of the coordinates of a contribution.
        clip_norm: norm to which a user's whole contribution is clipped.
        starting: whether item vectors are unknown still. Then residuals are taken around biases alone, the factor s
            is 1, and tastes, which come from stand-in vectors, are scaled to a public length.
        start_norm: that length.
    """

    fold_in: FoldIn
    centre: float
    unit: float
    value_range: tuple[float, float]
    scales: Floats
    clip_norm: float
    starting: bool
    start_norm: float

    @property
    def width(self) -> int:
        """Number of coordinates that a task's parameter has in this round."""
        return len(self.scales)

    @property
    def summary_width(self) -> int:
        """Number of coordinates of a user's summary."""
        latent = self.width - 1
        return 4 + latent * (latent + 1) // 2


def contribute(chunk: UserChunk, about: Round) -> tuple[Floats, Floats]:
    """Return each observation's row for its task, and each user's row for the shared moments."""
    labels = (np.clip(chunk.values, *about.value_range) - about.centre) / about.unit
    solved, residuals = _leave_one_out(chunk, about.fold_in, labels)
    tastes = solved[:, 1:]
    if about.starting:
        tastes[:, 0] = 1.0
        lengths = np.sqrt(np.square(tastes[:, 1:]).sum(axis=1, keepdims=True))
        tastes[:, 1:] *= about.start_norm / np.maximum(lengths, 1e-12)
        residuals = labels - solved[:, 0] - about.fold_in.features[chunk.tasks, 1]
    rows = (np.asarray(chunk.weights, np.float64) * residuals)[:, None] * (tastes * about.scales)
    return rows, _summary(chunk, rows, tastes, residuals, about.clip_norm)


def _leave_one_out(chunk: UserChunk, fold_in: FoldIn, labels: Floats) -> tuple[Floats, Floats]:
    """Each observation's user solution without that observation, and its residual there.

    Removing a row from a ridge regression moves the solution by −P⁻¹ f c e / (1 − h), where e is the residual and
    h = c fᵀ P⁻¹ f the leverage (Sherman-Morrison).
    """
    features = fold_in.features[chunk.tasks]
    trust = fold_in.observation_weights[chunk.tasks]
    inverse, solved = _solve(chunk, fold_in, labels)
    own = solved[chunk.owner]
    residuals = labels - np.einsum("nd,nd->n", features, own)
    directions = np.einsum("nij,nj->ni", inverse[chunk.owner], features)
    leverage = np.minimum(trust * np.einsum("nd,nd->n", features, directions), _MOST_LEVERAGE)
    own -= directions * (trust * residuals / (1 - leverage))[:, None]
    np.clip(own, -_LARGEST, _LARGEST, out=own)
    residuals = labels - np.einsum("nd,nd->n", features, own)
    return own, np.clip(residuals, -_LARGEST, _LARGEST)


def _solve(chunk: UserChunk, fold_in: FoldIn, labels: Floats) -> tuple[Floats, Floats]:
    """Inverse matrices and solutions of the users' regressions; zero for a user whose regression has none."""
    trust = fold_in.observation_weights[chunk.tasks]
    grams = linalg.unpack(linalg.segment_gram(chunk.indptr, chunk.tasks, fold_in.features, weights=trust))
    moments = linalg.segment_moment(chunk.indptr, chunk.tasks, fold_in.features, coefficients=trust * labels)
    inverse = linalg.inverse_or_zero(grams + fold_in.base)
    return inverse, np.einsum("nij,nj->ni", inverse, moments + fold_in.base_rhs)


def _summary(chunk: UserChunk, rows: Floats, tastes: Floats, residuals: Floats, clip_norm: float) -> Floats:
    """One user's vote on the moments that all tasks share: (1, s², e², clipped e², q qᵀ), each a weighted mean.

    A user of little weight has little say; the vote counts in full from a total weight of 10.
    """
    n_users = len(chunk.indptr) - 1
    weights = np.asarray(chunk.weights, np.float64)

    def total(values: Floats) -> NDArray[np.float64]:
        return np.bincount(chunk.owner, values, minlength=n_users).astype(np.float64, copy=False)

    weight = np.maximum(total(weights), 1e-9)
    say = np.minimum(1.0, weight / _WEIGHT_OF_A_FULL_VOTE)
    kept = np.minimum(1.0, clip_norm / np.maximum(np.sqrt(total(np.square(rows).sum(axis=1))), 1e-12))
    latent = tastes[:, 1:]
    columns = [say, say * kept * total(weights * np.square(tastes[:, 0])) / weight]
    squared_residuals = say * total(np.square(weights * residuals))
    columns += [squared_residuals, np.square(kept) * squared_residuals]
    if not latent.shape[1]:
        return np.stack(columns, axis=1)
    everyone = np.arange(len(latent), dtype=np.int32)
    second = linalg.segment_gram(chunk.indptr, everyone, np.ascontiguousarray(latent), weights=weights)
    second *= (say * kept / weight / latent.shape[1])[:, None] / symmetric_scales(second.shape[1])
    return np.concatenate([np.stack(columns, axis=1), second], axis=1)

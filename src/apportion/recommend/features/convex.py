"""SSP-convex: an encoder trained on protected quadratic approximations of a convex loss, such as the logistic one.

Around the items' vectors v⁰ of the last round, the loss of item i is about g · (v − v⁰) + ½ (v − v⁰)ᵀ H (v − v⁰) with

    g_i = Σ_j w_ij ℓ'(s_ij, y_ij) u_j,        H_i = Σ_j w_ij ℓ''(s_ij, y_ij) u_j u_jᵀ,        s_ij = b_j + u_j · v⁰_i.

Both are released every round, since they depend on v⁰, and the encoder is trained on the quadratic. Users solve their
own regressions by Newton's method, alone. For the logistic loss the sampling noise of g has covariance w̄ H, so the
noise-aware quadratic needs no residual variance of its own.

Krichene et al., "Private Learning with Public Features" (2024), Algorithm 7; the paper did not run it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Expected, Weights
from apportion.data import Interactions
from apportion.engines import Engine, LocalEngine
from apportion.errors import InputError
from apportion.privacy import BoundedSum, Labels, Session
from apportion.recommend.features.minimisation import EncoderMinimisation, _EncoderFit
from apportion.recommend.features.ssp import EncoderStatistics
from apportion.recommend.features.statistics import Released, Surrogate, noise_aware_surrogate, released_sum
from apportion.recommend.features.training import EncoderTrainer
from apportion.recommend.model import FoldIn
from apportion.recommend.updates import Round, Shares

Floats = NDArray[np.float64]
_LEAST_CURVATURE = 1e-3  # of one observation in a user's Newton step
_LARGEST_SCORE = 8.0


class SmoothLoss(Protocol):
    """A convex loss of score and label, one observation at a time, with two bounded derivatives in the score."""

    @property
    def steepest(self) -> float:
        """A bound on the absolute first derivative; larger ones are clipped to it."""

    @property
    def most_curved(self) -> float:
        """A bound on the second derivative; larger ones are clipped to it."""

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """The loss."""

    def slope(self, scores: Floats, labels: Floats) -> Floats:
        """Its first derivative in the score."""

    def curvature(self, scores: Floats, labels: Floats) -> Floats:
        """Its second derivative in the score."""


@dataclass(frozen=True)
class LogisticLoss:
    """log(1 + exp(−y s)): a label above 0 means yes, any other no.

    Attributes:
        steepest: slopes beyond this are clipped; 1 clips none.
    """

    steepest: float = 1.0
    most_curved: float = 0.25

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """log(1 + exp(−y s)), without overflow."""
        return np.logaddexp(0.0, -np.where(labels > 0, scores, -scores))

    def slope(self, scores: Floats, labels: Floats) -> Floats:
        """The probability of yes, less 1 where the answer is yes."""
        return probability(scores) - (labels > 0)

    def curvature(self, scores: Floats, labels: Floats) -> Floats:
        """The probability of yes times that of no."""
        likely = probability(scores)
        return np.asarray(likely * (1 - likely))


@dataclass(frozen=True)
class PseudoHuberLoss:
    """h² (√(1 + ((s − y)/h)²) − 1): squared error near the label, linear far from it.

    Attributes:
        threshold: h.
    """

    threshold: float = 1.0

    @property
    def steepest(self) -> float:
        """h, far from the label."""
        return self.threshold

    @property
    def most_curved(self) -> float:
        """1, at the label."""
        return 1.0

    def value(self, scores: Floats, labels: Floats) -> Floats:
        """The loss."""
        return np.asarray(self.threshold**2 * (self._root(scores, labels) - 1))

    def slope(self, scores: Floats, labels: Floats) -> Floats:
        """(s − y)/√(1 + ((s − y)/h)²)."""
        return np.asarray((scores - labels) / self._root(scores, labels))

    def curvature(self, scores: Floats, labels: Floats) -> Floats:
        """(1 + ((s − y)/h)²)^(−3/2)."""
        return np.asarray(self._root(scores, labels) ** -3)

    def _root(self, scores: Floats, labels: Floats) -> Floats:
        return np.asarray(np.sqrt(1 + np.square((scores - labels) / self.threshold)))


def probability(scores: Floats) -> Floats:
    """1 / (1 + exp(−s)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -np.asarray(scores, np.float64))))


@dataclass(frozen=True, repr=False)
class ConvexRound(Round):
    """A round whose labels are not residuals: users' own biases stand beside them.

    Attributes:
        offsets: what is added to u_j · v_i in every observation, from its user's own data; private.
    """

    offsets: Floats

    def scores(self, items: Floats) -> Floats:
        """b_j + u_j · v_i for every observation; private."""
        return np.asarray(self.offsets + self.labels - self.residuals(items))


@dataclass(frozen=True, eq=False)
class EncoderConvex(EncoderStatistics):
    """Algorithm 7: released slopes and curvatures of a convex loss, one approximation a round.

    Attributes:
        loss: the loss; `LogisticLoss` or another that has two bounded derivatives.
    """

    loss: SmoothLoss = LogisticLoss()
    residual_variance: float = 1.0

    def __call__(self, about: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Release slopes and curvatures at the current items, then train on the quadratic around them."""
        if not isinstance(about, ConvexRound):
            raise InputError("Expected a round of a ConvexMinimisation; use this update there.")
        if self.resamples != 1:
            raise InputError(f"Expected one release of the statistics a round, got {self.resamples} resamples.")
        released = self._released(about, session, engine, shares)
        square = float(np.square(about.items).mean())
        around = noise_aware_surrogate(released, about.expected, self.residual_variance, square)
        slope = around.slope + np.einsum("mij,mj->mi", around.curvature, about.items)
        surrogate = self._remembered(self._of_head(Surrogate(around.curvature, slope), about), last=True)
        trainer = EncoderTrainer(
            self.encoder, self.known_rows, replace(self.training, seed=self.training.seed + about.number)
        )
        precision = np.full(about.items.shape[1], 1 / self.departure)
        return self._train(trainer, surrogate, self.training.steps(len(self.known_rows)), precision)[0]

    def _released(self, about: ConvexRound, session: Session, engine: Engine, shares: Shares) -> Released:
        scores, rows, labels = about.scores(about.items), about.rows, np.asarray(about.labels, np.float64)
        bends = np.clip(self.loss.curvature(scores, labels) / self.loss.most_curved, 0.0, 1.0)
        slopes = Labels.clipped(np.nan_to_num(-self.loss.slope(scores, labels)), self.loss.steepest)

        def matrices(weights: Weights) -> BoundedSum:
            return engine.grams(about.data, weights.times(bends, 1.0), rows)

        def vectors(weights: Weights) -> BoundedSum:
            return engine.moments(about.data, weights, rows, slopes)

        name, factor = f"round {about.number}", self.loss.most_curved
        bent, bent_stddev = released_sum(
            about, session, f"{name}: item curvatures", matrices, shares["step 1: matrices"]
        )
        sloped, slope_stddev = released_sum(about, session, f"{name}: item slopes", vectors, shares["step 1: vectors"])
        return Released(factor * bent, factor * bent_stddev, sloped, slope_stddev)


class ConvexMinimisation(EncoderMinimisation):
    """Alternating minimisation of a convex loss; its arguments are those of `EncoderMinimisation`, for values.

    `update` must be an `EncoderConvex`, whose loss is the users' too. `scores` predicts.
    """

    @property
    def _making(self) -> type[_EncoderFit]:
        return _ConvexFit

    def _check(self, data: Interactions) -> None:
        super()._check(data)
        if self.kind != "ratings" or not isinstance(self.update, EncoderConvex):
            raise InputError("Expected values and an EncoderConvex as update for a ConvexMinimisation.")

    def scores(self, history: Interactions, pairs: Interactions) -> Floats:
        """Scores of pairs of users and tasks; every user's regression is solved from that user's own history."""
        assert isinstance(self.update, EncoderConvex)
        fold_in = self.model_.fold_in
        labels = np.clip(history.values, *self.value_range).astype(np.float64)
        solved = newton(fold_in, LocalEngine(np.float64), history, labels, self.update.loss)
        features = fold_in.features[pairs.tasks].astype(np.float64)
        return np.asarray(np.einsum("nd,nd->n", solved[pairs.users], features))


class _ConvexFit(_EncoderFit):
    """One fit: users solve for a bias and a taste under the convex loss."""

    def _overview(self, share: Any) -> tuple[float, float]:
        """Labels of a convex loss are not centred."""
        return super()._overview(share)[0], 0.0

    def _round(self, k: int, weights: Weights, expected: Expected, items: Floats) -> Round:
        if k == 0:
            items = self._first(items)
        chosen = self._biased
        labels = np.clip(self._data.values, *chosen.value_range).astype(np.float64)
        assert isinstance(self._update, EncoderConvex)
        own = newton(self._fold_in(items), self._engine, self._data, labels, self._update.loss)
        tastes = own[:, 2:]
        tastes *= chosen.user_norm / np.maximum(np.linalg.norm(tastes, axis=1, keepdims=True), chosen.user_norm)
        return ConvexRound(
            data=self._data,
            weights=weights,
            expected=expected,
            vectors=np.concatenate([np.full((len(own), 1), chosen.bias_scale), tastes], axis=1),
            norm=float(np.hypot(chosen.bias_scale, chosen.user_norm)),
            labels=labels,
            items=items,
            unobserved=0.0,
            number=k + 1,
            offsets=own[self._data.users, 0],
        )


def newton(
    fold_in: FoldIn, engine: Engine, history: Interactions, labels: Floats, loss: SmoothLoss, steps: int = 5
) -> Floats:
    """Every user's own penalised regression under the loss, by Newton's method from the prior; private to the user."""
    features = fold_in.features
    prior = np.linalg.solve(fold_in.base.astype(np.float64), fold_in.base_rhs.astype(np.float64))
    solved = np.tile(prior, (history.n_users, 1))
    for _ in range(steps):
        scores = np.einsum("nd,nd->n", solved[history.users], features[history.tasks])
        scores = np.clip(scores, -_LARGEST_SCORE, _LARGEST_SCORE)
        bends = np.maximum(loss.curvature(scores, labels), _LEAST_CURVATURE * loss.most_curved)
        targets = scores - loss.slope(scores, labels) / bends
        found = engine.solve_users(history, features, targets, fold_in.base, fold_in.base_rhs, bends)
        solved = np.asarray(found.cpu() if hasattr(found, "cpu") else found, np.float64)
    return solved

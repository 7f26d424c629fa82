"""SSP-convex: an encoder trained on protected quadratic approximations of a convex loss, such as the logistic one.

Around the items' vectors v⁰ of the last round, the loss of item i is about g · (v − v⁰) + ½ (v − v⁰)ᵀ H (v − v⁰) with

    g_i = Σ_j w_ij ℓ'(s_ij, y_ij) u_j,        H_i = Σ_j w_ij ℓ''(s_ij, y_ij) u_j u_jᵀ,        s_ij = b_j + u_j · v⁰_i.

Both are released every round, since they depend on v⁰, and the encoder is trained on the quadratic. Users solve their
own regressions by Newton's method, alone. For the logistic loss the sampling noise of g has covariance w̄ H, so the
noise-aware quadratic needs no residual variance of its own.

Krichene et al., "Private Learning with Public Features" (2024), Algorithm 7; the paper did not run it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Expected
from apportion.allocation.weightings import TimesFactors
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.linalg.fixed_order import dot_rows
from apportion.losses import ConvexLoss, Logistic
from apportion.privacy import Labels, Purpose, Session, Statement
from apportion.privacy.contributions import Kernels, TaskGrams, TaskMoments, Weighting
from apportion.published.public_features.convex_model import ConvexModel
from apportion.published.public_features.head import of_head, on_head
from apportion.published.public_features.minimisation import EncoderMinimisation, _EncoderFit
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.statistics import (
    Released,
    Surrogate,
    noise_aware_surrogate,
    plain_surrogate,
    released_sum,
)
from apportion.published.public_features.training import EncoderTrainer
from apportion.published.public_features.user_regressions import largest_curvature, newton
from apportion.published.public_features.user_side import BiasedVectors, FoldedIn
from apportion.published.skew.updates import OwnLabels, Round, Shares

Floats = NDArray[np.float64]
_LOGISTIC = Logistic()


@dataclass(frozen=True, eq=False)
class Scores:
    """b_j + u_j · v_i of every row: the user's own bias and vector, and released items; private."""

    rows: BiasedVectors
    items: Floats
    kernels: Kernels

    def of(self, users: Users) -> Floats:
        """Return the scores of these users' rows."""
        biases = self.rows.own(users, self.kernels)[:, 0]
        vectors = self.rows.vectors(users, self.kernels)
        return np.asarray(biases[users.owner] + dot_rows(vectors[users.owner], self.items[users.column("tasks")]))


@dataclass(frozen=True, eq=False)
class Bends:
    """Curvatures of the loss at the scores, relative to the largest."""

    loss: ConvexLoss
    scores: Scores
    labels: OwnLabels

    def __call__(self, users: Users) -> Floats:
        """Return the curvatures of these users' rows."""
        labels = np.asarray(self.labels.of(users), np.float64)
        return np.clip(
            self.loss.second_derivative(self.scores.of(users), labels) / largest_curvature(self.loss), 0.0, 1.0
        )


@dataclass(frozen=True, eq=False)
class DownSlopes:
    """Negative slopes of the loss at the scores, clipped to the steepest."""

    loss: ConvexLoss
    scores: Scores
    labels: OwnLabels

    @property
    def bound(self) -> float:
        """The steepest slope."""
        return self.loss.steepest(math.inf)

    def __call__(self, users: Users, kernels: Kernels) -> Labels:
        """Return the slopes of these users' rows, sealed with their bound."""
        slopes = -self.loss.derivative(self.scores.of(users), np.asarray(self.labels.of(users), np.float64))
        return Labels.clipped(np.nan_to_num(slopes), self.bound)


@dataclass(frozen=True, eq=False)
class FoldedInByNewton(FoldedIn):
    """Each user's own regression under a convex loss, solved by Newton's method."""

    loss: ConvexLoss

    def __call__(self, users: Users, kernels: Kernels) -> Floats:
        """Return the solutions of these users; private."""
        return newton(self.fold_in, kernels, users, np.asarray(self.labels.of(users), np.float64), self.loss)


@dataclass(frozen=True, repr=False)
class ConvexRound(Round):
    """A round whose labels are not residuals; users' own biases are kept separately."""


@dataclass(frozen=True, eq=False)
class EncoderConvex(EncoderStatistics):
    """Algorithm 7: released slopes and curvatures of a convex loss, one approximation per round.

    Attributes:
        loss: `Logistic()`, `PseudoHuber()` or another loss that has two bounded derivatives.
    """

    loss: ConvexLoss = _LOGISTIC
    residual_variance: float = 1.0

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Release slopes and curvatures at the current items, then train on the quadratic around them."""
        if not isinstance(this_round, ConvexRound):
            raise InputError("This update needs a round of a ConvexMinimisation; use it there.", argument=None)
        headed, kept = on_head(this_round, self.head)
        assert isinstance(headed, ConvexRound)
        released = self._released(headed, session, engine, shares).of(kept)
        around = self._around(released, of_head(headed.expected, kept), this_round.items[kept])
        surrogate = self._remembered(around.spread(kept), last=True)
        trainer = EncoderTrainer(
            self.encoder, self.known_rows, replace(self.training, seed=self.training.seed + this_round.number)
        )
        precision = np.full(this_round.items.shape[1], 1 / self.departure)
        return self._train(trainer, surrogate, self.training.steps(len(self.known_rows)), precision)[0]

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return the shares: curvatures and slopes of all items, once per round."""
        if self.resamples != 1:
            raise InputError(
                f"Expected one release of the statistics per round, got {self.resamples} resamples.",
                argument="resamples",
            )
        return super().shares(clicks=clicks)

    def _around(self, released: Released, expected: Expected, items: Floats) -> Surrogate:
        """Return the released quadratic in v − v⁰ as a quadratic in v; a ridge, if any, is towards 0."""
        ridge = 0.0 if self.noise_aware else self.ridge * released.matrix_stddev
        if self.noise_aware:
            square = float(np.square(items).mean())
            around = noise_aware_surrogate(released, expected, self.residual_variance, square)
        else:
            around = plain_surrogate(released, 0.0)
        slope = around.slope + np.einsum("mij,mj->mi", around.curvature, items)
        return Surrogate(around.curvature + ridge * np.eye(slope.shape[1]), slope)

    def _released(self, this_round: ConvexRound, session: Session, engine: Engine, shares: Shares) -> Released:
        assert isinstance(this_round.rows, BiasedVectors)
        at = self.loss, Scores(this_round.rows, this_round.items, this_round.kernels), this_round.labels
        bends, slopes = Bends(*at), DownSlopes(*at)

        def matrices(weights: Weighting) -> TaskGrams:
            return TaskGrams(TimesFactors(weights, bends, 1.0), this_round.rows)

        def vectors(weights: Weighting) -> TaskMoments:
            return TaskMoments(weights, this_round.rows, slopes)

        draw = partial(released_sum, this_round, session, engine)
        factor, number = largest_curvature(self.loss), this_round.number
        bent, bent_stddev = draw(Purpose.ITEM_CURVATURES.at(round=number), matrices, shares["step 1: matrices"])
        sloped, slope_stddev = draw(Purpose.ITEM_SLOPES.at(round=number), vectors, shares["step 1: vectors"])
        return Released(factor * bent, factor * bent_stddev, sloped, slope_stddev)


class ConvexMinimisation(EncoderMinimisation):
    """Alternating minimisation of a convex loss; arguments are those of `EncoderMinimisation`, for values.

    `update` must be an `EncoderConvex`; users minimise its loss too. `model_` is a `ConvexModel`; `scores` predicts.
    """

    @property
    def _making(self) -> type[_EncoderFit]:
        return _ConvexFit

    def _check(self, data: Interactions) -> None:
        super()._check(data)
        if self.kind != "ratings" or not isinstance(self.update, EncoderConvex):
            raise InputError("ConvexMinimisation needs values and an EncoderConvex as update.", argument="update")

    def scores(self, history: Interactions, pairs: Interactions) -> Floats:
        """Return scores of pairs of users and tasks, from each user's own history."""
        model: ConvexModel = self.model_  # type: ignore[assignment]
        return model.predict(history, pairs)


class _ConvexFit(_EncoderFit):
    """One fit: users solve for a bias and a taste under the convex loss."""

    def _overview(self, share: Any) -> tuple[float, float]:
        """Centre labels only if the loss depends on residuals; otherwise 0 has a meaning."""
        n_users, centre = super()._overview(share)
        return n_users, centre if getattr(self._loss, "of_residuals", False) else 0.0

    @property
    def _loss(self) -> ConvexLoss:
        assert isinstance(self._update, EncoderConvex)
        return self._update.loss

    def _round(self, k: int, weights: Weighting, expected: Expected, items: Floats) -> Round:
        if k == 0:
            items = self._first(items)
        labels = self._labels()
        solve = FoldedInByNewton(self._fold_in(items), labels, self._loss)
        return ConvexRound(
            users=self._users,
            weights=weights,
            expected=expected,
            rows=BiasedVectors(solve, 2, *self._bounds),
            labels=labels,
            items=items,
            unobserved=0.0,
            number=k + 1,
            kernels=self._engine.kernels,
        )

    def model(self, items: Floats, statement: Statement) -> ConvexModel:  # type: ignore[override]
        """Return the public model, with the loss that users minimise."""
        made = super().model(items, statement)
        shared = ("fold_in", "vectors", "popularity", "reliability", "task_ids", "offset", "value_range", "settings")
        given = {name: getattr(made, name) for name in (*shared, "feature_map", "no_map")}
        return ConvexModel(loss=self._loss, statement=statement, **given)

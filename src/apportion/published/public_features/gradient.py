"""The item update by DP-SGD on an encoder: each user's own gradient is clipped, added and noised.

A gradient has as many numbers as the encoder has parameters. Noise is added to each of them, whether or not a feature
occurs, which protected statistics avoid. Users are Poisson-sampled, and the sampling is accounted; a batch of examples
would not amplify privacy for users.

Krichene et al., "Private Learning with Public Features" (2024), Algorithm 6, with the clip per user.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from apportion.allocation.weightings import TimesFactors
from apportion.data.sparse_rows import SparseRows
from apportion.data.users import Users
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.privacy import Purpose, Session
from apportion.privacy.contributions import ClippedParts, Output, TaskMoments, Weighting
from apportion.published.public_features.encoders import FeatureBatch
from apportion.published.public_features.head import check_head, on_head
from apportion.published.public_features.ssp import EncoderUpdate
from apportion.published.public_features.statistics import released_sum
from apportion.published.public_features.training import finite, settle
from apportion.published.public_features.user_gradients import UserBatch, parameter_count, trained, user_gradients
from apportion.published.skew.updates import Residuals, Round, Shares, released_user_gram

Floats = NDArray[np.float64]

_LARGEST = 1e100  # limit of a gradient's entry, so that its square is finite
_LARGEST_ROW = 1 << 22  # largest length of one user's gradient


@dataclass(frozen=True, eq=False)
class UserGradients:
    """The gradient of each user who takes part.

    Attributes:
        encoder: a separate copy of the encoder, which later steps do not change.
        known_rows: public features of the items.
        residuals: the residuals of users' rows at released items.
    """

    encoder: Any
    known_rows: SparseRows
    residuals: Residuals

    def __call__(self, users: Users, weights: Floats) -> tuple[Floats]:
        """Return one row of gradients for each of these users whose weights are not all 0."""
        taking_part = np.bincount(users.owner, weights != 0, minlength=users.n_users) > 0
        if not taking_part.any():
            return (np.zeros((0, parameter_count(self.encoder))),)
        kept = taking_part[users.owner]
        place = np.cumsum(taking_part) - 1
        vectors = self.residuals.rows.vectors(users, self.residuals.kernels)
        owner, tasks = users.owner[kept], users.column("tasks")[kept]
        weighted = np.asarray(weights, np.float64)[kept] * -self.residuals(users, kept)
        batch = UserBatch(weighted, place[owner], tasks, vectors[taking_part], len(self.residuals.items))
        rows = np.asarray(user_gradients(self.encoder, self.known_rows, batch), np.float64)
        np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        return (np.clip(rows, -_LARGEST, _LARGEST, out=rows),)


@dataclass(frozen=True, eq=False)
class EncoderGradient(EncoderUpdate):
    """DP-SGD on the encoder: noisy sums of users' clipped gradients, then a step of Adam, which costs nothing.

    Attributes:
        steps: gradient steps per round.
        clip: norm to which a user's whole gradient is clipped.
        rate: learning rate of Adam.
        decay: step t of a fit has the learning rate `rate` · t^−decay; 0 for the same in all steps.
        sampling: probability that a user takes part in a step; below 1 it is accounted as Poisson sampling.
        own_step: size of the steps of each item's own vector, which is added to the encoder's output; 0 for no such
            vector. These are the steps of `GradientDescent`, released in addition to the encoder's.
        own_clip: norm to which a user's weighted residuals are clipped in these steps.
        users_share: fraction of a round's budget for Σ_j u uᵀ over all users, for clicks.
        head: train only on this fraction of the items, the most popular by released counts, with all of the users'
            weight on them; the others follow the encoder.
    """

    steps: int = 10
    clip: float = 0.5
    rate: float = 0.02
    sampling: float = 1.0
    own_step: float = 0.0
    own_clip: float = 0.5
    users_share: float = 0.02
    decay: float = 0.0
    head: float = 1.0

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return the shares of gradients, of the items' own gradients, and of the users' matrix for clicks."""
        if self.steps < 1:
            raise InputError(f"Expected at least 1 gradient step per round, got {self.steps}.", argument="steps")
        if not 0 < self.sampling <= 1:
            raise InputError(f"Expected a sampling probability in (0, 1], got {self.sampling}.", argument="sampling")
        if not self.rate > 0 or not self.decay >= 0:
            raise InputError(
                f"Expected a learning rate > 0 and a decay >= 0, got {self.rate} and {self.decay}.", argument=None
            )
        check_head(self.head)
        if parameter_count(self.encoder) > _LARGEST_ROW:
            raise InputError(
                f"Expected an encoder of at most {_LARGEST_ROW} parameters for gradients per user, got "
                f"{parameter_count(self.encoder)}; EncoderStatistics has no such limit.",
                argument="encoder",
            )
        users = {"users": self.users_share} if clicks else {}
        each = (1 - sum(users.values())) / self.steps / (2 if self.own_step else 1)
        parts = {f"step {k + 1}": each for k in range(self.steps)}
        own = {f"step {k + 1}, own": each for k in range(self.steps if self.own_step else 0)}
        return {**parts, **own, **users}

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Take the steps; the encoder keeps what it learned."""
        if session.exact:
            raise InputError(
                "Expected noise without exact arithmetic, because gradients of an encoder have no exact form.",
                argument="noise",
            )
        this_round, kept = on_head(this_round, self.head)
        shared = released_user_gram(this_round, session, engine, shares["users"]) if this_round.unobserved else None
        optimiser = torch.optim.Adam(trained(self.encoder).values())
        own = (
            this_round.items - self.encoded()
            if self.own_step and this_round.number > 1
            else np.zeros_like(this_round.items)
        )
        for k in range(self.steps):
            settle(self.encoder, FeatureBatch.for_encoder(self.encoder, self.known_rows))
            items = self.encoded() + own
            name = Purpose.GRADIENT.at(round=this_round.number, step=k + 1)
            residuals = this_round.residuals(items)
            form = partial(self._gradients, residuals)
            gradient, _ = released_sum(this_round, session, engine, name, form, shares[f"step {k + 1}"])
            optimiser.param_groups[0]["lr"] = self.rate * self._taken(this_round, k) ** -self.decay
            self._step(optimiser, gradient, self._towards_zero(this_round, items, shared))
            if self.own_step:
                share = shares[f"step {k + 1}, own"]
                own += kept[:, None] * self._own_step(this_round, session, engine, share, items, residuals, shared, k)
        return self.encoded() + own

    def _gradients(self, residuals: Residuals, weights: Weighting) -> ClippedParts:
        """Return Σ_j of clipped gradients over the users whose weights are not 0, at the current encoder."""
        width = parameter_count(self.encoder)
        what = f"gradient of an encoder of {width} parameters; {weights.description}"
        part = UserGradients(copy.deepcopy(self.encoder), self.known_rows, residuals)
        return ClippedParts(part, (Output(width, self.clip, False, what),), weights)

    def _towards_zero(self, this_round: Round, items: Floats, shared: Floats | None) -> Floats | None:
        """Return the slope of the unobserved pairs of clicks in every item's vector, from released values."""
        if shared is None:
            return None
        return np.asarray(this_round.unobserved * this_round.expected.typical[:, None] * (items @ shared))

    def _step(self, optimiser: Any, gradient: Floats, slope: Floats | None) -> None:
        """Take one step of Adam on the released gradient plus that of the unobserved pairs."""
        optimiser.zero_grad()
        if slope is not None:
            vectors = self.encoder(FeatureBatch.for_encoder(self.encoder, self.known_rows))
            (vectors * torch.as_tensor(slope, dtype=vectors.dtype, device=vectors.device)).sum().backward()
        first = 0
        for parameter in trained(self.encoder).values():
            last = first + parameter.numel()
            mine = gradient[first:last].reshape(parameter.shape)
            own = torch.as_tensor(mine, dtype=parameter.dtype, device=parameter.device)
            beside = parameter.grad
            whole = own if beside is None else own + (beside.to_dense() if beside.is_sparse else beside)
            parameter.grad = finite(whole, 1e15)
            first = last
        optimiser.step()

    def _own_step(
        self,
        this_round: Round,
        session: Session,
        engine: Engine,
        share: Any,
        items: Floats,
        residuals: Residuals,
        shared: Floats | None,
        k: int,
    ) -> Floats:
        """Take a step of every item's own vector: released residuals times user vectors, as in `GradientDescent`."""

        def form(weights: Weighting) -> TaskMoments:
            return TaskMoments(TimesFactors(weights, residuals, self.own_clip), this_round.rows)

        name = Purpose.ITEM_GRADIENTS.at(round=this_round.number, step=k + 1)
        released, stddev = released_sum(this_round, session, engine, name, form, share)
        direction = self.own_clip * released
        slope = self._towards_zero(this_round, items, shared)
        if slope is not None:
            direction -= slope
        total = np.maximum(this_round.expected.total, 1e-9)
        if shared is not None:
            steepest = float(np.linalg.eigvalsh(shared)[-1])
            total = total + this_round.unobserved * this_round.expected.typical * steepest / this_round.norm**2
        noise = items.shape[1] * np.square(self.own_clip * stddev)
        size = self.own_step / np.sqrt(np.square(total) + noise) / np.sqrt(self._taken(this_round, k))
        return np.asarray(size[:, None] * direction)

    def _taken(self, this_round: Round, k: int) -> int:
        """Return the number of this step in the fit, from 1."""
        return (this_round.number - 1) * self.steps + k + 1

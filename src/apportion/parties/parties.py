"""The parties' side: each keeps its rows and its model, sends one bounded part per round and receives one answer.

All parties are held together, because NumPy serves many at once. The same class with one task is a single party and
computes the same numbers. Only what a party sends is clipped, never its model. Without a clip norm, every party sends
its model scaled to norm 1: it then shares only a direction and keeps its scale to itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.numbers import finite_column, finite_matrix
from apportion.parties.choice import averaged, chance_for_each, lead_of_joint, learned_alone, weight_of_own
from apportion.parties.common import Common
from apportion.parties.curator import Answer
from apportion.parties.grids import Centre
from apportion.parties.posterior import Learned, Local, Prior
from apportion.parties.tasks import Block
from apportion.privacy.task_sums import SizedModels, TaskMatrices, TaskModels

Floats = NDArray[np.float64]
Disturb = Callable[[Floats, float], Floats]
"""Adds each party's own noise to what it is about to send; the second argument bounds its norm."""

_LEVELS = (3e-3, 0.03, 0.1, 0.3, 1.0)  # factors tried for directions within the noise, relative to their level in Ω
_ALONE = 1 / 11  # prior probability that learning alone is better, if directions exceed the noise in the release
_EVEN = 1e-6  # eigenvalues closer than this fraction of the largest count as equal
_RELEVANT = 0.1  # the share in common from which proximal methods use it
_FLAT = 1e-200  # curvature of a loss without rows


class Parties(Protocol):
    """What the loop needs from the parties."""

    def send(self) -> TaskModels | TaskMatrices:
        """Return one bounded part for every party."""

    def receive(self, answer: Answer) -> None:
        """Learn from what the curator sent."""

    def models(self) -> Floats:
        """Return each party's own model, which stays with its party."""

    def alone(self) -> Floats:
        """Return what each party would have learned alone."""

    def own_weight(self) -> Floats:
        """Return how much of each party's model it learned alone."""


@dataclass(frozen=True, eq=False)
class Party:
    """What one party has for itself after a fit. None of it may be shared.

    Attributes:
        task: the task's id.
        model: the model that it learned with the others.
        intercept: the intercept of `model`.
        alone: the model that it would have learned alone.
        alone_intercept: the intercept of `alone`.
        own_weight: the weight of `alone` in `model`.
    """

    task: int | str
    model: Floats
    intercept: float
    alone: Floats
    alone_intercept: float
    own_weight: float

    def gain(self, X: ArrayLike, y: ArrayLike) -> float:  # noqa: N803
        """Return by how much learning with the others lowers the mean squared error on the party's own rows."""
        rows = finite_matrix(X, "X")
        labels = finite_column(y, "y", len(rows))
        apart = np.square(rows @ self.alone + self.alone_intercept - labels).mean()
        together = np.square(rows @ self.model + self.intercept - labels).mean()
        return float(apart - together)


@dataclass(frozen=True)
class Sending:
    """How a model is bounded before it is sent.

    Attributes:
        clip_norm: K; None to scale every model to norm 1.
        disturb: adds each party's own noise, which protects its single rows; None for no such noise.
        with_mean: whether a model's direction and size are sent beside its outer product.
    """

    clip_norm: float | None
    disturb: Disturb | None = None
    with_mean: bool = False

    @property
    def norm(self) -> float:
        """The bound on what is sent."""
        return 1.0 if self.clip_norm is None else self.clip_norm

    def bounded(self, models: Floats, sizes: Floats) -> TaskModels:
        """Return the models clipped or scaled. After a party's own noise was added, they are clipped again."""
        if self.with_mean:
            return SizedModels.of(models, sizes, self.norm, scaled=self.clip_norm is None)
        make = TaskModels.scaled if self.clip_norm is None else TaskModels.clipped
        if self.disturb is None:
            return make(models, self.norm)
        first = _shortened(models, self.norm, scale=self.clip_norm is None)
        return make(np.nan_to_num(self.disturb(first, self.norm)), self.norm)


class BayesParties:
    """Private EM: a party's model is its posterior mean under w ~ N(f c, r v Ω), averaged over a few priors.

    The priors are versions of Ω in which the directions within the noise have less and less weight: local models are
    noisier than true ones, so their level is too high. Each prior has a mean of 0 or, if it was released, the common
    model as its mean. The party's own evidence weighs the priors. Their mean and what the party learns alone are
    averaged by how well each predicts the later part of its rows. The first part sent is the posterior mean under the
    identity.
    """

    def __init__(self, local: Local, sending: Sending, *, whole_posterior: bool = False) -> None:
        self._local = local
        self._sending = sending
        self._whole = whole_posterior
        self._isotropic = local.learn(None)
        self._alone = learned_alone(local, self._isotropic)
        self._sent = self._isotropic.mean
        self._models = self._alone.mean
        self._weight = np.ones(local.n_tasks)

    def send(self) -> TaskModels | TaskMatrices:
        """Return the posterior mean, scaled or clipped, or the posterior's second moment."""
        if not self._whole:
            return self._sending.bounded(self._sent, self._isotropic.size)
        factors = self._second_moments()
        norm = self._sending.norm
        scale = self._sending.clip_norm is None
        return TaskMatrices.scaled(factors, norm) if scale else TaskMatrices.clipped(factors, norm)

    def receive(self, answer: Answer) -> None:
        """Average over priors. A silent answer means that there is nothing to learn from others."""
        if answer.silent:
            self._sent = self._isotropic.mean
            self._models, self._weight = self._alone.mean, np.ones(self._local.n_tasks)
            return
        joint = _learned_jointly(self._local, answer)
        lead = lead_of_joint(self._local, self._alone, joint, lambda local: _learned_jointly(local, answer))
        chance = chance_for_each(self._alone, _chance_of_alone(answer))
        self._weight = weight_of_own(self._alone, joint, chance, lead)
        self._models = joint.mean + self._weight[:, None] * (self._alone.mean - joint.mean)
        self._sent = self._models

    def models(self) -> Floats:
        """Return averages of joint and own posterior means."""
        return self._models

    def alone(self) -> Floats:
        """Return posterior means under the party's own priors."""
        return self._alone.mean

    def own_weight(self) -> Floats:
        """Return the weight of learning alone."""
        return self._weight

    def _second_moments(self) -> Floats:
        """Return factors of E[w wᵀ] = mean meanᵀ + covariance, at each party's likeliest ratio, under the identity."""
        local = self._local
        result = np.zeros((local.n_tasks, local.dimension + 1, local.dimension))
        for block in local.blocks:
            ratio = self._isotropic.ratio[block.tasks]
            result[block.tasks, 1:] = _deviations(block, ratio) * block.units[:, None, None]
        result[:, 0] = self._sent
        return result


class ProximalParties:
    """Proximal steps: a party's model is multiplied by M, then takes a descent step on its own loss.

    Each party's loss is divided by its own curvature, so that all steps have length 1. A party starts at what it learns
    under the identity and stays there while M is the identity: there is nothing to learn from others. With a sparse
    part (Algorithm 4) the model is P + Q: P is multiplied by M, the entries of Q are shrunk towards 0, and Q starts at
    0.

    In the end, a party averages the joint model and the model that it learned alone. The weights say how well a prior
    with the last M as its covariance predicts the later part of its rows.

    Args:
        local: the rows of all parties.
        sending: how a model is bounded.
        accelerated: whether steps have momentum.
        condition: κ of a strongly convex loss, for the momentum; None for (t - 1)/(t + 2).
        sparse_penalty: how far entries of Q are shrunk, in units of the root mean square of a party's own model; None
            without Q.
    """

    def __init__(
        self,
        local: Local,
        sending: Sending,
        *,
        accelerated: bool,
        condition: float | None,
        sparse_penalty: float | None,
    ) -> None:
        self._local, self._sending = local, sending
        self._accelerated, self._condition = accelerated, condition
        isotropic = local.learn(None)
        self._learned = learned_alone(local, isotropic)
        self._curvatures = [np.maximum(local.curvature(block), _FLAT) for block in local.blocks]
        self._alone = self._learned.mean
        self._dense = self._before = isotropic.mean.copy()
        self._extra = self._extra_before = np.zeros_like(self._alone)
        self._draw = None if sparse_penalty is None else sparse_penalty * _root_mean_square(isotropic.mean)
        self._round = 0
        self._shared: Floats | None = None
        self._common: Common | None = None
        self._hat = (self._dense, self._extra)

    def send(self) -> TaskModels | TaskMatrices:
        """Return the part of the model that is multiplied by M."""
        return self._sending.bounded(self._dense, self._learned.size)

    def receive(self, answer: Answer) -> None:
        """Take one proximal step and one step on the party's own loss."""
        self._common, shared = answer.common, answer.shared
        if np.array_equal(shared, np.eye(len(shared))):
            return
        self._round += 1
        self._shared = shared
        dense = _each(shared, self._dense)
        extra = self._extra if self._draw is None else _drawn_in(self._extra, self._draw)
        ahead = dense + self._momentum() * (dense - self._before)
        further = extra + self._momentum() * (extra - self._extra_before)
        down = np.zeros_like(ahead)
        for block, curvature in zip(self._local.blocks, self._curvatures, strict=True):
            inside = (ahead + further)[block.tasks] / block.units[:, None]
            slope = self._local.gradient(block, inside) / curvature[:, None]
            down[block.tasks] = slope * block.units[:, None]
        self._before, self._extra_before = dense, extra
        self._hat = (dense, extra)
        if self._draw is None:
            self._dense = np.nan_to_num(ahead - down)
        else:  # two parts share one gradient, so each moves half as far
            self._dense, self._extra = np.nan_to_num(ahead - down / 2), np.nan_to_num(further - down / 2)

    def models(self) -> Floats:
        """Return the joint and the own model, averaged by the party's evidence."""
        joint = self._joint()
        if joint is None:
            return self._alone.copy()
        weight = self._weight_against(joint)[:, None]
        return np.asarray(joint.mean + weight * (self._alone - joint.mean))

    def alone(self) -> Floats:
        """Return posterior means under the party's own priors."""
        return self._alone

    def own_weight(self) -> Floats:
        """Return the weight of learning alone, against a prior with covariance M."""
        joint = self._joint()
        return np.ones(self._local.n_tasks) if joint is None else self._weight_against(joint)

    def _joint(self) -> Learned | None:
        """Return the result of the steps, weighed by the evidence of a prior with covariance M, and a mean's part."""
        learned = []
        centre = (
            _centre(self._local, self._common) if self._common is not None and self._common.share > _RELEVANT else None
        )
        if self._shared is not None:
            prior = _covariance(self._shared)
            told = self._local.learn(prior)
            learned.append(Learned(self._hat[0] + self._hat[1], told.evidence, told.early, told.ratio, told.size))
            learned += [] if centre is None else [self._local.learn(prior, centre)]
        learned += [] if centre is None else [self._local.learn(None, centre)]
        return averaged(learned) if learned else None

    def _weight_against(self, joint: Learned) -> Floats:
        chance = self._common.chance_of_alone if self._shared is None and self._common is not None else 0.5
        return weight_of_own(self._learned, joint, chance)

    def _momentum(self) -> float:
        if not self._accelerated:
            return 0.0
        if self._condition is None:
            return (self._round - 1) / (self._round + 2)
        root = math.sqrt(1 / self._condition)
        return (1 - root) / (1 + root)


def _learned_jointly(local: Local, answer: Answer) -> Learned:
    """Return what parties learn under all priors that an answer suggests, averaged by their own evidence."""
    learned: list[Learned] = []
    logs: list[float] = []
    sure = 0.0 if answer.common is None else -answer.common.doubt
    if not np.array_equal(answer.shared, np.eye(len(answer.shared))):
        priors = _priors(answer.shared)
        learned += [local.learn(prior) for prior in priors]
        logs += [-math.log(len(priors))] * len(priors)
        if answer.common is not None:
            inside = _centre(local, answer.common.within(priors[0].directions))
            learned += [local.learn(prior, inside) for prior in priors]
            logs += [sure - math.log(len(priors))] * len(priors)
    if answer.common is not None:
        learned.append(local.learn(None, _centre(local, answer.common)))
        logs.append(sure)
    return averaged(learned, logs)


def _centre(local: Local, common: Common) -> Centre:
    """Return the common model in the units of every party."""
    models = local.lengths(common.size, common.direction)[:, None] * common.direction
    return Centre(models, common.spread, common.spread_of_logs, common.spread_of_factors)


def _chance_of_alone(answer: Answer) -> float:
    """Return the prior probability that learning alone is better, before a party looks at its rows."""
    if answer.common is None or not np.array_equal(answer.shared, np.eye(len(answer.shared))):
        return _ALONE
    return answer.common.chance_of_alone


def _covariance(matrix: Floats) -> Prior:
    values, vectors = np.linalg.eigh(matrix)
    directions = np.ascontiguousarray(vectors * np.sqrt(np.maximum(values, 0.0)))
    return Prior(directions, _EVEN * max(float(values[-1]), _FLAT))


def _priors(shared: Floats) -> list[Prior]:
    """Return versions of Ω: its least eigenvalue, the level within the noise, is multiplied by several factors."""
    values, vectors = np.linalg.eigh(shared)
    level = max(float(values[0]), 0.0)
    beyond = values - level
    out = beyond > _EVEN * float(values[-1])
    directions = np.ascontiguousarray(vectors[:, out] * np.sqrt(beyond[out]))
    return [Prior(directions, part * level) for part in _LEVELS]


def _deviations(block: Block, ratio: Floats) -> Floats:
    """Return a factor of the posterior covariance under the identity: √(rv) (I - V diag(1 - (1 + rλ)^-½) Vᵀ)."""
    left, spread, right = np.linalg.svd(block.rows, full_matrices=False)
    inflated = 1 + ratio[:, None] * np.square(spread)
    seen = (left.transpose(0, 2, 1) @ block.labels[:, :, None])[:, :, 0]
    outside = np.maximum(np.square(block.labels).sum(1) - np.square(seen).sum(1), 0.0) + block.rest
    variance = ((np.square(seen) / inflated).sum(1) + outside) / np.maximum(block.sizes, 1)
    inner = right.transpose(0, 2, 1) @ ((1 - inflated**-0.5)[:, :, None] * right)
    return np.asarray(np.sqrt(ratio * variance)[:, None, None] * (np.eye(block.rows.shape[2]) - inner))


def _shortened(models: Floats, norm: float, *, scale: bool) -> Floats:
    lengths = np.sqrt(np.square(models).sum(axis=1))
    safe = np.maximum(lengths, 1e-300)
    factors = norm / safe * (lengths > 0) if scale else np.minimum(1.0, norm / safe)
    return np.asarray(models * factors[:, None])


def _each(matrix: Floats, models: Floats) -> Floats:
    """Return M w for every party, one product each."""
    return np.asarray((matrix @ models[:, :, None])[:, :, 0])


def _drawn_in(values: Floats, by: Floats) -> Floats:
    return np.asarray(np.sign(values) * np.maximum(np.abs(values) - by[:, None], 0.0))


def _root_mean_square(models: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(models).mean(axis=1)))

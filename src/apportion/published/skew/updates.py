"""How items are updated, given the users: by sufficient statistics or by gradients. Used in `AlternatingMinimisation`.

Both minimise, for every item i, Σ_j w_ij (u_i · v_j − y_ij)², which is the item's loss with every user's unit of
sensitivity divided by the weights. For clicks there is an unobserved term beside it, c_i Σ_j (u_i · v_j)² over all
users, with c_i the typical weight of the item's observations times a constant.

Algorithm numbers are those of Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.allocation import Expected
from apportion.allocation.weightings import OnSample, TimesFactors
from apportion.data.users import Users
from apportion.engines import Engine, add_up_one
from apportion.errors import InputError
from apportion.linalg.fixed_order import dot_rows
from apportion.privacy import BoundedSum, Labels, PlannedShare, Purpose, Rows, Session, Share
from apportion.privacy.contributions import Kernels, TaskGrams, TaskMoments, UserGram, Weighting
from apportion.privacy.sampling import Sample
from apportion.recommend.model import FoldIn

Floats = NDArray[np.floating[Any]]
Shares = dict[str, Any]  # a Share or a PlannedShare, by name


class OwnLabels(Protocol):
    """The values to predict, one number per row, from a user's own rows and released values."""

    def of(self, users: Users) -> Floats:
        """Return the labels of these users' rows; private."""


class OwnVectors(Protocol):
    """One vector per user, from its own rows and released values."""

    @property
    def norm(self) -> float:
        """The bound on every vector."""

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Return the vectors of these users, sealed with their bound."""

    def vectors(self, users: Users, kernels: Kernels) -> NDArray[np.float64]:
        """Return the vectors themselves; private."""


@dataclass(frozen=True, eq=False)
class RawLabels:
    """The values to predict, one per row: 1 for clicks, otherwise the clipped value minus the centre."""

    centre: float = 0.0
    value_range: tuple[float, float] | None = None

    def of(self, users: Users) -> Floats:
        """Return the labels of these users' rows."""
        if self.value_range is None:
            return np.ones(users.n_rows, np.float32)
        return np.asarray(np.clip(users.column("values"), *self.value_range) - np.float32(self.centre), np.float32)


@dataclass(frozen=True, eq=False)
class UserVectors:
    """Each user's own regression on released items, with its solution clipped to a ball.

    Attributes:
        fold_in: the regression.
        labels: what it is fitted to.
        norm: radius of the ball.
    """

    fold_in: FoldIn
    labels: RawLabels
    norm: float

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Return the vectors of these users, sealed with their bound."""
        return Rows.clipped(self.vectors(users, kernels), self.norm)

    def vectors(self, users: Users, kernels: Kernels) -> NDArray[np.float64]:
        """Return the vectors themselves; private. They are kept, because a round asks for them more than once."""
        result: NDArray[np.float64] = users.remembered_rows(self, lambda run: self._solved(run, kernels))
        return result

    def _solved(self, users: Users, kernels: Kernels) -> NDArray[np.float64]:
        solved = self.fold_in.solve(kernels, users, self.labels.of(users))
        vectors = np.asarray(solved.cpu() if hasattr(solved, "cpu") else solved, np.float64)
        lengths = np.sqrt(dot_rows(vectors, vectors))[:, None]
        return np.asarray(vectors * (self.norm / np.maximum(lengths, self.norm)))


@dataclass(frozen=True, eq=False)
class ClippedRawLabels:
    """Labels clipped to a bound."""

    labels: OwnLabels
    bound: float

    def __call__(self, users: Users, kernels: Kernels) -> Labels:
        """Return the labels of these users, sealed with their bound."""
        return Labels.clipped(self.labels.of(users), self.bound)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Label minus prediction of every row, from a user's own vector and released items."""

    rows: OwnVectors
    labels: OwnLabels
    items: Floats
    kernels: Kernels

    def __call__(self, users: Users, kept: Any = slice(None)) -> NDArray[np.float64]:
        """Return the residuals of these users' rows, or of the rows that are kept; private."""
        vectors = self.rows.vectors(users, self.kernels)
        predicted = dot_rows(vectors[users.owner[kept]], self.items[users.column("tasks")[kept]])
        return np.asarray(self.labels.of(users)[kept] - predicted)


@dataclass(frozen=True, repr=False)
class Round:
    """The input of an update: users with their rows, released items, and how users compute for themselves.

    Attributes:
        users: the users with their rows; private.
        weights: how each user divides its sensitivity.
        expected: sums of the weights, estimated from released values.
        rows: one vector per user, from its own rows and released values.
        labels: what is predicted.
        items: the item vectors so far; released.
        unobserved: weight of every pair towards 0, relative to an observed one; 0 for ratings.
        number: the number of the round, from 1.
        kernels: the kernels for users' residuals.
    """

    users: Users
    weights: Weighting
    expected: Expected
    rows: OwnVectors
    labels: OwnLabels
    items: NDArray[np.float64]
    unobserved: float
    number: int
    kernels: Kernels

    @property
    def norm(self) -> float:
        """The bound on user vectors."""
        return self.rows.norm

    def residuals(self, items: Floats) -> Residuals:
        """Return label minus prediction of every row."""
        return Residuals(self.rows, self.labels, items, self.kernels)


class ItemUpdate(Protocol):
    """One private step of alternating minimisation on the item side."""

    @property
    def sampling(self) -> float:
        """Probability that a user takes part in a release; 1 means all users always."""

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return what one round releases, by name, and the fraction of the round's budget for each."""

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> NDArray[np.float64]:
        """Return new item vectors, from this round's and earlier releases."""


@dataclass(frozen=True)
class SufficientStatistics:
    """Algorithm 1: release Σ_j w v vᵀ and Σ_j w y v for every item, then solve.

    The ridge is added after the release and scaled by the noise alone, so it contains no private count. A matrix that
    became indefinite by noise is replaced by the nearest positive semidefinite one.

    Attributes:
        label_bound: labels are clipped to this.
        gram_share: fraction of a round's budget for the matrices.
        users_share: fraction of a round's budget for Σ_j v vᵀ over all users, for clicks.
        ridge: penalty, in standard deviations of the noise of a matrix's diagonal.
    """

    label_bound: float = 1.0
    gram_share: float = 0.5
    users_share: float = 0.02
    ridge: float = 4.0
    sampling: ClassVar[float] = 1.0

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return the shares: matrices and vectors of all items, and the users' matrix for clicks."""
        _check_fraction("gram_share", self.gram_share)
        users = {"users": self.users_share} if clicks else {}
        rest = 1 - sum(users.values())
        return {"grams": rest * self.gram_share, "moments": rest * (1 - self.gram_share), **users}

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> NDArray[np.float64]:
        """Release, regularise and solve."""
        number, labels = this_round.number, ClippedRawLabels(this_round.labels, self.label_bound)
        contributions = [
            TaskGrams(this_round.weights, this_round.rows),
            TaskMoments(this_round.weights, this_round.rows, labels),
        ]
        grams, moments = engine.add_up(this_round.users, contributions)
        stddev = grams.l2_sensitivity / shares["grams"].mu
        matrices = np.asarray(
            session.release(Purpose.ITEM_MATRICES.at(round=number), grams, shares["grams"]), np.float64
        )
        vectors = np.asarray(
            session.release(Purpose.ITEM_VECTORS.at(round=number), moments, shares["moments"]), np.float64
        )
        if this_round.unobserved:
            shared = released_user_gram(this_round, session, engine, shares["users"])
            matrices = matrices + this_round.unobserved * this_round.expected.typical[:, None] * linalg.pack(shared)
        base = self.ridge * stddev * np.eye(vectors.shape[1])
        return solve_noisy(matrices, vectors, base)


@dataclass(frozen=True)
class GradientDescent:
    """Algorithm 2: noisy full-batch gradient steps, each user's whole gradient clipped before it is added.

    A user's gradient is its residuals times its vector, so it is clipped by its length and formed as one moment: no
    gradient per observation is ever stored. Step sizes follow Theorem 3.12 (a): `step` / √(t_i² + d σ²) / √k at step k,
    where t_i = Σ_j w_ij is expected from released counts (with the steepest direction of the unobserved term added, for
    clicks) and σ is the noise of a gradient.

    Attributes:
        steps: gradient steps per round.
        clip: length to which a user's weighted residuals are clipped.
        step: size of steps, in units of the norm of user vectors.
        ridge: penalty, relative to t_i.
        sampling: probability that a user takes part in a step; below 1 it is accounted as Poisson sampling.
        even: take steps of one size for all items, with the mean of t_i² for each: rare items then move less.
        users_share: fraction of a round's budget for Σ_j v vᵀ over all users, for clicks.
    """

    steps: int = 2
    clip: float = 1.0
    step: float = 1.0
    ridge: float = 0.01
    sampling: float = 1.0
    even: bool = False
    users_share: float = 0.02

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return the shares: one gradient per step, and the users' matrix for clicks."""
        if self.steps < 1:
            raise InputError(f"Expected at least 1 gradient step per round, got {self.steps}.", argument="steps")
        if not 0 < self.sampling <= 1:
            raise InputError(f"Expected a sampling probability in (0, 1], got {self.sampling}.", argument="sampling")
        users = {"users": self.users_share} if clicks else {}
        rest = 1 - sum(users.values())
        return {**{f"step {k + 1}": rest / self.steps for k in range(self.steps)}, **users}

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> NDArray[np.float64]:
        """Take the steps."""
        items = this_round.items
        total = np.maximum(this_round.expected.total, 1e-9)
        shared, slope = None, total
        if this_round.unobserved:
            shared = released_user_gram(this_round, session, engine, shares["users"])
            steepest = float(np.linalg.eigvalsh(shared)[-1])
            slope = total + this_round.unobserved * this_round.expected.typical * steepest / this_round.norm**2
        for k in range(self.steps):
            share = shares[f"step {k + 1}"]
            weighted = TimesFactors(this_round.weights, this_round.residuals(items), self.clip)
            form = partial(_moments, this_round, engine, weighted)
            name = Purpose.ITEM_GRADIENTS.at(round=this_round.number, step=k + 1)
            if isinstance(share, PlannedShare):
                released = session.release_sampled(name, form, share) / share.mechanism.probability
            else:
                released = session.release(name, form(None), share)
            direction = self.clip * np.asarray(released, np.float64)
            direction -= self.ridge * total[:, None] * items
            if shared is not None:
                direction -= this_round.unobserved * this_round.expected.typical[:, None] * (items @ shared)
            noise = weighted.moved(self.clip * this_round.norm) / share.mu / self.sampling
            taken = (this_round.number - 1) * self.steps + k + 1
            squares = np.square(slope)
            if self.even:
                squares = np.full_like(squares, squares.mean())
            sizes = self.step / np.sqrt(squares + items.shape[1] * noise**2) / np.sqrt(taken)
            # not in place, because contributions keep the arrays they were given
            items = items + sizes[:, None] * direction
        return items


def _moments(this_round: Round, engine: Engine, weights: Weighting, sample: Sample | None) -> BoundedSum:
    """Return the sum over a sample of the users, or over all of them."""
    chosen = weights if sample is None else OnSample(weights, sample)
    return add_up_one(engine, this_round.users, TaskMoments(chosen, this_round.rows))


def released_user_gram(this_round: Round, session: Session, engine: Engine, share: Share) -> NDArray[np.float64]:
    """Release Σ_j v vᵀ over all users: what the unobserved pairs contribute to every item."""
    sums = add_up_one(engine, this_round.users, UserGram(this_round.rows, session.neighbours))
    released = np.asarray(session.release(Purpose.USERS_MATRIX.at(round=this_round.number), sums, share), np.float64)
    return np.asarray(linalg.unpack(linalg.project_psd(released[None, :]))[0], np.float64)


def solve_noisy(matrices: Floats, vectors: Floats, base: Floats) -> NDArray[np.float64]:
    """Return (A⁺ + base)⁻¹ b for every item, with A⁺ the positive semidefinite matrix nearest to A."""
    repaired = linalg.project_psd(matrices)
    solved, failed = linalg.solve_packed(repaired, vectors, base)
    return np.where(failed[:, None], 0.0, solved).astype(np.float64)


def _check_fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"Expected {name} strictly between 0 and 1, got {value}.", argument=name)

"""How items are updated, given the users: by sufficient statistics or by gradients. Parts of `AlternatingMinimisation`.

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
from apportion.allocation.tasks import sampling_keys
from apportion.data import Interactions
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.privacy import BoundedSum, Labels, PlannedShare, Purpose, Rows, Session, Share, Weights

Floats = NDArray[np.floating[Any]]
Shares = dict[str, Any]  # by name: a Share, or a PlannedShare
_CHUNK = 1 << 18


@dataclass(frozen=True, repr=False)
class Round:
    """What an update is given: private data and user vectors, released items, and what it may spend.

    Attributes:
        data: the interactions.
        weights: how each user divides its sensitivity.
        expected: what released values say of the weights.
        vectors: one vector per user, of norm at most `norm`, from its own data and released values; private.
        norm: bound on the user vectors.
        labels: what is predicted, one per observation; private.
        items: the item vectors so far; released.
        unobserved: weight of every pair towards 0, relative to an observed one; 0 for ratings.
        number: of the round, from 1.
    """

    data: Interactions
    weights: Weights
    expected: Expected
    vectors: Floats
    norm: float
    labels: Floats
    items: NDArray[np.float64]
    unobserved: float
    number: int

    @property
    def rows(self) -> Rows:
        """The user vectors, sealed with their bound."""
        return Rows.clipped(self.vectors, self.norm)

    def residuals(self, items: Floats) -> NDArray[np.float64]:
        """Label minus prediction for every observation; private."""
        found = np.empty(self.data.n_observations)
        users, tasks = self.data.users, self.data.tasks
        for first in range(0, len(found), _CHUNK):
            part = slice(first, first + _CHUNK)
            predicted = np.einsum("nd,nd->n", self.vectors[users[part]], items[tasks[part]])
            found[part] = self.labels[part] - predicted
        return found


class ItemUpdate(Protocol):
    """One private step of alternating minimisation on the item side."""

    @property
    def sampling(self) -> float:
        """Probability with which a user takes part in a release; 1 for all users always."""

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """What one round releases, by name, and which fraction of the round's budget each takes."""

    def __call__(self, about: Round, session: Session, engine: Engine, shares: Shares) -> NDArray[np.float64]:
        """Return new item vectors, from what is released here and was released before."""


@dataclass(frozen=True)
class SufficientStatistics:
    """Algorithm 1: release Σ_j w v vᵀ and Σ_j w y v for every item, then solve.

    The ridge is added after the release and scaled by the noise alone, so no private count is in it. A matrix that
    noise made indefinite is brought back to the nearest positive semidefinite one.

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
        """Matrices and vectors of all items, and the users' matrix for clicks."""
        _check_fraction("gram_share", self.gram_share)
        users = {"users": self.users_share} if clicks else {}
        rest = 1 - sum(users.values())
        return {"grams": rest * self.gram_share, "moments": rest * (1 - self.gram_share), **users}

    def __call__(self, about: Round, session: Session, engine: Engine, shares: Shares) -> NDArray[np.float64]:
        """Release, regularise, solve."""
        rows, number = about.rows, about.number
        grams = engine.grams(about.data, about.weights, rows)
        stddev = grams.l2_sensitivity / shares["grams"].mu
        matrices = np.asarray(
            session.release(Purpose.ITEM_MATRICES.at(round=number), grams, shares["grams"]), np.float64
        )
        labels = Labels.clipped(about.labels, self.label_bound)
        moments = engine.moments(about.data, about.weights, rows, labels)
        vectors = np.asarray(
            session.release(Purpose.ITEM_VECTORS.at(round=number), moments, shares["moments"]), np.float64
        )
        if about.unobserved:
            shared = released_user_gram(about, session, engine, shares["users"])
            matrices = matrices + about.unobserved * about.expected.typical[:, None] * linalg.pack(shared)
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
        steps: gradient steps a round.
        clip: length to which a user's weighted residuals are clipped.
        step: size of steps, in units of the norm of user vectors.
        ridge: penalty, relative to t_i.
        sampling: probability with which a user takes part in a step; below 1 it is accounted as Poisson sampling.
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
        """One gradient a step, and the users' matrix for clicks."""
        if self.steps < 1:
            raise InputError(f"Expected at least 1 gradient step a round, got {self.steps}.")
        if not 0 < self.sampling <= 1:
            raise InputError(f"Expected a sampling probability in (0, 1], got {self.sampling}.")
        users = {"users": self.users_share} if clicks else {}
        rest = 1 - sum(users.values())
        return {**{f"step {k + 1}": rest / self.steps for k in range(self.steps)}, **users}

    def __call__(self, about: Round, session: Session, engine: Engine, shares: Shares) -> NDArray[np.float64]:
        """Take the steps."""
        items, rows = about.items.copy(), about.rows
        total = np.maximum(about.expected.total, 1e-9)
        shared, slope = None, total
        if about.unobserved:
            shared = released_user_gram(about, session, engine, shares["users"])
            steepest = float(np.linalg.eigvalsh(shared)[-1])
            slope = total + about.unobserved * about.expected.typical * steepest / about.norm**2
        for k in range(self.steps):
            share = shares[f"step {k + 1}"]
            weighted = about.weights.times(about.residuals(items), self.clip)
            name = Purpose.ITEM_GRADIENTS.at(round=about.number, step=k + 1)
            if isinstance(share, PlannedShare):
                form = partial(_moments, about.data, engine, rows)
                keys = sampling_keys(about.data.user_ids)
                released = session.release_sampled(name, weighted, form, share, keys) / share.mechanism.probability
            else:
                released = session.release(name, engine.moments(about.data, weighted, rows), share)
            direction = self.clip * np.asarray(released, np.float64)
            direction -= self.ridge * total[:, None] * items
            if shared is not None:
                direction -= about.unobserved * about.expected.typical[:, None] * (items @ shared)
            noise = self.clip * about.norm / share.mu / self.sampling
            taken = (about.number - 1) * self.steps + k + 1
            squares = np.square(slope)
            if self.even:
                squares = np.full_like(squares, squares.mean())
            sizes = self.step / np.sqrt(squares + items.shape[1] * noise**2) / np.sqrt(taken)
            items += sizes[:, None] * direction
        return items


def _moments(data: Interactions, engine: Engine, rows: Rows, weights: Weights) -> BoundedSum:
    return engine.moments(data, weights, rows)


def released_user_gram(about: Round, session: Session, engine: Engine, share: Share) -> NDArray[np.float64]:
    """Σ_j v vᵀ over all users, released: what the unobserved pairs contribute to every item."""
    sums = engine.user_gram(about.data, about.rows)
    released = np.asarray(session.release(Purpose.USERS_MATRIX.at(round=about.number), sums, share), np.float64)
    return np.asarray(linalg.unpack(linalg.project_psd(released[None, :]))[0], np.float64)


def solve_noisy(matrices: Floats, vectors: Floats, base: Floats) -> NDArray[np.float64]:
    """(A⁺ + base)⁻¹ b for every item, with A⁺ the positive semidefinite matrix nearest to A."""
    repaired = linalg.project_psd(matrices)
    solved, failed = linalg.solve_packed(repaired, vectors, base)
    return np.where(failed[:, None], 0.0, solved).astype(np.float64)


def _check_fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"Expected {name} strictly between 0 and 1, got {value}.")

"""How much users differ in the mean of their ratings, from one small release; it tells whether they differ at all.

The product of two different ratings of a user, both around the mean of all, has the variance of users' biases as its
expectation: nothing else makes two ratings of a user alike. Each user adds the mean over its pairs. Without biases of
users that is about zero, and predictions fall back to the means of items. The variance of a user's ratings around their
own mean comes with it: what counts is the ratio of the two (docs/proofs/recommend.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import UserParts, Users
from apportion.engines import Engine, add_up_one
from apportion.postprocessing.running import VARIANCES, Belief
from apportion.privacy import Purpose, Session, Share
from apportion.privacy.contributions import ClippedParts, Output
from apportion.privacy.neighbours import Neighbours

Floats = NDArray[np.floating[Any]]

_FULL_SAY = 4.0  # √(n (n - 1)) from which a user's say counts in full
_UNIT_OF_SAY = 0.25  # what a say of 1 is in the release, where products are in labels squared
_UNIT_OF_SQUARES = 0.25  # what a variance within a user of 1 is
_CLIP_NORMS = 0.4, 1.0  # the least and the most
_AIM = 0.01  # noise of the variance for which the norm is chosen between these
_CLIPPED_OFF = 0.25  # of the variance for a norm of 1, on usual data; twice that for half of it
_USUAL_VARIANCE = 0.9  # of a rating; with the number of ratings it tells how far products vary among users
_LEVELS = np.geomspace(0.003, 30.0, 400)  # of the variance, over the usual one


@dataclass(frozen=True)
class PairProducts:
    """A user's say, and times that say the mean product of two of its labels and the variance among its labels.

    Attributes:
        value_range: the public scale; values outside are brought into it.
        centre: what is taken off a value.
        unit: values per unit of label.
        clip_norm: of a user's part.
    """

    value_range: tuple[float, float]
    centre: float
    unit: float
    clip_norm: float

    def __call__(self, users: Users, weights: Any) -> tuple[NDArray[np.float64]]:
        """Return the row of every user, from its own rows; users with one rating have no pairs and add zero."""
        labels = (np.clip(users.column("values"), *self.value_range).astype(np.float64) - self.centre) / self.unit
        total = np.bincount(users.owner, labels, minlength=users.n_users)
        squares = np.bincount(users.owner, np.square(labels), minlength=users.n_users)
        sizes = users.sizes.astype(np.float64)
        pairs = sizes * (sizes - 1)
        say = np.minimum(np.sqrt(pairs) / _FULL_SAY, 1.0)
        per_pair = say / np.maximum(pairs, 1.0)
        between, within = np.square(total) - squares, sizes * squares - np.square(total)
        row = [_UNIT_OF_SAY * say, per_pair * between, _UNIT_OF_SQUARES * per_pair * within]
        return (np.where(pairs[:, None] > 0, np.stack(row, axis=1), 0.0),)

    def contribution(self, neighbours: Neighbours) -> ClippedParts:
        """Return this as a contribution."""
        output = Output(3, self.clip_norm, False, "mean product of two ratings of a user, and their variance")
        return ClippedParts(self, (output,), neighbours=neighbours)


def clip_norm_for(n_users: float, rows: float, mu: float) -> float:
    """Return the norm with which noise stays small; larger ones distort less.

    Args:
        n_users: the number of users, released or declared.
        rows: ratings of a typical user; released.
        mu: privacy parameter of the release.
    """
    return float(np.clip(_AIM * mu * n_users * usual_say(rows), *_CLIP_NORMS))


def usual_say(rows: float) -> float:
    """Return the say of a typical user, who has so many ratings."""
    return float(min(np.sqrt(max(rows * (rows - 1), 0.1)) / _FULL_SAY, 1.0))


@dataclass(frozen=True)
class Spread:
    """What is released of how users differ, and what it tells.

    Attributes:
        released: the sum over users of `PairProducts`.
        stddev: of its noise.
        clip_norm: of users' parts.
        n_users: the number of users.
        rows: ratings of a typical user.
        unit: labels per unit of the products.
    """

    released: Floats
    stddev: float
    clip_norm: float
    n_users: float
    rows: float
    unit: float = 1.0

    @property
    def say(self) -> float:
        """The total say of all users."""
        return max(float(self.released[0]) / _UNIT_OF_SAY, 10.0)

    def of_biases(self, usual: float) -> float:
        """Return the expected variance of users' biases.

        Before the release, it is taken for exponential with the usual one as its mean. The expectation is the variance
        for which predictions have the least expected squared error; if noise is all there is, it is the usual one, in
        units of the products.
        """
        lost = 1 + _CLIPPED_OFF / self.clip_norm
        among_users = np.sqrt(2 * self.n_users) * _USUAL_VARIANCE / max(_FULL_SAY, self.rows)
        noise = lost * float(np.hypot(self.stddev, among_users)) / self.say
        levels = usual * _LEVELS
        surprise = (lost * float(self.released[1]) / self.say - levels) / noise
        logs = np.log(_LEVELS) - _LEVELS - np.square(surprise) / 2  # the steps between levels grow as these do
        weights = np.exp(logs - logs.max())
        return float(weights @ levels / weights.sum()) * self.unit**2

    def within_users(self, usual: Belief) -> Belief:
        """Return what is known of the variance of a user's ratings around their mean."""
        per_square = self.unit**2 / (_UNIT_OF_SQUARES * self.say)
        seen = usual.after(float(self.released[2]) * per_square, self.stddev * per_square, 0.0)
        return seen.between(*VARIANCES)


def released_spread(
    users: UserParts,
    session: Session,
    engine: Engine,
    share: Share,
    value_range: tuple[float, float],
    centre: float,
    unit: float,
    n_users: float,
    rows: float,
    variance: float,
) -> Spread:
    """Release how much users differ.

    Where ratings vary more than usual, products are in units in which they vary as usual: what counts is how much users
    differ in comparison, and fewer products are clipped.

    Args:
        users: without the rows that are held out.
        session: pays for the release.
        engine: where it is added up.
        share: of the budget.
        value_range: the public scale.
        centre: what is taken off a value.
        unit: values per unit of label.
        n_users: the number of users, released or declared.
        rows: ratings of a typical user; released.
        variance: of users' residuals, released.
    """
    norm, wide = clip_norm_for(n_users, rows, share.mu), max(float(np.sqrt(variance / _USUAL_VARIANCE)), 1.0)
    products = PairProducts(value_range, centre, unit * wide, norm)
    total = add_up_one(engine, users, products.contribution(session.neighbours))
    found = session.release(Purpose.USER_SPREAD, total, share)
    return Spread(found, total.l2_sensitivity / share.mu, norm, n_users, rows, wide)

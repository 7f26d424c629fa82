"""The clip norm of a ratings fit, from one small release about users' residuals, and the length of item vectors.

Before the first round, every user compares its ratings with its own mean (leaving each rating out of it), and reports
how much of its part each clip norm of a public list would remove, and how much of its mean residual. If scales are
skewed and users rate little, a small norm cuts off one side and shifts all predictions to the other. If users rate
much, it only evens out their influence and lowers the noise. The norm with the least estimated error is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.postprocessing.popularity import Exposure
from apportion.postprocessing.running import VARIANCES, Belief
from apportion.privacy.contributions import ClippedParts, Output
from apportion.privacy.neighbours import Neighbours

Floats = NDArray[np.floating[Any]]

NORMS = (0.7, 1.0, 1.5, 2.2, 3.2)
"""The public list, in units of a quarter of the value range; the first is taken where nothing can be told."""

USUAL_VARIANCE = Belief(0.9, 0.25)
"""Of residuals among data sets; all that is known where nothing was released of them."""

_PART_NORM = 1.5
_FULL_SAY = 3.0  # √n^j from which a user's say counts in full
_LENGTHS_SPREAD = 0.32  # of the logarithms of users' root mean squares
_PART_SPREAD = 0.06  # of what a norm keeps among data sets, where the variance is known
_OFFSETS = (0.8, 0.03), (0.2, 0.3)  # how many data sets have offsets by clipping of about this, in labels
_DAMPING = 6.0  # ratings at the centre that are added to a user's own mean
_DISTORTION = 0.003  # error from uneven clipping, per residual variance and squared fraction that is cut off
_COORDINATES = 3.0  # as many biases have about the error that an item's vector and bias have together
_ITEM_VARIANCE = 0.1
_DIMENSIONS = ((90.0, 8), (45.0, 4), (22.0, 2))  # from which signal to noise of an item, as users meet it
_CLEAR = 9.0  # signal to noise of an item whose vector is learned
_USUAL = 0.8  # of what an item has on average, as users meet items: from here on it has a vector like the others
_ALWAYS_HELD = 0.15  # of all exposure, by items whose vectors are learned
_LEAST_TOLD = 30.0  # of that signal times the root of a user's ratings, from which vectors have any length


@dataclass(frozen=True)
class ClippedAway:
    """A user's (1, mean residual, mean squared residual), and what each norm removes of 1 and of the mean.

    Attributes:
        value_range: the public scale; values outside are brought into it.
        centre: what is taken off a value.
        unit: values per unit of label.
    """

    value_range: tuple[float, float]
    centre: float
    unit: float

    def __call__(self, users: Users, weights: Any) -> tuple[NDArray[np.float64]]:
        """Return the row of every user, from its own rows."""
        labels = (np.clip(users.column("values"), *self.value_range).astype(np.float64) - self.centre) / self.unit
        sizes = np.maximum(users.sizes, 1)
        totals = np.bincount(users.owner, labels, minlength=users.n_users)
        others = (totals[users.owner] - labels) / (sizes[users.owner] - 1 + _DAMPING)
        residuals = labels - others
        mean = np.bincount(users.owner, residuals, minlength=users.n_users) / sizes
        square = np.bincount(users.owner, np.square(residuals), minlength=users.n_users) / sizes
        lost = 1 - np.minimum(1, np.array(NORMS) / np.maximum(np.sqrt(square), 1e-12)[:, None])
        say = np.minimum(np.sqrt(sizes) / _FULL_SAY, 1.0)
        row = [np.ones_like(mean), mean / 2, square / 4, *lost.T, *(lost.T * mean / 2)]
        return (say[:, None] * np.stack(row, axis=1),)

    def contribution(self, neighbours: Neighbours) -> ClippedParts:
        """Return this as a contribution."""
        output = Output(3 + 2 * len(NORMS), _PART_NORM, False, "what clip norms would remove of a user's residuals")
        return ClippedParts(self, (output,), neighbours=neighbours)


@dataclass(frozen=True)
class Residuals:
    """Released facts about users' residuals.

    Attributes:
        variance: their mean square.
        clip_norm: the norm that is taken.
        kept: the part of users' residuals that this norm keeps, in the mean over users.
    """

    variance: Belief
    clip_norm: float
    kept: Belief


def unreleased(clip_norm: float) -> Residuals:
    """Return what is known of residuals where the norm is given."""
    return Residuals(USUAL_VARIANCE, clip_norm, usual_part(clip_norm, USUAL_VARIANCE.mean))


def choose(released: Floats, stddev: float, exposure: Exposure, mu: float) -> Residuals:
    """Estimate the error under each norm, and take the norm with the least.

    The error has three parts: the offset that clipping causes, the distortion by clipping users unevenly, and the
    privacy noise in what is learned about an item. An offset counts as far as it exceeds the noise of its release, so
    that noise alone does not raise the norm. What a norm keeps is drawn to what it keeps on usual data.

    Args:
        released: the sum over users of `ClippedAway`.
        stddev: of its noise.
        exposure: of the tasks.
        mu: privacy parameter of all rounds together.
    """
    voters = max(float(released[0]), 10.0)
    says, noise = released / voters, stddev / voters
    variance = USUAL_VARIANCE.after(4 * float(says[2]), 4 * noise, 0.0).between(*VARIANCES)
    losses = says[3 : 3 + len(NORMS)]
    kept = [
        usual_part(norm, variance.mean).after(1 - loss, noise, 0.0).between(0.1, 1.0)
        for norm, loss in zip(NORMS, losses, strict=True)
    ]
    parts = np.array([part.mean for part in kept])
    offsets = (2 * (1 - parts) * says[1] - 2 * says[3 + len(NORMS) :]) / parts
    errors = (
        np.square(_expected_offset(offsets, 2 * noise / parts))
        + _DISTORTION * variance.mean * np.square(1 - parts)
        + _noise_error(np.array(NORMS) / parts, exposure, mu)
    )
    best = int(np.argmin(errors))
    return Residuals(variance, NORMS[best], kept[best])


def usual_part(norm: float, variance: float) -> Belief:
    """Return what part of a user's residuals a clip norm keeps on usual data, where only their variance is known.

    The root mean squares of users' residuals are taken for log-normal.

    >>> round(usual_part(0.7, 0.9).mean, 2), round(usual_part(3.2, 0.9).mean, 2)
    (0.8, 1.0)
    """
    ratio, spread = norm / math.sqrt(variance), _LENGTHS_SPREAD
    longer = (math.log(ratio) + spread**2) / spread  # from here on users are clipped
    clipped = ratio * math.exp(1.5 * spread**2) * _normal(-longer - spread)
    return Belief.around(_normal(longer) + clipped, _PART_SPREAD)


def _normal(x: float) -> float:
    """Return Φ(x)."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _expected_offset(seen: Floats, noise: Floats) -> NDArray[np.float64]:
    """Return the posterior means of offsets that were seen with noise: most data sets have next to none, some much."""
    spreads = [np.hypot(size, noise) for _, size in _OFFSETS]
    logs = [
        np.log(part / spread) - np.square(seen / spread) / 2
        for (part, _), spread in zip(_OFFSETS, spreads, strict=True)
    ]
    likely = np.exp(logs - np.max(logs, axis=0))
    kept = [(size / spread) ** 2 for (_, size), spread in zip(_OFFSETS, spreads, strict=True)]
    return np.asarray(seen * (likely * kept).sum(axis=0) / likely.sum(axis=0))


def dimension_for(exposure: Exposure, clip_norm: float, mu: float, rows: float) -> int:
    """Return the length of item vectors: longer if items exceed the noise, but at most the ratings of a user.

    It is 0 where items do not stand out of the noise: a few rounds for biases alone, private damped means, are better
    then. A user of many ratings knows its own taste better, so that vectors are of use from a smaller signal on.

    Args:
        exposure: of the tasks.
        clip_norm: of users' parts.
        mu: privacy parameter of all rounds together.
        rows: ratings of a typical user.
    """
    signal = mu * _met(exposure) / clip_norm
    shortest = int(signal * np.sqrt(rows) >= _LEAST_TOLD)
    longest = next((dimension for least, dimension in _DIMENSIONS if signal >= least), shortest)
    return int(min(max(rows, 1), longest))


def worth_a_vector(exposure: Exposure, clip_norm: float, mu: float) -> NDArray[np.bool_]:
    """Return the tasks whose vectors can stand out of the noise; the rounds learn no others.

    The coordinates of rare tasks would use up norm of users, and what is learned of them would be noise. Some tasks are
    always among them: those that are no rarer than usual, and at least those with a part of all exposure.

    Args:
        exposure: of the tasks.
        clip_norm: of users' parts.
        mu: privacy parameter of all rounds together.
    """
    order = np.argsort(-exposure.total, kind="stable")
    held = np.cumsum(exposure.total[order]) - exposure.total[order]
    least = np.zeros(len(order), np.bool_)
    least[order] = held < _ALWAYS_HELD * max(float(exposure.total.sum()), 1e-9)
    return np.asarray((exposure.total >= min(_CLEAR * clip_norm / mu, _USUAL * _met(exposure))) | least)


def _met(exposure: Exposure) -> float:
    """Return the exposure of an item, averaged as users meet items."""
    return float(np.square(exposure.total).sum() / max(float(exposure.total.sum()), 1e-9))


def _noise_error(levels: Floats, exposure: Exposure, mu: float) -> NDArray[np.float64]:
    """Return the posterior variance of an item as users encounter items, for each noise level."""
    noise = np.square(levels[:, None] / (mu * np.maximum(exposure.total, 1e-9)))
    met = exposure.total / exposure.total.sum()
    return np.asarray(_COORDINATES * (noise * _ITEM_VARIANCE / (noise + _ITEM_VARIANCE)) @ met)

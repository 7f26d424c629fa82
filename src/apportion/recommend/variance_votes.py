"""Votes on how much users vary: the prior variances of a user's factor on item biases and of its taste.

Each user predicts its held-out ratings from its other ones under a few settings, which differ from the default in one
variance each, and adds the differences in squared error (`privacy.contributions.votes`). A variance is changed only if
the released differences exceed their noise. Without variance there is no taste: the model then consists of damped
means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.linalg.fixed_sums import Runs, dot
from apportion.linalg.user_moments import moments_of_users, solutions
from apportion.privacy.contributions import HeldOut, Kernels, Votes
from apportion.privacy.neighbours import Neighbours
from apportion.recommend.model import FoldIn

Floats = NDArray[np.floating[Any]]

CLIP_NORM = 0.25
_DOUBT = 2.0
_SPREAD_OF_VOTES = 0.025
SPREAD_OF_FEATURE_VOTES = 0.1  # votes on tastes in many directions differ more
_LEAST = 1e-4  # of a variance, in place of 0
_LEVELS: tuple[tuple[str, float], ...] = (
    ("scale", 0.1),
    ("latent", _LEAST),
    ("latent", 0.25),
    ("latent", 2.5),
)
"""The public list: which variance is multiplied by what."""


def doubt_of_votes(stddev: float, n_users: float, spread: float = _SPREAD_OF_VOTES) -> float:
    """Return how far a sum of votes has to be below 0 to count.

    Doubt is the privacy noise and what other users would have said: a public guess of the spread of a vote.

    Args:
        stddev: of the noise.
        n_users: who vote, about.
        spread: that guess.
    """
    return _DOUBT * float(np.hypot(stddev, spread * np.sqrt(n_users)))


@dataclass(frozen=True)
class UserVariances:
    """Prior variances of a user's own parameters: bias, factor on item biases, and taste per coordinate."""

    bias: float
    scale: float
    latent: float

    def fold_in(self, parameters: Floats, variances: Floats, residual: float) -> FoldIn:
        """Return a user's regression on item parameters; poorly known items are trusted less."""
        latent = parameters.shape[1] - 1
        uncertain = variances @ np.array([1 + self.scale] + [self.latent / 2] * latent)
        precision = 1 / np.array([self.bias, self.scale] + [self.latent] * latent)
        features = np.concatenate([np.ones((len(parameters), 1)), parameters], axis=1)
        return FoldIn(features, 1 / (residual + uncertain), np.diag(precision), precision * np.eye(len(precision))[1])

    def others(self) -> list[UserVariances]:
        """Return the settings that are compared with this one."""
        return [replace(self, **{name: getattr(self, name) * factor}) for name, factor in _LEVELS]

    def voted(self, released: Floats, stddev: float, n_users: float) -> UserVariances:
        """Return, for each variance, the level with the least loss, if it is clearly below this one's."""
        doubt = doubt_of_votes(stddev, n_users)
        best: dict[str, tuple[float, float]] = {}
        for (name, factor), loss in zip(_LEVELS, released, strict=True):
            if loss < min(-doubt, best.get(name, (0.0, 1.0))[0]):
                best[name] = (float(loss), factor)
        return replace(self, **{name: getattr(self, name) * factor for name, (_, factor) in best.items()})


@dataclass(frozen=True, eq=False)
class VarianceLosses:
    """Squared errors of a user's held-out ratings, over the root of their number, under each setting.

    Attributes:
        fold_ins: the regression under each setting, the default first; only their priors count, features and trust are
            those of the default.
        value_range: public scale; values outside are brought into it.
        centre: what is taken off a value.
        unit: values per unit of label.
        clip_norm: of a user's differences together.
        what: the settings in words, for the statement.
    """

    fold_ins: tuple[FoldIn, ...]
    value_range: tuple[float, float]
    centre: float
    unit: float
    clip_norm: float = CLIP_NORM
    what: str = "other variances of users"

    @property
    def n_settings(self) -> int:
        """The number of settings: the default and the others."""
        return len(self.fold_ins)

    def __call__(self, kept: Any, shown: Any, kernels: Kernels) -> NDArray[np.float64]:
        """Return the losses of these users; sums are in a fixed order, whoever else is there."""
        default = self.fold_ins[0]
        tasks = kept.column("tasks")
        with np.errstate(all="ignore"):  # losses that are not finite count as none
            trust = default.observation_weights
            moments = moments_of_users(kept.indptr, tasks, default.features, trust, self._labels(kept))
            return np.stack([self._losses(each, moments, shown) for each in self.fold_ins], axis=1)

    def _losses(self, fold_in: FoldIn, moments: tuple[Any, Any], shown: Any) -> NDArray[np.float64]:
        solution = solutions(fold_in.base, fold_in.base_rhs, *moments)
        predicted = dot(list(fold_in.features[shown.column("tasks")].T), [column[shown.owner] for column in solution])
        squares = Runs(shown.indptr).sums()(np.square(self._labels(shown) - predicted))
        return np.asarray(squares / np.sqrt(np.maximum(shown.sizes, 1)))

    def _labels(self, users: Any) -> NDArray[np.float64]:
        values = np.clip(np.asarray(users.column("values"), np.float64), *self.value_range)
        return np.asarray((values - self.centre) / self.unit)

    def contribution(self, rows: HeldOut, neighbours: Neighbours) -> Votes:
        """Return the losses as a contribution."""
        what = f"differences in squared error on held-out rows under {self.what}"
        return Votes(self, rows, self.clip_norm, what, neighbours)

"""Plain joint DP-SGD: users and the encoder take gradient steps together, without solving any regression exactly.

This baseline does not use the problem's structure. In each step, every user moves its own bias and taste along its own
gradient, and the users in a Poisson sample contribute their clipped gradients in the encoder's parameters. A user's
state depends on its own rows and on released values, not on which users were sampled.

Krichene et al., "Private Learning with Public Features" (2024), appendix E.1.5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Expected
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.errors import InputError
from apportion.linalg.fixed_order import dot_rows
from apportion.privacy.contributions import Kernels, Weighting
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.minimisation import EncoderMinimisation, _EncoderFit
from apportion.published.public_features.user_side import BiasedVectors
from apportion.published.skew.updates import Round

Floats = NDArray[np.floating[Any]]


class JointGradient(EncoderMinimisation):
    """DP-SGD on everything at once, for ratings; arguments are those of `EncoderMinimisation`.

    `update` must be an `EncoderGradient` of one step, and `rounds` is the number of steps. A user's own step is
    `user_step` divided by the curvature that follows from its number of rows and its ridge, so that no user's steps
    diverge. The published model computes users' vectors as all other models do.
    """

    user_step = 0.5

    @property
    def _making(self) -> type[_EncoderFit]:
        return _JointFit

    def _check(self, data: Interactions) -> None:
        super()._check(data)
        if self.kind != "ratings" or not isinstance(self.update, EncoderGradient) or self.update.steps != 1:
            raise InputError(
                "JointGradient needs values and an EncoderGradient of 1 step as update.", argument="update"
            )


class _JointFit(_EncoderFit):
    """One fit: users remember their biases and tastes from step to step."""

    _own: NDArray[np.float64] | None = None

    def _round(self, k: int, weights: Weighting, expected: Expected, items: NDArray[np.float64]) -> Round:
        if k == 0:
            items = self._first(items)
        labels = np.asarray(self._labels().of(self._users), np.float64)
        self._own = self._moved(self._own, items, labels)
        users = self._users.with_user_columns(own=self._own)
        return self._biased_round(k, weights, expected, items, users, BiasedVectors(_remembered, 1, *self._bounds))

    def _moved(self, own: NDArray[np.float64] | None, items: Floats, labels: Floats) -> NDArray[np.float64]:
        """Return every user's bias and taste after one step along its own gradient; both start at 0."""
        chosen, data = self._biased, self._data
        assert isinstance(chosen, JointGradient)
        if own is None:
            return np.zeros((data.n_users, 1 + chosen.dimension))
        vectors = np.concatenate([np.ones((len(items), 1)), items[:, 1:]], axis=1)
        offsets = chosen.bias_scale * items[data.tasks, 0]
        errors = labels - offsets - dot_rows(own[data.users], vectors[data.tasks])
        ridge = np.array([chosen.bias_ridge, *[chosen.user_ridge] * chosen.dimension])
        pull = np.stack(
            [np.bincount(data.users, errors * vectors[data.tasks, c], minlength=len(own)) for c in range(len(ridge))],
            axis=1,
        )
        squares = np.bincount(data.users, np.square(vectors).sum(axis=1)[data.tasks], minlength=len(own))
        moved = own + chosen.user_step * (pull - ridge * own) / (squares[:, None] + ridge)
        return np.asarray(
            np.nan_to_num(moved, nan=0.0, posinf=0.0, neginf=0.0)
        )  # a refusal would reveal something about one user


def _remembered(users: Users, kernels: Kernels) -> NDArray[np.float64]:
    """Return what users remember from the previous step."""
    return np.asarray(users.of_user("own"), np.float64)

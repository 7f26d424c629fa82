"""Plain joint DP-SGD: users and the encoder take gradient steps together, without any regression solved exactly.

A baseline that does not use the problem's structure. Each step, every user moves its own bias and taste down its own
gradient, alone, and the users of a Poisson sample contribute their clipped gradients in the encoder's parameters. A
user's state depends on its own rows and on what was released, not on who was sampled.

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
from apportion.privacy.contributions import Kernels, Weighting
from apportion.published.public_features.gradient import EncoderGradient
from apportion.published.public_features.minimisation import EncoderMinimisation, _EncoderFit
from apportion.published.public_features.user_side import BiasedVectors
from apportion.published.skew.updates import Round

Floats = NDArray[np.floating[Any]]


class JointGradient(EncoderMinimisation):
    """DP-SGD on everything at once, for ratings; arguments are those of `EncoderMinimisation`.

    `update` must be an `EncoderGradient` of one step, and `rounds` is how many steps are taken. A user's own step is
    `user_step` over what its number of rows and its ridge make of the curvature, so that nobody's steps diverge. The
    model that is published lets users fold in as all others do.
    """

    user_step = 0.5

    @property
    def _making(self) -> type[_EncoderFit]:
        return _JointFit

    def _check(self, data: Interactions) -> None:
        super()._check(data)
        if self.kind != "ratings" or not isinstance(self.update, EncoderGradient) or self.update.steps != 1:
            raise InputError("Expected values and an EncoderGradient of 1 step as update for a JointGradient.")


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
        """Every user's bias and taste after one step down its own gradient; both start at 0."""
        chosen, data = self._biased, self._data
        assert isinstance(chosen, JointGradient)
        if own is None:
            return np.zeros((data.n_users, 1 + chosen.dimension))
        vectors = np.concatenate([np.ones((len(items), 1)), items[:, 1:]], axis=1)
        offsets = chosen.bias_scale * items[data.tasks, 0]
        errors = labels - offsets - np.einsum("nd,nd->n", own[data.users], vectors[data.tasks])
        ridge = np.array([chosen.bias_ridge, *[chosen.user_ridge] * chosen.dimension])
        pull = np.stack(
            [np.bincount(data.users, errors * vectors[data.tasks, c], minlength=len(own)) for c in range(len(ridge))],
            axis=1,
        )
        squares = np.bincount(data.users, np.square(vectors).sum(axis=1)[data.tasks], minlength=len(own))
        moved = own + chosen.user_step * (pull - ridge * own) / (squares[:, None] + ridge)
        return np.asarray(np.nan_to_num(moved, nan=0.0, posinf=0.0, neginf=0.0))  # a refusal would tell of one user


def _remembered(users: Users, kernels: Kernels) -> NDArray[np.float64]:
    """What users remember from the step before."""
    return np.asarray(users.of_user("own"), np.float64)

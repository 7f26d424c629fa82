"""What users of the encoder methods compute for themselves: a bias and a taste, from own rows and released items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.linalg.fixed_order import dot_rows
from apportion.privacy import Rows
from apportion.privacy.contributions import Kernels
from apportion.published.skew.updates import OwnLabels
from apportion.recommend.model import FoldIn

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BiasedVectors:
    """(bias_scale, taste) of every user, with the taste clipped to a ball.

    Attributes:
        solve: maps a run of users and kernels to one row per user, whose first entry is the user's own bias.
        taste: where the taste begins in that row.
        bias_scale: the first entry of every vector.
        user_norm: radius of the ball.
    """

    solve: Callable[[Users, Kernels], Any]
    taste: int
    bias_scale: float
    user_norm: float

    @property
    def norm(self) -> float:
        """The bound on every vector."""
        return float(np.hypot(self.bias_scale, self.user_norm))

    def __call__(self, users: Users, kernels: Kernels) -> Rows:
        """Return the vectors of these users, sealed with their bound."""
        return Rows.clipped(self.vectors(users, kernels), self.norm)

    def own(self, users: Users, kernels: Kernels) -> Floats:
        """Return what the users solved for; private. It is kept, because a round asks for it more than once."""
        result: Floats = users.remembered_rows(self, lambda run: _plain(self.solve(run, kernels)))
        return result

    def vectors(self, users: Users, kernels: Kernels) -> Floats:
        """Return the vectors themselves; private."""
        tastes = self.own(users, kernels)[:, self.taste :]
        lengths = np.sqrt(dot_rows(tastes, tastes))[:, None]
        tastes = tastes * (self.user_norm / np.maximum(lengths, self.user_norm))
        return np.concatenate([np.full((len(tastes), 1), self.bias_scale), tastes], axis=1)


@dataclass(frozen=True, eq=False)
class FoldedIn:
    """The solution of every user's own regression on released items.

    Attributes:
        fold_in: the regression.
        labels: what it is fitted to.
    """

    fold_in: FoldIn
    labels: OwnLabels

    def __call__(self, users: Users, kernels: Kernels) -> Any:
        """Return the solutions of these users; private."""
        return self.fold_in.solve(kernels, users, self.labels.of(users))


@dataclass(frozen=True, eq=False)
class UnbiasedLabels:
    """Labels minus the bias of their own user."""

    labels: OwnLabels
    rows: BiasedVectors
    kernels: Kernels

    def of(self, users: Users) -> Floats:
        """Return the labels of these users' rows; private."""
        biases = self.rows.own(users, self.kernels)[:, 0]
        return np.asarray(self.labels.of(users) - biases[users.owner], np.float64)


def _plain(solved: Any) -> Floats:
    return np.asarray(solved.cpu() if hasattr(solved, "cpu") else solved, np.float64)

"""DP-CMF: ratings and public features factorised together, as a baseline for encoders.

An item's vector v_i explains its ratings and, with one vector z_f per feature, its features:

    Σ_j w_ij (u_j · v_i − y_ij)² + α Σ_f (v_i · z_f − x_if)².

The first sum is protected through the item's statistics, released once per round; the second is public. Given both, v
and z are solved alternately, which costs nothing. Zeros of the feature matrix count, through Σ_f z_f z_fᵀ.

This is the method of Curmei et al., "Private Matrix Factorization with Public Item Features" (2023), with the ridge
added after the release.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.data.sparse_rows import SparseRows
from apportion.engines import Engine
from apportion.errors import InputError
from apportion.privacy import Session
from apportion.published.public_features.statistics import (
    Surrogate,
    plain_surrogate,
    release_statistics,
    with_unobserved,
)
from apportion.published.skew.updates import Round, Shares, released_user_gram
from apportion.recommend.features.new_items import LinearForm

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CollectiveFactorisation:
    """Item vectors that explain both the released statistics and the public features.

    Attributes:
        feature_weight: α, in standard deviations of the noise of a matrix's diagonal.
        feature_ridge: penalty of the features' vectors.
        sweeps: number of alternations between items and features in each round.
        label_bound: labels are clipped to this.
        gram_share: fraction of a round's budget for the matrices.
        users_share: fraction of a round's budget for Σ_j u uᵀ over all users, for clicks.
        ridge: penalty of items' vectors, in standard deviations of the noise of a matrix's diagonal.
        rows: the items' features, one row per item; given by the estimator.
        last: the last round's map for new items; released.
    """

    feature_weight: float = 1.0
    feature_ridge: float = 1.0
    sweeps: int = 3
    label_bound: float = 1.0
    gram_share: float = 0.5
    users_share: float = 0.02
    ridge: float = 4.0
    rows: SparseRows | None = field(default=None, kw_only=True)
    last: list[Floats] = field(default_factory=list, repr=False, kw_only=True)
    sampling: ClassVar[float] = 1.0

    def for_items(self, rows: SparseRows) -> Self:
        """Return the same update for these items."""
        return replace(self, rows=rows, last=[])

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings as numbers and text, for the record."""
        named = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("rows", "last", "sampling")
        }
        return {"part": type(self).__name__, **named}

    def shares(self, *, clicks: bool) -> dict[str, float]:
        """Return the shares: matrices and vectors of all items, and the users' matrix for clicks."""
        if not 0 < self.gram_share < 1:
            raise InputError(
                f"Expected gram_share strictly between 0 and 1, got {self.gram_share}.", argument="gram_share"
            )
        if not self.feature_weight >= 0 or not self.feature_ridge > 0:
            raise InputError(
                f"Expected feature_weight >= 0 and feature_ridge > 0, got {self.feature_weight}, {self.feature_ridge}.",
                argument=None,
            )
        users = {"users": self.users_share} if clicks else {}
        rest = 1 - sum(users.values())
        return {"matrices": rest * self.gram_share, "vectors": rest * (1 - self.gram_share), **users}

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Release the statistics, then solve for items and features alternately."""
        if self.rows is None:
            raise InputError("This update needs items; use it in an EncoderMinimisation.", argument=None)
        unobserved = None
        if this_round.unobserved:
            shared = released_user_gram(this_round, session, engine, shares["users"])
            unobserved = partial(
                with_unobserved, shared=shared, unobserved=this_round.unobserved, typical=this_round.expected.typical
            )
        pair = (shares["matrices"], shares["vectors"])
        released = release_statistics(this_round, session, engine, pair, self.label_bound)
        surrogate = plain_surrogate(released, self.ridge, unobserved)
        weight = self.feature_weight * released.matrix_stddev
        items, result = factorise(surrogate, self.rows, weight, self)
        nothing = replace(released, matrices=np.zeros_like(released.matrices))
        penalty = plain_surrogate(nothing, self.ridge, unobserved).curvature.mean(axis=0)
        solved = linalg.solve_or_zero(penalty + weight * (result.T @ result), weight * result.T)
        self.last[:] = [np.asarray(solved.T, np.float64)]
        return items

    @property
    def new_form(self) -> LinearForm | None:
        """Return how an item without ratings is solved from its features alone, after the last round."""
        return LinearForm(np.zeros(self.last[0].shape[1]), self.last[0]) if self.last else None


def factorise(
    surrogate: Surrogate, rows: SparseRows, weight: float, chosen: CollectiveFactorisation
) -> tuple[Floats, Floats]:
    """Solve for vectors of items and features alternately, starting from the items' own minima."""
    features = rows.to_scipy()
    width = surrogate.slope.shape[1]
    items = linalg.solve_or_zero(surrogate.curvature, surrogate.slope[:, :, None])[:, :, 0]
    result = np.zeros((rows.n_columns, width))
    for _ in range(chosen.sweeps if rows.n_columns else 0):
        gram = items.T @ items + chosen.feature_ridge * np.eye(width)
        result = np.asarray(linalg.solve_or_zero(gram, (features.T @ items).T).T, np.float64)
        curvature = surrogate.curvature + weight * (result.T @ result)
        slope = surrogate.slope + weight * (features @ result)
        items = linalg.solve_or_zero(curvature, slope[:, :, None])[:, :, 0]
    return np.asarray(items), np.asarray(result)

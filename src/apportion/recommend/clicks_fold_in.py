"""How a user's vector is computed in the click recommender: popularity, learned vectors and feature directions.

Every user solves a regression in which each task counts as unobserved (the term Σ_i f_i f_iᵀ, which is public) and the
user's own clicks count more. The regression starts from popularity, as if the user had made `prior_clicks`
uninformative clicks, so a user with few clicks sees popular items. A large ridge leaves only popularity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.postprocessing.low_rank import Denoised
from apportion.recommend.model import FoldIn

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Items:
    """What is known about the tasks; all released.

    Attributes:
        popularity: Σ_j 1/√n^j of every task.
        exposure: the same under the weights of the rounds.
        count_noise: standard deviation of the noise in popularity.
        rows: the learned vectors.
    """

    popularity: NDArray[np.float64]
    exposure: NDArray[np.float64]
    count_noise: float
    rows: Denoised


@dataclass(frozen=True)
class Trust:
    """How far a user's regression trusts what was learned, relative to popularity.

    Attributes:
        ridge: of the regression, in units of the mean eigenvalue; popularity is spared.
        prior_clicks: how many clicks of a user popularity is worth.
        feature_weight: size of the directions of public features, relative to the learned vectors.
    """

    ridge: float
    prior_clicks: float
    feature_weight: float = 0.0

    @property
    def text(self) -> str:
        """The settings in words."""
        clicks = "1 click" if self.prior_clicks == 1 else f"{self.prior_clicks:g} clicks"
        words = f"ridge {self.ridge:g}, popularity worth {clicks}"
        return f"{words}, features {self.feature_weight:g}" if self.feature_weight else words


@dataclass(frozen=True, eq=False)
class Regressions:
    """Makes users' regressions on task features (popularity, vector, directions), scaled to a mean square of 1.

    Attributes:
        items: what was learned.
        observed: every pair pulls towards 0 with weight 1, an observed one towards 1 with this weight beside that.
        popularity_offset: vectors are divided by the root of popularity plus this many times its noise.
        directions: of public features, one row per task; None for none.
    """

    items: Items
    observed: float
    popularity_offset: float
    directions: Floats | None = None

    def under(self, trusts: Sequence[Trust]) -> tuple[FoldIn, ...]:
        """Return one regression for each trust. Those that weigh directions alike share the features."""
        weights = [trust.feature_weight if self._has_directions else 0.0 for trust in trusts]
        made = {weight: _Features.of(self._features(weight)) for weight in dict.fromkeys(weights)}
        return tuple(self._regression(made[weight], trust) for weight, trust in zip(weights, trusts, strict=True))

    @property
    def _has_directions(self) -> bool:
        return self.directions is not None and self.directions.shape[1] > 0

    def _features(self, weight: float) -> Floats:
        """Return the features, with directions of this size relative to the learned vectors."""
        items, directions = self.items, self.directions
        scale = 1 / np.sqrt(items.popularity + self.popularity_offset * items.count_noise)
        features = np.concatenate([items.popularity[:, None], items.rows.mean], axis=1) * scale[:, None]
        if directions is not None and self._has_directions:
            public = directions * (np.sqrt(items.popularity) * scale)[:, None]
            size = np.sqrt(np.square(features[:, 1:]).sum() / max(float(np.square(public).sum()), 1e-12))
            features = np.concatenate([features, weight * size * public], axis=1)
        features *= np.sqrt(len(features) / np.square(features).sum())
        return features

    def _regression(self, held: _Features, trust: Trust) -> FoldIn:
        gram, popularity = held.gram, self.items.popularity
        penalty = trust.ridge * np.trace(gram[1:, 1:]) / self.items.rows.mean.shape[1]
        base = (gram + np.diag([0.0] + [penalty] * (len(gram) - 1))) / self.observed
        one_click = popularity @ held.features[:, 0] / popularity.sum() / base[0, 0]
        start = trust.prior_clicks * one_click * base[:, 0]
        ones = np.ones(len(held.features), np.float32)
        return FoldIn(held.narrow, ones, base.astype(np.float32), start.astype(np.float32))


@dataclass(frozen=True, eq=False)
class _Features:
    """Features, the same in float32, and their Gram matrix."""

    features: Floats
    narrow: NDArray[np.float32]
    gram: Floats

    @classmethod
    def of(cls, features: Floats) -> _Features:
        return cls(features, features.astype(np.float32), features.T @ features)

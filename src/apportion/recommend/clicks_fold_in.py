"""How a user's vector is computed in the click recommender: popularity, learned vectors and feature directions.

Every user solves a regression in which each task counts as unobserved (the term Σ_i f_i f_iᵀ, which is public) and the
user's own clicks count more. The regression starts from popularity, as if the user had made `prior_clicks`
uninformative clicks, so a user with few clicks sees popular items. A large ridge leaves only popularity.
"""

from __future__ import annotations

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


def fold_in(
    items: Items, trust: Trust, *, observed: float, popularity_offset: float, directions: Floats | None = None
) -> FoldIn:
    """Return a user's regression on task features (popularity, vector, directions), scaled to a mean square of 1.

    Args:
        items: what was learned.
        trust: how far it is trusted.
        observed: every pair pulls towards 0 with weight 1, an observed one towards 1 with this weight beside that.
        popularity_offset: vectors are divided by the root of popularity plus this many times its noise.
        directions: of public features, one row per task.
    """
    scale = 1 / np.sqrt(items.popularity + popularity_offset * items.count_noise)
    features = np.concatenate([items.popularity[:, None], items.rows.mean], axis=1) * scale[:, None]
    learned = features.shape[1] - 1
    if directions is not None and directions.shape[1]:
        public = directions * (np.sqrt(items.popularity) * scale)[:, None]
        size = np.sqrt(np.square(features[:, 1:]).sum() / max(float(np.square(public).sum()), 1e-12))
        features = np.concatenate([features, trust.feature_weight * size * public], axis=1)
    features *= np.sqrt(len(features) / np.square(features).sum())
    gram = features.T @ features
    penalty = trust.ridge * np.trace(gram[1:, 1:]) / learned
    base = (gram + np.diag([0.0] + [penalty] * (len(gram) - 1))) / observed
    one_click = items.popularity @ features[:, 0] / items.popularity.sum() / base[0, 0]
    start = trust.prior_clicks * one_click * base[:, 0]
    ones = np.ones(len(features), np.float32)
    return FoldIn(features.astype(np.float32), ones, base.astype(np.float32), start.astype(np.float32))

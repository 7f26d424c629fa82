"""The votes of a ratings fit, released: on users' variances, and on their tastes for public features.

Each user predicts its held-out ratings under every setting of a short list (`variance_votes`). Another setting than the
default is taken only if the released differences exceed their noise (docs/proofs/votes.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import UserParts
from apportion.engines import Engine, add_up_one
from apportion.privacy import Purpose, Session, Share
from apportion.privacy.contributions import HeldOut
from apportion.recommend.model import FoldIn
from apportion.recommend.variance_votes import SPREAD_OF_FEATURE_VOTES, UserVariances, VarianceLosses, doubt_of_votes

Floats = NDArray[np.floating[Any]]
Known = tuple[Floats, Floats, float]
"""Means and variances of all tasks' parameters, and the variance of residuals."""

FEATURES_CLIP_NORM = 0.2


@dataclass(frozen=True, eq=False)
class Ballot:
    """Who votes with which rows, and how votes are released.

    Attributes:
        users: with all rows.
        engine: where votes are added up.
        session: that pays for them.
        rows: those held out until now.
        n_voters: about how many users vote; released.
        value_range: public scale; values outside are brought into it.
        centre: what is taken off a value.
        unit: values per unit of label.
    """

    users: UserParts
    engine: Engine
    session: Session
    rows: HeldOut
    n_voters: float
    value_range: tuple[float, float]
    centre: float
    unit: float

    def on_variances(self, default: UserVariances, known: Known, share: Share) -> UserVariances:
        """Return the variances that users vote for."""
        settings = (default, *default.others())
        losses = self._losses([each.fold_in(*known) for each in settings])
        released, stddev = self._released(losses, Purpose.VOTES, share)
        return default.voted(released, stddev, self.n_voters)

    def on_features(self, fold_ins: Sequence[FoldIn], share: Share) -> int:
        """Return which of two regressions users vote for; 0, the first, unless the second is clearly better."""
        losses = replace(self._losses(fold_ins), clip_norm=FEATURES_CLIP_NORM, what="larger tastes for features")
        released, stddev = self._released(losses, Purpose.FEATURE_VOTES, share)
        return int(released[0] < -doubt_of_votes(stddev, self.n_voters, SPREAD_OF_FEATURE_VOTES))

    def _losses(self, fold_ins: Sequence[FoldIn]) -> VarianceLosses:
        return VarianceLosses(tuple(fold_ins), self.value_range, self.centre, self.unit)

    def _released(self, losses: VarianceLosses, purpose: Purpose, share: Share) -> tuple[Floats, float]:
        """Return the released votes, and the standard deviation of their noise."""
        total = add_up_one(self.engine, self.users, losses.contribution(self.rows, self.session.neighbours))
        return self.session.release(purpose, total, share), total.l2_sensitivity / share.mu

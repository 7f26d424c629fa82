"""What estimators of users with many rows share: their session, their weights, and noise that fits the budget.

How many rows each user has is public unless `sizes` is "private". Then neighbours add or remove one user, and a noisy
histogram of sizes pays for the choice of the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.users import (
    ContributionPolicy,
    Smooth,
    effective_sizes,
    optimal_threshold,
    size_buckets,
    sizes_from_histogram,
    unnormalised_row_weights,
)
from apportion.errors import InputError
from apportion.estimators.private import PrivateEstimator
from apportion.privacy import (
    ADD_REMOVE,
    REPLACE_VALUES,
    BoundedSum,
    Budget,
    Neighbours,
    PrivateRowWeights,
    PublicRowWeights,
    Purpose,
    Session,
    Share,
)
from apportion.privacy.contributions import RowWeights, size_histogram
from apportion.privacy.purposes import Name

Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]
Sizes = Literal["public", "private"]


@dataclass(frozen=True)
class Noisy:
    """A released sum, and the noise it got: normal or Laplace, one of the two scales is 0.

    Attributes:
        values: what was released.
        stddev: of normal noise, in every coordinate.
        scale: of Laplace noise, in every coordinate.
    """

    values: Floats
    stddev: float
    scale: float

    @property
    def variance(self) -> float:
        """Of the noise in one coordinate."""
        return self.stddev**2 + 2 * self.scale**2


@dataclass(frozen=True)
class Bounded:
    """The weights of a fit.

    Attributes:
        weights: of every row.
        threshold: h, public or from what was released.
    """

    weights: RowWeights
    threshold: float


class ContributionsEstimator(PrivateEstimator):
    """A private estimator of rows that are grouped by user."""

    delta: float
    bounding: ContributionPolicy
    sizes: Sizes
    sizes_share: float
    max_size: int

    @property
    def _neighbours(self) -> Neighbours:
        return ADD_REMOVE if self._sizes_are_private else REPLACE_VALUES

    @property
    def _sizes_are_private(self) -> bool:
        return self.sizes == "private"

    def _about_defaults(self) -> str:
        return "library defaults: constants that were not chosen on any data"

    def _session(self, given: Session | None, public: Sequence[str]) -> Session:
        """The session of this fit; refuses settings that make no sense."""
        if self.sizes not in ("public", "private"):
            raise InputError(f"Expected sizes to be 'public' or 'private', got {self.sizes!r}.")
        if self._sizes_are_private and not isinstance(self.bounding, Smooth):
            raise InputError(
                f"Expected bounding by Smooth weights where sizes are private, got {type(self.bounding).__name__}: "
                "which rows a limit keeps, and how many there are, depends on everybody's sizes."
            )
        about = [] if self._sizes_are_private else ["how many rows each user has"]
        return self._open(given, Budget(self.epsilon, self.delta), self._neighbours, [*about, *public])

    def _sizes_fractions(self) -> dict[str, float]:
        """What the plan needs for the choice of the threshold: nothing if sizes are public or it was given."""
        chosen = self._sizes_are_private and getattr(self.bounding, "threshold", None) is None
        return {"sizes": self.sizes_share} if chosen else {}

    def _bounded(
        self, indptr: Offsets, trade_off: float, session: Session, share: Share | None, correlation: float = 0.0
    ) -> Bounded:
        """Weights of all rows; where sizes are private, the threshold is given or chosen from a released histogram.

        Args:
            indptr: offsets of users.
            trade_off: A of `allocation.users`.
            session: pays for the histogram.
            share: for the histogram, if one is needed.
            correlation: assumed between two rows of one user.
        """
        if not self._sizes_are_private:
            made = self.bounding.row_weights(indptr, trade_off, correlation)
            return Bounded(PublicRowWeights(made.rows, indptr, made.description), made.threshold)
        threshold: float | None = getattr(self.bounding, "threshold", None)
        if threshold is None:
            assert share is not None
            edges = size_buckets(self.max_size)
            released = release_noisy(session, Purpose.SIZES, size_histogram(indptr, edges), share)
            sizes, counts = sizes_from_histogram(released.values, edges)
            best = optimal_threshold(effective_sizes(sizes, correlation), trade_off, counts)
            threshold = float(np.clip(best, 1.0, self.max_size))
        return Bounded(capped_weights(indptr, threshold, correlation), threshold)


def capped_weights(indptr: Offsets, threshold: float, correlation: float = 0.0) -> PrivateRowWeights:
    """min(h, effective size)/size for every row: a user's total is at most h, whoever else is there."""
    rows = unnormalised_row_weights(indptr, threshold, correlation)
    return PrivateRowWeights(
        rows, indptr, threshold, f"each user's total weight at most min(h, size), h = {threshold:g}"
    )


def release_noisy(session: Session, name: Name, statistic: BoundedSum, share: Share) -> Noisy:
    """Release with the noise that the budget allows: Laplace if it is pure, else Gaussian."""
    if session.budget.pure:
        values: Any = session.release_laplace(name, statistic, share)
        return Noisy(np.asarray(values), 0.0, statistic.l1_sensitivity / share.pure_epsilon)
    values = session.release(name, statistic, share)
    return Noisy(np.asarray(values), statistic.l2_sensitivity / share.mu, 0.0)

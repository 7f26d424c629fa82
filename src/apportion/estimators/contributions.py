"""What estimators for users with many rows share: their session, their weights, and noise that fits the budget.

The number of rows of each user is public unless `sizes` is "private". Then neighbours add or remove one user, and a
noisy histogram of sizes pays for the choice of the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
from apportion.data.users import UserParts, Users, in_memory
from apportion.engines import add_up_one
from apportion.errors import InputError
from apportion.estimators.base import defaults_of
from apportion.estimators.private import EngineEstimator
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, BoundedSum, Budget, Neighbours, Session, Share
from apportion.privacy.contributions import (
    Contribution,
    PrivateRowWeights,
    PublicRowWeights,
    RowWeighting,
    SizeHistogram,
)
from apportion.privacy.purposes import Name, Purpose

Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]
Sizes = Literal["public", "private"]


@dataclass(frozen=True)
class Noisy:
    """A released sum and its noise, which is normal or Laplace: one of the two scales is 0.

    Attributes:
        values: the released values.
        stddev: standard deviation of normal noise in every coordinate.
        scale: scale of Laplace noise in every coordinate.
    """

    values: Floats
    stddev: float
    scale: float

    @property
    def variance(self) -> float:
        """The variance of the noise in one coordinate."""
        return self.stddev**2 + 2 * self.scale**2


@dataclass(frozen=True)
class Bounded:
    """The weights of a fit.

    Attributes:
        weights: how rows are weighed.
        threshold: h, public or derived from released values.
        users: the users, who carry public weights as a column.
    """

    weights: RowWeighting
    threshold: float
    users: UserParts


class ContributionsEstimator(EngineEstimator):
    """A private estimator of rows grouped by user."""

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

    def _words_on_defaults(self) -> str:
        return "library defaults: constants that were not chosen on any data"

    def _session(self, given: Session | None, public: Sequence[str]) -> Session:
        """Return the session of this fit. Refuse invalid settings."""
        if self.sizes not in ("public", "private"):
            raise InputError(f"Expected sizes to be 'public' or 'private', got {self.sizes!r}.", argument="sizes")
        if self._sizes_are_private and not isinstance(self.bounding, Smooth):
            raise InputError(
                "Expected bounding by Smooth weights if sizes are private, got "
                f"{type(self.bounding).__name__}: the rows that a limit keeps depend on all users' sizes.",
                argument="bounding",
            )
        assumed = [] if self._sizes_are_private else ["how many rows each user has"]
        return self._open(given, Budget(self.epsilon, self.delta), self._neighbours, [*assumed, *public])

    def _check_target(self, of_the_paper: Sequence[str]) -> None:
        """Refuse an unknown target or unknown weights, and settings of the paper's weights without these weights."""
        one_of_words("of", getattr(self, "of", "rows"), ("rows", "users"))
        weights = getattr(self, "weights", "paper")
        one_of_words("weights", weights, ("target", "paper"))
        if weights == "paper":
            return
        if self.sizes == "public":
            raise InputError(
                "Expected private sizes, or weights='paper': the others need no public sizes.", argument="sizes"
            )
        defaults = defaults_of(self)
        given = [name for name in of_the_paper if getattr(self, name) != defaults[name]]
        if given:
            raise InputError(
                f"Expected {given[0]} with weights='paper' only, got it with weights='target'.", argument=given[0]
            )

    def _about_largest(self) -> list[str]:
        """Return the bound on sizes for the statement, if a named target has one."""
        if getattr(self, "of", "") != "rows" or getattr(self, "weights", "") != "target":
            return []
        return [f"that a user with more than {self.max_size} rows counts as if it had {self.max_size}"]

    def _sizes_fractions(self) -> dict[str, float]:
        """Return the fraction of the budget for choosing the threshold: nothing if sizes are public or it was given."""
        chosen = self._sizes_are_private and getattr(self.bounding, "threshold", None) is None
        return {"sizes": self.sizes_share} if chosen else {}

    def _bounded(
        self, users: UserParts, trade_off: float, session: Session, share: Share | None, correlation: float = 0.0
    ) -> Bounded:
        """Return weights of all rows. If sizes are private, the threshold is given or chosen from a released histogram.

        Args:
            users: the users with their rows.
            trade_off: A of `allocation.users`.
            session: pays for the histogram.
            share: the share for the histogram, if one is needed.
            correlation: the assumed correlation of two rows of one user.
        """
        if not self._sizes_are_private:
            held = in_memory(users, "Weights by public sizes")
            made = self.bounding.row_weights(held.indptr, trade_off, correlation)
            return publicly_weighed(held, made.rows, made.description, made.threshold)
        threshold: float | None = getattr(self.bounding, "threshold", None)
        if threshold is None:
            assert share is not None
            edges = size_buckets(self.max_size)
            histogram = SizeHistogram(np.asarray(edges, np.float64))
            released = self._release(session, Purpose.SIZES, users, histogram, share)
            sizes, counts = sizes_from_histogram(released.values, edges)
            best = optimal_threshold(effective_sizes(sizes, correlation), trade_off, counts)
            threshold = float(np.clip(best, 1.0, self.max_size))
        return Bounded(capped_weights(threshold, correlation), threshold, users)

    def _release(
        self, session: Session, name: Name, users: UserParts, contribution: Contribution, share: Share
    ) -> Noisy:
        """Add up, then release with the noise that the budget allows."""
        return release_noisy(session, name, add_up_one(self._adder, users, contribution), share)


def one_of_words(name: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse an unknown word."""
    if given not in known:
        raise InputError(f"Expected {name} to be {' or '.join(map(repr, known))}, got {given!r}.", argument=name)


def publicly_weighed(users: Users, rows: Floats, made: str, threshold: float) -> Bounded:
    """Return public weights in a column of the users."""
    return Bounded(PublicRowWeights.from_rows(rows, users.indptr, made), threshold, users.with_columns(weights=rows))


def capped_weights(threshold: float, correlation: float = 0.0) -> PrivateRowWeights:
    """Return min(h, effective size)/size for every row.

    So a user's total is at most h and does not depend on other users.
    """
    form = partial(unnormalised_row_weights, threshold=threshold, correlation=correlation)
    return PrivateRowWeights(threshold, form, f"each user's total weight at most min(h, size), h = {threshold:g}")


def release_noisy(session: Session, name: Name, statistic: BoundedSum, share: Share) -> Noisy:
    """Release with the noise that the budget allows: Laplace if it is pure, otherwise Gaussian."""
    if session.budget.pure:
        values: Any = session.release_laplace(name, statistic, share)
        return Noisy(np.asarray(values), 0.0, statistic.l1_sensitivity / share.pure_epsilon)
    values = session.release(name, statistic, share)
    return Noisy(np.asarray(values), statistic.l2_sensitivity / share.mu, 0.0)

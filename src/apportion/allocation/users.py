"""Weights over users: how much each user counts in an average, if some users have many rows and others few.

The rows of user l get weights c_i ≥ 0 that sum to t_l, and all t to 1. The noise is proportional to max_l t_l. The
average itself has variance σ² Σ_l t_l²/k_l, where k_l is the number of independent rows that user l's rows are worth.
So minimise

    (max_l t_l)² + A Σ_l t_l²/k_l,        A = σ² over the variance of the noise per squared unit of max_l t_l.

At a given maximum T the rest is a water filling, t_l = min(T, λ k_l), and with h = T/λ that is
t_l = min(h, k_l) / N, N = Σ_l min(h, k_l): one number h remains (Lemma 3 of Epasto et al., "Smoothly Bounding User
Contributions in Differential Privacy", 2020). With S = Σ k_l over k_l ≤ h, and over the others their number q and
R = Σ 1/k_l, the objective is

    v(h) = (h² (1 + A R) + A S) / (S + q h)²,        v'(h) = 2 S (h − A (q − h R)) / (S + q h)³.

Now h − A (q − h R) = h − A Σ_l (1 − h/k_l)_+ increases with h, from below 0 or 0 at h = 0 to max k at h = max k; so v,
which is constant up to min k, where S = 0, falls until the one root of h = A Σ_l (1 − h/k_l)_+ and rises after it. The
minimiser is that root, or min k if the root is below; between two neighbouring sizes the root is A q / (1 + A R).

Everything here is a function of public or released sizes. Nothing depends on the contents of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.errors import InputError

__all__ = ["ContributionPolicy", "SampleLimit", "Smooth", "Unbounded"]

Floats = NDArray[np.float64]
Offsets = NDArray[np.int64]


def effective_sizes(sizes: ArrayLike, correlation: float = 0.0) -> Floats:
    """Return how many independent rows each user's rows are worth: s / (1 + (s − 1) ρ), for the variance of their mean.

    Args:
        sizes: number of rows of each user.
        correlation: ρ between two rows of one user, public, from 0 (independent) to 1 (identical).
    """
    if not 0 <= correlation <= 1:
        raise InputError(f"Expected a correlation from 0 to 1, got {correlation}.", argument="correlation")
    rows = np.asarray(sizes, np.float64)
    return np.where(rows > 0, rows / (1 + np.maximum(rows - 1, 0) * correlation), 0.0)


def optimal_threshold(sizes: ArrayLike, trade_off: float, counts: ArrayLike | None = None) -> float:
    """Return the h that minimises v(h), by one sort (or one count of small numbers) and sums from the largest down.

    Args:
        sizes: effective sizes of the users; those of 0 have no weight and do not count.
        trade_off: A, from 0 (only the largest total matters) to infinity (only the variance of the average does).
        counts: how many users have each of the sizes, not necessarily whole numbers; None means one.

    Returns:
        The root of h = A Σ (1 − h/k)_+, or the smallest size if that is larger.

    >>> optimal_threshold([1, 4, 4], trade_off=2.0)  # h = 2 (2 − h/2)
    2.0
    """
    values, users = _grouped(sizes, counts)
    inverse = _inverse(trade_off)
    beyond_root = values * (inverse + _above(users / values)) >= _above(users)
    first = int(np.argmax(beyond_root))  # true at the largest size, whatever the trade-off
    root = users[first:].sum() / (inverse + (users[first:] / values[first:]).sum())
    return float(np.clip(root, values[max(first - 1, 0)], values[first]))


def weight_objective(sizes: ArrayLike, threshold: float, trade_off: float, counts: ArrayLike | None = None) -> float:
    """Return (max_l t_l)² + A Σ_l t_l²/k_l of the weights with this threshold; arguments as in `optimal_threshold`."""
    _inverse(trade_off)  # refuses an invalid trade-off
    values, users = _grouped(sizes, counts)
    kept = np.minimum(_positive("threshold", threshold), values)
    share = kept / (users * kept).sum()
    return float(share[-1]) ** 2 + trade_off * float((users * share * (share / values)).sum())


def best_sample_limit(sizes: ArrayLike, trade_off: float, counts: ArrayLike | None = None) -> int:
    """Return the whole number h that minimises A/n_h + (h/n_h)², n_h = Σ_l min(h, s_l), the sample-limiting objective.

    Between two neighbouring sizes n_h = S + q h, with S and q as above, and the derivative has the sign of
    h (2 S − A q²) − A q S. Its constant term is not positive, so it is either never positive there or turns from
    negative to positive once, at A q S / (2 S − A q²): the objective falls and then rises. Its least value on whole
    numbers is next to that point, or to the nearer of the two sizes. Below the smallest size S = 0 and it falls. So two
    numbers for each distinct size are enough, however large the sizes.

    Args:
        sizes: how many rows each user has.
        trade_off: A, from 0 to infinity.
        counts: how many users have each of the sizes; None means one.
    """
    values, users = _grouped(sizes, counts)
    if (values != np.floor(values)).any():
        raise InputError(f"Expected whole sizes, got {values[values != np.floor(values)][0]}.", argument="sizes")
    inverse = _inverse(trade_off)
    if inverse == 0:
        return int(values[-1])
    up_to, more = np.cumsum(users * values), _above(users)
    with np.errstate(over="ignore"):
        slope = 2 * up_to * inverse - more**2
    following = np.append(values[1:], values[-1])
    turn = np.divide(more * up_to, slope, out=following.copy(), where=slope > 0)
    turn = np.clip(turn, values, following)
    limits = np.concatenate([np.floor(turn), np.ceil(turn)])
    kept = np.tile(up_to, 2) + np.tile(more, 2) * limits
    return int(limits[np.argmin(trade_off / kept + np.square(limits / kept))])


def sample_limit_objective(sizes: ArrayLike, limit: int, trade_off: float, counts: ArrayLike | None = None) -> float:
    """Return (max_l t_l)² + A Σ c² of equal weights on at most `limit` rows of each user."""
    _inverse(trade_off)
    values, users = _grouped(sizes, counts)
    held = np.minimum(_positive("limit", limit), values)
    kept = float((users * held).sum())
    return trade_off / kept + float(held[-1] / kept) ** 2


@dataclass(frozen=True, eq=False)
class UserWeights:
    """One weight per row, in user-major order, from public sizes; none negative, and all sum to 1.

    Attributes:
        rows: c, one per row.
        indptr: the rows of user l lie between indptr[l] and indptr[l + 1].
        threshold: the h they were made with.
        description: how they were made, for a statement.
        largest: the largest sum of one user's weights, from `rows`.
        sum_of_squares: Σ c².
    """

    rows: Floats
    indptr: Offsets
    threshold: float
    description: str
    largest: float = field(init=False)
    sum_of_squares: float = field(init=False)

    def __post_init__(self) -> None:
        if self.rows.shape != (self.indptr[-1],) or not self.rows.min() >= 0 or abs(self.rows.sum() - 1) > 1e-9:
            raise InputError(
                f"Expected {self.indptr[-1]} weights of at least 0 that sum to 1, got {self.rows}.", argument="rows"
            )
        starts = self.indptr[:-1][np.diff(self.indptr) > 0]
        object.__setattr__(self, "largest", float(np.add.reduceat(self.rows, starts).max()))
        object.__setattr__(self, "sum_of_squares", float(np.square(self.rows).sum()))
        self.rows.flags.writeable = False


class ContributionPolicy(Protocol):
    """How much each user's rows may count.

    A policy is trusted: its weights must depend only on the offsets and public numbers. The total of one user is taken
    from the weights themselves.
    """

    def row_weights(self, indptr: ArrayLike, trade_off: float, correlation: float = 0.0) -> UserWeights:
        """Return weights of rows in user-major order.

        Args:
            indptr: offsets of users.
            trade_off: A of `optimal_threshold`.
            correlation: the assumed correlation between two rows of one user.
        """


@dataclass(frozen=True)
class Smooth:
    """Every row counts; a user's total is proportional to min(h, size), spread evenly over its rows.

    Attributes:
        threshold: h; None takes the best for the trade-off.
    """

    threshold: float | None = None

    def row_weights(self, indptr: ArrayLike, trade_off: float, correlation: float = 0.0) -> UserWeights:
        """Return weights min(h, k_l) / (s_l N), with k_l the effective size."""
        offsets = _checked_offsets(indptr)
        sizes = np.diff(offsets)
        worth = effective_sizes(sizes, correlation)
        threshold = optimal_threshold(worth, trade_off) if self.threshold is None else self.threshold
        kept = np.minimum(_positive("threshold", threshold), worth)
        rows = np.repeat(kept / np.maximum(sizes, 1) / kept.sum(), sizes)
        what = f"effective size at correlation {correlation:g}" if correlation else "size"
        text = f"each user's total weight proportional to min(h, {what}), h = {threshold:g}"
        return UserWeights(rows, offsets, float(threshold), text)


@dataclass(frozen=True)
class SampleLimit:
    """At most h rows of each user, chosen by a public generator, all with the same weight.

    Which rows are kept depends on all users' sizes, and the best h assumes independent rows.

    Attributes:
        threshold: h; None takes the best for the trade-off.
        seed: the seed of the choice.
    """

    threshold: int | None = None
    seed: int = 0

    def row_weights(self, indptr: ArrayLike, trade_off: float, correlation: float = 0.0) -> UserWeights:
        """Return weights 1/n_h on the rows that are kept, 0 on the others."""
        offsets = _checked_offsets(indptr)
        limit = best_sample_limit(np.diff(offsets), trade_off) if self.threshold is None else self.threshold
        if limit < 1 or limit != int(limit):
            raise InputError(f"Expected a whole number of at least 1 row per user, got {limit}.", argument="threshold")
        kept = _sampled(offsets, int(limit), self.seed)
        text = f"at most {limit} rows of each user, chosen with public seed {self.seed}, with equal weights"
        return UserWeights(kept / kept.sum(), offsets, float(limit), text)


@dataclass(frozen=True)
class Unbounded:
    """Every row counts the same, however many a user has."""

    def row_weights(self, indptr: ArrayLike, trade_off: float, correlation: float = 0.0) -> UserWeights:
        """Return weights 1/n."""
        offsets = _checked_offsets(indptr)
        rows = np.full(int(offsets[-1]), 1 / int(offsets[-1]))
        text = "every row with the same weight, however many a user has"
        return UserWeights(rows, offsets, float(np.diff(offsets).max()), text)


def unnormalised_row_weights(indptr: ArrayLike, threshold: float, correlation: float = 0.0) -> Floats:
    """Return min(h, k_l)/s_l for every row, so that a user's total is at most h and does not depend on other users.

    It is for private sizes. A run may have no users, or users without rows.
    """
    sizes = np.diff(_checked_offsets(indptr, least_rows=0))
    kept = np.minimum(_positive("threshold", threshold), effective_sizes(sizes, correlation))
    return np.repeat(kept / np.maximum(sizes, 1), sizes)


def size_buckets(max_size: int) -> Offsets:
    """Return the starts of size buckets, each twice the one before: 1, 2, 4, ... up to a public largest size.

    The last bucket also holds all larger sizes.
    """
    if max_size < 1:
        raise InputError(f"Expected a largest size of at least 1, got {max_size}.", argument="max_size")
    return np.asarray(2 ** np.arange(int(max_size).bit_length()), np.int64)


def sizes_from_histogram(noisy_counts: ArrayLike, edges: ArrayLike) -> tuple[Floats, Floats]:
    """Return a typical size for each bucket, and the number of users of that size, from a released histogram.

    The counts are the nonnegative numbers closest to the released counts, with the same sum (at least 1). Setting
    negative ones to 0 would leave too many users in empty buckets, and h depends most on users with large sizes. A
    bucket's size is the geometric mean of its first and its last whole number.

    Args:
        noisy_counts: released numbers of users, one per bucket.
        edges: the start of each bucket, from `size_buckets`.
    """
    starts, noisy = np.asarray(edges, np.float64), np.asarray(noisy_counts, np.float64)
    if starts.ndim != 1 or noisy.shape != starts.shape or not np.isfinite(noisy).all():
        raise InputError(
            f"Expected one finite count for each of {starts.size} buckets, got shape {noisy.shape}.",
            argument="noisy_counts",
        )
    ends = np.append(starts[1:], 2 * starts[-1]) - 1
    return np.sqrt(starts * ends), _projected(noisy, max(float(noisy.sum()), 1.0))


def _projected(values: Floats, total: float) -> Floats:
    """Return the closest point with no negative entry and this sum: the same amount is subtracted from all."""
    below = values - values.max()  # the largest becomes 0: no total is lost to rounding, however large the values
    falling = np.sort(below)[::-1]
    shifts = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    shift = float(shifts[np.flatnonzero(falling > shifts)[-1]])
    closest: Floats = np.maximum(below - shift, 0.0)
    return closest


def _grouped(sizes: ArrayLike, counts: ArrayLike | None) -> tuple[Floats, Floats]:
    """Return sizes above 0 in ascending order, and how many users have each."""
    values = np.asarray(sizes)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.number):
        raise InputError(
            f"Expected one size for each user, got shape {values.shape} of {values.dtype}.", argument="sizes"
        )
    if counts is not None:
        users = np.asarray(counts, np.float64)
        if users.shape != values.shape:
            raise InputError(
                f"Expected one count for each of {values.size} sizes, got shape {users.shape}.", argument="counts"
            )
        order = np.argsort(values)
        values, users = values[order], users[order]
    elif np.issubdtype(values.dtype, np.integer) and values.size and 0 <= values.min() <= values.max() <= values.size:
        users = np.bincount(values).astype(np.float64)
        values = np.arange(users.size)
    else:
        values, repeats = np.unique(values, return_counts=True)
        users = repeats.astype(np.float64)
    _refuse_negative(sizes=values, counts=users)
    present = (values > 0) & (users > 0)
    if not present.any():
        raise InputError("Expected at least one user with rows, got none.", argument="sizes")
    return values[present].astype(np.float64), users[present]


def _refuse_negative(**arrays: NDArray[Any]) -> None:
    for name, array in arrays.items():
        if array.size and not (array.min() >= 0 and array.max() < math.inf):  # also refuses NaN
            raise InputError(
                f"Expected finite {name} of at least 0, got {array.min()} to {array.max()}.", argument=name
            )


def _above(values: Floats) -> Floats:
    """Return, for each position, the sum of all values after it."""
    return np.append(np.cumsum(values[::-1])[::-1][1:], 0.0)


def _inverse(trade_off: float) -> float:
    if not trade_off >= 0:
        raise InputError(f"Expected a trade-off of at least 0, got {trade_off}.", argument="trade_off")
    return 1 / trade_off if trade_off else math.inf


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise InputError(f"Expected a {name} above 0, got {value}.", argument=name)
    return value


def _checked_offsets(indptr: ArrayLike, least_rows: int = 1) -> Offsets:
    offsets = np.asarray(indptr)
    if offsets.ndim != 1 or offsets.size < 1 or not np.issubdtype(offsets.dtype, np.integer):
        raise InputError(
            f"Expected whole offsets of users, got shape {offsets.shape} of {offsets.dtype}.", argument="indptr"
        )
    if offsets[0] != 0 or offsets[-1] < least_rows or (np.diff(offsets) < 0).any():
        ends = f"{offsets[0]} to {offsets[-1]}"
        raise InputError(f"Expected offsets that rise from 0 to at least {least_rows}, got {ends}.", argument="indptr")
    return offsets.astype(np.int64)


def _sampled(offsets: Offsets, limit: int, seed: int) -> NDArray[np.bool_]:
    """Return which rows are kept: all if a user has at most `limit`, otherwise those with the smallest random keys."""
    sizes = np.diff(offsets)
    kept = np.ones(int(offsets[-1]), bool)
    over = np.flatnonzero(sizes > limit)
    owners = np.repeat(over, sizes[over])
    starts = np.cumsum(sizes[over]) - sizes[over]
    ranks = np.arange(owners.size) - np.repeat(starts, sizes[over])  # position of a row among its user's
    keys = np.random.default_rng(seed).random(owners.size)
    order = np.lexsort((keys, owners))
    dropped = order[ranks >= limit]
    kept[offsets[owners[dropped]] + ranks[dropped]] = False
    return kept

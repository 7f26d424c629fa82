"""Counts as estimators release them: weighted, with noise, and deconvolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.policies import Allocated, Allocation, Expected, ReleasedCounts
from apportion.allocation.weightings import SplitEqually, TaskFactors
from apportion.data.users import UserParts, Users
from apportion.engines import Engine, add_up_one
from apportion.errors import InputError
from apportion.linalg.places import PROCESSORS, Place
from apportion.postprocessing.popularity import Popularity, posterior_popularity
from apportion.privacy import Purpose, Session, Share
from apportion.privacy.contributions import ClippedParts, HeldOut, Output, TaskCounts, Weighting, without_held_out
from apportion.privacy.purposes import ReleaseName

LEAST_USERS = 10.0  # a noisy number of users below this is replaced by it
_LEADING = 60  # number of tasks that may lead, of which users get 20 that they do not have yet; half of a short list
_DOUBT = 0.5  # standard deviations by which a task may be more popular than its estimate
_MOST_GAIN = 4.0  # largest gain of weights on some tasks over weights on all


def number_of_users(session: Session) -> ClippedParts:
    """Return a contribution of one for each user who has rows."""
    return ClippedParts(one_each, (Output(1, 1.0, False, "one for each user"),), neighbours=session.neighbours)


def one_each(users: Users, weights: Any) -> tuple[NDArray[np.float64]]:
    """Return a row with a one for every user."""
    return (np.ones((users.n_users, 1)),)


def release_number_of_users(users: UserParts, session: Session, engine: Engine, share: Share) -> float:
    """Release the number of users with data; one user moves it by 1."""
    total = add_up_one(engine, users, number_of_users(session))
    return max(float(session.release(Purpose.NUMBER_OF_USERS, total, share)[0]), LEAST_USERS)


@dataclass(frozen=True)
class ScaledMeans:
    """One, and the user's mean value scaled to [-1, 1]: a row of norm at most √2."""

    middle: float
    half: float

    def __call__(self, users: Users, weights: Any) -> tuple[NDArray[np.float64]]:
        """Return the row of every user."""
        values = np.clip(users.column("values"), self.middle - self.half, self.middle + self.half)
        sums = np.bincount(users.owner, values - self.middle, minlength=users.n_users)
        means = sums / np.maximum(users.sizes, 1) / self.half
        return (np.stack([np.ones_like(means), means], axis=1),)


def release_overview(
    users: UserParts,
    session: Session,
    engine: Engine,
    share: Share,
    value_range: tuple[float, float],
    known_users: float | None,
    name: Purpose | ReleaseName = Purpose.OVERVIEW,
) -> tuple[float, float]:
    """Release the number of users and the mean of users' means together. A known number of users is used unchanged."""
    low, high = value_range
    means = ScaledMeans((low + high) / 2, (high - low) / 2)
    output = Output(2, float(np.sqrt(2)), False, "one, and the scaled mean of a user")
    total = add_up_one(engine, users, ClippedParts(means, (output,), neighbours=session.neighbours))
    pure = session.budget.pure  # one user moves both numbers by at most 1
    released = (session.release_laplace if pure else session.release)(name, total, share)
    n_users = float(known_users or max(float(released[0]), LEAST_USERS))
    return n_users, means.middle + means.half * float(np.clip(released[1] / n_users, -1, 1))


@dataclass(frozen=True)
class ReleasedPopularity:
    """Weighted popularity of every task, as released under the equal split.

    Attributes:
        noisy: the released counts; if there were several releases, their mean weighted by precision.
        posterior: its posterior mean and variance.
        counts: the same in the form that allocations use.
        releases: the number of releases it is based on.
    """

    noisy: NDArray[np.float64]
    posterior: Popularity
    counts: ReleasedCounts
    releases: int = 1

    @classmethod
    def of(
        cls, noisy: NDArray[np.float64], stddev: float, n_users: float, place: Place = PROCESSORS
    ) -> ReleasedPopularity:
        """Deconvolve released counts."""
        posterior = posterior_popularity(noisy, stddev, n_users, place=place)
        return cls(noisy, posterior, ReleasedCounts(posterior.mean, stddev, n_users))


def release_popularity(
    users: UserParts, session: Session, engine: Engine, share: Share, n_users: float, rows: HeldOut | None = None
) -> ReleasedPopularity:
    """Release Σ_j 1/√n^j for every task, and deconvolve it. Held-out rows, if there are any, are left out."""
    noisy, stddev = _noisy_popularity(users, session, engine, share, Purpose.POPULARITY.at(), rows)
    return ReleasedPopularity.of(noisy, stddev, n_users, engine.kernels.place)


def release_popularity_again(
    users: UserParts, session: Session, engine: Engine, share: Share, before: ReleasedPopularity, rows: HeldOut | None
) -> ReleasedPopularity:
    """Release the same counts once more, and deconvolve the mean of all, weighed by their precision."""
    name = Purpose.POPULARITY.at(step=before.releases + 1)
    noisy, stddev = _noisy_popularity(users, session, engine, share, name, rows)
    mean, left = _pooled(before.noisy, before.counts.stddev, noisy, stddev)
    found = ReleasedPopularity.of(mean, left, before.counts.n_users, engine.kernels.place)
    return replace(found, releases=before.releases + 1)


def release_leading_popularity(
    users: UserParts, session: Session, engine: Engine, share: Share, before: ReleasedPopularity
) -> ReleasedPopularity:
    """Count the tasks that may lead a ranking once more. The other tasks keep their estimates.

    Each user divides its whole weight over these tasks alone, so it adds more to them at the same sensitivity.

    Privacy: one user's part has norm at most 1; the tasks are chosen by released counts.
    """
    leading = may_lead(before.posterior)
    words = f"equal split over {int(leading.sum())} tasks that may be among the most popular"
    weights = TaskFactors(leading.astype(np.float64), words, neighbours=session.neighbours)
    name = Purpose.POPULARITY.at(step=before.releases + 1)
    noisy, stddev = _noisy_popularity(users, session, engine, share, name, None, weights)
    return replace(_with_leading(before, leading, noisy, stddev), releases=before.releases + 1)


def may_lead(found: Popularity) -> NDArray[np.bool_]:
    """Return which tasks may be among the most popular, according to released counts.

    >>> may_lead(Popularity(np.array([9.0, 8.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0, 400.0])))
    array([ True,  True, False,  True])
    """
    level = np.sort(found.mean)[-min(_LEADING, (len(found.mean) + 1) // 2)]
    return np.asarray(found.mean + _DOUBT * np.sqrt(found.variance) >= level)


def _with_leading(
    before: ReleasedPopularity, leading: NDArray[np.bool_], noisy: NDArray[np.float64], stddev: float
) -> ReleasedPopularity:
    """Update the estimates with a release on some tasks.

    Its gain over a release on all tasks follows from the totals.
    """
    known, n_users = before.posterior, before.counts.n_users
    gain = 1.0
    if not leading.all():
        gain = float(np.clip(noisy[leading].sum() / known.mean[leading].sum(), 1.0, _MOST_GAIN))
    mean, left = _pooled(before.noisy[leading], before.counts.stddev, noisy[leading] / gain, stddev / gain)
    found = ReleasedPopularity.of(mean, left, n_users).posterior
    values = [before.noisy.copy(), known.mean.copy(), known.variance.copy()]
    for all_tasks, some in zip(values, (mean, found.mean, found.variance), strict=True):
        all_tasks[leading] = some
    return ReleasedPopularity(values[0], Popularity(*values[1:]), ReleasedCounts(values[1], left, n_users))


def _pooled(
    first: NDArray[np.float64], first_stddev: float, second: NDArray[np.float64], second_stddev: float
) -> tuple[NDArray[np.float64], float]:
    """Return the mean of two releases, weighed by their precision, and the standard deviation of its noise."""
    precise = np.array([first_stddev**-2, second_stddev**-2])
    return (precise[0] * first + precise[1] * second) / precise.sum(), float(precise.sum() ** -0.5)


def _noisy_popularity(
    users: UserParts,
    session: Session,
    engine: Engine,
    share: Share,
    name: ReleaseName,
    rows: HeldOut | None,
    weights: Weighting | None = None,
) -> tuple[NDArray[np.float64], float]:
    """Release the counts under these weights, or under the equal split over all tasks of a user."""
    weights = weights or SplitEqually(session.neighbours)
    counts = add_up_one(engine, users, without_held_out(TaskCounts(weights), rows))
    return np.asarray(session.release(name, counts, share), np.float64), weights.moved(1.0) / share.mu


def weighed_by(policy: Allocation, users: UserParts, popularity: ReleasedPopularity, session: Session) -> Allocated:
    """Return the weights of a policy that asks at most once for released popularity. Nothing further is released."""
    counts = popularity.counts
    if policy.releases > 1:
        raise InputError(
            f"Expected an allocation that asks for at most one count, got one that asks {policy.releases} times.",
            argument="allocation",
        )

    def count(weights: Weighting) -> ReleasedCounts:
        if not isinstance(weights, SplitEqually):
            raise InputError(
                "Expected an allocation that asks for the popularity under the equal split, got another.",
                argument="allocation",
            )
        return counts

    for sentence in getattr(policy, "assumes", ()):
        session.assume_public(sentence)
    given = policy.allocate(users, count, counts.n_users)
    if not isinstance(given.weights, SplitEqually):
        return given
    known = Expected(counts.total, np.full(users.n_tasks, 1 / counts.typical_root))  # popularity itself is known
    return replace(given, weights=SplitEqually(session.neighbours), expected=known)


def allocated(
    users: UserParts,
    policy: Allocation,
    session: Session,
    engine: Engine,
    shares: Sequence[Share],
    n_users: float,
) -> Allocated:
    """Return the weights of the policy. Each count that it asks for is released with the next share."""
    left = list(enumerate(shares))

    def count(weights: Weighting) -> ReleasedCounts:
        if not left:
            raise InputError(
                f"The allocation asked for more than the {len(shares)} counts that it declares.", argument="allocation"
            )
        number, share = left.pop(0)
        name = Purpose.POPULARITY.at(step=number + 1 if number else None)
        released = session.release(name, add_up_one(engine, users, TaskCounts(weights)), share)
        stddev = weights.moved(1.0) / share.mu
        return ReleasedCounts(posterior_popularity(released, stddev, n_users).mean, stddev, n_users)

    for sentence in getattr(policy, "assumes", ()):
        session.assume_public(sentence)
    return policy.allocate(users, count, n_users)

"""Parts of a round on clicks that need released values alone: where it starts, and what is made of its release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.weightings import SplitEqually, TaskFactors
from apportion.data.sparse_rows import SparseRows
from apportion.linalg.places import PROCESSORS, Place
from apportion.postprocessing import feature_rows
from apportion.postprocessing.low_rank import Denoised, denoise_rows
from apportion.privacy import Neighbours
from apportion.privacy.contributions import Weighting
from apportion.recommend.features.prior import regressors

Floats = NDArray[np.floating[Any]]

_CLEAR = 0.7  # of the length of noise
_CLEAR_AT_MOST = 1.4
_CLEAR_VECTORS = 0.4  # the same for vectors, not for popularity, which is longer
_FEWEST = 60  # tasks whose vectors are learned, at least; of a short list, all


@dataclass(frozen=True)
class Rounds:
    """How a fit divides its budget over rounds.

    Attributes:
        number: of rounds.
        ramp: round r gets a share proportional to r^ramp.
        after_votes: how many of them come after the votes.
        together: the releases of this many rounds, the last ones, are denoised together.
        narrow: whether rounds after the first are about fewer tasks if its vectors turn out short.
    """

    number: int
    ramp: float
    after_votes: int = 1
    together: int = 2
    narrow: bool = True


FEW = 4
"""Rounds of most fits, and of choices."""
SEVERAL = Rounds(6, 1.5, after_votes=2, together=3)
MANY = Rounds(8, 1.0, after_votes=3, together=3, narrow=False)
_SEVERAL_FROM, _MANY_FROM = 60.0, 150.0  # μ n / √m, from which directions hardly seen at first come out over rounds
_MOST_USERS = 100_000.0  # more rounds take longer; so many users gain little by them


def many_rounds(mu: float, n_users: float, n_tasks: int) -> bool:
    """Return whether a fit of so many users and tasks gains by many rounds, and takes not too long for them."""
    return mu * n_users / np.sqrt(n_tasks) >= _MANY_FROM and n_users <= _MOST_USERS


def default_rounds(mu: float, n_users: float, n_tasks: int, few: Rounds) -> Rounds:
    """Return the rounds of so many users and tasks: the few given, more where users are many, or yet more."""
    if many_rounds(mu, n_users, n_tasks):
        return MANY
    return SEVERAL if _SEVERAL_FROM <= mu * n_users / np.sqrt(n_tasks) < _MANY_FROM else few


def worth_learning(
    popularity: Floats, mu: float, dimension: int, *, clear: float = _CLEAR, least_held: float = 0.0
) -> NDArray[np.bool_]:
    """Return the tasks whose vectors can stand out of noise: popularity at least 0.7 √dimension / μ.

    The vector of a task is at most as long as its popularity, and noise of this μ about √dimension / μ.

    Args:
        popularity: released.
        mu: of the budget for the vectors.
        dimension: length of the vectors.
        clear: another number than 0.7.
        least_held: the tasks hold at least this fraction of all popularity.

    Example:
        >>> int(worth_learning(np.arange(1000.0), 0.1, 4).sum()), int(worth_learning(np.arange(30.0), 0.1, 4).sum())
        (986, 30)
    """
    ordered = np.sort(popularity)[::-1]
    holding = 1 + int(np.searchsorted(np.cumsum(ordered), least_held * ordered.sum()))
    fewest = min(max(_FEWEST, 2 * dimension, holding), len(popularity))
    return np.asarray(popularity >= min(clear * np.sqrt(dimension) / mu, ordered[fewest - 1]))


def random_start(found: Floats, dimension: int, rng: np.random.Generator) -> Denoised:
    """Return random vectors, longer for popular tasks, that cancel out for a user of average taste."""
    vectors = rng.standard_normal((len(found), dimension)) * np.sqrt(found)[:, None]
    vectors -= found @ vectors / found.sum()
    return Denoised(vectors, np.zeros(len(found)))


@dataclass(frozen=True, eq=False)
class ReleasedVectors:
    """One release of vectors, and the standard deviation of its noise."""

    values: NDArray[np.float64]
    stddev: float

    def with_another(self, before: ReleasedVectors) -> ReleasedVectors:
        """Return the average with a release of about the same vectors, weighted by precision.

        The other one has coordinates of its own. It is turned by the rotation that brings it closest to this one.
        """
        left, _, right = np.linalg.svd(before.values.T @ self.values)
        ours, theirs = 1 / self.stddev**2, 1 / before.stddev**2
        values = ours * self.values + theirs * (before.values @ (left @ right))
        return ReleasedVectors(values / (ours + theirs), float(1 / np.sqrt(ours + theirs)))


def beside_popularity(released: Floats, exposure: Floats) -> NDArray[np.float64]:
    """Return the vectors without what popularity alone explains."""
    vectors = np.asarray(released, np.float64)
    return np.asarray(vectors - np.outer(exposure / (exposure @ exposure), exposure @ vectors))


def clear_of_noise(release: ReleasedVectors, exposure: Floats) -> float:
    """Return what multiple of the noise popularity has to be, given how long vectors are relative to it.

    Vectors are as long as popularity where users of a task are alike, and shorter where many kinds of users share it.
    It is 0.4 divided by the relative length, between 0.7 and 1.4.

    Args:
        release: of a first round, without what popularity explains.
        exposure: released popularity of the same tasks.

    Example:
        >>> values = np.random.default_rng(0).standard_normal((2000, 4))
        >>> [round(clear_of_noise(ReleasedVectors(each * values, 0.1), np.full(2000, 10.0)), 1) for each in (5, 2, 1)]
        [0.7, 1.0, 1.4]
    """
    signal = np.square(release.values).sum() - release.values.size * release.stddev**2
    relative = np.sqrt(max(float(signal), 0.0) / float(exposure @ exposure))
    return float(np.clip(_CLEAR_VECTORS / max(relative, 1e-9), _CLEAR, _CLEAR_AT_MOST))


@dataclass(frozen=True, eq=False)
class Focus:
    """The tasks that rounds are about, and the releases of the last rounds, with a row for each of these tasks."""

    among: NDArray[np.bool_]
    releases: tuple[ReleasedVectors, ...] = ()

    def narrowed(self, popularity: Floats, exposure: Floats, mu: float, dimension: int) -> Focus:
        """Return the same for those of these tasks that are worth learning, as far as the first release can tell.

        Args:
            popularity: released, of all tasks.
            exposure: the same under the weights of the rounds.
            mu: of the whole budget.
            dimension: length of the vectors.
        """
        clear = clear_of_noise(self.releases[0], exposure[self.among]) if self.releases else _CLEAR
        among = self.among & worth_learning(popularity, mu, dimension, clear=clear)
        kept = among[self.among]
        return Focus(among, tuple(ReleasedVectors(each.values[kept], each.stddev) for each in self.releases))

    def with_release(self, released: Floats, stddev: float, exposure: Floats, together: int) -> Focus:
        """Return the same after another round; releases of earlier rounds than so many are forgotten."""
        apart = ReleasedVectors(beside_popularity(released[self.among], exposure[self.among]), stddev)
        return Focus(self.among, (*self.releases, apart)[-together:])

    def weights(self, neighbours: Neighbours) -> Weighting:
        """Return equal weights on these tasks alone; each user's squares sum to 1."""
        if self.among.all():
            return SplitEqually(neighbours)
        words = f"equal split over {int(self.among.sum())} tasks that can stand out of the noise"
        return TaskFactors(self.among.astype(np.float64), words, neighbours=neighbours)


@dataclass(frozen=True)
class RowPrior:
    """How long the vectors of tasks are expected to be, and how that is estimated.

    Attributes:
        exposure: released popularity of all tasks under the weights of the round.
        least_popularity: fraction of the mean popularity below which a task's prior variance does not fall.
        steps: EM steps.
        place: where to compute.
    """

    exposure: Floats
    least_popularity: float
    steps: int
    place: Place = PROCESSORS

    def spread(self, among: NDArray[np.bool_] | slice = slice(None)) -> Floats:
        """Return what the prior variances of some tasks are proportional to."""
        some = self.exposure[among]
        result: Floats = np.maximum(some, self.least_popularity * some.mean())
        return result


def denoised_vectors(released: Floats, stddev: float, prior: RowPrior, features: SparseRows | None = None) -> Denoised:
    """Return the vectors of a round without what popularity alone explains, by empirical Bayes.

    Args:
        released: one row per task.
        stddev: of its noise.
        prior: of the rows.
        features: public ones that move the mean of the prior; None for none.
    """
    vectors = beside_popularity(released, prior.exposure)
    if features is None:
        return denoise_rows(vectors, stddev, prior.spread(), prior.steps, prior.place)
    explanatory = regressors(np.ones((len(vectors), 1)), features)
    return feature_rows.denoise_rows(vectors, stddev, prior.spread(), explanatory, prior.steps)


def denoised_together(
    releases: Sequence[ReleasedVectors], among: NDArray[np.bool_], prior: RowPrior, *, gently: bool = False
) -> Denoised:
    """Return the vectors of the last release, by empirical Bayes over all of them; the other tasks have none.

    A row of all releases side by side, each in units of its noise, has one prior. Its covariance says how the
    coordinates of one release go with those of another.

    Args:
        releases: of the last rounds, in order, without what popularity explains; a row for each of the tasks.
        among: the tasks that have vectors.
        prior: of the rows.
        gently: as in `low_rank.denoise_rows`.
    """
    last = releases[-1]
    side_by_side = np.concatenate([each.values / each.stddev for each in releases], axis=1)
    found = denoise_rows(side_by_side, 1.0, prior.spread(among), prior.steps, prior.place, gently=gently)
    vectors, resolved = np.zeros((len(among), last.values.shape[1])), np.zeros(len(among))
    vectors[among] = last.stddev * found.mean[:, -vectors.shape[1] :]
    resolved[among] = found.resolved
    return Denoised(vectors, resolved)


def denoised_for_all(
    last: ReleasedVectors, before: ReleasedVectors, among: NDArray[np.bool_], prior: RowPrior
) -> Denoised:
    """Return the vectors of the last release, which is of all tasks, by empirical Bayes.

    For some tasks it is first averaged with the release before, so their rows have less noise than the others.

    Args:
        last: the last release.
        before: the one before it, with a row for each of some tasks.
        among: these tasks.
        prior: of the rows.
    """
    known = np.zeros(last.values.shape)
    known[among] = before.values
    both = last.with_another(ReleasedVectors(known, before.stddev))
    values = np.where(among[:, None], both.values, last.values)
    stddev = np.where(among, both.stddev, last.stddev)
    found = denoise_rows(values / stddev[:, None], 1.0, prior.spread() / stddev**2, prior.steps, prior.place)
    return Denoised(found.mean * stddev[:, None], found.resolved)

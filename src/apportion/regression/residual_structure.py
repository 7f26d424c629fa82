"""How residuals vary around a released line: what users contribute about them, and a structure from these releases.

Each user contributes two numbers: the mean of its squared residuals, and the square of its mean residual. Averages of
both over users show how large residuals are and how much of them a user's rows share. Residuals are in units of the
label range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apportion.data.users import Users
from apportion.estimators.contributions import Noisy
from apportion.linalg.fixed_order import dot_rows
from apportion.privacy import BoxedValues
from apportion.regression.label_weights.robust import Structure

Floats = NDArray[np.float64]

LARGEST_VARIANCE = 0.25  # largest variance of labels within a range of 1; larger squares are clipped to it
_GUESS = Structure(variance=0.03, shared=0.2, along_size=0.2)  # the guess before any release
_DOUBT = 1.0  # standard deviation of the error of a guess, relative to the number
_CAREFUL = 1.0  # standard deviations by which an estimate is raised, for intervals
_ALONG_SIZE = 0.3  # for intervals: correlations up to 0.6 are then within two standard deviations
_LEAST_VARIANCE = 1e-4
_MOST_SHARED = 0.98


@dataclass(frozen=True)
class Residuals:
    """The estimated structure of residuals: a likely one for weights, and a cautious one for intervals."""

    likely: Structure
    careful: Structure


@dataclass(frozen=True, eq=False)
class SquaredResiduals:
    """Squares of distances of labels from a released line, over the squared range, clipped to a quarter.

    Attributes:
        label_range: the public range of labels.
        coefficients: the coefficients of the line; released.
        of_means: whether every row has the square of its user's mean distance instead of its own square.
    """

    label_range: tuple[float, float]
    coefficients: Floats
    of_means: bool = False

    def __call__(self, users: Users) -> BoxedValues:
        """Return one number for each row, from the rows of its user alone."""
        low, high = self.label_range
        features = users.column("features")
        fitted = dot_rows(features, np.broadcast_to(self.coefficients, features.shape))
        residuals = np.clip((np.clip(users.column("labels"), low, high) - fitted) / (high - low), -1.0, 1.0)
        if self.of_means:
            residuals = _own_means(residuals, users)[users.owner]
        return BoxedValues.clipped(np.square(residuals)[:, None], 0.0, LARGEST_VARIANCE)


@dataclass(frozen=True)
class Average:
    """An average over users of numbers up to a quarter, with its error.

    Attributes:
        value: the released average, minus what the noise of the line adds to it.
        error: the standard deviation of its error: from noise, from the variation of users, and from the line.
    """

    value: float
    error: float

    @classmethod
    def of(cls, noisy: Noisy, added_by_line: float, n_users: int) -> Average:
        """Make it from a released sum of numbers scaled to [-1/2, 1/2].

        Each user has the weight 1/(number of users).
        """
        value = LARGEST_VARIANCE * (float(noisy.values[0]) + 0.5) - added_by_line
        variance = LARGEST_VARIANCE**2 * (noisy.variance + 0.25 / n_users)
        return cls(value, float(np.sqrt(variance + added_by_line**2)))

    def believed(self, guess: float) -> tuple[float, float]:
        """Return the average shrunk towards a guess, by their precisions, and a cautious version for intervals."""
        doubt = _DOUBT * guess
        trust = doubt**2 / (doubt**2 + self.error**2)
        likely = float(np.clip(trust * self.value + (1 - trust) * guess, 0.0, LARGEST_VARIANCE))
        return likely, min(likely + _CAREFUL * math.sqrt(trust) * self.error, LARGEST_VARIANCE)


def without_releases(variance: float | None) -> Residuals:
    """Return the structure if nothing was released: with the given variance, or the largest possible one."""
    found = LARGEST_VARIANCE if variance is None else min(variance, LARGEST_VARIANCE)
    return Residuals(Structure(found, _GUESS.shared, _GUESS.along_size), Structure(found, 0.5, _ALONG_SIZE))


def guessed() -> Structure:
    """Return the structure before any release."""
    return _GUESS


def from_averages(squares: Average, means: Average, alone: float) -> Residuals:
    """Return the structure from released averages of squares and of squared means.

    Args:
        squares: the average of squared residuals.
        means: the average of users' squared mean residuals; its expectation is v (ρ + (1 − ρ) k).
        alone: k, the mean over users of 1/(number of rows); public.
    """
    likely, careful = (max(each, _LEAST_VARIANCE) for each in squares.believed(_GUESS.variance))
    of_means = means.believed(_of_means(likely, _GUESS.shared, alone))
    shared, more = (_shared(each, likely, alone) for each in of_means)
    return Residuals(Structure(likely, shared, _GUESS.along_size), Structure(careful, more, _ALONG_SIZE))


def _of_means(variance: float, shared: float, alone: float) -> float:
    return variance * (shared + (1 - shared) * alone)


def _shared(of_means: float, variance: float, alone: float) -> float:
    """Return ρ from v (ρ + (1 − ρ) k); the guess if every user has one row, which says nothing about ρ."""
    if alone > 1 - 1e-9:
        return _GUESS.shared
    return float(np.clip((of_means / variance - alone) / (1 - alone), 1 - _MOST_SHARED, _MOST_SHARED))


def _own_means(values: Floats, users: Users) -> Floats:
    totals = np.bincount(users.owner, values, minlength=users.n_users)
    return np.asarray(totals / np.maximum(users.sizes, 1))

"""Releases as pages show them: explained by their purpose and grouped by it into families, each with one colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apportion.privacy.purposes import Purpose
from apportion.privacy.statement import Release, Statement

COLOURS: Final = {
    Purpose.OVERVIEW: 1,
    Purpose.POPULARITY: 2,
    Purpose.ITEM_LIST: 2,
    Purpose.FIRST_KEYS: 2,
    Purpose.MORE_KEYS: 2,
    Purpose.GROUP_LIST: 2,
    Purpose.GROUPS_OF_USERS: 7,
    Purpose.EXPOSURE: 2,
    Purpose.TABLE_ROWS: 2,
    Purpose.SIZES: 2,
    Purpose.ROUGH_COEFFICIENTS: 2,
    Purpose.ITEM_SUMS: 3,
    Purpose.ITEM_VECTORS: 3,
    Purpose.CHOICE_VECTORS: 4,
    Purpose.ITEM_SLOPES: 3,
    Purpose.ITEM_GRADIENTS: 3,
    Purpose.TASK_MOMENTS: 3,
    Purpose.GRADIENT: 3,
    Purpose.CONSTANT: 3,
    Purpose.CONSTANT_AGAIN: 3,
    Purpose.COEFFICIENTS: 3,
    Purpose.GROUP_SUMS: 3,
    Purpose.MEAN: 3,
    Purpose.COVARIANCE: 3,
    Purpose.QUANTILES: 3,
    Purpose.MODEL_COVARIANCE: 3,
    Purpose.SUM_OF_MODELS: 3,
    Purpose.ITEM_MATRICES: 4,
    Purpose.ITEM_CURVATURES: 4,
    Purpose.TASK_MATRICES: 4,
    Purpose.FIRST_MOMENTS: 4,
    Purpose.CLASS_SUMS: 4,
    Purpose.TILT: 4,
    Purpose.ROUGH_QUANTILE: 5,
    Purpose.DISTANCES: 5,
    Purpose.SPREAD: 6,
    Purpose.RESIDUALS: 4,
    Purpose.NORMS: 6,
    Purpose.SHARED_RESIDUALS: 4,
    Purpose.USERS_MATRIX: 5,
    Purpose.SHARED_MOMENTS: 5,
    Purpose.TOTAL_WEIGHT: 6,
    Purpose.VALIDATION_SCORE: 6,
    Purpose.USER_SPREAD: 6,
    Purpose.VOTES: 6,
    Purpose.FEATURE_VOTES: 6,
    Purpose.CHOICE_VOTES: 6,
    Purpose.COMPARISON: 6,
    Purpose.EVIDENCE: 6,
    Purpose.NUMBER_OF_USERS: 7,
    Purpose.NUMBER_OF_EXAMPLES: 7,
    Purpose.OTHER: 8,
}
"""Number of the colour of each purpose on a page."""

_CHOICES = (Purpose.CHOICE_VECTORS, Purpose.CHOICE_VOTES)


@dataclass(frozen=True)
class ReleaseRow:
    """A release as the page shows it."""

    release: Release

    @property
    def family(self) -> str:
        """What it measures, whatever the round. A release of the caller's own is a family of its own."""
        purpose = self.release.purpose
        return self.release.name if purpose is Purpose.OTHER else purpose.label

    @property
    def stage(self) -> str:
        """The round it belongs to, or an empty text."""
        return self.release.stage.text

    @property
    def part(self) -> str:
        """The part of the fit that it belongs to: its round, or the choices, which have rounds of their own."""
        return "choices" if self.release.purpose in _CHOICES else self.stage

    @property
    def purpose(self) -> str:
        """What the fit uses it for, in words."""
        return self.release.purpose.words

    @property
    def colour(self) -> int:
        """The number of its colour."""
        return COLOURS[self.release.purpose]


@dataclass(frozen=True)
class Family:
    """All releases that measure the same thing: their total share and their purpose."""

    name: str
    share: float
    purpose: str
    colour: int


def explain(statement: Statement) -> list[ReleaseRow]:
    """Explain every release, in order."""
    return [ReleaseRow(release) for release in statement.releases]


def families_of(rows: Sequence[ReleaseRow]) -> list[Family]:
    """Group releases by what they measure, in order of first occurrence."""
    first = {row.family: row for row in reversed(rows)}
    names = dict.fromkeys(row.family for row in rows)
    shares = {name: sum(row.release.share for row in rows if row.family == name) for name in names}
    return [Family(name, shares[name], first[name].purpose, first[name].colour) for name in names]


def mechanisms_of(rows: Sequence[ReleaseRow]) -> str:
    """Return the mechanisms of all releases, each once, in words; some have a comma."""
    return "; ".join(dict.fromkeys(row.release.mechanism_words for row in rows))


def popularity_noise(statement: Statement, n_tasks: int) -> float | None:
    """Return the noise on one item's released popularity, if popularity was a separate release."""
    for release in statement.releases:
        if release.purpose in (Purpose.POPULARITY, Purpose.ITEM_LIST) and release.shape == (n_tasks,):
            return release.stddev
    return None


def unspent(rows: Sequence[ReleaseRow]) -> float:
    """Return the fraction of the budget that no release took, ignoring the rounding of a plan."""
    left = 1.0 - sum(row.release.share for row in rows)
    return left if left > 1e-6 else 0.0

"""What each release was for: names that estimators give their releases, explained and put into families.

A family is what a release measures, whatever the round it belongs to; it gets one colour on the page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from apportion.privacy.statement import Release, Statement

_OTHER_COLOUR: Final = 8


@dataclass(frozen=True)
class ReleaseRow:
    """A release as the page shows it.

    Attributes:
        release: the release itself.
        family: what it measures, without its round.
        stage: the round it belongs to, or an empty text.
        purpose: what the model uses it for.
        colour: number of the family's colour, from 1.
    """

    release: Release
    family: str
    stage: str
    purpose: str
    colour: int


_PURPOSES: Final = (
    (
        3,
        r"task (sums|vectors)|right|signal",
        "What the people who touched an item say about it, summed: the signal itself.",
    ),
    (4, r"gram", "How firmly each item’s vector is pinned down by the people who touched it."),
    (
        5,
        r"shared|second moment|user sums",
        "How tastes spread over people as a whole: the shape that rare items borrow.",
    ),
    (2, r"popular|count", "How popular each item is, so that rare items can be given more weight."),
    (1, r"overview", "About how many people there are and what they give on average: the scale of the rest."),
    (7, r"users", "About how many people took part, which sets the strength of the prior."),
    (6, r"mean|offset|average", "The average value, from which everything else is measured."),
)
_OTHER = "Part of the fit."
_STAGE = re.compile(r"\b(round|step|epoch)[\s_]*(\d+)\b[\s:,/.-]*", re.IGNORECASE)


@dataclass(frozen=True)
class Family:
    """All releases that measure the same thing: their share together and what they are for."""

    name: str
    share: float
    purpose: str
    colour: int


def explain(statement: Statement) -> list[ReleaseRow]:
    """Explain every release, in order."""
    return [_row(release) for release in statement.releases]


def families_of(rows: Sequence[ReleaseRow]) -> list[Family]:
    """Group releases by what they measure, in the order in which they first occur."""
    first = {row.family: row for row in reversed(rows)}
    names = dict.fromkeys(row.family for row in rows)
    shares = {name: sum(row.release.share for row in rows if row.family == name) for name in names}
    return [Family(name, shares[name], first[name].purpose, first[name].colour) for name in names]


def popularity_noise(statement: Statement, n_tasks: int) -> float | None:
    """The noise that one item's released popularity got, if popularity was a release of its own."""
    for release in statement.releases:
        if re.search(r"popular|count", release.name, re.IGNORECASE) and release.shape == (n_tasks,):
            return release.stddev
    return None


def unspent(rows: Sequence[ReleaseRow]) -> float:
    """The fraction of the budget that no release took; rounding of a plan is not worth a mention."""
    left = 1.0 - sum(row.release.share for row in rows)
    return left if left > 1e-6 else 0.0


def _stage_and_family(name: str) -> tuple[str, str]:
    found = _STAGE.search(name)
    if found is None:
        return "", name.strip()
    stage = f"{found.group(1).lower()} {found.group(2)}"
    family = (name[: found.start()] + name[found.end() :]).strip(" :,/.-")
    return stage, family or name.strip()


def _row(release: Release) -> ReleaseRow:
    stage, family = _stage_and_family(release.name)
    for colour, pattern, purpose in _PURPOSES:
        if re.search(pattern, family, re.IGNORECASE):
            return ReleaseRow(release, family, stage, purpose, colour)
    return ReleaseRow(release, family, stage, _OTHER, _OTHER_COLOUR)

"""What each release of an estimate was for, and the table of releases with the steps of a descent in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from apportion.privacy.statement import Release, Statement
from apportion.report.releases import ReleaseRow, explain, families_of
from apportion.report.wording import bound, number


@dataclass(frozen=True)
class ReleaseGroup:
    """Releases of one family in one line of the table."""

    name: str
    colour: int
    shape: tuple[int, ...]
    share: float
    sensitivity: str
    derivation: str
    noise: str


_MOST_LINES: Final = 5  # of one family, in the table of releases
_PURPOSES: Final = (
    (2, "size", "How many people have about how many rows, from which the most that one person may weigh is chosen."),
    (6, "total weight", "About how much all people weigh together, by which sums become averages."),
    (4, "moment", "How far values spread, for weights and intervals."),
    (4, "variance", "How far values spread, for weights and intervals."),
    (2, "rough", "A first estimate, from which residuals are measured."),
    (4, "residual", "How far labels lie from the line, for weights and intervals."),
    (3, "", "The estimate itself."),
)


def explained(statement: Statement) -> list[ReleaseRow]:
    """Releases with what they are for on this page."""
    rows = []
    for row in explain(statement):
        colour, _, purpose = next(each for each in _PURPOSES if each[1] in row.family.lower())
        family = "quantiles" if row.family.startswith("quantiles") else row.family
        rows.append(replace(row, family=family, purpose=purpose, colour=colour))
    return rows


def groups_of(rows: Sequence[ReleaseRow]) -> list[ReleaseGroup]:
    """One line for each release, or for all steps of a descent, which differ in nothing but their number."""
    groups = []
    for family in families_of(rows):
        members = [row.release for row in rows if row.family == family.name]
        if len(members) > _MOST_LINES:
            groups.append(_group(f"{family.name}, {len(members)} times", family.colour, members))
        else:
            groups += [_group(release.name, family.colour, [release]) for release in members]
    return groups


def _group(name: str, colour: int, members: Sequence[Release]) -> ReleaseGroup:
    sensitivities, noises = [each.sensitivity for each in members], [each.stddev for each in members]
    return ReleaseGroup(
        name=name,
        colour=colour,
        shape=members[0].shape,
        share=sum(each.share for each in members),
        sensitivity=_span(min(sensitivities), max(sensitivities), bound),
        derivation=members[0].derivation,
        noise=_span(min(noises), max(noises), number),
    )


def _span(low: float, high: float, shown: Callable[[float], str]) -> str:
    return shown(high) if shown(low) == shown(high) else f"{shown(low)} to {shown(high)}"

"""The table of an estimate's releases, with the steps of a descent on one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from apportion.privacy.statement import Release
from apportion.report.releases import ReleaseRow, families_of
from apportion.report.wording import bound, number


@dataclass(frozen=True)
class ReleaseGroup:
    """Releases of one family on one line of the table."""

    name: str
    colour: int
    shape: tuple[int, ...]
    share: float
    sensitivity: str
    derivation: str
    noise: str


_MOST_LINES: Final = 5  # releases of one family in the table


def groups_of(rows: Sequence[ReleaseRow]) -> list[ReleaseGroup]:
    """Return one line for each release; steps of a descent that differ only in their number share a line."""
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

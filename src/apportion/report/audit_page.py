"""The page of an audit: what was claimed, tested and found. It is internal where it uses raw data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apportion.report.rendering import render


def audit_page(
    audits: Sequence[Any],
    *,
    facts: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
    of_data: bool = True,
) -> str:
    """Return the page as self-contained HTML, marked as not covered by ε if it was computed from data.

    Args:
        audits: one for each thing audited, with `name`, `claimed`, `delta`, `checks`, `lower_bound`, `confidence`,
            `tried` and `violated`.
        facts: how the audit was made, by name.
        remarks: what was not tested, and why.
        of_data: whether raw data were used, and not statements alone.
    """
    violated = [one.name for one in audits if one.violated]
    return render(
        "audit.html",
        audits=audits,
        facts=facts or {},
        remarks=remarks,
        of_data=of_data,
        headline=_headline(violated, len(audits)),
        violated=violated,
    )


def _headline(violated: Sequence[str], total: int) -> str:
    if not violated:
        return "The audit found no violation."
    if total == 1:
        return "The guarantee does not hold."
    return f"The guarantee does not hold for {len(violated)} of {total}: {', '.join(violated)}."

"""What `mean`, `quantile`, `regress`, `logistic` and statistics by group print, and the page they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.outputs import print_json, say_page, table, write_text

if TYPE_CHECKING:
    from apportion.report.estimates import Estimate, Estimates


def publish(result: Estimates, page: Path | None, as_json: bool, **further: Any) -> None:
    """Print the estimates with the statement, then write the page. A full disk cannot lose what was paid for.

    Args:
        result: what is released.
        page: where the page goes, if it was requested.
        as_json: whether to print JSON.
        further: released or public values that only the JSON document contains.
    """
    from apportion.report.estimates import estimates_page

    if as_json:
        print_json(_as_document(result, page, further))
    else:
        warning = result.statement.neighbours.warning
        first = f"{warning}\n\n" if warning else ""
        parts = (f"{first}{_as_table(result)}", *result.warnings, result.statement.to_text(fold=True))
        click.echo("\n\n".join(parts))
    if page is not None:
        write_text(page, estimates_page(result))
        say_page(page, what="\nPage", quiet=as_json)


def _as_table(result: Estimates) -> str:
    from apportion.report.estimates import columns_of

    if not result.rows:
        return " ".join(["No group is listed.", *result.caveats[1:]])
    columns = columns_of(result)
    return table([name.lower() for name in columns], list(zip(*columns.values(), strict=True)))


def _as_fields(row: Estimate, kind: str) -> dict[str, Any]:
    named = {"name": row.name, "estimate": row.value}
    if kind == "quantile":
        return {**named, "rank": row.rank, "rank_interval": row.ranks}
    further = {"interval": row.interval, "noise_stddev": row.noise}
    if kind != "group":
        return {**named, **further}
    part = {} if row.part is None else {"part": row.part}
    return {**named, "group": row.group, **part, **further, "simultaneous_interval": row.together}


def _as_document(result: Estimates, page: Path | None, further: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": result.label if result.kind == "group" else result.kind,
        "estimates": [_as_fields(row, result.kind) for row in result.rows],
        "level": result.level,
        **further,
        "notes": list(result.notes),
        "page": page,
        "releasable": result.statement.releasable,
        "statement": json.loads(result.statement.to_json()),
    }

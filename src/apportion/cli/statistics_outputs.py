"""What `mean`, `quantile`, `regress` and `logistic` print, and the page they write."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.outputs import print_json, table, write_text

if TYPE_CHECKING:
    from apportion.report.estimates import Estimates

_STEP = re.compile(r"  step (\d+): ")


def publish(found: Estimates, page: Path | None, as_json: bool, **further: Any) -> None:
    """Print the estimates with the statement, then write the page: what was paid for is never lost to a full disk.

    Args:
        found: what is released.
        page: where the page goes, if it was asked for.
        as_json: whether to print JSON.
        further: released or public values for the JSON document alone.
    """
    from apportion.report.estimates import estimates_page

    if as_json:
        print_json(_as_document(found, page, further))
    else:
        click.echo(f"{_as_table(found)}\n\n{_with_steps_together(found.statement.to_text())}")
    if page is not None:
        write_text(page, estimates_page(found))
        if not as_json:
            click.echo(f"\nPage: {page}")


def _as_table(found: Estimates) -> str:
    from apportion.report.estimates import columns_of

    columns = columns_of(found)
    return table([name.lower() for name in columns], list(zip(*columns.values(), strict=True)))


def _with_steps_together(text: str) -> str:
    """The statement's text with one line for all steps of a descent that differ in nothing but their number."""
    lines = []
    for rest, alike in itertools.groupby(text.splitlines(), key=lambda line: _STEP.sub("", line)):
        members = list(alike)
        steps = [_STEP.match(line) for line in members]
        if len(members) > 1 and steps[0] and steps[-1]:
            lines.append(f"  steps {steps[0][1]} to {steps[-1][1]}, each: {rest}")
        else:
            lines += members
    return "\n".join(lines)


def _as_document(found: Estimates, page: Path | None, further: dict[str, Any]) -> dict[str, Any]:
    quantiles = found.kind == "quantile"
    return {
        "kind": found.kind,
        "estimates": [
            {
                "name": row.name,
                "estimate": row.value,
                **({"rank": row.rank, "rank_interval": row.ranks} if quantiles else {"interval": row.interval}),
                **({} if quantiles else {"noise_stddev": row.noise}),
            }
            for row in found.rows
        ],
        "level": found.level,
        **further,
        "page": page,
        "releasable": found.statement.releasable,
        "statement": json.loads(found.statement.to_json()),
    }

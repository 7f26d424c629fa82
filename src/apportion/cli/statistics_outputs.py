"""What `mean`, `quantile`, `regress` and `logistic` print, and the page they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.outputs import print_json, table, write_text

if TYPE_CHECKING:
    from apportion.report.estimates import Estimates


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
        warning = found.statement.neighbours.warning
        first = f"{warning}\n\n" if warning else ""
        click.echo(f"{first}{_as_table(found)}\n\n{found.statement.to_text(fold_steps=True)}")
    if page is not None:
        write_text(page, estimates_page(found))
        if not as_json:
            click.echo(f"\nPage: {page}")


def _as_table(found: Estimates) -> str:
    from apportion.report.estimates import columns_of

    columns = columns_of(found)
    return table([name.lower() for name in columns], list(zip(*columns.values(), strict=True)))


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

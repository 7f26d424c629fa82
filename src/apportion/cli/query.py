"""`apportion query`: statistics by group, asked for in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from apportion.cli.by_group import run_by_group
from apportion.cli.group_options import GroupOptions, query_options
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.statistics_options import check_range, of_option, privacy_options
from apportion.errors import InputError


@click.command(short_help="Private answers to SQL: aggregates of one file by group.")
@click.argument("sql")
@click.option(
    "--range",
    "ends",
    nargs=2,
    type=float,
    default=None,
    metavar="LO HI",
    help="The public range of values, never taken from the data; counts need none.",
)
@of_option
@query_options
@privacy_options(delta="pure", engines=False)
@open_option
@json_option
def query(sql: str, ends: tuple[float, float] | None, as_json: bool, **options: Any) -> None:
    """Answer SQL under user-level differential privacy: aggregates of one file (CSV, TSV or Parquet) by group.

    \b
    apportion query "SELECT ward, avg(cost) FROM 'visits.parquet' GROUP BY ward" \\
        --user patient --range 0 500 --epsilon 1

    Supported: count(*), count(DISTINCT user), sum, avg, var_pop, median and quantile_cont of one column, and GROUP BY
    columns or date_trunc('month', column). Conditions go into --where. Anything else is refused with the reason.
    DuckDB's parser reads the text (extra: apportion[query]).
    """  # noqa: D301
    from apportion.data.on_disk.manifest import is_user_folder
    from apportion.statistics.groups.sql import parsed_query

    asked = parsed_query(sql, options["user"])
    file = Path(asked.table)
    if not (file.is_file() or is_user_folder(file)):
        raise InputError(f"There is no file {asked.table!r} to read from.", argument=None)
    click.get_current_context().params["file"] = file  # whose fingerprint a ledger keeps
    settings: dict[str, Any] = {}
    if asked.value is not None:
        if ends is None:
            raise InputError(
                f"Expected the public range of {asked.value!r}, which is never taken from the data: give it with "
                "--range LO HI.",
                argument=None,
            )
        check_range("--range", ends)
        settings = {"value_range": ends, "quantiles": list(asked.ranks)}
    by = ",".join(asked.by) or None
    privacy = collect(GroupOptions, {**options, "by": by})
    run_by_group(file, asked.statistics, asked.value, privacy, settings, as_json=as_json)

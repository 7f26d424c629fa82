"""`apportion count`: numbers of rows or of users, in all or by group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from apportion.cli.by_group import run_by_group
from apportion.cli.group_options import GroupOptions, group_options
from apportion.cli.option_types import DATA
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.statistics_options import privacy_options


@click.command(short_help="Private numbers of rows or users, in all or by group.")
@click.argument("file", type=DATA)
@click.option("--users", "of_users", is_flag=True, help="Count different users instead of rows.")
@group_options
@privacy_options(delta="pure")
@open_option
@json_option
def count(file: Path | str, of_users: bool, as_json: bool, **options: Any) -> None:
    """Count rows of FILE (CSV, TSV or Parquet), or users, under user-level differential privacy, with intervals.

    \b
    apportion count visits.csv --user patient --by ward --epsilon 1

    A user has one budget over all groups. A private list of groups and its numbers of users are one release.
    """  # noqa: D301
    privacy = collect(GroupOptions, options)
    run_by_group(file, ("users" if of_users else "count",), None, privacy, {}, as_json=as_json)

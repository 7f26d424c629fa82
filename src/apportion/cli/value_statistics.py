"""`apportion sum`, `variance` and `histogram` of a column, in all or by group: one value, one range, one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from apportion.cli.by_group import run_by_group
from apportion.cli.group_options import GroupOptions, group_options
from apportion.cli.option_types import DATA, Command
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.statistics_options import check_range, of_option, privacy_options

_VALUE = click.option("--value", required=True, metavar="COLUMN", help="The column.")
_RANGE = click.option(
    "--range",
    "ends",
    nargs=2,
    type=float,
    required=True,
    metavar="LO HI",
    help="The public range of values, never taken from the data.",
)


def _of_values(command: Command) -> Command:
    for option in (json_option, open_option, privacy_options(delta="pure"), group_options, _RANGE, _VALUE):
        command = option(command)
    return click.argument("file", type=DATA)(command)


@click.command("sum", short_help="Private sums of a column, in all or by group.")
@_of_values
def total(file: Path | str, value: str, ends: tuple[float, float], as_json: bool, **options: Any) -> None:
    """Add up a column of FILE (CSV, TSV or Parquet) under user-level differential privacy, with intervals.

    \b
    apportion sum visits.csv --user patient --value cost --range 0 500 --by ward --epsilon 1

    Values may have either sign; those beyond the range count as its ends.
    """  # noqa: D301
    check_range("--range", ends)
    run_by_group(file, ("sum",), value, collect(GroupOptions, options), {"value_range": ends}, as_json=as_json)


@click.command(short_help="Private variances of a column, in all or by group.")
@_of_values
@of_option
def variance(file: Path | str, value: str, ends: tuple[float, float], as_json: bool, **options: Any) -> None:
    """Compute the variance of a column of FILE (CSV, TSV or Parquet) under user-level differential privacy.

    \b
    apportion variance visits.csv --user patient --value cost --range 0 500 --by ward --epsilon 1

    Values beyond the range count as its ends.
    """  # noqa: D301
    check_range("--range", ends)
    run_by_group(file, ("variance",), value, collect(GroupOptions, options), {"value_range": ends}, as_json=as_json)


@click.command(short_help="Private histograms of a column, in all or by group.")
@_of_values
@of_option
@click.option("--bins", type=click.IntRange(2, 4096), default=10, show_default=True, help="Bins of the public range.")
def histogram(
    file: Path | str, value: str, ends: tuple[float, float], bins: int, as_json: bool, **options: Any
) -> None:
    """Count rows of FILE (CSV, TSV or Parquet) by bins of a column, under user-level differential privacy.

    \b
    apportion histogram visits.csv --user patient --value cost --range 0 500 --bins 5 --by ward --epsilon 1

    The first and the last bin have all values beyond the range.
    """  # noqa: D301
    check_range("--range", ends)
    settings = {"value_range": ends, "bins": bins}
    run_by_group(file, ("histogram",), value, collect(GroupOptions, options), settings, as_json=as_json)

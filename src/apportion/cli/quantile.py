"""`apportion quantile`: quantiles of a column, with a bound on each user's weight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.options import FILE, collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import (
    LEVEL,
    StatisticsOptions,
    bounding_options,
    check_range,
    privacy_options,
    read_columns,
)
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.report.estimates import Estimates
    from apportion.statistics import UserQuantile


@click.command(short_help="Private quantiles of a column, with intervals for their ranks.")
@click.argument("file", type=FILE)
@click.option("--value", required=True, metavar="COLUMN", help="The column.")
@click.option(
    "--at",
    type=LEVEL,
    multiple=True,
    default=(0.5,),
    show_default=True,
    metavar="RANK",
    help="A rank, such as 0.5 for the median; may be given several times.",
)
@click.option(
    "--range",
    "ends",
    nargs=2,
    type=float,
    required=True,
    metavar="LO HI",
    help="Public range of values, never taken from the data.",
)
@privacy_options(delta="pure")
@bounding_options
@open_option
@json_option
def quantile(
    file: Path, value: str, at: tuple[float, ...], ends: tuple[float, float], as_json: bool, **options: Any
) -> None:
    """Compute quantiles of a column of FILE (CSV, TSV or Parquet) under user-level differential privacy.

    \b
    apportion quantile visits.csv --user patient --value cost --at 0.5 --at 0.9 --range 0 500 --epsilon 1

    The guarantee is pure: delta is 0. Several quantiles together cost about as much as one. Values outside the range
    are clipped to it.
    """  # noqa: D301
    privacy = collect(StatisticsOptions, options)
    check_range("--range", ends)
    if len(set(at)) < len(at):
        raise InputError(f"Expected different ranks, got {', '.join(f'{rank:g}' for rank in at)}.", argument="at")
    privacy.check()
    with Reporter() as reporter:
        table = read_columns(file, privacy, {value: "number"}, reporter)
        reporter.say("Values outside the range are clipped to it.")
        fitted = _fit(privacy, table.numbers[value], table.users.codes, at, ends)
    publish(_estimates(fitted, value, ends), privacy.page, as_json, threshold=fitted.threshold_, range=ends)


def _fit(
    privacy: StatisticsOptions, values: Any, users: Any, at: tuple[float, ...], ends: tuple[float, float]
) -> UserQuantile:
    from apportion.statistics import UserQuantile

    estimator = UserQuantile(
        list(at), value_range=ends, bounding=privacy.bounding(), sizes=privacy.sizes, **privacy.settings()
    )
    return estimator.fit(values, users=users, session=privacy.session())


def _estimates(fitted: UserQuantile, column: str, ends: tuple[float, float]) -> Estimates:
    from apportion.report.estimates import Estimate, Estimates

    errors = fitted.rank_error_
    caveats = (
        (
            "The errors of the ranks are not reported, because they would reveal how many rows users "
            "have, which is private here.",
        )
        if errors is None
        else (
            "Ranks refer to the population from which rows were drawn independently. The intervals "
            f"account for the sampling and for privacy, if at least {100 * fitted.base_mass:g} % of "
            "the public range holds points of about the right rank.",
        )
    )
    rows = tuple(
        Estimate(f"{q:g}", float(point), bounds=ends, rank=q, ranks=None if error is None else _around(q, error))
        for q, point, error in zip(
            fitted.quantiles,
            fitted.quantiles_,
            [None] * len(fitted.quantiles) if errors is None else errors,
            strict=True,
        )
    )
    facts = {"Threshold": f"h = {fitted.threshold_:.6g}: further rows of a user add no weight"}
    return Estimates("quantile", rows, fitted.level, fitted.statement_, caveats, facts, label=column)


def _around(rank: float, error: float) -> tuple[float, float]:
    return max(0.0, rank - float(error)), min(1.0, rank + float(error))

"""`apportion mean`: means of columns, each user's weight bounded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.options import FILE, collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import (
    StatisticsOptions,
    bounding_options,
    check_range,
    privacy_options,
    read_columns,
    refuse_repeated,
)
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.report.estimates import Estimates
    from apportion.statistics import UserMean

Ranges = tuple[tuple[float, float], ...]


@click.command(short_help="Private means of columns, with intervals.")
@click.argument("file", type=FILE)
@click.option(
    "--value", "values", multiple=True, required=True, metavar="COLUMN", help="A column; may be given several times."
)
@click.option(
    "--range",
    "ranges",
    nargs=2,
    type=float,
    multiple=True,
    required=True,
    metavar="LO HI",
    help="The public range of values, never taken from the data: once for all columns, or once for each.",
)
@privacy_options(delta="optional")
@click.option(
    "--variance",
    type=click.FloatRange(min=0),
    multiple=True,
    metavar="V",
    help="Variance of one value, if it is public: once, or once for each column; else estimated privately.",
)
@click.option(
    "--correlation",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="RHO",
    help="Assumed, public, between two values of one user: for the weights and the intervals.",
)
@bounding_options
@open_option
@json_option
def mean(file: Path, values: tuple[str, ...], ranges: Ranges, as_json: bool, **options: Any) -> None:
    """Means of columns of FILE (CSV, TSV or Parquet) under user-level differential privacy, with intervals.

    \b
    apportion mean visits.csv --user patient --value cost --range 0 500 --epsilon 1

    Values beyond the range count as its ends. A user with many rows weighs no more than the noise allows.
    """  # noqa: D301
    privacy = collect(StatisticsOptions, options)
    low, high = _per_column(values, ranges, "--range")
    variance = _one_or_all(values, options["variance"], "--variance")
    privacy.check()
    with Reporter() as reporter:
        table = read_columns(file, privacy, dict.fromkeys(values, "number"), reporter)
        reporter.say("Values beyond the range are clipped to it.")
        fitted = _fit(privacy, table.matrix(values), table.users.codes, (low, high), variance, options["correlation"])
    found = _found(fitted, values, ranges)
    publish(found, privacy.page, as_json, threshold=fitted.threshold_, variance=fitted.variance_.tolist(), range=ranges)


def _fit(
    privacy: StatisticsOptions, matrix: Any, users: Any, value_range: tuple[Any, Any], variance: Any, correlation: float
) -> UserMean:
    from apportion.statistics import UserMean

    estimator = UserMean(
        delta=privacy.delta,
        value_range=value_range,
        variance=variance,
        correlation=correlation,
        bounding=privacy.bounding(),
        sizes=privacy.sizes,
        **privacy.settings(),
    )
    return estimator.fit(matrix, users=users, session=privacy.session())


def _per_column(values: tuple[str, ...], ranges: Ranges, option: str) -> tuple[Any, Any]:
    """Both ends: two numbers if one range is for all, or two lists."""
    refuse_repeated(list(values))
    for ends in ranges:
        check_range(option, ends)
    given = _one_or_all(values, ranges, option)
    if len(ranges) == 1:
        return ranges[0]
    return [low for low, _ in given], [high for _, high in given]


def _one_or_all(values: tuple[str, ...], given: tuple[Any, ...], option: str) -> Any:
    """What was given once, or a list with one for each column."""
    if len(given) not in (0, 1, len(values)):
        raise InputError(
            f"Expected {option} once, or once for each of {len(values)} columns, got it {len(given)} times."
        )
    return None if not given else given[0] if len(given) == 1 else list(given)


def _found(fitted: UserMean, values: tuple[str, ...], ranges: Ranges) -> Estimates:
    from apportion.report.estimates import Estimate, Estimates

    bounds = ranges * len(values) if len(ranges) == 1 else ranges
    columns = zip(values, fitted.mean_, fitted.interval_.tolist(), fitted.noise_stddev_, bounds, strict=True)
    rows = tuple(
        Estimate(name, float(value), (ends[0], ends[1]), float(noise), bound)
        for name, value, ends, noise, bound in columns
    )
    related = (
        f"correlated by {fitted.correlation:g}, as was declared"
        if fitted.correlation
        else "independent of one another; where they resemble one another, the interval is too narrow"
    )
    caveats = (
        "The mean is that of the population that users’ values were drawn from, clipped to the public range. An "
        f"interval accounts for the noise that privacy added and for the drawing, values of one user being {related}.",
    )
    facts = {"Threshold": f"h = {fitted.threshold_:.6g}: above it, further rows of a user add no weight"}
    return Estimates("mean", rows, fitted.level, fitted.statement_, caveats, facts)

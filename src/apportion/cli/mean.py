"""`apportion mean`: means of columns, with a bound on each user's weight."""

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


@click.command(short_help="Private means of columns, with confidence intervals.")
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
    help="Public range of values, never taken from the data: once for all columns, or once for each.",
)
@privacy_options(delta="optional")
@click.option(
    "--variance",
    type=click.FloatRange(min=0),
    multiple=True,
    metavar="V",
    help="Variance of one value, if it is public: once, or once for each column; otherwise estimated privately.",
)
@click.option(
    "--correlation",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="RHO",
    help="Public assumption on the correlation of two values of one user; used for weights and intervals.",
)
@bounding_options
@open_option
@json_option
def mean(file: Path, values: tuple[str, ...], ranges: Ranges, as_json: bool, **options: Any) -> None:
    """Compute means of columns of FILE (CSV, TSV or Parquet) under user-level differential privacy, with intervals.

    \b
    apportion mean visits.csv --user patient --value cost --range 0 500 --epsilon 1

    Values outside the range are clipped to it. The weight of a user with many rows is limited, to keep the noise low.
    """  # noqa: D301
    privacy = collect(StatisticsOptions, options)
    low, high = _per_column(values, ranges, "--range")
    variance = _one_or_all(values, options["variance"], "--variance")
    privacy.check()
    with Reporter() as reporter:
        table = read_columns(file, privacy, dict.fromkeys(values, "number"), reporter)
        reporter.say("Values outside the range are clipped to it.")
        fitted = _fit(privacy, table.matrix(values), table.users.codes, (low, high), variance, options["correlation"])
    result = _estimates(fitted, values, ranges)
    publish(
        result, privacy.page, as_json, threshold=fitted.threshold_, variance=fitted.variance_.tolist(), range=ranges
    )


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
    """Return both ends: two numbers if one range is for all columns, otherwise two lists."""
    refuse_repeated(list(values))
    for ends in ranges:
        check_range(option, ends)
    given = _one_or_all(values, ranges, option)
    if len(ranges) == 1:
        return ranges[0]
    return [low for low, _ in given], [high for _, high in given]


def _one_or_all(values: tuple[str, ...], given: tuple[Any, ...], option: str) -> Any:
    """Return the single value, or a list with one value for each column."""
    if len(given) not in (0, 1, len(values)):
        raise InputError(
            f"Expected {option} once, or once for each of {len(values)} columns, got it {len(given)} times.",
            argument=None,
        )
    return None if not given else given[0] if len(given) == 1 else list(given)


def _estimates(fitted: UserMean, values: tuple[str, ...], ranges: Ranges) -> Estimates:
    from apportion.report.estimates import Estimate, Estimates

    bounds = ranges * len(values) if len(ranges) == 1 else ranges
    columns = zip(values, fitted.mean_, fitted.interval_.tolist(), fitted.noise_stddev_, bounds, strict=True)
    rows = tuple(
        Estimate(name, float(value), (ends[0], ends[1]), float(noise), bound)
        for name, value, ends, noise, bound in columns
    )
    related = (
        f"correlated by {fitted.correlation:g}, as declared"
        if fitted.correlation
        else "independent; if they are similar, the interval is too narrow"
    )
    caveats = (
        "The estimate is the mean of the population from which users’ values were drawn, clipped "
        "to the public range. The interval accounts for the privacy noise and for the sampling, "
        f"assuming that values of one user are {related}.",
    )
    facts = {"Threshold": f"h = {fitted.threshold_:.6g}: further rows of a user add no weight"}
    return Estimates("mean", rows, fitted.level, fitted.statement_, caveats, facts)

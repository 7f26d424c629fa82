"""`apportion mean`: means of columns, each user's weight bounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.by_group import run_by_group, with_groups, without_groups
from apportion.cli.given_rows import GivenRows, given_rows
from apportion.cli.group_options import GroupOptions, without_required_delta
from apportion.cli.option_types import DATA
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import (
    StatisticsOptions,
    check_range,
    privacy_options,
    refuse_repeated,
    target_options,
)
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.report.estimates import Estimates
    from apportion.statistics import UserMean

Ranges = tuple[tuple[float, float], ...]


@click.command(short_help="Private means of columns, with confidence intervals.")
@click.argument("file", type=DATA)
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
    help="With the paper's weights: variance of one value, if it is public, once or for each column.",
)
@click.option(
    "--correlation",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="RHO",
    help="With the paper's weights: assumed, public, between two values of one user.",
)
@click.option(
    "--interval-for",
    type=click.Choice(["rows", "population"]),
    default="rows",
    show_default=True,
    help="Whether intervals are for the mean of these users' rows, or of a population that users were drawn from.",
)
@target_options
@without_required_delta
@open_option
@json_option
def mean(file: Path | str, values: tuple[str, ...], ranges: Ranges, as_json: bool, **options: Any) -> None:
    """Compute means of columns of FILE (CSV, TSV or Parquet) under user-level differential privacy, with intervals.

    \b
    apportion mean visits.csv --user patient --value cost --range 0 500 --epsilon 1

    Values beyond the range count as its ends. The mean is that over all rows, or with --of users over users; the
    intervals of several columns hold all together. With --by there is one mean for each group, of one column.
    """  # noqa: D301
    if options["by"] is not None:
        _by_group(file, values, ranges, with_groups(options), as_json=as_json)
        return
    options = without_groups(options)
    privacy = collect(StatisticsOptions, options)
    low, high = _per_column(values, ranges, "--range")
    variance = _one_or_all(values, options["variance"], "--variance")
    privacy.refuse_bounds_without_paper()
    privacy = privacy.checked(file)
    with Reporter() as reporter:
        reporter.say("Values outside the range are clipped to it.")
        settings = {"variance": variance, **{name: options[name] for name in ("correlation", "interval_for")}}
        with given_rows(file, privacy, values, reporter) as rows:
            fitted = _fit(privacy, rows, (low, high), settings)
    result = _estimates(fitted, values, ranges)
    publish(result, privacy.page, as_json, of=privacy.of, threshold=fitted.threshold_, range=ranges)


def _by_group(
    file: Path | str, values: tuple[str, ...], ranges: Ranges, options: dict[str, Any], *, as_json: bool
) -> None:
    if len(values) != 1 or len(ranges) != 1:
        raise InputError(f"Expected one --value and one --range with --by, got {len(values)}.", argument=None)
    check_range("--range", ranges[0])
    settings = {"value_range": ranges[0]}
    run_by_group(file, ("mean",), values[0], collect(GroupOptions, options), settings, as_json=as_json)


def _fit(
    privacy: StatisticsOptions, rows: GivenRows, value_range: tuple[Any, Any], settings: dict[str, Any]
) -> UserMean:
    from apportion.statistics import UserMean

    estimator = UserMean(
        delta=privacy.delta,
        value_range=value_range,
        bounding=privacy.bounding(),
        engine=rows.engine,
        **settings,
        **privacy.target(),
        **privacy.settings(),
    )
    users = rows.users if rows.engine is not None else rows.users.codes
    return estimator.fit(rows.values, users=users, session=privacy.session())


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
            f"Expected {option} once, or once for each of {len(values)} columns, got it {len(given)} times.",
            argument=None,
        )
    return None if not given else given[0] if len(given) == 1 else list(given)


def _estimates(fitted: UserMean, values: tuple[str, ...], ranges: Ranges) -> Estimates:
    import numpy as np

    from apportion.report.estimates import Estimate, Estimates

    bounds = ranges * len(values) if len(ranges) == 1 else ranges
    means, noise = np.atleast_1d(fitted.mean_), np.atleast_1d(fitted.noise_stddev_)
    columns = zip(values, means, np.atleast_2d(fitted.interval_).tolist(), noise, bounds, strict=True)
    rows = tuple(
        Estimate(name, float(value), (ends[0], ends[1]), float(noise), bound)
        for name, value, ends, noise, bound in columns
    )
    facts = {
        "What is estimated": _target(fitted),
        "Threshold": f"h = {fitted.threshold_:.6g}: above it, further rows of a user add no weight",
    }
    return Estimates(
        "mean", rows, fitted.level, fitted.statement_, _caveats(fitted), facts, warnings=_hidden(fitted, values)
    )


def _target(fitted: UserMean) -> str:
    if fitted.weights == "paper":
        return "the mean that all users' values share, as the paper assumes"
    if fitted.of == "users":
        return "the mean over users, each with the mean of its rows"
    return "the mean over all rows, in which a user counts by its rows"


def _caveats(fitted: UserMean) -> tuple[str, ...]:
    import numpy as np

    if fitted.weights == "paper":
        related = (
            f"correlated by {fitted.correlation:g}, as was declared"
            if fitted.correlation
            else "independent of one another; where they resemble one another, the interval is too narrow"
        )
        return (
            "The mean is that of the population that users’ values were drawn from, clipped to the public range. It "
            "assumes that values have nothing to do with how many rows a user has: where they do, it is off by more "
            f"than the interval says. Values of one user are taken as {related}.",
        )
    whose = (
        "of a population that these users were drawn from" if fitted.interval_for == "population" else "of these users"
    )
    return (
        f"The estimate is {_target(fitted)}, clipped to the public range. Intervals are for the mean {whose}. They "
        "account for the noise that privacy added, and for what weights do where values go with the number of rows"
        f"{'; those of several columns hold all together' if np.size(fitted.mean_) > 1 else ''}.",
    )


def _hidden(fitted: UserMean, values: Sequence[str]) -> tuple[str, ...]:
    """How many users with many rows noise may hide, at two standard deviations; nothing for a mean over users."""
    import numpy as np

    from apportion.privacy.purposes import Purpose

    if fitted.of == "users" or fitted.weights == "paper":
        return ()
    released = [each for each in fitted.statement_.releases if each.purpose is Purpose.CLASS_SUMS]
    users = math.ceil(2 * math.sqrt(2 / np.size(fitted.mean_)) * released[-1].stddev)
    most = f"{fitted.max_size:,} row{'s' if fitted.max_size != 1 else ''}"
    lower = f" Lower --max-size, now {fitted.max_size:,}, if such users are not to count with all of their rows."
    return (
        "The interval does not account for a few users who own most rows and differ from all others: up to about "
        f"{users:,} users of one size are lost in the noise.{lower if fitted.max_size > 1 else ''} One such user could "
        f"move {_each(values, fitted.hidden_user_)}. A user with more than {most} counts as one with "
        f"{fitted.max_size:,}: if there are such users, the interval is not for the mean over all rows, and a larger "
        "--max-size is needed.",
    )


def _each(values: Sequence[str], moves: Any) -> str:
    """How far one user could move each mean."""
    import numpy as np

    few = [f"{each:.3g}" for each in np.atleast_1d(moves)]
    if len(few) == 1:
        return f"the mean by up to {few[0]}"
    return "the mean " + ", ".join(f"of {name} by up to {each}" for name, each in zip(values, few, strict=True))

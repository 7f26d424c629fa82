"""`apportion quantile`: points of a column's distribution, each user's weight bounded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.by_group import run_by_group, with_groups, without_groups
from apportion.cli.given_rows import GivenRows, given_rows
from apportion.cli.group_options import GroupOptions, group_options
from apportion.cli.option_types import DATA, PositiveNumber
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import (
    LEVEL,
    StatisticsOptions,
    check_range,
    privacy_options,
    target_options,
)
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.report.estimates import Estimate, Estimates
    from apportion.statistics import UserQuantile

_TIES: Final = (
    "These ranks assume that no value is in many rows. If values repeat, as grades, ages or zeros do, give --step; "
    "without it, the true rank may be outside what is said."
)
_REMEDY: Final = " Give --max-size, if it is known how many rows a user can have, or ask for --of users."


@click.command(short_help="Private quantiles of a column, with how far their ranks may be off.")
@click.argument("file", type=DATA)
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
    help="The public range of values, never taken from the data.",
)
@click.option(
    "--step",
    type=PositiveNumber(),
    metavar="S",
    help="Public: values lie at LO, LO + S, ... up to HI, such as whole grades; so do the quantiles found.",
)
@privacy_options(delta="pure")
@target_options
@group_options
@open_option
@json_option
def quantile(
    file: Path | str,
    value: str,
    at: tuple[float, ...],
    ends: tuple[float, float],
    step: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compute quantiles of a column of FILE (CSV, TSV or Parquet) under user-level differential privacy.

    \b
    apportion quantile visits.csv --user patient --value cost --at 0.5 --at 0.9 --range 0 500 --epsilon 1

    Purely epsilon-DP: there is no delta. Several quantiles come in order. Values beyond the range count as its ends.
    Where values are whole numbers, or lie on another public scale, say so with --step. With --by there are quantiles
    for each group, from counts on a public grid, and a delta.
    """  # noqa: D301
    check_range("--range", ends)
    if len(set(at)) < len(at):
        raise InputError(f"Expected different ranks, got {', '.join(f'{rank:g}' for rank in at)}.", argument="at")
    if options["by"] is not None:
        settings = {"value_range": ends, "step": step, "quantiles": list(at)}
        privacy = collect(GroupOptions, with_groups(options))
        run_by_group(file, ("quantile",), value, privacy, settings, as_json=as_json)
        return
    privacy = collect(StatisticsOptions, without_groups(options, pure=True))
    if privacy.exact:
        from apportion.statistics.quantile import NOT_EXACT

        raise InputError(NOT_EXACT, argument="exact")
    privacy.refuse_bounds_without_paper()
    privacy = privacy.checked(file)
    with Reporter() as reporter:
        reporter.say("Values outside the range are clipped to it.")
        settings = {"value_range": ends, "step": step}
        with given_rows(file, privacy, [value], reporter) as rows:
            fitted = _fit(privacy, rows, at, settings)
    result = _estimates(fitted, value, ends)
    publish(result, privacy.page, as_json, of=privacy.of, threshold=fitted.threshold_, range=ends, step=step)


def _fit(privacy: StatisticsOptions, rows: GivenRows, at: tuple[float, ...], settings: dict[str, Any]) -> UserQuantile:
    from apportion.statistics import UserQuantile

    estimator = UserQuantile(
        list(at),
        bounding=privacy.bounding(),
        engine=rows.engine,
        **settings,
        **privacy.target(),
        **privacy.settings(),
    )
    users = rows.users if rows.engine is not None else rows.users.codes
    return estimator.fit(rows.values, users=users, session=privacy.session())


def _caveats(fitted: UserQuantile) -> tuple[str, ...]:
    if fitted.rank_error_ is None:
        return (
            "How far ranks are off is not said, since it would reveal how many rows users have, which is private here.",
        )
    mass = f"if at least {100 * fitted.base_mass:g} % of the public range holds points of about the right rank"
    if fitted.weights == "paper":
        return (
            "Ranks are those in the population that rows were drawn from, independently, and have nothing to do with "
            f"how many rows a user has. They account for the drawing and for privacy, {mass}.",
        )
    what = "all rows" if fitted.of == "rows" else "users, each of whom counts the same"
    return (
        f"Ranks are those among {what}. They account for privacy{'' if fitted.step else f', {mass},'} and for what "
        "weights do where values go with the number of rows.",
    )


def _estimates(fitted: UserQuantile, column: str, ends: tuple[float, float]) -> Estimates:
    from apportion.report.estimates import Estimate, Estimates

    errors = fitted.rank_error_
    rows = tuple(
        Estimate(f"{q:g}", float(point), bounds=ends, rank=q, ranks=None if error is None else _around(q, error))
        for q, point, error in zip(
            fitted.quantiles,
            fitted.quantiles_,
            [None] * len(fitted.quantiles) if errors is None else errors,
            strict=True,
        )
    )
    target = f"quantiles of {fitted.of}" if fitted.weights == "target" else "quantiles that all users share"
    facts = {
        "What is estimated": target,
        "Threshold": f"h = {fitted.threshold_:.6g}: above it, further rows of a user add no weight",
    }
    told = (fitted.level, fitted.statement_, _caveats(fitted), facts)
    ties = () if fitted.step or fitted.rank_error_ is None else (_TIES,)
    return Estimates(
        "quantile", rows, *told, label=column, warnings=(*_unknown(rows, fitted.of, fitted.max_size), *ties)
    )


def _unknown(rows: Sequence[Estimate], of: str, most_rows: int) -> tuple[str, ...]:
    """Say so if nothing is known of where a number lies among all rows."""
    unknown = [row for row in rows if row.of_any_rank]
    if not unknown:
        return ()
    which = "This value" if len(rows) == 1 else f"{len(unknown)} of {len(rows)} values"
    return (
        f"{which} may have any rank, so nothing is known of the quantile. There are too few users for this epsilon, or "
        f"a few of them have, or seem to have, most rows.{_REMEDY if of == 'rows' and most_rows != 1 else ''}",
    )


def _around(rank: float, error: float) -> tuple[float, float]:
    return max(0.0, rank - float(error)), min(1.0, rank + float(error))

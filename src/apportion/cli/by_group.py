"""What commands for statistics by group share: one fit, and its results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from apportion.cli.given_rows import given_rows
from apportion.cli.group_options import DELTA, GroupOptions
from apportion.cli.outputs import print_json, table
from apportion.cli.progress import Reporter
from apportion.cli.statistics_outputs import publish

if TYPE_CHECKING:
    from apportion.report.estimates import Estimates
    from apportion.statistics import UserGroupBy

_ELSEWHERE: Final = (
    "variance", "correlation", "interval_for", "weights", "sizes", "max_size", "threshold", "sample_limit",
)  # fmt: skip


def run_by_group(
    file: Path | str,
    statistics: Sequence[str],
    value: str | None,
    options: GroupOptions,
    settings: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Fit statistics by group and print them, or print the plan.

    Args:
        file: the data.
        statistics: which.
        value: the column of values, if it needs one.
        options: the guarantee and the groups.
        settings: further arguments of the estimator.
        as_json: whether to print JSON.
    """
    for name in _given({"keys": None, "top": None}) if options.by is None else ():
        raise click.UsageError(f"--{name} needs groups: --by, or GROUP BY in a query.")
    if value is not None and value in [column for column, _ in options.bins_by]:
        raise click.UsageError(f"Column {value!r} cannot be both the values and what divides rows into groups.")
    if options.plan:
        _print_plan(statistics, options, settings, as_json=as_json)
        return
    options = options.checked(file)
    if options.master is not None and any(size for _, size in options.bins_by):
        raise click.UsageError("Bins of time need rows on this machine; add a column of bins to the table instead.")
    keys = options.listed()
    with Reporter() as reporter:
        columns, texts = [] if value is None else [value], [column for column, _ in options.bins_by]
        with given_rows(file, options, columns, reporter, by=texts) as rows:
            made = _estimator(statistics, options, keys, {**settings, "engine": rows.engine})
            by = _in_bins(rows.by, options, reporter)
            fitted = made.fit(rows.values, users=rows.users, by=by, session=options.session())
    if options.top is not None:
        fitted = fitted.top(options.top)
    result = group_estimates(fitted, statistics, value, options)
    public = {name: settings[name] for name in ("value_range", "step") if settings.get(name) is not None}
    publish(result, options.page, as_json, by=options.columns_by, threshold=fitted.threshold_, of=options.of, **public)


def _in_bins(by: Sequence[Any], options: GroupOptions, reporter: Reporter) -> list[Any]:
    """Return the columns that divide rows into groups, dates as the bins of time that they are in."""
    from apportion.data.time_bins import NO_DATE, in_bins, undated
    from apportion.data.vocabulary import shortened

    pairs = list(zip(by, options.bins_by, strict=True))
    for column, (name, size) in pairs:
        n_rows, one = undated(column) if size is not None else (0, "")
        if n_rows:
            reporter.say(
                f"{n_rows} of {len(column.codes)} rows hold no date in column {name!r}, such as {shortened(one)}; a "
                f"date is written as 2025-11-30 or in Unix seconds. They are in the group {NO_DATE!r}."
            )
    return [column if size is None else in_bins(column, size) for column, (_, size) in pairs]


def without_groups(options: dict[str, Any], *, pure: bool = False) -> dict[str, Any]:
    """Return the options of a command without groups; refuse options that only groups have.

    Args:
        options: as given.
        pure: whether the command has no delta without groups.
    """
    given, of_groups = _given(options), ("keys", "each", "law", "top", "plan", *(("delta",) if pure else ()))
    for name in of_groups:
        if name in given:
            raise click.UsageError(f"--{name} needs --by.")
    return {name: value for name, value in options.items() if name not in ("by", *of_groups)}


def with_groups(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command with groups; refuse options that groups do not have."""
    given = _given(options)
    for name in _ELSEWHERE:
        if name in given:
            raise click.UsageError(f"--{name.replace('_', '-')} cannot be combined with --by.")
    if "delta" not in given:
        options = {**options, "delta": DELTA}
    return {name: value for name, value in options.items() if name not in _ELSEWHERE}


def _given(options: dict[str, Any]) -> set[str]:
    source = click.get_current_context().get_parameter_source
    return {name for name in options if source(name) not in (ParameterSource.DEFAULT, None)}


def _estimator(statistics: Sequence[str], options: GroupOptions, keys: Any, settings: dict[str, Any]) -> UserGroupBy:
    from apportion.statistics import UserGroupBy

    return UserGroupBy(
        tuple(statistics),
        delta=options.delta,
        keys=keys,
        of=options.of,
        shrink=not options.each,
        law=options.law,
        **settings,
        **options.settings(),
    )


def group_estimates(
    fitted: UserGroupBy, statistics: Sequence[str], value: str | None, options: GroupOptions
) -> Estimates:
    """Released numbers of all groups, as pages and tables show them."""
    from apportion.report.estimates import Estimates
    from apportion.report.group_rows import (
        group_rows,
        title_of,
        words_on_dates,
        words_on_groups,
        words_on_hidden,
        words_on_noise,
    )

    title, rows = title_of(statistics, value, options.by_in_words, fitted.of), group_rows(fitted, statistics, value)
    bins = [size is not None for _, size in options.bins_by]
    return Estimates(
        "group",
        rows,
        fitted.level,
        fitted.statement_,
        words_on_groups(fitted),
        {"What is estimated": title},
        label=title,
        warnings=(*words_on_dates(fitted, bins), *words_on_noise(fitted, rows), *words_on_hidden(fitted)),
    )


def _print_plan(statistics: Sequence[str], options: GroupOptions, settings: dict[str, Any], *, as_json: bool) -> None:
    from apportion.statistics.groups import plan_groups

    plan = plan_groups(
        statistics,
        options.epsilon,
        options.delta,
        private_keys=options.keys_are_private,
        law=options.law,
        value_range=settings.get("value_range"),
        level=options.level,
    )
    if as_json:
        told = {"shares": plan.shares, "thresholds": plan.thresholds, "level": options.level}
        print_json({**told, "widths": [vars(each) for each in plan.widths]})
        return
    shares = [[name, f"{100 * share:.3g} %"] for name, share in plan.shares.items()]
    widths = [
        [each.statistic, f"{each.reach:g}", "any" if each.size is None else f"{each.size}", f"± {each.half_width:.4g}"]
        for each in plan.widths
    ]
    click.echo(f"{table(['release', 'share of the budget'], shares)}\n")
    click.echo(
        table(
            ["statistic", "a user in all groups*", "rows of the group", f"{100 * options.level:g} % interval"], widths
        )
    )
    whole = (
        "Number of a user's rows" if options.law == "laplace" else "Root of the sum of a user's squared rows by group"
    )
    click.echo(f"\n* {whole}, for most users at most this.")
    for groups, users in plan.thresholds.items():
        many = "one group" if groups == 1 else f"up to {groups} groups"
        click.echo(f"A group of {users:,.0f} users is listed half of the time, if users are in {many}.")
    click.echo("Nothing was read and nothing was spent.")

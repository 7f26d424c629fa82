"""`apportion regress`: how a private number depends on public features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.feature_columns import Features, assemble, categories_option, columns_to_read, features_option
from apportion.cli.labelled_rows import LabelledRows, labelled_on_spark
from apportion.cli.option_types import DATA
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import (
    StatisticsOptions,
    check_range,
    privacy_options,
    read_columns,
    sample_limit_option,
)
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.tables import ColumnKind
    from apportion.regression.label_private import LabelPrivateRegression
    from apportion.report.estimates import Estimates


@click.command(short_help="Private linear regression; labels are protected, features are public.")
@click.argument("file", type=DATA)
@click.option("--label", required=True, metavar="COLUMN", help="The column to predict. It is protected.")
@features_option
@categories_option
@click.option(
    "--label-range",
    nargs=2,
    type=float,
    required=True,
    metavar="LO HI",
    help="Public range of labels, never taken from the data.",
)
@privacy_options(delta="optional")
@click.option(
    "--noise-variance",
    type=click.FloatRange(min=0),
    metavar="V",
    help="Variance of a label around its mean, if it is public; otherwise estimated privately.",
)
@click.option("--no-intercept", is_flag=True, help="Fit no intercept.")
@click.option(
    "--target",
    type=click.Choice(["coefficients", "predictions"]),
    default="predictions",
    show_default=True,
    help="What should be most precise: the predictions, whatever the units of the features, or all "
    "coefficients equally.",
)
@sample_limit_option
@open_option
@json_option
def regress(
    file: Path | str, label: str, features: str, label_range: tuple[float, float], as_json: bool, **options: Any
) -> None:
    """Fit a linear regression to FILE (CSV, TSV or Parquet) under user-level differential privacy of the labels.

    \b
    apportion regress visits.csv --user patient --label cost --features age,ward --label-range 0 500 --epsilon 1

    FEATURES ARE PUBLIC. Neither the features nor which rows belong to one user, and how many, are protected. A text
    column among the features becomes indicators of its categories, with the first as reference. Labels outside the
    range are clipped to it. The target is the least squares line over all rows. Intervals hold where the truth is
    curved, too.
    """  # noqa: D301
    privacy = collect(StatisticsOptions, options)
    check_range("--label-range", label_range)
    columns = columns_to_read(features, options["categories"])
    if label in columns:
        raise InputError(f"Column {label!r} cannot be both label and feature.", argument="label")
    privacy = privacy.checked(file)
    with Reporter() as reporter, _given(file, privacy, columns, label, options, reporter) as (result, rows):
        reporter.say("Features are assumed public, and so is how many rows each user has.")
        reporter.say("Labels outside the range are clipped to it.")
        estimator = _estimator(privacy, result, label_range, {**options, "engine": rows.engine})
        shown, session = _in_turns(reporter), privacy.session()
        fitted = estimator.fit(rows.features, rows.labels, users=rows.users, session=session, progress=shown)
    publish(
        _estimates(fitted, result, label),
        privacy.page,
        as_json,
        threshold=fitted.threshold_,
        noise_variance=fitted.noise_variance_,
        label_range=label_range,
    )


@contextmanager
def _given(
    file: Path | str,
    privacy: StatisticsOptions,
    columns: dict[str, ColumnKind],
    label: str,
    options: dict[str, Any],
    reporter: Reporter,
) -> Iterator[tuple[Features, LabelledRows]]:
    """Open the features and labels, in memory or on a cluster."""
    categories = dict(options["categories"])
    if isinstance(file, str):
        with labelled_on_spark(
            file, privacy, list(columns), categories, label, reporter, features_are_public=True
        ) as held:
            yield held
        return
    table = read_columns(file, privacy, {**columns, label: "number"}, reporter)
    try:
        result = assemble(table, list(columns), categories, features_are_public=True)
    except InputError as error:
        raise error.inside(file.name) from None
    yield result, LabelledRows(result.matrix, table.numbers[label], table.users.codes)


def _estimator(
    privacy: StatisticsOptions, features: Features, label_range: tuple[float, float], options: dict[str, Any]
) -> LabelPrivateRegression:
    from apportion.regression.label_private import LabelPrivateRegression

    return LabelPrivateRegression(
        delta=privacy.delta,
        label_range=label_range,
        noise_variance=options["noise_variance"],
        fit_intercept=not options["no_intercept"],
        target=options["target"],
        bounding="robust" if privacy.sample_limit is None else privacy.bounding(),
        public=features.public,
        engine=options["engine"],
        **privacy.settings(),
    )


def _in_turns(reporter: Reporter) -> Callable[[str, int, int], None]:
    """Show the solver's progress, once for a first rough estimate and once for the final one."""
    turn, best = 1, -1

    def show(job: str, done: int, total: int) -> None:
        nonlocal turn, best
        if done > best:
            best = done
            reporter.show(job if turn == 1 else f"{job}, turn {turn}", "part", done, total)
        if done == total:
            turn, best = turn + 1, -1

    return show


def _estimates(fitted: LabelPrivateRegression, features: Features, label: str) -> Estimates:
    from apportion.report.estimates import Estimates, coefficients

    intervals = [*fitted.coef_intervals_.tolist(), fitted.intercept_interval_.tolist()]
    intercept = fitted.intercept_ if fitted.fit_intercept else None
    rows = coefficients(features.names, fitted.coef_.tolist(), intercept, intervals, fitted.noise_stddev_.tolist())
    caveats = (
        "The target, at every ε, is the least squares line over all rows, whether or not the truth is a line. "
        "Intervals account for the noise that privacy added, and for how far users with fewer or more rows may lie "
        "from that line.",
        *features.compared,
    )
    facts = {
        "Features": "public: they are not protected",
        "Numbers of rows": "public: how many rows each user has is not protected",
    }
    return Estimates("regression", rows, fitted.level, fitted.statement_, caveats, facts, label=label)

"""`apportion logistic`: how the odds of a yes depend on features. Both features and answers are private."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.feature_columns import Features, assemble, categories_option, columns_to_read, features_option
from apportion.cli.options import FILE, PositiveNumber, collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import StatisticsOptions, bounding_options, privacy_options, read_columns
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.tables import ColumnKind, Table
    from apportion.regression.user_erm import UserERM
    from apportion.report.estimates import Estimates


@click.command(short_help="Private logistic regression; features and labels are both protected.")
@click.argument("file", type=FILE)
@click.option("--label", required=True, metavar="COLUMN", help="The column of answers: 0 and 1, or see --yes.")
@click.option("--yes", metavar="VALUE", help="This value of the label means yes; every other value means no.")
@features_option
@categories_option
@click.option(
    "--feature-norm",
    type=PositiveNumber(),
    required=True,
    metavar="R",
    help="Public bound on the norm of a row of features; longer rows are clipped to it.",
)
@privacy_options(delta="required")
@click.option(
    "--intervals",
    "parts",
    type=click.IntRange(min=2),
    metavar="K",
    help="Compute intervals from K parts of the users; this costs accuracy, by about the square root of K.",
)
@click.option("--no-intercept", is_flag=True, help="Fit no intercept.")
@click.option(
    "--domain-radius",
    type=PositiveNumber(),
    default=10.0,
    show_default=True,
    metavar="R",
    help="Public bound on the norm of all coefficients together.",
)
@bounding_options
@open_option
@json_option
def logistic(file: Path, label: str, yes: str | None, features: str, as_json: bool, **options: Any) -> None:
    """Logistic regression of a yes-or-no column of FILE (CSV, TSV or Parquet) under user-level differential privacy.

    \b
    apportion logistic visits.csv --user patient --label returned --features age,ward --categories ward=east,west \\
        --feature-norm 100 --epsilon 5 --delta 1e-6

    Features and labels of one user's rows are protected together. A text column among the features needs --categories,
    because the texts that occur are private. A text that is not listed counts as the first category.
    """  # noqa: D301
    privacy = collect(StatisticsOptions, options)
    columns = columns_to_read(features, options["categories"])
    privacy.check()
    with Reporter() as reporter:
        table = read_columns(file, privacy, columns | _label_kind(label, yes, columns), reporter)
        try:
            result = assemble(table, list(columns), dict(options["categories"]), features_are_public=False)
            answers = _answers(table, label, yes)
        except InputError as error:
            raise error.inside(file.name) from None
        reporter.say(f"Rows of features with a norm above {options['feature_norm']:g} are clipped to that norm.")
        fitted = _fit(privacy, result, answers, table.users.codes, options, reporter)
    said = f"{label} = {yes}" if yes is not None else label
    publish(_estimates(fitted, result, said), privacy.page, as_json, threshold=fitted.threshold_, steps=fitted.n_steps_)


def _label_kind(label: str, yes: str | None, columns: dict[str, ColumnKind]) -> dict[str, ColumnKind]:
    if label in columns:
        raise InputError(f"Column {label!r} cannot be both label and feature.", argument="label")
    return {label: "number or text" if yes is None else "text"}


def _answers(table: Table, label: str, yes: str | None) -> Any:
    """Return 1 for yes and 0 for no, one for each row."""
    import numpy as np

    from apportion.data.vocabulary import bad_cell

    if label in table.texts:
        column = table.texts[label]
        if yes is None:
            first = column.vocabulary.id_of(int(column.codes[0]))
            raise bad_cell(label, first, 1, "0 or 1", "yes", "say which value means yes with")
        return (column.codes == column.vocabulary.find([yes])[0]).astype(np.float64)  # possibly nobody said yes
    numbers = table.numbers[label]
    allowed = np.isin(numbers, (0.0, 1.0))
    if not allowed.all():
        row = int(np.argmin(allowed))
        raise bad_cell(label, float(numbers[row]), row + 1, "0 or 1", "yes", "say which value means yes with")
    return numbers


def _fit(
    privacy: StatisticsOptions,
    features: Features,
    answers: Any,
    users: Any,
    options: dict[str, Any],
    reporter: Reporter,
) -> UserERM:
    from apportion.regression.user_erm import UserERM

    estimator = UserERM(
        "logistic",
        delta=privacy.delta,
        feature_norm=options["feature_norm"],
        domain_radius=options["domain_radius"],
        fit_intercept=not options["no_intercept"],
        bounding=privacy.bounding(),
        sizes=privacy.sizes,
        interval_parts=options["parts"] or 0,
        public=features.public,
        **privacy.settings(),
    )
    session = privacy.session()
    return estimator.fit(features.matrix, answers, users=users, session=session, progress=reporter.of("descent"))


def _estimates(fitted: UserERM, features: Features, label: str) -> Estimates:
    from apportion.report.estimates import Estimates, coefficients

    n_parts = fitted.interval_parts
    ends = fitted.coef_intervals_, fitted.intercept_interval_
    intervals = None if ends[0] is None or ends[1] is None else [*ends[0].tolist(), ends[1].tolist()]
    on_intervals = (
        f"Intervals use Student’s t over {n_parts} fits to {n_parts} parts of the users. They do "
        "not account for the fact that each fit stops early, at some distance from its optimum."
        if n_parts
        else "There are no intervals: they were not requested, and would have cost accuracy."
    )
    scaled = f"Rows of features were clipped to a norm of {fitted.feature_norm:g}."
    rows = coefficients(
        features.names, fitted.coef_.tolist(), fitted.intercept_ if fitted.fit_intercept else None, intervals
    )
    facts = {
        "Threshold": f"h = {fitted.threshold_:.6g}: further rows of a user add no weight",
        "Steps of the descent": str(fitted.n_steps_),
    }
    caveats = (on_intervals, scaled, *features.compared)
    return Estimates("logistic", rows, fitted.level, fitted.statement_, caveats, facts, label=label)

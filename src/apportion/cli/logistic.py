"""`apportion logistic`: how the odds of a yes depend on features. Both features and answers are private."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.feature_columns import Features, assemble, categories_option, columns_to_read, features_option
from apportion.cli.given_rows import opened_folder, streams
from apportion.cli.labelled_rows import LabelledRows, labelled_on_spark
from apportion.cli.option_types import DATA, PositiveNumber
from apportion.cli.options import collect, json_option, open_option
from apportion.cli.progress import Reporter
from apportion.cli.statistics_options import StatisticsOptions, privacy_options, read_columns, sample_limit_option
from apportion.cli.statistics_outputs import publish
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.data.tables import ColumnKind, Table
    from apportion.regression.user_erm import UserERM
    from apportion.report.estimates import Estimates


@click.command(short_help="Private logistic regression; features and labels are both protected.")
@click.argument("file", type=DATA)
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
    help="Intervals from K parts of the users; costs accuracy, about as the root of K. Needs --sizes public. Refused, "
    "and said so, where noise stops the fit too early for them to hold.",
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
@click.option(
    "--sizes",
    type=click.Choice(["public", "private"]),
    default="private",
    show_default=True,
    help="Whether everybody may know how many rows each user has. Protecting that too makes models better, not worse.",
)
@click.option(
    "--threshold",
    type=PositiveNumber(),
    metavar="H",
    help="Rows beyond H add nothing to a user's weight; else the best H by formula.",
)
@sample_limit_option
@click.option("--no-floor", is_flag=True, help="Publish the model even where it is not seen to beat a constant.")
@open_option
@json_option
def logistic(file: Path | str, label: str, yes: str | None, features: str, as_json: bool, **options: Any) -> None:
    """Logistic regression of a yes-or-no column of FILE (CSV, TSV or Parquet) under user-level differential privacy.

    \b
    apportion logistic visits.csv --user patient --label returned --features age,ward --categories ward=east,west \\
        --feature-norm 100 --epsilon 5 --delta 1e-6

    Features and labels of one user's rows are protected together, and how many rows there are. A text column among the
    features needs --categories, since which texts occur is private; a text that is not listed counts as the first
    category. Where features are not seen to predict better than a constant, the constant is published.
    """  # noqa: D301
    privacy = collect(StatisticsOptions, options)
    columns = columns_to_read(features, options["categories"])
    for option, asked in (("--intervals", options["parts"]), ("--sample-limit", privacy.sample_limit)):
        if asked and privacy.sizes == "private":
            problem = f"{option} needs --sizes public, which tells everybody how many rows each user has."
            raise InputError(problem, argument=None)
    privacy = privacy.checked(file)
    kind = _label_kind(label, yes, columns)
    with Reporter() as reporter, _given(file, privacy, columns, kind, yes, options, reporter) as (result, rows):
        if privacy.sizes == "public":
            reporter.say("How many rows each user has is taken as public.")
        reporter.say(f"Rows of features with a norm above {options['feature_norm']:g} are clipped to that norm.")
        fitted = _fit(privacy, result, rows, options, reporter)
    said = f"{label} = {yes}" if yes is not None else label
    publish(
        _estimates(fitted, result, said),
        privacy.page,
        as_json,
        threshold=fitted.threshold_,
        steps=fitted.n_steps_,
        model_part=fitted.model_part_,
        about_intervals=fitted.about_intervals_,
    )


@contextmanager
def _given(
    file: Path | str,
    privacy: StatisticsOptions,
    columns: dict[str, ColumnKind],
    kind: dict[str, ColumnKind],
    yes: str | None,
    options: dict[str, Any],
    reporter: Reporter,
) -> Iterator[tuple[Features, LabelledRows]]:
    """Open the features and answers, in memory or on a cluster."""
    (label,), categories = kind, dict(options["categories"])
    if isinstance(file, str):
        with labelled_on_spark(
            file, privacy, list(columns), categories, label, reporter, yes=yes, features_are_public=False
        ) as held:
            yield held
        return
    if streams(file, privacy) and yes is None and not categories:
        held_on_disk, engine = opened_folder(file, privacy, [*columns, label], reporter)
        yield Features(tuple(columns), None, (), ()), LabelledRows(held_on_disk, label, privacy.user, engine)
        return
    table = read_columns(file, privacy, columns | kind, reporter)
    try:
        result = assemble(table, list(columns), categories, features_are_public=False)
        answers = _answers(table, label, yes)
    except InputError as error:
        raise error.inside(file.name) from None
    yield result, LabelledRows(result.matrix, answers, table.users.codes)


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
    rows: LabelledRows,
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
        floor=not options["no_floor"],
        sizes=privacy.sizes,
        interval_parts=options["parts"] or 0,
        public=features.public,
        engine=rows.engine,
        **privacy.settings(),
    )
    shown, session = reporter.of("descent"), privacy.session()
    return estimator.fit(rows.features, rows.labels, users=rows.users, session=session, progress=shown)


def _estimates(fitted: UserERM, features: Features, label: str) -> Estimates:
    from apportion.report.estimates import Estimates, coefficients

    n_parts = fitted.interval_parts
    ends = fitted.coef_intervals_, fitted.intercept_interval_
    intervals = None if ends[0] is None or ends[1] is None else [*ends[0].tolist(), ends[1].tolist()]
    about = fitted.about_intervals_ or (
        f"Intervals are those of Student’s t over {n_parts} fits to {n_parts} parts of the users. That every fit "
        "stops early, at some distance from its goal, is not in them."
    )
    scaled = f"Rows of features were clipped to a norm of {fitted.feature_norm:g}."
    rows = coefficients(
        features.names, fitted.coef_.tolist(), fitted.intercept_ if fitted.fit_intercept else None, intervals
    )
    facts = {
        "Threshold": f"h = {fitted.threshold_:.6g}: further rows of a user add no weight",
        "Steps of the descent": str(fitted.n_steps_),
        "Model": _part_in_words(fitted.model_part_) if fitted.floor else "as fitted, without a floor",
    }
    if fitted.sizes == "public":
        facts = {"Numbers of rows": "public: how many rows each user has is not protected", **facts}
    told = (fitted.level, fitted.statement_, (about, scaled, *features.compared), facts)
    warnings = (f"What is published is {_part_in_words(fitted.model_part_)}.",) if fitted.floor else ()
    only = f"The odds of {label}, without any feature" if fitted.floor and fitted.model_part_ == 0 else ""
    return Estimates("logistic", rows, *told, label=label, warnings=warnings, headline=only)


def _part_in_words(part: float) -> str:
    if part == 0:
        return "a constant: features were not seen to predict better within this budget"
    if part < 1:
        return f"the model, drawn {100 * (1 - part):.0f} % of the way towards a constant, which predicted best"
    return "the model: features were seen to predict better than a constant"

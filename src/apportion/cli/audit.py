"""`apportion audit`: test a saved model, or the methods of a study. For people who may see raw data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import DATA, PAGE
from apportion.cli.options import DataOptions, collect, data_options, json_option, open_option
from apportion.cli.outputs import print_json, refuse_folder, say_page, table, write_text
from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.auditing.fits import AuditReport
    from apportion.auditing.replay import Fit
    from apportion.auditing.replay_files import Load
    from apportion.data import Interactions
    from apportion.privacy import Budget, Statement

VIOLATED: Final = 1
_STATEMENT_ONLY: Final = "No data were given (--data FILE): only the statement was recomputed."


@click.command(short_help="Test whether a saved model, or the methods of a study, keep their guarantee.")
@click.argument("model_or_study", type=click.Path(exists=True, path_type=Path))
@click.option("--data", "data_file", type=DATA, help="For a model or a list of keys: the data that it was made from.")
@click.option(
    "--users",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Number of users to leave out, one at a time.",
)
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    help="Number of canary users to add; default: depends on the data; 0: none.",
)
@click.option("--audit-seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the audit.")
@click.option("--out", type=PAGE, help="Page to write; default: the name with -audit.html.")
@data_options
@open_option
@json_option
def audit(
    model_or_study: Path,
    data_file: Path | None,
    users: int,
    canaries: int | None,
    audit_seed: int,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Check MODEL_OR_STUDY: a folder with a saved model, the TOML file of a study, or what a statistic printed as JSON.

    \b
    apportion audit model --data ratings.csv
    apportion audit study.toml
    apportion audit keys.json --data searches.csv --user person --item query

    For a model, the statement is recomputed. With --data, the model's method is fitted again with its settings:
    without some users, to see whether any release moves by more than its sensitivity, and with canary users, to see
    how much the result reveals about them. One file of text, JSON lines or Parquet is also written without some users,
    read and fitted again, to see whether a user changes how the rows of others are read. For a study, every private
    method is tested in these ways, with the first settings of its grid and the first epsilon. For the JSON of a
    statistic the statement is recomputed; for that of `keys`, whose key is --item, the list is made again with --data,
    in the same ways.

    The audit writes a page. With data, it is computed from raw data, internal, and must not be shared. The exit code is
    1 if a violation is found. Finding none proves nothing.
    """  # noqa: D301
    target = out or Path(f"{model_or_study.stem}-audit.html")
    refuse_folder(target)
    effort = {"users": users, "canaries": canaries, "seed": audit_seed}
    with Reporter() as reporter:
        if model_or_study.is_dir():
            reports, remarks = _audit_model(model_or_study, data_file, collect(DataOptions, options), effort, reporter)
        elif model_or_study.suffix == ".json":
            reports, remarks = _audit_printed(
                model_or_study, data_file, collect(DataOptions, options), effort, reporter
            )
        elif data_file is not None:
            raise click.UsageError("A study names its own data; --data is for a model.")
        else:
            reports, remarks = _audit_study(model_or_study, effort, reporter)
    _write_page(reports, remarks, model_or_study, audit_seed, target)
    _print_result(reports, remarks, target, as_json)
    internal = "Internal page, computed from raw data and not covered by epsilon"
    say_page(target, what=internal if _used_data(remarks) else "Page", quiet=as_json)
    if any(report.violated for report in reports):
        click.get_current_context().exit(VIOLATED)


def _audit_model(
    folder: Path, data_file: Path | None, data_as: DataOptions, effort: dict[str, Any], reporter: Reporter
) -> tuple[list[AuditReport], list[str]]:
    """Audit the statement and, with data, the method and settings that made the model."""
    from apportion.auditing.fits import audit_recommender, audit_statement, fit_of, recommender_of
    from apportion.cli.history import read_history
    from apportion.privacy import Budget
    from apportion.recommend import load

    model = load(folder)
    if model.statement is None:
        raise InputError(
            f"The model in {str(folder)!r} has no privacy statement: there is nothing to audit.", argument=None
        )
    reports = [audit_statement("statement", model.statement)]
    if data_file is None:
        return reports, [_STATEMENT_ONLY]
    make = recommender_of(model)
    data, remarks = read_history(data_file, data_as, model, whole=bool(model.statement.keys_delta))
    budget = Budget(model.statement.epsilon, model.statement.delta, model.statement.keys_delta)
    reporter.say(f"fitting the method of {folder.name} again: replay, then canaries")
    reports.append(audit_recommender("method and settings, fitted again", make, data, budget, **effort))

    def read(path: Path) -> Interactions:
        return read_history(path, data_as, model, whole=bool(budget.keys_delta))[0]

    in_files, said = _audit_in_files(data_file, data_as, read, {"": fit_of(make)}, budget, effort, reporter)
    return [*reports, *in_files], [*remarks, *said]


def _audit_printed(
    path: Path, data_file: Path | None, data_as: DataOptions, effort: dict[str, Any], reporter: Reporter
) -> tuple[list[AuditReport], list[str]]:
    """Audit the statement of what a statistic printed and, for a list of keys with data, how lists are made."""
    from apportion.auditing.fits import audit_statement
    from apportion.auditing.lists import audit_keys, published_keys
    from apportion.cli.loading import open_source, read_rows
    from apportion.data import IGNORE
    from apportion.privacy import Budget

    statement, keys = _printed(path)
    reports = [audit_statement("statement", statement)]
    if data_file is None:
        return reports, [_STATEMENT_ONLY]
    if keys is None or not all(isinstance(key, str) for key in keys):
        raise click.UsageError("With --data, only what `keys` printed for one column is made again.")
    rows = read_rows(data_file, open_source(data_file, data_as), data_as, IGNORE, single_user=True)
    budget = Budget(statement.epsilon, statement.delta, statement.keys_delta)
    reporter.say(f"making the list of {path.name} again: replay, then canaries")
    found = audit_keys(
        "list, made again", rows.data, budget, users=effort["users"], canaries=effort["canaries"] != 0,
        seed=effort["seed"],
    )  # fmt: skip

    def read(path: Path) -> Interactions:
        return read_rows(path, open_source(path, data_as), data_as, IGNORE, single_user=True).data

    in_files, said = _audit_in_files(data_file, data_as, read, {"": published_keys}, budget, effort, reporter)
    return [*reports, found, *in_files], [*rows.remarks, *said]


def _audit_in_files(
    data_file: Path,
    data_as: DataOptions,
    load: Load,
    fits: Mapping[str, Fit],
    budget: Budget,
    effort: dict[str, Any],
    reporter: Reporter,
) -> tuple[list[AuditReport], list[str]]:
    """Replay the file without users, if files of its format can be written without one; else say why not.

    Args:
        data_file: the file.
        data_as: how it is read.
        load: reads it.
        fits: what is fitted, by name; without a name if it is the only one.
        budget: the claimed budget.
        effort: how many users, and the seed.
        reporter: says what is done.
    """
    from apportion.auditing.fits import audit_file
    from apportion.auditing.neighbour_files import UserFile, refuse_uncovered
    from apportion.cli.loading import names_given, open_source
    from apportion.data import IGNORE
    from apportion.data.columns import choose_columns
    from apportion.data.sources import name_of

    if not effort["users"]:
        return [], []
    why = refuse_uncovered(data_file)
    if why is not None:
        return [], [f"{name_of(data_file)}: {why}, so users were left out in memory, and not in the file."]
    names = open_source(data_file, data_as).names
    roles = {"user": data_as.user, "task": data_as.item, "value": IGNORE, "timestamp": IGNORE}
    given = names_given(data_as)
    file = UserFile(data_file, choose_columns(names, roles).user, None if given is None else tuple(given))
    reporter.say(f"leaving users out of {data_file.name}: it is written, read and fitted again")
    chosen = {"users": effort["users"], "seed": effort["seed"]}
    try:
        return [audit_file(file, load, fit, budget, name=name, **chosen) for name, fit in fits.items()], []
    except InputError as error:
        return [], [f"{str(error).rstrip('.')}, so users were left out in memory, and not in the file."]


def _printed(path: Path) -> tuple[Statement, list[Any] | None]:
    """Return the statement in what a command printed with --json, and the keys if it is a list of these."""
    from apportion.privacy import Statement

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Statement.from_json(json.dumps(document["statement"])), document.get("keys")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path.name}: this is not what a statistic printed with --json.", argument=None) from error


def _audit_study(path: Path, effort: dict[str, Any], reporter: Reporter) -> tuple[list[AuditReport], list[str]]:
    """Audit every private method of a study, with its first settings and the first ε."""
    from apportion.auditing.fits import audit_recommender, fit_of
    from apportion.cli.compare import _load, place_of_data
    from apportion.cli.loading import load_data
    from apportion.evaluation.study import read_study
    from apportion.privacy import Budget
    from apportion.recommend.methods import build

    study = read_study(path)
    loaded = _load(study, path)
    budget = Budget(study.budgets.epsilon[0], study.budgets.delta)
    reports, fits = [], {}
    for method in study.methods:
        if not method.is_private:
            continue
        spec = method.combinations()[0].spec

        def make(spec: Any = spec) -> Any:
            from numpy import float64

            from apportion.engines import LocalEngine

            estimator = build(
                spec, study.kind, epsilon=budget.epsilon, delta=budget.delta, value_range=study.value_range
            )
            return estimator.set_params(engine=LocalEngine(float64))

        reporter.say(f"auditing {method.name}")
        reports.append(audit_recommender(method.name, make, loaded.data, budget, **effort))
        fits[method.name] = fit_of(make)
    if not reports:
        raise InputError(f"{path.name}: Expected at least one private method to audit, got none.", argument=None)
    place, data_as = place_of_data(study, path)

    def read(file: Path) -> Interactions:
        return load_data(file, data_as, single_user=True).data

    in_files, said = _audit_in_files(place, data_as, read, fits, budget, effort, reporter)
    return [*reports, *in_files], [*loaded.remarks, *said]


def _write_page(reports: list[AuditReport], remarks: list[str], audited: Path, seed: int, target: Path) -> None:
    from apportion import __version__
    from apportion.report.audit_page import audit_page

    facts = {"Audited": audited.name, "Seed of the audit": str(seed), "Version": f"apportion {__version__}"}
    write_text(target, audit_page(reports, facts=facts, remarks=remarks, of_data=_used_data(remarks)))


def _used_data(remarks: list[str]) -> bool:
    return _STATEMENT_ONLY not in remarks


def _print_result(reports: list[AuditReport], remarks: list[str], target: Path, as_json: bool) -> None:
    if as_json:
        result = [{**asdict(report), "violated": report.violated} for report in reports]
        print_json(
            {"violated": any(r.violated for r in reports), "audits": result, "remarks": remarks, "page": str(target)}
        )
        return
    for remark in remarks:
        click.echo(remark)
    for report in reports:
        bound = "not tried" if report.lower_bound is None else f"{report.lower_bound:.4g}"
        click.echo(f"\n{report.name}: claimed epsilon {report.claimed:g}, audited lower bound {bound}")
        rows = [[check.name, "passed" if check.passed else "FAILED", check.words] for check in report.checks]
        click.echo(table(["check", "result", "found"], rows))
    verdict = "A violation was found." if any(report.violated for report in reports) else "No violation was found."
    click.echo(f"\n{verdict}")

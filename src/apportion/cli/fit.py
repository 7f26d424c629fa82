"""`apportion fit`: from a data file to a private model and a page that may be shared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.cautions import weak_epsilon
from apportion.cli.options import (
    DATA,
    FILE,
    MEMORY,
    DataOptions,
    FeatureOptions,
    FitOptions,
    checkpoint_option,
    collect,
    data_options,
    feature_options,
    fit_options,
    json_option,
    ledger_options,
    memory_option,
    open_option,
)
from apportion.cli.outputs import REPORT, print_json, refuse_unless_writable_model, say_page, write_model
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel


@click.command(short_help="Fit a private model; write it with a page that may be shared.")
@click.argument("data", type=DATA)
@fit_options()
@ledger_options
@data_options
@feature_options
@click.option("--titles", type=FILE, help="File with titles of items (id, title), for the page.")
@memory_option
@checkpoint_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write; default: DATA's name with -model.")
@open_option
@json_option
def fit(
    data: Path,
    titles: Path | None,
    out: Path | None,
    as_json: bool,
    memory: str,
    **options: Any,
) -> None:
    """Fit a private recommender to DATA (CSV, TSV, MovieLens .dat or Parquet, or a folder made by `shard`).

    The command writes the model, its privacy statement and report.html. This page may be shared: it holds released
    values and the statement, never raw data. Columns are recognised by their usual names. Item features must be public;
    with them, the model learns rare items better and can rank new ones.
    """
    target = out or Path(f"{data.stem}-model")
    data_as, privacy = collect(DataOptions, options), collect(FitOptions, options)
    feature_settings = collect(FeatureOptions, options)
    with Reporter() as reporter:
        model = run_fit(data, target, data_as, privacy, titles, reporter, feature_settings, memory)
    _print_result(model, target, as_json)
    say_page(target / REPORT, quiet=as_json)


def run_fit(
    path: Path,
    target: Path,
    data_as: DataOptions,
    privacy: FitOptions,
    titles: Path | None,
    reporter: Reporter,
    feature_settings: FeatureOptions | None = None,
    memory: str = MEMORY,
) -> ItemModel:
    """Load, fit, and put the model and its page in place. Nothing is written before the fit is done."""
    from apportion.cli.feature_files import match_features, read_features
    from apportion.cli.folder_loading import load_folder
    from apportion.cli.item_files import read_titles
    from apportion.cli.loading import load_data
    from apportion.cli.training import cost_of_list, fit_private, shortened

    refuse_unless_writable_model(target)
    privacy = replace(privacy, items=data_as.items)
    privacy.budget  # noqa: B018 - one that makes no sense is refused before the data is read
    session = privacy.session()
    kept = session.checkpoint
    if kept is not None and kept.n_stored:
        reporter.say(f"Going on with a fit that was stopped: {kept.n_stored} releases are stored in {kept.folder}.")
    features = read_features(feature_settings or FeatureOptions(), reporter)
    loaded = load_folder(path, data_as) if path.is_dir() else load_data(path, data_as)
    privacy = replace(privacy, rules=loaded.rules)
    names = {} if titles is None else read_titles(titles, loaded.data.task_ids)
    for remark in (*loaded.remarks, *weak_epsilon(privacy.epsilon)):
        reporter.say(remark)
    match_features(features, loaded.data.task_ids, reporter)
    if target.exists():
        reporter.say(
            f"Replacing the model at {target}. Note that a second fit to the same people spends their privacy again."
        )
    model = fit_private(loaded.data, loaded.kind, privacy, data_as.scale, reporter, session, features, memory)
    for line in (*cost_of_list(model), *shortened(model, privacy)):
        reporter.say(line)
    by_text = {str(key): title for key, title in names.items()}
    listed = {key: by_text[str(key)] for key in model.task_ids if str(key) in by_text}
    write_model(model, target, None if titles is None else listed)
    return model


def _print_result(model: ItemModel, target: Path, as_json: bool) -> None:
    statement = model.statement
    assert statement is not None
    if as_json:
        print_json(
            {
                "model": target,
                "report": target / REPORT,
                "kind": model.kind,
                "n_items": model.n_tasks,
                "releasable": statement.releasable,
                "statement": json.loads(statement.to_json()),
            }
        )
        return
    click.echo(statement.to_text())
    click.echo(f"\nModel: {target}")

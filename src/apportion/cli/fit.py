"""`apportion fit`: from a data file to a private model and a page that may be shared."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apportion.cli.cautions import weak_epsilon
from apportion.cli.data_places import data_argument, stem_of
from apportion.cli.feature_options import FeatureOptions, feature_options
from apportion.cli.ledger_options import ledger_options
from apportion.cli.option_types import FILE
from apportion.cli.options import (
    MEMORY,
    DataOptions,
    FitOptions,
    checkpoint_option,
    collect,
    data_options,
    engine_options,
    fit_options,
    json_option,
    memory_option,
    open_option,
    refuse_half_a_cluster,
)
from apportion.cli.outputs import (
    REPORT,
    print_json,
    refuse_unless_writable_model,
    room_for_model,
    say_page,
    version_of,
    write_paid_model,
)
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.data.sources import Place
    from apportion.recommend.model import ItemModel


@click.command(short_help="Fit a private model; write it with a page that may be shared.")
@data_argument
@fit_options()
@ledger_options
@data_options
@feature_options
@click.option("--titles", type=FILE, help="File with public titles of items (id, title), which the model keeps.")
@memory_option
@engine_options
@checkpoint_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write; default: DATA's name with -model.")
@open_option
@json_option
def fit(
    data: Place,
    titles: Path | None,
    out: Path | None,
    as_json: bool,
    memory: str,
    engine: str,
    master: str | None,
    partitions: int,
    **options: Any,
) -> None:
    """Fit a private recommender to DATA.

    DATA is one or more files or folders (CSV, TSV, MovieLens .dat, JSON lines, Parquet, Arrow; also compressed text), a
    pattern in quotes, `-` for standard input, a DuckDB or SQLite file, a
    folder made by `shard`, or the URL of a PostgreSQL database.

    The command writes the model, its privacy statement and report.html. This page may be shared: it holds released
    values and the statement, never raw data. Columns are recognised by their usual names. Item features must be public;
    with them, the model learns rare items better and can rank new ones.
    """
    refuse_half_a_cluster(engine, master)
    cluster = None if master is None else (master, partitions)
    target = out or Path(f"{stem_of(data)}-model")
    data_as, privacy = collect(DataOptions, options), collect(FitOptions, options)
    feature_settings = collect(FeatureOptions, options)
    with Reporter() as reporter:
        model = run_fit(data, target, data_as, privacy, titles, reporter, feature_settings, memory, cluster)
    _print_result(model, target, as_json)
    say_page(target / REPORT, quiet=as_json)


def run_fit(
    data: Place,
    target: Path,
    data_as: DataOptions,
    privacy: FitOptions,
    titles: Path | None,
    reporter: Reporter,
    feature_settings: FeatureOptions | None = None,
    memory: str = MEMORY,
    cluster: tuple[str, int] | None = None,
) -> ItemModel:
    """Load, fit, and put the model and its page in place. Nothing is written before the fit is done."""
    from apportion.cli.feature_files import match_features, read_features
    from apportion.cli.item_files import has_titles, read_titles
    from apportion.cli.training import cost_of_list, fit_private, shortened

    refuse_unless_writable_model(target)
    before = version_of(target)
    privacy = replace(privacy, items=data_as.items)
    privacy.budget  # noqa: B018 - one that makes no sense is refused before the data is read
    if titles is None and isinstance(data_as.items, Path) and has_titles(data_as.items):
        titles = data_as.items
    session = privacy.session()
    if titles is not None:
        session.assume_public("titles of the items")
    kept = session.checkpoint
    if kept is not None and kept.n_stored:
        reporter.say(f"Going on with a fit that was stopped: {kept.n_stored} releases are stored in {kept.folder}.")
    features = read_features(feature_settings or FeatureOptions(), reporter)
    with _loaded(data, data_as, cluster) as loaded:
        privacy = replace(privacy, rules=loaded.rules)
        listed_now = getattr(loaded.data, "task_ids", None)  # on a cluster there may be no list yet
        names = {} if titles is None or listed_now is None else read_titles(titles, listed_now)
        for remark in (*loaded.remarks, *weak_epsilon(privacy.epsilon)):
            reporter.say(remark)
        if listed_now is not None:
            match_features(features, listed_now, reporter)
        if target.exists():
            reporter.say(
                f"Replacing the model at {target}. "
                "Note that a second fit to the same people spends their privacy again."
            )
        asked = loaded.kind, privacy, data_as.scale, reporter, session, features, memory
        n_items = 0 if listed_now is None else len(listed_now)
        with room_for_model(target, n_items, privacy.dimension):
            model = fit_private(loaded.data, *asked, engine=getattr(loaded, "engine", None))
    if titles is not None and listed_now is None:
        names = read_titles(titles, model.task_ids)
    for line in (*cost_of_list(model), *shortened(model, privacy)):
        reporter.say(line)
    by_text = {str(key): title for key, title in names.items()}
    listed = {key: by_text[str(key)] for key in model.task_ids if str(key) in by_text}
    model.titles = listed
    write_paid_model(model, target, listed or None, before)
    return model


def _loaded(data: Place, options: DataOptions, cluster: tuple[str, int] | None) -> AbstractContextManager[Any]:
    """Return the data: read into memory, or left on disk or on the cluster."""
    from apportion.cli.folder_loading import load_folder
    from apportion.cli.loading import load_data
    from apportion.data.on_disk.manifest import is_user_folder

    if cluster is None:
        return nullcontext(load_folder(data, options) if is_user_folder(data) else load_data(data, options))
    from apportion.cli.spark_data import load_on_spark

    if not isinstance(data, str):
        raise click.UsageError("On a cluster, DATA is one table or one file.")
    return load_on_spark(data, options, *cluster)


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
    click.echo(statement.to_text(fold=True))
    click.echo(f"\nModel: {target}")

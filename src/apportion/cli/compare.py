"""`apportion compare`: a grid of methods and budgets from one TOML file. For people who may see raw data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.feature_options import FeatureOptions, feature_options
from apportion.cli.option_types import FILE, ITEMS_FROM_DATA
from apportion.cli.options import DataOptions, collect, json_option, open_option
from apportion.cli.outputs import print_json, say_page, table, write_text
from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.cli.loading import Loaded
    from apportion.data import Interactions, ItemFeatures
    from apportion.evaluation.inspection import StudyInspection
    from apportion.evaluation.study import Study, StudyResults

SOME_FAILED: Final = 1
PAGE, TABLE, RESULTS = "comparison.html", "table.csv", "results.json"
_NAMES_IN_STUDY: Final = {"task": "item", "value_range": "value_range = [LO, HI]"}
_OTHER_FILES: Final = ("items", "titles", "features", "feature_item", "feature_kinds", "feature_crosses")


@click.command(short_help="Compare methods over budgets and seeds, from one TOML file.")
@click.argument("study", type=FILE)
@feature_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write; default: STUDY's name with -study.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Number of fits to run at once."
)
@click.option("--fresh", is_flag=True, help="Run finished fits again.")
@open_option
@json_option
def compare(study: Path, out: Path | None, processes: int, fresh: bool, as_json: bool, **options: Any) -> None:
    """Run the study in the TOML file STUDY: every method at every epsilon, with every noise seed.

    The command writes a table, curves over epsilon and over settings, and results by item popularity to an internal
    page. All of it is computed from raw data with seeded noise and must not be shared. Run an interrupted study again
    to continue where it stopped. The exit code is 1 if some fits failed.

    With --features, or features in the study's [data], each method is run without and with public item features.
    """
    target = out or Path(f"{study.stem}-study")
    with Reporter() as reporter:
        results = run_comparison(study, target, processes, fresh, reporter, collect(FeatureOptions, options))
    _print_result(results, target, as_json)
    say_page(target / PAGE, what="Internal page", quiet=as_json)
    if results.failures:
        click.get_current_context().exit(SOME_FAILED)


def run_comparison(
    path: Path,
    target: Path,
    processes: int,
    fresh: bool,
    reporter: Reporter,
    feature_settings: FeatureOptions | None = None,
) -> StudyResults:
    """Read the study and its data, run what is missing, and write the table and the page.

    Features given on the command line replace those in the study.
    """
    from apportion.cli.feature_files import match_features
    from apportion.cli.item_files import read_titles
    from apportion.evaluation.study import read_study, run_study
    from apportion.evaluation.study.processes import processors

    study = read_study(path)
    features = _features(study, path, feature_settings or FeatureOptions(), reporter)
    loaded = _load(study, path)
    for remark in loaded.remarks:
        reporter.say(remark)
    match_features(features, loaded.data.task_ids, reporter)
    titles = {}
    if "titles" in study.reading:
        titles = read_titles(_file(study, "titles", path), loaded.data.task_ids)
    tasks = _tasks_to_inspect(study, loaded.data, titles, path)
    if processes > processors():
        reporter.say(f"Running {processors()} processes instead of {processes}, because there are no more processors.")
    try:
        results = run_study(
            study,
            loaded.data,
            target,
            features=features,
            processes=processes,
            fresh=fresh,
            show=reporter.show,
            say=reporter.say,
        )
    except KeyboardInterrupt:
        reporter.say(f"Finished fits are kept in {target}; run the same command again to continue.")
        raise
    except InputError as error:
        raise error.inside(path.name) from None
    facts = _facts(loaded, results.study, features)
    write_results(results, target, _inspected(results, loaded.data, tasks), facts, titles)
    return results


def _load(study: Study, path: Path) -> Loaded:
    """Read the data as `[data]` says. Error messages use the study's words instead of options."""
    from apportion.cli.loading import load_data

    place, options = place_of_data(study, path)
    try:
        return load_data(place, options, item_list="items in [data]")
    except InputError as error:
        raise in_study_words(error) from None


def place_of_data(study: Study, path: Path) -> tuple[Path, DataOptions]:
    """Return where the data of a study are, and how they are read."""
    if "path" not in study.reading:
        raise InputError(f"{path.name}: Expected path in [data] (the data file), got none.", argument=None)
    said = {key: value for key, value in study.reading.items() if key not in ("path", *_OTHER_FILES)}
    items = _file(study, "items", path) if "items" in study.reading else None
    options = DataOptions(kind=study.kind, scale=study.value_range, items=items or ITEMS_FROM_DATA, **said)
    return _file(study, "path", path), options


def _features(study: Study, path: Path, feature_settings: FeatureOptions, reporter: Reporter) -> ItemFeatures | None:
    """Return the features that the command line names, or those in `[data]`."""
    from apportion.cli.feature_files import read_features

    if feature_settings.features is not None or "features" not in study.reading:
        return read_features(feature_settings, reporter)
    said = study.reading
    options = FeatureOptions(
        features=_file(study, "features", path),
        feature_item=said.get("feature_item"),
        feature_kinds=tuple(f"{column}={kind}" for column, kind in said.get("feature_kinds", {}).items()),
        feature_crosses=tuple(",".join(columns) for columns in said.get("feature_crosses", ())),
    )
    try:
        return read_features(options, reporter)
    except InputError as error:
        raise in_study_words(error) from None


def in_study_words(error: InputError) -> InputError:
    """Rewrite an error in the words of a study: what to write in `[data]`.

    >>> str(in_study_words(InputError("No column looks like the item", argument="task", remedy="name it with")))
    'No column looks like the item; name it with item in [data].'
    """
    if error.argument is None:
        return error
    if error.argument == "single_user":  # which a study does not have
        return InputError(f"{error.problem}.", argument=None)
    return InputError(error.told(f"{_NAMES_IN_STUDY.get(error.argument, error.argument)} in [data]"), argument=None)


def _file(study: Study, key: str, path: Path) -> Path:
    """Return a file that the study names, relative to the study's own folder."""
    from apportion.data.on_disk.manifest import is_user_folder

    file = path.parent / Path(study.reading[key])
    if not (file.is_file() or (key == "path" and is_user_folder(file))):
        raise InputError(
            f"{path.name}: Expected {key} in [data] to be a file, got {study.reading[key]!r}.", argument=None
        )
    return file


def _tasks_to_inspect(study: Study, data: Interactions, titles: dict[int | str, str], path: Path) -> list[int | str]:
    from apportion.cli.similar import find_item

    wanted = () if study.inspection is None else study.inspection.items
    try:
        return [find_item(str(item), data.task_ids, titles) for item in wanted]
    except InputError as error:
        raise error.inside(path.name) from None


def _inspected(results: StudyResults, data: Interactions, tasks: list[int | str]) -> StudyInspection | None:
    from apportion.evaluation.inspection import inspect_study
    from apportion.evaluation.study.parts import split_study, study_slices

    study = results.study
    kept = {cell.combination.method for cell in results.cells if cell.model is not None}
    if study.inspection is None or study.inspection.reference not in kept:
        return None
    return inspect_study(results, study_slices(study, split_study(study, data).train), tasks)


def _facts(loaded: Loaded, study: Study, features: ItemFeatures | None) -> dict[str, str]:
    from apportion import __version__
    from apportion.cli.feature_files import in_words

    data = loaded.data
    n_users = int((data.by_user.counts > 0).sum())
    known = {} if features is None else {"Public features": f"of {len(features):,} items: {in_words(features.space)}"}
    return {
        "Data": f"{data.n_observations:,} {loaded.kind} by {n_users:,} users of {data.n_tasks:,} items",
        "Methods": ", ".join(f"{method.name} ({_settings(len(method.combinations()))})" for method in study.methods),
        **known,
        "Version": f"apportion {__version__}",
    }


def _settings(count: int) -> str:
    return "one setting" if count == 1 else f"{count} settings"


def write_results(
    results: StudyResults,
    target: Path,
    inspection: StudyInspection | None,
    facts: dict[str, str],
    titles: dict[int | str, str],
) -> None:
    """Write the table, everything as JSON, and the page."""
    import json

    from apportion.report import comparison_csv, comparison_page

    write_text(target / TABLE, comparison_csv(results))
    content = {**results.to_dict(), "inspection": None if inspection is None else inspection.to_dict()}
    write_text(target / RESULTS, json.dumps(content, indent=2, ensure_ascii=False))
    write_text(target / PAGE, comparison_page(results, facts=facts, inspection=inspection, titles=titles))


def _print_result(results: StudyResults, target: Path, as_json: bool) -> None:
    from apportion.evaluation.study.units import MARKING
    from apportion.report.comparison import tables_to_print

    if as_json:
        files: dict[str, Any] = {"page": target / PAGE, "table": target / TABLE}
        print_json({**results.to_dict(), **files})
        return
    n_seeds = len(results.study.budgets.seeds)
    click.echo(f"{MARKING}.\nMean ± standard deviation over {n_seeds} noise seed{'' if n_seeds == 1 else 's'}.\n")
    for each in tables_to_print(results):
        click.echo(f"{each.title}\n{table(each.header, each.text_rows)}\n")
    click.echo(results.tuning_in_words)
    for words, reason in results.failures:
        click.echo(f"Failed: {words}: {reason}")
    click.echo(f"\nTable: {target / TABLE}")

"""`apportion evaluate`: quality on raw data. For people who may see raw data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.data_places import data_argument, stem_of
from apportion.cli.evaluation_parts import (
    Split,
    new_items,
    private_models,
    published_model,
    serve_new_items,
    split_data,
)
from apportion.cli.feature_options import FeatureOptions, feature_options
from apportion.cli.option_types import PAGE
from apportion.cli.options import (
    DataOptions,
    FitOptions,
    Kind,
    collect,
    data_options,
    fit_options,
    json_option,
    open_option,
)
from apportion.cli.outputs import print_json, refuse_folder, say_page, write_text
from apportion.cli.progress import Reporter
from apportion.errors import InputError

if TYPE_CHECKING:
    from apportion.cli.loading import Loaded
    from apportion.data import Interactions, ItemFeatures
    from apportion.data.sources import Place
    from apportion.evaluation import Comparison, PopularitySlices
    from apportion.recommend.model import ItemModel
    from apportion.report import NewItems, Roles

INTERNAL: Final = "computed from raw data, not covered by epsilon"
_N_SLICES: Final = 5
_TWIN: Final = "without privacy"


@dataclass(frozen=True)
class Splits:
    """How data are split: a seed, whether the latest rows are held out, and how many times.

    >>> list(Splits(3, runs=2).seeds)
    [3, 4]
    """

    seed: int
    by_time: bool = False
    runs: int = 1

    @property
    def seeds(self) -> range:
        """The seeds of all runs."""
        return range(self.seed, self.seed + self.runs)


@dataclass(frozen=True)
class Evaluated:
    """The results of the command."""

    comparison: Comparison
    roles: Roles
    model: ItemModel
    twin: ItemModel
    slices: PopularitySlices
    facts: dict[str, str]
    remarks: tuple[str, ...]
    new_items: NewItems | None = None


@click.command(short_help="Measure quality on held-out data; write an internal page.")
@data_argument
@fit_options(epsilon_required=False)
@data_options
@feature_options
@click.option(
    "--hold-out-items",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="With --features: also fit without this fraction of the items, and rank them by features alone.",
)
@click.option(
    "--model",
    "model_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Evaluate this saved model instead of fitting one.",
)
@click.option(
    "--split-seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the train/test split."
)
@click.option(
    "--split",
    type=click.Choice(["random", "time"]),
    default="random",
    show_default=True,
    help="What is held out: random rows, or the latest (for clicks: of each held-out user).",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of fits, each with its own noise and random split; shows means and their standard errors.",
)
@click.option(
    "--out",
    type=PAGE,
    help="Page to write; default: DATA's name with -evaluation.html.",
)
@open_option
@json_option
def evaluate(
    data: Place,
    hold_out_items: float | None,
    model_folder: Path | None,
    split_seed: int,
    split: str,
    runs: int,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Split DATA, fit the private model, its non-private twin and the baselines, and compare them.

    Private means (of ratings) or private popularity (of clicks) spend the same budget and learn nobody's taste. With
    --features, the private model is fitted both with and without them. The command writes an internal page with quality
    overall and by item popularity. The page is computed from raw data, is not covered by epsilon and must not be
    shared.
    """
    if (options["epsilon"] is None) == (model_folder is None):
        raise click.UsageError("Give --epsilon to fit a model, or --model to evaluate a saved one.")
    feature_settings = collect(FeatureOptions, options)
    if hold_out_items is not None and feature_settings.features is None:
        raise click.UsageError("--hold-out-items needs --features: held-out items are ranked by their features.")
    if feature_settings.features is not None and model_folder is not None:
        raise click.UsageError("--features needs --epsilon; a saved model already has the features it was fitted with.")
    target = out or Path(f"{stem_of(data)}-evaluation.html")
    refuse_folder(target)
    data_as = collect(DataOptions, options)
    with Reporter() as reporter:
        if model_folder is None:
            privacy = collect(FitOptions, options)
            how = Splits(split_seed, split == "time", runs)
            result = run_evaluation(data, data_as, privacy, how, reporter, feature_settings, hold_out_items)
        else:
            result = run_saved(data, data_as, model_folder, Splits(split_seed, split == "time"), reporter)
    write_page(result, target)
    _print_result(result, target, as_json)
    say_page(target, what="\nInternal page", quiet=as_json)


def run_evaluation(
    path: Place,
    data_as: DataOptions,
    privacy: FitOptions,
    how: Splits,
    reporter: Reporter,
    feature_settings: FeatureOptions | None = None,
    items_held_out: float | None = None,
    published: Mapping[str, Any] | None = None,
) -> Evaluated:
    """Split the data, fit everything on the training part, and compare on the test part.

    `published` describes a published method to compare with, as a study file does.
    """
    from apportion.cli.feature_files import in_words, match_features, read_features
    from apportion.cli.loading import load_data

    privacy = replace(privacy, items=data_as.items)
    privacy.budget  # noqa: B018 - refused before the data is read
    features = read_features(feature_settings or FeatureOptions(), reporter)
    loaded = load_data(path, data_as)
    privacy = replace(privacy, rules=loaded.rules)
    for remark in loaded.remarks:
        reporter.say(remark)
    _require_times(loaded.data, how)
    match_features(features, loaded.data.task_ids, reporter)
    parts = None
    if features is not None and items_held_out is not None:
        parts = new_items(loaded, features, items_held_out, how.seed)
    found = []
    for run, seed in enumerate(how.seeds):
        split = split_data(loaded.data, loaded.kind, seed, how.by_time)
        own = privacy if privacy.seed is None else replace(privacy, seed=privacy.seed + run)
        found.append(_run(loaded, split, own, data_as, features, published, reporter))
    result = found[0] if len(found) == 1 else _averaged(found)
    if features is None:
        return result
    result.facts["Public features"] = (
        f"of {len(features):,} items: {in_words(features.space)}; only the private model with features has them"
    )
    if parts is None:
        return result
    return replace(
        result, new_items=serve_new_items(loaded, parts, features, privacy, data_as.scale, how.seed, reporter)
    )


def _require_times(data: Interactions, how: Splits) -> None:
    from apportion.data.time_texts import UNREADABLE

    if how.by_time and data.timestamps is None:
        raise InputError("--split time needs a time column; name it with --timestamp COLUMN.", argument=None)
    if how.by_time and data.timestamps is not None and (data.timestamps == UNREADABLE).any():
        problem = "--split time needs a time in every row; name the column with --timestamp COLUMN to see what is none."
        raise InputError(problem, argument=None)


def _run(
    loaded: Loaded,
    split: Split,
    privacy: FitOptions,
    data_as: DataOptions,
    features: ItemFeatures | None,
    published: Mapping[str, Any] | None,
    reporter: Reporter,
) -> Evaluated:
    """Fit everything on the training part of one split, and compare on its test part."""
    from apportion.cli.training import fit_simple

    scale = data_as.scale
    models = private_models(split, loaded.kind, privacy, scale, features, reporter)
    others = {} if published is None else published_model(split, loaded.kind, privacy, scale, published, reporter)
    simple = dict([fit_simple(split.train, loaded.kind, privacy, scale, reporter)])
    return _compare(models, split, loaded.data, scale, reporter, others, simple)


def _averaged(found: list[Evaluated]) -> Evaluated:
    """Return the first run with the figures of all."""
    from apportion.evaluation import Comparison

    first = found[0]
    runs = f"{len(found)}, each with its own noise; figures are means, ± their standard errors"
    comparison = Comparison.averaged([each.comparison for each in found])
    return replace(first, comparison=comparison, facts={**first.facts, "Runs": runs})


def run_saved(path: Place, data_as: DataOptions, folder: Path, how: Splits, reporter: Reporter) -> Evaluated:
    """Compare a saved model on data that it may or may not have been fitted to."""
    from apportion.cli.history import read_history
    from apportion.recommend import load

    model = load(folder)
    data, remarks = read_history(path, data_as, model)
    for remark in remarks:
        reporter.say(remark)
    _require_times(data, how)
    split = split_data(data, _kind(model), how.seed, how.by_time)
    epsilon = f"private, ε = {model.statement.epsilon:g}" if model.statement else "saved model"
    result = _compare({epsilon: model}, split, data, model.value_range, reporter)
    caution = (
        f"The model in {folder} was fitted earlier. If these rows were in its training data, its "
        "results here are too good."
    )
    return replace(result, remarks=(caution, *remarks))


def write_page(result: Evaluated, target: Path) -> None:
    """Write the internal page."""
    from apportion.report import internal_page

    page = internal_page(
        result.comparison,
        result.roles,
        statement=result.model.statement,
        facts=result.facts,
        remarks=result.remarks,
        new_items=result.new_items,
    )
    write_text(target, page)


def _compare(
    private: dict[str, ItemModel],
    split: Split,
    data: Interactions,
    scale: tuple[float, float],
    reporter: Reporter,
    published: Mapping[str, ItemModel] = MappingProxyType({}),
    simple: Mapping[str, Any] = MappingProxyType({}),
) -> Evaluated:
    from apportion.cli.training import fit_baselines, fit_twin
    from apportion.evaluation import OnLongerList, compare_rankings, compare_ratings, popularity_slices
    from apportion.report import Roles

    name, *others = private
    kind = _kind(private[name])
    twin, tuned = fit_twin(split, kind, scale, reporter)
    baselines = fit_baselines(split.train, kind)
    on_list = {name: OnLongerList(model) for name, model in {**private, **published}.items()}
    if kind == "ratings":
        simple = {name: OnLongerList(model) for name, model in simple.items()}
    models: dict[str, Any] = {**on_list, **simple, _TWIN: twin, **baselines}
    slices = popularity_slices(split.train.by_task.counts, min(_N_SLICES, data.n_tasks))
    reporter.say("comparing the models on the test part")
    if kind == "ratings":
        comparison = compare_ratings(models, split.history, split.targets, slices=slices)
    else:
        comparison = compare_rankings(models, split.history, split.targets, slices=slices)
    beside = (next(iter(each), None) for each in (others, published, simple))
    roles = Roles(name, _TWIN, tuple(baselines), *beside)
    facts = _facts(data, kind, split) | {"Model without privacy": tuned}
    return Evaluated(comparison, roles, private[name], twin, slices, facts, ())


def _kind(model: ItemModel) -> Kind:
    if model.kind == "convex":
        raise InputError(
            "Expected a model of ratings or clicks, got a model that was fitted with another loss.", argument=None
        )
    return "ratings" if model.kind == "ratings" else "clicks"


def _facts(data: Interactions, kind: Kind, split: Split) -> dict[str, str]:
    n_users = int((data.by_user.counts > 0).sum())
    return {
        "Data": f"{data.n_observations:,} {kind} by {n_users:,} users of {data.n_tasks:,} items",
        "Split": split.words,
        "Training part": f"{split.train.n_observations:,} rows",
    }


def _print_result(result: Evaluated, target: Path, as_json: bool) -> None:
    from apportion.report.internal import summary

    if as_json:
        print_json(
            {
                "marking": INTERNAL,
                "page": target,
                "private": result.roles.private,
                "twin": result.roles.twin,
                "baselines": list(result.roles.baselines),
                "facts": result.facts,
                "remarks": list(result.remarks),
                "models": result.comparison.to_dict(),
                "new_items": result.new_items and result.new_items.comparison.to_dict(),
            }
        )
        return
    click.echo(f"INTERNAL: {INTERNAL}.\n")
    click.echo(result.comparison.to_text())
    click.echo(f"\n{summary(result.comparison, result.roles)}")
    if result.new_items is not None:
        click.echo(result.new_items.summary)

"""`apportion evaluate`: quality on raw data, for the people who may see raw data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.options import (
    FILE,
    DataOptions,
    FitOptions,
    Kind,
    collect,
    data_options,
    fit_options,
    json_option,
)
from apportion.cli.outputs import print_json, refuse_folder, write_text
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.data import Interactions
    from apportion.evaluation import Comparison
    from apportion.recommend.model import ItemModel
    from apportion.report import Roles

INTERNAL: Final = "computed from raw data, not covered by epsilon"
HELD_OUT: Final = 0.1  # of the rows (ratings) or of the users (clicks), once for validation and once for test
_MOST_HELD_OUT: Final = 10_000
_N_SLICES: Final = 5
_TWIN: Final = "without privacy"


@dataclass(frozen=True)
class Split:
    """What is trained on, what is shown at test time, and what has to be predicted."""

    train: Interactions
    history: Interactions
    targets: Interactions
    words: str
    users_kept: float


@dataclass(frozen=True)
class Evaluated:
    """What the command found."""

    comparison: Comparison
    roles: Roles
    model: ItemModel
    facts: dict[str, str]
    remarks: tuple[str, ...]


@click.command(short_help="Measure quality on held-out data; write an internal page.")
@click.argument("data", type=FILE)
@fit_options(epsilon_required=False)
@data_options
@click.option(
    "--model",
    "model_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Evaluate this saved model in place of fitting one.",
)
@click.option("--split-seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the split.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Page to write; default: DATA's name with -evaluation.html.",
)
@json_option
def evaluate(
    data: Path, model_folder: Path | None, split_seed: int, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Split DATA, fit the private model, its twin without privacy and the baselines, and compare them.

    Writes an internal page with quality overall and by item popularity. It is computed from raw data and is
    not covered by epsilon: it must not be shared.
    """
    if (options["epsilon"] is None) == (model_folder is None):
        raise click.UsageError("Give --epsilon to fit a model, or --model to evaluate a saved one.")
    target = out or Path(f"{data.stem}-evaluation.html")
    refuse_folder(target)
    data_as = collect(DataOptions, options)
    with Reporter() as reporter:
        if model_folder is None:
            found = run_evaluation(data, data_as, collect(FitOptions, options), split_seed, reporter)
        else:
            found = run_saved(data, data_as, model_folder, split_seed, reporter)
    write_page(found, target)
    _print_result(found, target, as_json)


def run_evaluation(path: Path, data_as: DataOptions, promise: FitOptions, seed: int, reporter: Reporter) -> Evaluated:
    """Split, fit everything on the training part, compare on the test part."""
    from apportion.cli.loading import load_data
    from apportion.cli.training import fit_private
    from apportion.privacy import Budget

    Budget(promise.epsilon, promise.delta)
    loaded = load_data(path, data_as)
    for remark in loaded.remarks:
        reporter.say(remark)
    split = _split(loaded.data, loaded.kind, seed)
    if promise.n_users is not None:
        promise = replace(promise, n_users=max(1, round(promise.n_users * split.users_kept)))
    private = fit_private(split.train, loaded.kind, promise, data_as.scale, reporter)
    return _compare(private, f"private, ε = {promise.epsilon:g}", split, loaded.data, data_as.scale, reporter)


def run_saved(path: Path, data_as: DataOptions, folder: Path, seed: int, reporter: Reporter) -> Evaluated:
    """Compare a saved model on data that it may or may not have been fitted to."""
    from apportion.cli.history import read_history
    from apportion.recommend import load

    model = load(folder)
    data, remarks = read_history(path, data_as, model)
    for remark in remarks:
        reporter.say(remark)
    split = _split(data, _kind(model), seed)
    epsilon = f"private, ε = {model.statement.epsilon:g}" if model.statement else "saved model"
    found = _compare(model, epsilon, split, data, model.value_range, reporter)
    caution = (
        f"The model in {folder} was fitted before. If these rows were in its training data, its figures flatter it."
    )
    return replace(found, remarks=(caution, *remarks))


def write_page(found: Evaluated, target: Path) -> None:
    """Write the internal page."""
    from apportion.report import internal_page

    page = internal_page(
        found.comparison,
        found.roles,
        statement=found.model.statement,
        facts=found.facts,
        remarks=found.remarks,
    )
    write_text(target, page)


def _split(data: Interactions, kind: Kind, seed: int) -> Split:
    import numpy as np

    rng = np.random.default_rng(seed)
    if kind == "ratings":
        train, _, test = data.split_by_value(rng, (1 - 2 * HELD_OUT, HELD_OUT, HELD_OUT))
        words = f"rows at random: 80 % for training, 10 % left for validation, 10 % for test; split seed {seed}"
        return Split(train, train, test, words, 1.0)
    n_eligible = int((data.by_user.counts >= 5).sum())
    n_held = min(_MOST_HELD_OUT, max(1, round(HELD_OUT * n_eligible)))
    parts = data.split_by_users(rng, n_held, n_held)
    words = (
        f"whole users at random: {n_held:,} left for validation, {n_held:,} for test, the others for training; "
        f"of a test user 80 % of the rows are shown and 20 % are to be found; split seed {seed}"
    )
    kept = 1 - 2 * n_held / max(1, int((data.by_user.counts > 0).sum()))
    return Split(parts.train, parts.test.history, parts.test.target, words, kept)


def _compare(
    private: ItemModel,
    name: str,
    split: Split,
    data: Interactions,
    scale: tuple[float, float],
    reporter: Reporter,
) -> Evaluated:
    from apportion.cli.training import fit_baselines, fit_twin
    from apportion.evaluation import compare_rankings, compare_ratings, popularity_slices
    from apportion.report import Roles

    kind = _kind(private)
    twin = fit_twin(split.train, kind, scale, reporter)
    baselines = fit_baselines(split.train, kind)
    models: dict[str, Any] = {name: private, _TWIN: twin, **baselines}
    slices = popularity_slices(split.train.by_task.counts, min(_N_SLICES, data.n_tasks))
    reporter.say("comparing the models on the test part")
    if kind == "ratings":
        comparison = compare_ratings(models, split.history, split.targets, slices=slices)
    else:
        comparison = compare_rankings(models, split.history, split.targets, slices=slices)
    return Evaluated(comparison, Roles(name, _TWIN, tuple(baselines)), private, _facts(data, kind, split), ())


def _kind(model: ItemModel) -> Kind:
    return "ratings" if model.kind == "ratings" else "clicks"


def _facts(data: Interactions, kind: Kind, split: Split) -> dict[str, str]:
    n_users = int((data.by_user.counts > 0).sum())
    return {
        "Data": f"{data.n_observations:,} {kind} by {n_users:,} users of {data.n_tasks:,} items",
        "Split": split.words,
        "Training part": f"{split.train.n_observations:,} rows",
    }


def _print_result(found: Evaluated, target: Path, as_json: bool) -> None:
    from apportion.report.internal import summary

    if as_json:
        print_json(
            {
                "marking": INTERNAL,
                "page": target,
                "private": found.roles.private,
                "twin": found.roles.twin,
                "baselines": list(found.roles.baselines),
                "facts": found.facts,
                "remarks": list(found.remarks),
                "models": found.comparison.to_dict(),
            }
        )
        return
    click.echo(f"INTERNAL: {INTERNAL}.\n")
    click.echo(found.comparison.to_text())
    click.echo(f"\n{summary(found.comparison, found.roles)}\n\nPage: {target}")

"""`apportion tune`: a search for settings whose privacy cost is paid for, and the model it finds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.cautions import weak_delta, weak_epsilon
from apportion.cli.data_places import data_argument, stem_of
from apportion.cli.feature_options import FeatureOptions, feature_options
from apportion.cli.ledger_options import account_of, ledger_options
from apportion.cli.option_types import ITEMS_FROM_DATA, PRIVATE_ITEMS, Delta, PositiveNumber
from apportion.cli.options import DataOptions, collect, data_options, json_option, open_option
from apportion.cli.outputs import (
    REPORT,
    print_json,
    refuse_unless_writable_model,
    say_page,
    version_of,
    write_paid_model,
)
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.cli.loading import Loaded
    from apportion.data import ItemFeatures
    from apportion.data.sources import Place
    from apportion.evaluation.tuning import Make, Tuned

_OF_THE_FIT: Final = ("dimension", "rounds")
_OF_FEATURES: Final = ("feature_variance", "feature_directions", "feature_weight", "feature_prior", "taste_variance")


class Values(click.ParamType[tuple[str, tuple[float | int, ...]]]):
    """A setting and its values, such as `dimension=4,8,16`."""

    name = "values"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float | int, ...]]:
        """Split the text and turn every value into a number, an integer where written as one."""
        if isinstance(value, tuple):
            return value
        name, mark, listed = str(value).partition("=")
        try:
            numbers = tuple(_number(cell) for cell in listed.split(","))
        except ValueError:
            self.fail(f"expected NAME=A,B,... with numbers, got {value!r}", param, ctx)
        if not (name.strip() and mark) or len(set(numbers)) < len(numbers):
            self.fail(f"expected NAME=A,B,... with each value once, got {value!r}", param, ctx)
        return name.strip(), numbers


@click.command(short_help="Search for settings within one budget; write the best model.")
@data_argument
@click.option(
    "--epsilon",
    type=PositiveNumber(),
    required=True,
    help="Privacy loss (epsilon) of everything: all tries and the choice.",
)
@click.option("--delta", type=Delta(), default=1e-6, show_default=True, help="Slack of the guarantee.")
@click.option(
    "--try",
    "grid",
    type=Values(),
    multiple=True,
    required=True,
    metavar="NAME=A,B,...",
    help="A setting and its values; give it once for each setting.",
)
@click.option("--tries", type=float, help="Average number of tries; default: the number of combinations.")
@click.option(
    "--law",
    type=click.Choice(["geometric", "logarithmic"]),
    default="geometric",
    show_default=True,
    help="Distribution of the number of tries; logarithmic costs less and often makes a single try.",
)
@click.option(
    "--validation", type=float, default=0.2, show_default=True, help="Fraction of the users who score each try."
)
@click.option(
    "--n-users",
    type=click.IntRange(min=1),
    help="Number of users, declared public; otherwise it is released with noise.",
)
@click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data, for the statement.")
@click.option(
    "--seed", type=click.IntRange(min=0), help="Reproducible noise for tests: marks everything NOT FOR RELEASE."
)
@ledger_options
@data_options
@feature_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write; default: DATA's name with -model.")
@open_option
@json_option
def tune(
    data: Place,
    epsilon: float,
    delta: float,
    grid: tuple[tuple[str, tuple[float | int, ...]], ...],
    tries: float | None,
    law: Any,
    validation: float,
    n_users: int | None,
    window: str,
    seed: int | None,
    ledger: str | None,
    account: str | None,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Search for the settings of a private recommender, and pay for the search.

    The command makes a random number of tries. Each draws settings from --try, fits on most users, and gets a noisy
    score from the others. The model with the best noisy score is written as by `fit`, with a privacy card that states
    the cost of one try and of the whole search. The number of tries and the other models are not published. Item
    features are public: they help, and cost no privacy.
    """
    from apportion.cli.feature_files import match_features, read_features
    from apportion.cli.loading import load_data
    from apportion.evaluation.tuning import tune as search
    from apportion.privacy import Budget, SeededNoise
    from apportion.privacy.selection import Tries, calibrate

    target = out or Path(f"{stem_of(data)}-model")
    refuse_unless_writable_model(target)
    before = version_of(target)
    feature_settings = collect(FeatureOptions, options)
    places = _grid(grid, feature_settings)
    budget = Budget(epsilon, delta)
    law_of_tries = Tries(max(2, math.prod(map(len, places.values()))) if tries is None else tries, law)
    calibrate(budget, law_of_tries)  # refuses an insufficient budget before the data is read
    charged = account_of(ledger, account)
    data_as = collect(DataOptions, options)
    if data_as.items == PRIVATE_ITEMS:
        raise click.UsageError(
            "--items private is for `fit`: what a private list costs among several tries is not accounted for here."
        )
    data_as = replace(data_as, items=data_as.items or ITEMS_FROM_DATA)
    with Reporter() as reporter:
        features = read_features(feature_settings, reporter)
        loaded = load_data(data, data_as)
        cautions = [] if n_users is None else weak_delta(delta, n_users)
        for remark in (*loaded.remarks, *weak_epsilon(epsilon), *cautions):
            reporter.say(remark)
        match_features(features, loaded.data.task_ids, reporter)
        make = _maker(loaded, places, data_as.scale, n_users, validation, features)
        result = search(
            loaded.data,
            make,
            places,
            budget,
            tries=law_of_tries,
            validation=validation,
            noise=None if seed is None else SeededNoise(seed),
            window=window,
            ledger=charged,
            progress=reporter.of("private selection"),
        )
    write_paid_model(result.model, target, None, before, result.selection)
    _print_result(result, target, as_json)
    say_page(target / REPORT, quiet=as_json)


def _maker(
    loaded: Loaded,
    grid: Mapping[str, Sequence[Any]],
    scale: tuple[float, float],
    n_users: int | None,
    validation: float,
    features: ItemFeatures | None,
) -> Make:
    """Return a function that makes the recommender of a try. Unknown settings are refused at once."""
    from apportion.estimators.private import check_lengths
    from apportion.privacy import Budget
    from apportion.recommend.clicks import ClickSettings
    from apportion.recommend.methods import build
    from apportion.recommend.rating_settings import RatingSettings

    record: Any = RatingSettings if loaded.kind == "ratings" else ClickSettings
    known = list(dict.fromkeys([*_OF_THE_FIT, *(field.name for field in fields(record))]))
    for name in grid:
        if name not in known:
            raise click.UsageError(f"--try {name}: expected one of the settings {', '.join(known)}.")
    fixed: dict[str, Any] = {"method": "ours", "features": features}
    if n_users is not None:
        fixed["n_users"] = max(1, round(n_users * (1 - validation)))
    fixed["public"] = loaded.rules

    def make(settings: Mapping[str, Any], budget: Budget) -> Any:
        of_the_fit = {name: value for name, value in settings.items() if name in _OF_THE_FIT}
        others = {name: value for name, value in settings.items() if name not in _OF_THE_FIT}
        spec = {**fixed, **of_the_fit, "settings": others}
        return build(spec, loaded.kind, epsilon=budget.epsilon, delta=budget.delta, value_range=scale)

    for name, values in grid.items():
        for value in values:
            make({name: value}, Budget(1.0, 1e-6))  # refuses values of a wrong type or range before anything is spent
            if name in _OF_THE_FIT:
                check_lengths({name: int(value)})
    return make


def _grid(
    given: Sequence[tuple[str, tuple[float | int, ...]]], feature_settings: FeatureOptions
) -> dict[str, tuple[float | int, ...]]:
    names = [name for name, _ in given]
    for name in names:
        if name in _OF_FEATURES and feature_settings.features is None:
            raise click.UsageError(f"--try {name}: it has no effect without --features.")
    if len(set(names)) < len(names):
        raise click.UsageError(f"Give each setting once with --try; got {', '.join(names)}.")
    return dict(given)


def _number(cell: str) -> float | int:
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _print_result(result: Tuned, target: Path, as_json: bool) -> None:
    from apportion.privacy.statement import NOT_FOR_RELEASE, rounded_up

    statement, cost = result.model.statement, result.cost
    assert statement is not None
    if as_json:
        print_json(
            {
                "model": target,
                "report": target / REPORT,
                "kind": result.model.kind,
                "releasable": statement.releasable,
                "selection": result.selection,
                "statement": json.loads(statement.to_json()),
            }
        )
        return
    chosen = ", ".join(f"{name} = {value}" for name, value in result.chosen.items())
    if not statement.releasable:
        click.echo(NOT_FOR_RELEASE)
    click.echo(
        f"Chosen: {chosen}.\n"
        f"Score: {result.score:.4g} with noise of about {result.score_noise:.2g} ({result.score_name}).\n"
        f"Guarantee: ({statement.epsilon!r}, {statement.delta!r})-differential privacy for all tries and the choice; "
        f"spent: epsilon = {rounded_up(cost.epsilon):g}.\n"
        + "".join(f"Not protected: {sentence}.\n" for sentence in statement.unprotected)
        + f"Without tuning, one try: epsilon = {rounded_up(cost.one_try.epsilon):g} at the same delta.\n"
        f"Unit: {statement.unit}. Neighbours: {statement.neighbours.relation}.\n"
        f"Tuning: {statement.tuning}.\n"
        f"\nModel: {target}\nCard: {target / 'privacy-card.json'}"
    )

"""From options to fitted models: the private one, its non-private twin, and the baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.cautions import weak_delta
from apportion.cli.option_types import PRIVATE_ITEMS
from apportion.cli.options import MEMORY, FitOptions, Kind
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.cli.evaluation_parts import Split
    from apportion.data import Interactions, ItemFeatures
    from apportion.data.user_data import UserData
    from apportion.engines import Engine
    from apportion.privacy import Session
    from apportion.recommend.model import ItemModel


TWIN_PENALTIES: Final = (1.0, 4.0, 16.0)
"""Penalties that are tried for the non-private model, relative to the defaults."""
_PENALTY: Final = {"ratings": "item_bias_ridge", "clicks": "ridge"}  # the one that matters most on real data
_RECALL_AT: Final = 20


def fit_private(
    data: UserData,
    kind: Kind,
    options: FitOptions,
    scale: tuple[float, float],
    reporter: Reporter,
    session: Session | None = None,
    features: ItemFeatures | None = None,
    memory: str = MEMORY,
    engine: Engine | None = None,
    means_only: bool = False,
) -> ItemModel:
    """Fit the private model. A session that charges a ledger brings its own budget, noise and window."""
    from apportion import recommend
    from apportion.data import Interactions
    from apportion.engines import DiskEngine

    items = PRIVATE_ITEMS if options.items_are_private else options.items
    settings = {**_settings(options), "features": features, "items": items if isinstance(items, str) else None}
    if engine is not None:
        settings["engine"] = engine
    elif not isinstance(data, Interactions):
        settings["engine"] = DiskEngine(memory, "float64" if kind == "ratings" else "float32")
    estimator: Any
    if kind == "clicks" and options.rank_by == "choice":
        raise click.UsageError("--rank-by choice is for ratings; a model of clicks always ranks by choice.")
    if kind == "ratings":
        if means_only:
            settings["settings"] = recommend.RatingSettings(rounds=0)
        estimator = recommend.PrivateRatingRecommender(value_range=scale, rank_by=options.rank_by, **settings)
    else:
        estimator = recommend.PrivateClickRecommender(**settings)
    job = "private means" if means_only else "private model" if features is None else "private model with features"
    session = session or options.session()
    for rule in options.rules:
        session.assume_public(rule, of_rows=True)
    model: ItemModel = estimator.fit(data, session=session, progress=reporter.of(job)).model_
    for remark in weak_delta(options.delta, estimator.n_users_):
        reporter.say(remark)
    return model


def fit_twin(split: Split, kind: Kind, scale: tuple[float, float], reporter: Reporter) -> tuple[ItemModel, str]:
    """Fit the same kind of model without any privacy, with the penalty that does best on the validation part.

    Returns the model, and how it was tuned in words: a twin that nobody tuned would flatter the private model.
    """
    found = {strength: _twin(split.train, kind, scale, strength, reporter) for strength in TWIN_PENALTIES}
    losses = {strength: _validation_loss(model, kind, split.validation) for strength, model in found.items()}
    best = min(losses, key=lambda strength: losses[strength])
    words = f"penalty {best:g} times the default, the best of {len(found)} on the validation part"
    return found[best], words


def _twin(data: Interactions, kind: Kind, scale: tuple[float, float], strength: float, reporter: Reporter) -> ItemModel:
    from apportion.recommend import ClickRecommender, RatingRecommender

    estimator: Any = RatingRecommender(value_range=scale) if kind == "ratings" else ClickRecommender()
    penalty = _PENALTY[kind]
    estimator.set_params(**{penalty: strength * estimator.get_params()[penalty]})
    model: ItemModel = estimator.fit(data, progress=reporter.of("non-private model")).model_
    return model


def _validation_loss(model: Any, kind: Kind, validation: tuple[Interactions, Interactions]) -> float:
    from apportion.evaluation import recall_at_k, rmse

    history, targets = validation
    if kind == "ratings":
        return rmse(model.predict(history, targets), targets).overall
    return -recall_at_k(model, history, targets, min(_RECALL_AT, model.n_tasks)).overall


def fit_baselines(data: Interactions, kind: Kind) -> dict[str, Any]:
    """Fit baselines that learn nobody's taste, weakest first."""
    from apportion.evaluation import BiasModel, GlobalMean, Popularity

    if kind == "ratings":
        return {"global mean": GlobalMean().fit(data), "item and user means": BiasModel().fit(data)}
    return {"popularity ranking": Popularity().fit(data)}


def fit_simple(
    data: Interactions, kind: Kind, options: FitOptions, scale: tuple[float, float], reporter: Reporter
) -> tuple[str, Any]:
    """Fit a private baseline at the same budget: means, or popularity for clicks. Return its name and the model."""
    from apportion.evaluation import PrivatePopularity

    if kind == "clicks":
        return f"private popularity, ε = {options.epsilon:g}", PrivatePopularity(options.session()).fit(data)
    plain = replace(options, rounds=None, dimension=None, tuning=None, rank_by="value")
    means = fit_private(data, kind, plain, scale, reporter, means_only=True)
    return f"private means, ε = {options.epsilon:g}", means


def cost_of_list(model: ItemModel) -> list[str]:
    """Say what a private list of items cost, and how to avoid it; nothing if the list was public."""
    statement = model.statement
    listed = [] if statement is None else [release for release in statement.releases if release.threshold is not None]
    return [
        f"The list of items is private: {model.n_tasks} items are listed, by a threshold of {release.threshold:.4g} on "
        f"noisy popularity. It took {100 * release.share:.3g} % of the budget, popularity included, and "
        f"{release.delta:g} of delta. Rows of all other items were left out. If your catalogue is public, give it with "
        "--items FILE, and nothing is left out."
        for release in listed
    ]


def shortened(model: ItemModel, options: FitOptions) -> list[str]:
    """Say that item vectors are shorter than asked for: more coordinates than items would add nothing."""
    length = model.vectors.shape[1]
    if options.dimension is None or options.dimension <= length:
        return []
    return [f"Item vectors have length {length}, not {options.dimension}: there are {model.n_tasks} items."]


def _settings(options: FitOptions) -> dict[str, Any]:
    settings: dict[str, Any] = {"epsilon": options.epsilon, "delta": options.delta, "window": options.window}
    settings |= {name: getattr(options, name) for name in ("n_users", "dimension", "rounds", "tuning")}
    settings["noise"] = options.noise()
    if options.seed is not None:
        settings["random_state"] = options.seed
    return settings

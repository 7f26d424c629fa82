"""From options to fitted models: the private one, its non-private twin, and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apportion.cli.cautions import weak_delta
from apportion.cli.options import MEMORY, PRIVATE_ITEMS, FitOptions, Kind
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.data import Interactions, ItemFeatures
    from apportion.data.user_data import UserData
    from apportion.engines import Engine
    from apportion.privacy import Session
    from apportion.recommend.model import ItemModel


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
    if kind == "ratings":
        estimator = recommend.PrivateRatingRecommender(value_range=scale, **settings)
    else:
        estimator = recommend.PrivateClickRecommender(**settings)
    job = "private model" if features is None else "private model with features"
    session = session or options.session()
    for rule in options.rules:
        session.assume_public(rule, of_rows=True)
    model: ItemModel = estimator.fit(data, session=session, progress=reporter.of(job)).model_
    for remark in weak_delta(options.delta, estimator.n_users_):
        reporter.say(remark)
    return model


def fit_twin(data: Interactions, kind: Kind, scale: tuple[float, float], reporter: Reporter) -> ItemModel:
    """Fit the same kind of model without any privacy."""
    from apportion.recommend import ClickRecommender, RatingRecommender

    estimator: Any = RatingRecommender(value_range=scale) if kind == "ratings" else ClickRecommender()
    model: ItemModel = estimator.fit(data, progress=reporter.of("non-private model")).model_
    return model


def fit_baselines(data: Interactions, kind: Kind) -> dict[str, Any]:
    """Fit baselines that learn nobody's taste, weakest first."""
    from apportion.evaluation import BiasModel, GlobalMean, Popularity

    if kind == "ratings":
        return {"global mean": GlobalMean().fit(data), "item and user means": BiasModel().fit(data)}
    return {"popularity ranking": Popularity().fit(data)}


def cost_of_list(model: ItemModel) -> list[str]:
    """What a private list of items cost, and how to go without; nothing where the list was public."""
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
    """Say that item vectors are shorter than asked for: longer ones than there are items hold nothing more."""
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

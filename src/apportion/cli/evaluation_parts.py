"""The parts of an evaluation: a split, the private model with and without features, and held-out items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from apportion.cli.option_types import ITEMS_FROM_DATA
from apportion.cli.options import FitOptions, Kind
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.cli.loading import Loaded
    from apportion.data import Interactions, ItemFeatures
    from apportion.evaluation import HeldOutItems
    from apportion.recommend.model import ItemModel
    from apportion.report import NewItems

HELD_OUT: Final = 0.1  # fraction of the rows (ratings) or users (clicks), once for validation and once for test
_MOST_HELD_OUT: Final = 10_000
_WITH_FEATURES: Final = ", with features"
_BY_ID: Final = ", without features"


@dataclass(frozen=True)
class Split:
    """The training data, the rows shown at test time and the rows to predict, and the same for validation."""

    train: Interactions
    history: Interactions
    targets: Interactions
    words: str
    users_kept: float
    validation: tuple[Interactions, Interactions]


def split_data(data: Interactions, kind: Kind, seed: int, by_time: bool = False) -> Split:
    """Split rows for ratings, whole users for clicks; at random, or so that the later rows are to be predicted."""
    import numpy as np

    rng = np.random.default_rng(seed)
    if kind == "ratings":
        fractions = (1 - 2 * HELD_OUT, HELD_OUT, HELD_OUT)
        train, tuned_on, test = data.split_by_time(fractions) if by_time else data.split_by_value(rng, fractions)
        how = "by time: the first" if by_time else "random rows:"
        words = f"{how} 80 % for training, 10 % for validation, 10 % for test"
        return Split(train, train, test, words + ("" if by_time else f"; split seed {seed}"), 1.0, (train, tuned_on))
    n_eligible = int((data.by_user.counts >= 5).sum())
    n_held = min(_MOST_HELD_OUT, max(1, round(HELD_OUT * n_eligible)))
    parts = data.split_by_users(rng, n_held, n_held, by_time=by_time)
    shown = (
        "the first 80 % of a test user's rows are shown and the others"
        if by_time
        else ("80 % of a test user's rows are shown and 20 %")
    )
    words = (
        f"random whole users: {n_held:,} for validation, {n_held:,} for test, the others for "
        f"training; {shown} are to be predicted; split seed {seed}"
    )
    kept = 1 - 2 * n_held / max(1, int((data.by_user.counts > 0).sum()))
    tuning = (parts.validation.history, parts.validation.target)
    return Split(parts.train, parts.test.history, parts.test.target, words, kept, tuning)


def private_models(
    split: Split,
    kind: Kind,
    privacy: FitOptions,
    scale: tuple[float, float],
    features: ItemFeatures | None,
    reporter: Reporter,
) -> dict[str, ItemModel]:
    """Return the private model to evaluate and, if it has features, also the one without them."""
    from apportion.cli.training import fit_private

    if privacy.n_users is not None:
        privacy = replace(privacy, n_users=max(1, round(privacy.n_users * split.users_kept)))
    name = f"private, ε = {privacy.epsilon:g}"
    plain = fit_private(split.train, kind, privacy, scale, reporter)
    if features is None:
        return {name: plain}
    known = fit_private(split.train, kind, privacy, scale, reporter, features=features)
    return {name + _WITH_FEATURES: known, name + _BY_ID: plain}


def published_model(
    split: Split,
    kind: Kind,
    privacy: FitOptions,
    scale: tuple[float, float],
    spec: Mapping[str, Any],
    reporter: Reporter,
) -> dict[str, ItemModel]:
    """Return a model by the published method that a table of a study describes, at the same budget."""
    from apportion.recommend.methods import build

    estimator = build(
        spec, kind, epsilon=privacy.epsilon, delta=privacy.delta, noise=privacy.noise(), value_range=scale
    )
    return {f"published, ε = {privacy.epsilon:g}": estimator.fit(split.train, progress=reporter.of("published")).model_}


def new_items(loaded: Loaded, features: ItemFeatures, share: float, seed: int) -> HeldOutItems:
    """Return the data without some items, and the rows of those items."""
    import numpy as np

    from apportion.evaluation import hold_out_items

    return hold_out_items(loaded.data, features, np.random.default_rng(seed), share)


def serve_new_items(
    loaded: Loaded,
    parts: HeldOutItems,
    features: ItemFeatures,
    privacy: FitOptions,
    scale: tuple[float, float],
    seed: int,
    reporter: Reporter,
) -> NewItems:
    """Fit without some items, and measure how well they are ranked from their features."""
    from apportion.cli.training import fit_private
    from apportion.evaluation import compare_on_new_items
    from apportion.report import NewItems

    reporter.say(f"Fitting without {parts.held_out.n_tasks} items, to rank them from their features.")
    privacy = replace(privacy, items=ITEMS_FROM_DATA)  # items with features are listed, those held out among them
    model = fit_private(parts.train, loaded.kind, privacy, scale, reporter, features=features)
    limit = (
        "" if loaded.kind == "ratings" else "; true popularity is that of the held-out rows, which nobody could know"
    )
    words = (
        f"{parts.held_out.n_tasks:,} of the {loaded.data.n_tasks:,} items, with all their "
        f"{parts.held_out.n_observations:,} rows, were left out of another fit at the same ε. The "
        "same users are then tested on them, each known by the user's other rows. Results are "
        f"among the held-out items{limit}."
    )
    return NewItems(compare_on_new_items(model, parts, random_state=seed), words)

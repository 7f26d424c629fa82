"""What an evaluation fits and measures on: a split, the private model with and without features, held-out items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from apportion.cli.options import ITEMS_FROM_DATA, FitOptions, Kind
from apportion.cli.progress import Reporter

if TYPE_CHECKING:
    from apportion.cli.loading import Loaded
    from apportion.data import Interactions, ItemFeatures
    from apportion.evaluation import HeldOutItems
    from apportion.recommend.model import ItemModel
    from apportion.report import NewItems

HELD_OUT: Final = 0.1  # of the rows (ratings) or of the users (clicks), once for validation and once for test
_MOST_HELD_OUT: Final = 10_000
_WITH_FEATURES: Final = ", with features"
_BY_ID: Final = ", by id alone"


@dataclass(frozen=True)
class Split:
    """What is trained on, what is shown at test time, and what has to be predicted."""

    train: Interactions
    history: Interactions
    targets: Interactions
    words: str
    users_kept: float


def split_data(data: Interactions, kind: Kind, seed: int) -> Split:
    """Rows at random for ratings, whole users for clicks."""
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


def private_models(
    split: Split,
    kind: Kind,
    privacy: FitOptions,
    scale: tuple[float, float],
    features: ItemFeatures | None,
    reporter: Reporter,
) -> dict[str, ItemModel]:
    """The private model that is evaluated; where it has features, the one without them after it."""
    from apportion.cli.training import fit_private

    if privacy.n_users is not None:
        privacy = replace(privacy, n_users=max(1, round(privacy.n_users * split.users_kept)))
    name = f"private, ε = {privacy.epsilon:g}"
    plain = fit_private(split.train, kind, privacy, scale, reporter)
    if features is None:
        return {name: plain}
    known = fit_private(split.train, kind, privacy, scale, reporter, features=features)
    return {name + _WITH_FEATURES: known, name + _BY_ID: plain}


def new_items(loaded: Loaded, features: ItemFeatures, share: float, seed: int) -> HeldOutItems:
    """The data without some items, and those."""
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
    """Fit without some items, and see how these are served from their features."""
    from apportion.cli.training import fit_private
    from apportion.evaluation import compare_on_new_items
    from apportion.report import NewItems

    reporter.say(f"Now without {parts.held_out.n_tasks} items, to serve these from their features.")
    privacy = replace(privacy, items=ITEMS_FROM_DATA)  # items with features are listed, those held out among them
    model = fit_private(parts.train, loaded.kind, privacy, scale, reporter, features=features)
    limit = (
        "" if loaded.kind == "ratings" else "; true popularity is that of the rows left out, which nobody could know"
    )
    words = (
        f"{parts.held_out.n_tasks:,} of the {loaded.data.n_tasks:,} items were left out of another fit at the same ε, "
        f"with all {parts.held_out.n_observations:,} rows of them, and met again by the same users, each known by the "
        f"other rows. Figures are among the items left out{limit}."
    )
    return NewItems(compare_on_new_items(model, parts, random_state=seed), words)

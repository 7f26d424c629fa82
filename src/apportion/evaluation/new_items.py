"""Items that were not in training, ranked or rated from their public features alone.

Some items are held out with all their rows. A model is fitted to the others with public features, and the same users
are then tested on the held-out items only. Rankings are among the held-out items. The model is compared with

    random order            what is known without features
    predicted popularity    the order of popularity predicted by features, the same for everybody
    true popularity         by counts of the held-out rows, which nobody could know: an upper limit

for clicks. For ratings, it is compared with each user's own mean rating of the other items.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.features import ItemFeatures
from apportion.errors import InputError
from apportion.evaluation.compare import compare_rankings, compare_ratings
from apportion.evaluation.results import Comparison
from apportion.linalg.fixed_order import row_products
from apportion.recommend.model import ItemModel, RatingModel

FROM_FEATURES: Final = "from features"
PREDICTED: Final = "predicted popularity"
RANDOM: Final = "random order"
TRUE: Final = "true popularity"
OWN_MEAN: Final = "user's own mean"

_MEAN_DAMPING: Final = 5.0


@dataclass(frozen=True)
class HeldOutItems:
    """Data without some items, and the rows of the same users for those items.

    Attributes:
        train: rows of the other items, with a task list of only these.
        held_out: rows of the held-out items, with a task list of only these.
        items: features of the held-out items.
    """

    train: Interactions
    held_out: Interactions
    items: ItemFeatures


def hold_out_items(
    data: Interactions, features: ItemFeatures, rng: np.random.Generator, share: float = 0.1
) -> HeldOutItems:
    """Take items with features out of the data, each with probability `share`.

    Args:
        data: the observations.
        features: public features of the items.
        rng: chooses the items.
        share: fraction of the items with features.
    """
    if not 0 < share < 1:
        raise InputError(f"Expected a share of the items between 0 and 1, got {share:g}.", argument="share")
    rows = features.for_tasks(data.task_ids)
    out = (rows.counts > 0) & (rng.random(data.n_tasks) < share)
    train, held_out = data.where(~out[data.tasks]), data.where(out[data.tasks])
    if not (train.n_observations and held_out.n_observations):
        raise InputError(
            f"Cannot hold out {share:g} of the items with features: {held_out.n_observations} of "
            f"{data.n_observations} rows would be held out and {train.n_observations} left.",
            argument="share",
        )
    ids = data.task_ids.ids
    items = ItemFeatures(Vocabulary(ids[out], name="item"), rows.take(np.flatnonzero(out)), features.space)
    return HeldOutItems(_under(train, ids[~out]), _under(held_out, ids[out]), items)


def compare_on_new_items(model: ItemModel, parts: HeldOutItems, *, random_state: int = 0, k: int = 20) -> Comparison:
    """Measure how well a model ranks items that were not in training, compared with simple alternatives.

    Args:
        model: fitted with features to `parts.train`.
        parts: the data without some items, and those items.
        random_state: seed of the random order.
        k: cut-off of Recall, for clicks.
    """
    extended = model.with_new_items(parts.items)
    if isinstance(model, RatingModel):
        raters: dict[str, Any] = {FROM_FEATURES: _Rater(extended, parts), OWN_MEAN: _OwnMean(parts.train)}
        return compare_ratings(raters, _nothing(parts.held_out), parts.held_out)
    counts = parts.held_out.by_task.counts.astype(np.float64)
    n_known = parts.train.n_tasks
    rankers: dict[str, Any] = {
        FROM_FEATURES: _Ranker(extended, parts),
        PREDICTED: _SameForAll(extended.popularity[n_known:]),
        RANDOM: _Shuffled(random_state, len(counts)),
        TRUE: _SameForAll(counts),
    }
    return compare_rankings(rankers, _nothing(parts.held_out), parts.held_out, recall_at=(k,), ndcg_at=())


class _Extended:
    """A model with the held-out items appended; it sees the users' other rows."""

    def __init__(self, model: ItemModel, parts: HeldOutItems) -> None:
        train = parts.train
        self.model: Any = model
        self.n_known = train.n_tasks
        self.shown = Interactions.from_codes(
            train.users, train.tasks, train.values, user_ids=train.user_ids, task_ids=model.task_ids
        )


class _Ranker(_Extended):
    @cached_property
    def tastes(self) -> NDArray[np.floating]:
        """Return every user's vector, from the rows shown."""
        vectors: NDArray[np.float32] = self.model.user_vectors(self.shown)
        return vectors

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return scores of the held-out items."""
        held_out = self.model.fold_in.features[self.n_known :]
        return np.asarray(row_products(self.tastes[users], held_out) + self.model.offset)


class _Rater(_Extended):
    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.floating]:
        """Return ratings of held-out items."""
        moved = Interactions.from_codes(
            targets.users,
            targets.tasks + np.int32(self.n_known),
            targets.values,
            user_ids=targets.user_ids,
            task_ids=self.model.task_ids,
        )
        predicted: NDArray[np.float32] = self.model.predict(self.shown, moved)
        return predicted


class _OwnMean:
    """A user's mean rating of the other items, damped towards the overall mean."""

    def __init__(self, train: Interactions) -> None:
        overall = float(train.values.mean(dtype=np.float64))
        totals = np.bincount(train.users, train.values, minlength=train.n_users)
        self.means = (totals + _MEAN_DAMPING * overall) / (train.by_user.counts + _MEAN_DAMPING)

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.floating]:
        """Return the user's mean for every target."""
        return np.asarray(self.means[targets.users])


class _SameForAll:
    """One order of the items for everybody."""

    def __init__(self, scores: NDArray[Any]) -> None:
        self.scores = scores

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return the scores, one row per user."""
        return np.broadcast_to(self.scores, (len(users), len(self.scores)))


class _Shuffled:
    """A random order for every user."""

    def __init__(self, seed: int, n_items: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_items = n_items

    def score(self, history: Interactions, users: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return random scores."""
        return self.rng.random((len(users), self.n_items))


def _under(data: Interactions, ids: Any) -> Interactions:
    """Return the same rows with their own task list."""
    listed = Vocabulary(ids, name="item", declared=True)
    codes = listed.find(data.task_ids.ids)[data.tasks]
    return Interactions.from_codes(data.users, codes, data.values, user_ids=data.user_ids, task_ids=listed)


def _nothing(data: Interactions) -> Interactions:
    return data.where(np.zeros(data.n_observations, bool))

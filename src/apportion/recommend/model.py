"""The fitted model: the item side, which may be public, and how a user's vector follows from the user's own history.

A model holds one feature row f_i per task and a regression that every user solves alone, on their own history:

    u = (base + Σ_i c_i f_i f_iᵀ)⁻¹ (base_rhs + Σ_i c_i y_i f_i),        score of task i: offset + f_i · u

The solution depends on the model, which was released, and on that user's rows. Computing it never costs privacy, and a
user who was not in training is treated like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data import Interactions, Vocabulary
from apportion.data.features import ItemFeatures
from apportion.data.users import Users
from apportion.engines import Processors
from apportion.errors import InputError
from apportion.linalg.fixed_order import Excluded, dot_rows, row_products
from apportion.privacy.contributions import Kernels
from apportion.privacy.statement import Statement
from apportion.recommend.categories import Categories
from apportion.recommend.choosing import choice_coefficients, constants, ranking_features, ranking_of, with_rows
from apportion.recommend.features.new_items import WITHOUT_FEATURES, NewItemMap, joined_ids
from apportion.recommend.histories import check_history, check_targets
from apportion.recommend.ranking import Caps, best_columns, best_items, history_of

_USERS_AT_A_TIME: Final = 1024
USERS_IN_A_PART: Final = 8192
"""Users of one part of `recommend_in_parts`."""

_LEAST_KNOWN: Final = 1e-9
_SHORTEST: Final = 1e-24

Floats = NDArray[np.floating[Any]]
_Ranking = Callable[
    [NDArray[np.int32], int, Excluded | None, NDArray[np.int32] | None, Caps | None], tuple[NDArray[np.int32], Floats]
]


@dataclass(frozen=True)
class FoldIn:
    """The regression a user solves: task features, observation weights c_i, and the prior."""

    features: Floats
    observation_weights: Floats
    base: Floats
    base_rhs: Floats

    def solve(self, kernels: Kernels, users: Users, labels: Floats) -> Any:
        """Return every user's solution, from that user's own rows alone."""
        counted_alike = bool((self.observation_weights == 1).all())
        weights = None if counted_alike else self.observation_weights[users.column("tasks")]
        return kernels.solve_users(users, self.features, labels, self.base, self.base_rhs, weights)


@dataclass(frozen=True)
class Neighbour:
    """A task similar to the requested one; similarity is explained at `ItemModel.directions`."""

    task: int | str
    similarity: float


@dataclass(frozen=True)
class Recommendations:
    """The k best tasks for each user, best first; a user's row ends in -1 if fewer were left to recommend.

    Attributes:
        users: codes of the users.
        tasks: codes of their tasks.
        scores: the tasks' scores.
        task_ids: what the tasks' codes stand for: the model's tasks, and new items after them.
    """

    users: NDArray[np.int32]
    tasks: NDArray[np.int32]
    scores: NDArray[np.float32]
    task_ids: Vocabulary


class ItemModel(ABC):
    """The common part of models of ratings and clicks.

    Args:
        fold_in: the regression of the user side; its features are the item side.
        vectors: the vectors by which `similar` compares tasks.
        popularity: released popularity of each task.
        reliability: per task, from 0 (prior only) to 1 (data outweigh noise), from released values.
        task_ids: the public list of tasks.
        statement: the privacy statement, or None for a model without any guarantee.
        offset: what is added to every score.
        value_range: the public scale of the values.
        settings: the settings it was fitted with, for the record.
        feature_map: rows of items that were not in training, from their features; None without features.
        no_map: why there is no feature map, in one sentence, if there is none.
        categories: words of the items by which recommendations are filtered and mixed; None without any.
    """

    kind: ClassVar[str]
    choice: FoldIn | None = None
    """The regression of what users choose, of a model that ranks by choice."""

    def __init__(
        self,
        *,
        fold_in: FoldIn,
        vectors: Floats,
        popularity: Floats,
        reliability: Floats,
        task_ids: Vocabulary,
        statement: Statement | None,
        offset: float = 0.0,
        value_range: tuple[float, float] = (0.0, 1.0),
        settings: dict[str, Any] | None = None,
        feature_map: NewItemMap | None = None,
        no_map: str = WITHOUT_FEATURES,
        categories: Categories | None = None,
    ) -> None:
        self.fold_in = fold_in
        self.vectors = np.ascontiguousarray(vectors)
        self.popularity = popularity
        self.reliability = reliability
        self.task_ids = task_ids
        self.statement = statement
        self.offset = offset
        self.value_range = value_range
        self.settings = dict(settings or {})
        self.feature_map = feature_map
        self.no_map = no_map
        self.categories = categories
        self.titles: dict[int | str, str] = {}  # by the ids of tasks; public
        self._kernels: Kernels = Processors(np.float32)

    @abstractmethod
    def labels(self, history: Interactions) -> Floats:
        """Return the labels of the user regression, one per observation."""

    @property
    def n_tasks(self) -> int:
        """Number of tasks in the public list."""
        return len(self.task_ids)

    def user_vectors(self, history: Interactions) -> NDArray[np.float32]:
        """Compute every user's vector from the user's own rows; this costs no privacy."""
        self._check_tasks(history)
        solved: NDArray[np.float32] = self.fold_in.solve(self._kernels, history.as_users, self.labels(history))
        return solved

    def score(self, history: Interactions, users: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Score all tasks for some users (rows follow `users`), from the history given."""
        chosen = history.select_users(users)
        vectors = self.user_vectors(chosen)[np.asarray(users)]
        return self._scores(vectors)

    def with_new_items(self, new_items: Any) -> Self:
        """Return the model with new items after its tasks, each known by its features alone.

        Args:
            new_items: a frame with the columns of the features that the model was fitted with, or `ItemFeatures` read
                with space=model.feature_map.space.
        """
        if self.feature_map is None:
            raise InputError(self.no_map, argument="new_items")
        return self._extended(self.feature_map, self.feature_map.read(new_items))

    def _extended(self, known: NewItemMap, items: ItemFeatures) -> Self:
        rows = items.rows
        features = known.features(rows)
        held = self.fold_in
        weights = np.full(len(rows), known.observation_weight, held.observation_weights.dtype)
        fold_in = FoldIn(
            np.concatenate([held.features, features]),
            np.concatenate([held.observation_weights, weights]),
            held.base,
            held.base_rhs,
        )
        return type(self)(
            fold_in=fold_in,
            vectors=np.concatenate([self.vectors, features[:, features.shape[1] - self.vectors.shape[1] :]]),
            popularity=np.concatenate([self.popularity, known.popularity(rows)]),
            reliability=np.concatenate([self.reliability, np.zeros(len(rows), np.float32)]),
            task_ids=joined_ids(self.task_ids, items.item_ids),
            statement=self.statement,
            offset=self.offset,
            value_range=self.value_range,
            settings=self.settings,
            feature_map=known,
            categories=self._categories_with(items),
            **self._extra_with(features),
        )

    def _categories_with(self, items: ItemFeatures) -> Categories | None:
        """Return categories of the tasks, followed by those of new items."""
        if self.categories is None:
            return None
        return self.categories.extended(Categories.of(items, items.item_ids), len(items))

    @property
    def extra_arguments(self) -> dict[str, Any]:
        """Return the constructor arguments of this kind of model that not all models have."""
        return {}

    def _extra_with(self, features: Floats) -> dict[str, Any]:
        """Return the same for the model with new items, whose rows of the model's features these are."""
        return self.extra_arguments

    def stored_fields(self) -> dict[str, Any]:
        """Return the same as plain values, for storage."""
        return {}

    @classmethod
    def extra_from_stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of `extra_arguments` from the fields of `stored_fields`."""
        return {}

    @property
    def ranking_features(self) -> Floats:
        """Features of the items by which `recommend` ranks them, for `ranking_coefficients`."""
        return self.fold_in.features

    def ranking_coefficients(self, history: Interactions) -> NDArray[np.float32]:
        """Compute every user's coefficients of these features from the user's own rows; this costs no privacy."""
        return self.user_vectors(history)

    def recommend(
        self,
        history: Interactions,
        k: int = 10,
        *,
        exclude_history: bool = True,
        new_items: Any = None,
        only: ArrayLike | None = None,
        exclude: ArrayLike | None = None,
        caps: Mapping[str, int] | None = None,
    ) -> Recommendations:
        """Return the k best tasks for each user who has a history, without what they already have.

        Args:
            history: what users have, with the model's task list.
            k: how many tasks for each.
            exclude_history: whether to leave out what a user has.
            new_items: items that training has not met, to be ranked among the others; see `with_new_items`.
            only: ids of the tasks that may be recommended; None for all. Ids that the model does not know are skipped.
            exclude: ids of tasks that nobody is recommended.
            caps: by category, how many tasks of one list may share a word of it; see `categories`. Lists with caps have
                no exploring places; see `recommend.choosing`.
        """
        scored = self if new_items is None else self.with_new_items(new_items)
        candidates = scored.candidates(only, exclude)
        parts = list(
            self.recommend_in_parts(
                history, k, exclude_history=exclude_history, scored=scored, candidates=candidates, caps=caps
            )
        )
        users, tasks, scores = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "tasks", "scores")
        )
        return Recommendations(users, tasks, scores, scored.task_ids)

    def recommend_in_parts(
        self,
        history: Interactions,
        k: int = 10,
        *,
        exclude_history: bool = True,
        scored: Self | None = None,
        candidates: NDArray[np.int32] | None = None,
        caps: Mapping[str, int] | None = None,
    ) -> Iterator[Recommendations]:
        """Yield what `recommend` returns, some thousands of users at a time, so that results need not be held.

        Args:
            history: as in `recommend`, and so are `k`, `exclude_history` and `caps`.
            k: see `history`.
            exclude_history: see `history`.
            scored: the model whose tasks are ranked, if that is this one with new items; see `with_new_items`.
            candidates: codes of the tasks that may be recommended, ascending; None for all.
            caps: see `history`.
        """
        scored = scored or self
        self._check_tasks(history)
        if not (isinstance(k, int | np.integer) and 1 <= k <= scored.n_tasks):
            raise InputError(f"Expected k from 1 to {scored.n_tasks}, the number of items, got {k!r}.", argument="k")
        limits = scored._caps(caps)
        users = np.flatnonzero(np.diff(history.by_user.indptr)).astype(np.int32)
        ranking = self._ranking(history, scored)
        for part in row_chunks(len(users), USERS_IN_A_PART) if len(users) else (slice(0, 0),):
            excluded = history_of(history, users[part]) if exclude_history else None
            tasks, scores = ranking(users[part], k, excluded, candidates, limits)
            yield Recommendations(users[part], tasks, scores.astype(np.float32, copy=False), scored.task_ids)

    def _ranking(self, history: Interactions, scored: ItemModel) -> _Ranking:
        """Return what finds the k best tasks of some users: by their scores."""
        vectors = self.user_vectors(history)
        features = np.asarray(scored.fold_in.features, vectors.dtype)
        return lambda users, k, excluded, candidates, caps: best_items(
            vectors[users], features, k, offset=scored.offset, excluded=excluded, candidates=candidates, caps=caps
        )

    def candidates(self, only: ArrayLike | None, exclude: ArrayLike | None) -> NDArray[np.int32] | None:
        """Return codes of the tasks that may be recommended, ascending; None for all."""
        if only is None and exclude is None:
            return None
        kept = np.ones(self.n_tasks, bool)
        if only is not None:
            kept = np.zeros(self.n_tasks, bool)
            kept[self._known(only)] = True
        if exclude is not None:
            kept[self._known(exclude)] = False
        return np.flatnonzero(kept).astype(np.int32)

    def _known(self, ids: ArrayLike) -> NDArray[np.int32]:
        codes = self.task_ids.find(ids)
        return codes[codes >= 0]

    def _caps(self, caps: Mapping[str, int] | None) -> Caps | None:
        if not caps:
            return None
        if self.categories is None:
            raise InputError(
                f"This model has no categories of its items, so {next(iter(caps))!r} cannot be capped.",
                argument="caps",
            )
        return Caps.of(self.categories, caps)

    @cached_property
    def directions(self) -> NDArray[np.float32]:
        """Vectors over the lengths that tasks are expected to have, uncertainty included.

        The product of two is the cosine that is left after what is not known of either: a task of which little is known
        is not similar to anything.
        """
        vectors = np.asarray(self.vectors, np.float64)
        squares = np.square(vectors).sum(axis=1)
        known = np.clip(np.asarray(self.reliability, np.float64), 0, 1)
        usual = squares.sum() / max(float(known.sum()), _LEAST_KNOWN)
        lengths = np.sqrt(np.maximum(squares + (1 - known) * usual, _SHORTEST))
        return np.asarray(vectors / lengths[:, None], np.float32)

    def similar(self, task: int | str, k: int = 10) -> list[Neighbour]:
        """Return the k tasks most similar to this one: the product of their `directions`."""
        if self.n_tasks < 2:
            raise InputError("This model has a single item, so none is similar to it.", argument=None)
        if not 1 <= k < self.n_tasks:
            raise InputError(f"Expected k from 1 to {self.n_tasks - 1}, got {k}.", argument="k")
        code = self.task_ids.code_of(task)
        similarities = row_products(self.directions[code : code + 1], self.directions)
        similarities[0, code] = -np.inf
        best, values = best_columns(similarities, k)
        return [Neighbour(self.task_ids.id_of(int(c)), float(v)) for c, v in zip(best[0], values[0], strict=True)]

    def _scores(self, vectors: Floats) -> NDArray[np.float32]:
        scores = row_products(vectors, self.fold_in.features)
        scores += self.offset
        return scores.astype(np.float32, copy=False)

    def _check_tasks(self, history: Interactions) -> None:
        check_history(history, self.task_ids)


@final
class RatingModel(ItemModel):
    """Predicts a value: f_i · u above the offset, within the public scale.

    Args:
        choice: the regression of what users choose, by which `recommend` ranks; None to rank by predicted value.
        given: as for every `ItemModel`.
    """

    kind = "ratings"

    def __init__(self, *, choice: FoldIn | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.choice = choice

    @property
    def extra_arguments(self) -> dict[str, Any]:
        """Return the regression of choices."""
        return {"choice": self.choice}

    def _extra_with(self, features: Floats) -> dict[str, Any]:
        return {"choice": self.choice and with_rows(self.choice, self.fold_in.features, features, self.reliability)}

    def stored_fields(self) -> dict[str, Any]:
        """Return the constants by which items are ranked, if that is by choice."""
        return {} if self.choice is None else {"ranking": constants(self.value_range)}

    @property
    def ranking_features(self) -> Floats:
        """Features of choices and of values, if items are ranked by choice, and else of values."""
        if self.choice is None:
            return self.fold_in.features
        return ranking_features(self.choice.features, self.fold_in.features, self.popularity, self.value_range)

    def ranking_coefficients(self, history: Interactions) -> NDArray[np.float32]:
        """Compute every user's coefficients of these features."""
        own = self.user_vectors(history)
        if self.choice is None:
            return own
        return np.concatenate([choice_coefficients(self.choice, self._kernels, history, self.value_range), own], axis=1)

    def _ranking(self, history: Interactions, scored: ItemModel) -> _Ranking:
        if self.choice is None:
            return super()._ranking(history, scored)
        return ranking_of(scored, self.ranking_coefficients(history), history).best

    def labels(self, history: Interactions) -> Floats:
        """Return ratings, clipped to the public scale, minus the global mean."""
        low, high = self.value_range
        return np.asarray(np.clip(history.values, low, high) - np.float32(self.offset))

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.float32]:
        """Predict the targets' values, in their order, from the users' histories."""
        self._check_tasks(history)
        check_targets(history, targets)
        vectors = self.user_vectors(history)
        features = self.fold_in.features
        predicted = np.empty(targets.n_observations, dtype=np.float32)
        for rows in row_chunks(targets.n_observations, 1 << 14):
            users, tasks = targets.users[rows], targets.tasks[rows]
            predicted[rows] = dot_rows(vectors[users], features[tasks])
        return np.asarray(np.clip(predicted + self.offset, *self.value_range), np.float32)


@final
class ClickModel(ItemModel):
    """Ranks tasks by f_i · u; every observed pair counts as a 1, whatever its value."""

    kind = "clicks"

    def labels(self, history: Interactions) -> Floats:
        """Return ones: the signal is that a pair was observed."""
        return np.ones(history.n_observations, dtype=np.float32)


def row_chunks(length: int, step: int = _USERS_AT_A_TIME) -> Iterator[slice]:
    """Yield runs of at most `step` rows."""
    return (slice(start, min(start + step, length)) for start in range(0, length, step))

"""How a model of ratings ranks items if it knows what users choose: a list to choose from.

A user's score for item i is

    (c_i · u_c) / t_i^0.1 + 0.025 · (predicted value) / (a quarter of the scale)

u_c solves the regression of choices on the user's own rows, in which a row counts as chosen by its place in the scale:
1 at the top, 0 at the bottom. t_i is released popularity. The division shows items that are not popular more often.
(The constants were found on validation rows of MovieLens 1M, 100K and small, and of FilmTrust.)

Every 20th place explores: of two items drawn for that user, it shows the one with the best predicted value, doubt
counted in its favour. The draw is a hash of the user's own history. So it is the same each time, depends on no other
user and costs no privacy. (The division alone does not do it: where it shows three times the items that a ranking by
value shows, it loses a quarter to all of the recall in five of six cells of the claim `topk-ratings`.)

The hash is small, so that an export can draw the same items without this library: x ← x² + a mod 2³¹ − 1, for
three constants a.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.allocation.weightings import places_in_scale
from apportion.data import Interactions
from apportion.linalg.fixed_order import Excluded, dot_rows
from apportion.privacy.contributions import Kernels
from apportion.recommend.ranking import Caps, best_items

if TYPE_CHECKING:
    from apportion.recommend.model import FoldIn, ItemModel

Codes = NDArray[np.int32]
Floats = NDArray[np.floating[Any]]

POPULARITY_POWER: Final = 0.1
VALUE_WEIGHT: Final = 0.025
EXPLORING_PLACE: Final = 20
"""Every so many places one explores."""
COMPARED: Final = 2
"""Items of an exploring place, of which the best is shown."""
DRAWN: Final = 16
"""Items drawn for it, some of which the user has."""
PRIME: Final = 2**31 - 1
ADDED: Final = (1_013_904_223, 668_265_263, 374_761_393)
STRIDE: Final = 65_537
"""Constants of the hash."""

_LEAST_POPULARITY: Final = 0.05  # of the mean
_RIDGE: Final = 0.01


def discounts(popularity: Floats) -> NDArray[np.float64]:
    """Return one factor per item: a small negative power of popularity, relative to the most popular item."""
    known = np.maximum(np.asarray(popularity, np.float64), _LEAST_POPULARITY * float(np.mean(popularity)))
    return np.asarray((known / max(float(known.max()), 1e-12)) ** -POPULARITY_POWER)


def value_weight(value_range: tuple[float, float]) -> float:
    """Return what a predicted value counts in the score of a choice."""
    low, high = value_range
    return VALUE_WEIGHT * 4 / (high - low)


def doubts_of(reliability: Floats, value_range: tuple[float, float]) -> NDArray[np.float64]:
    """Return standard deviations of items' values, about."""
    low, high = value_range
    return np.asarray((high - low) / 4 * np.sqrt(1 - np.clip(np.asarray(reliability, np.float64), 0, 1)))


def ranking_features(
    choices: Floats, values: Floats, popularity: Floats, value_range: tuple[float, float]
) -> NDArray[np.float32]:
    """Return features whose product with a user's coefficients, of choices and then of values, ranks the items."""
    parts = [choices * discounts(popularity)[:, None], values * value_weight(value_range)]
    return np.concatenate(parts, axis=1).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ChoiceRanking:
    """Ranks items for users.

    Attributes:
        coefficients: of users: of their choices, then of their values.
        features: of the items, for these; see `ranking_features`.
        value_features: of the items.
        seeds: one of each user, from its own history.
        offset: what is added to every predicted value.
        value_range: the public scale.
        doubts: of the items' values: standard deviations.
    """

    coefficients: Floats
    features: Floats
    value_features: Floats
    seeds: NDArray[np.int64]
    offset: float
    value_range: tuple[float, float]
    doubts: Floats

    def best(
        self,
        users: NDArray[np.integer[Any]],
        k: int,
        excluded: Excluded | None,
        candidates: Codes | None,
        caps: Caps | None = None,
    ) -> tuple[Codes, NDArray[np.float32]]:
        """Return the k best items of these users, best first, and their predicted values; -1 and -inf at the end.

        Args:
            users: codes of the users.
            k: how many items for each.
            excluded: items that a user is not to get, as (indptr, codes).
            candidates: the items that may be recommended, ascending; None for all.
            caps: how many items of a list may share a word; such lists have no exploring places.
        """
        vectors = np.asarray(self.coefficients[users], np.float32)
        given: dict[str, Any] = {"excluded": excluded, "candidates": candidates, "caps": caps}
        ranked, _ = best_items(vectors, self.features, k, offset=0.0, **given)
        for place in range(EXPLORING_PLACE - 1, k, EXPLORING_PLACE) if caps is None else ():
            ranked = self._explored(ranked, place, users, excluded, candidates)
        return ranked, self._predicted(users, ranked)

    def _explored(
        self,
        ranked: Codes,
        place: int,
        users: NDArray[np.integer[Any]],
        excluded: Excluded | None,
        candidates: Codes | None,
    ) -> Codes:
        """Return the lists with another item at this place, the others after it."""
        drawn = self._drawn(users, place, candidates)
        allowed = ~_listed(drawn, ranked[:, :place]) & ~_among_excluded(drawn, excluded)
        compared = allowed & (np.cumsum(allowed, axis=1) <= COMPARED)
        hoped = np.where(compared, self._predicted(users, drawn, clip=False) + self.doubts[drawn], -np.inf)
        best = np.take_along_axis(drawn, hoped.argmax(axis=1)[:, None], axis=1)
        found = compared.any(axis=1) & (ranked[:, place] >= 0)
        rest = ranked[:, place:]
        last = np.where((rest == best).any(axis=1), (rest == best).argmax(axis=1), rest.shape[1] - 1)
        columns = np.arange(rest.shape[1])
        moved = np.where((columns > 0) & (columns <= last[:, None]), np.roll(rest, 1, axis=1), rest)
        moved[:, 0] = best[:, 0]
        return np.concatenate([ranked[:, :place], np.where(found[:, None], moved, rest)], axis=1).astype(np.int32)

    def _drawn(self, users: NDArray[np.integer[Any]], place: int, candidates: Codes | None) -> Codes:
        """Return items drawn for these users at this place, some of them perhaps twice."""
        numbers = STRIDE * (place * DRAWN + np.arange(DRAWN, dtype=np.int64))
        n_items = len(self.doubts) if candidates is None else len(candidates)
        codes = mixed((self.seeds[users][:, None] + numbers) % PRIME) % max(n_items, 1)
        return codes.astype(np.int32) if candidates is None or not n_items else candidates[codes]

    def _predicted(self, users: NDArray[np.integer[Any]], items: Codes, *, clip: bool = True) -> NDArray[np.float32]:
        """Return predicted values, within the scale; -inf where there is no item."""
        own = np.asarray(self.coefficients[users, -self.value_features.shape[1] :], np.float32)
        vectors = np.repeat(own, items.shape[1], axis=0)
        values = dot_rows(vectors, self.value_features[np.maximum(items, 0).ravel()]).reshape(items.shape) + self.offset
        held = np.clip(values, *self.value_range) if clip else values
        return np.asarray(np.where(items < 0, -np.inf, held), np.float32)


def ranking_of(model: ItemModel, coefficients: Floats, history: Interactions) -> ChoiceRanking:
    """Return the ranking of a model's items for users with these coefficients and histories."""
    return ChoiceRanking(
        coefficients=coefficients,
        features=np.asarray(model.ranking_features, np.float32),
        value_features=np.asarray(model.fold_in.features, np.float32),
        seeds=history_seeds(history.by_user.indptr, history.tasks),
        offset=model.offset,
        value_range=model.value_range,
        doubts=doubts_of(model.reliability, model.value_range),
    )


def choice_coefficients(
    choice: FoldIn, kernels: Kernels, history: Interactions, value_range: tuple[float, float]
) -> NDArray[np.float32]:
    """Solve users' regressions of choices; a row counts as chosen by its place in the scale."""
    users = history.as_users
    return np.asarray(choice.solve(kernels, users, places_in_scale(users, value_range)), np.float32)


def with_rows(choice: FoldIn, known: Floats, new: Floats, reliability: Floats) -> FoldIn:
    """Return the regression of choices with rows for new items.

    They follow from a ridge regression of the items' rows on their features of values, by reliability.

    Args:
        choice: the regression of the model.
        known: features of values of its items.
        new: the same of new items.
        reliability: of its items.
    """
    root = np.sqrt(np.clip(np.asarray(reliability, np.float64), 0.01, 1))[:, None]
    rows, targets = root * known, root * choice.features
    gram = rows.T @ rows
    effects = np.linalg.solve(gram + _RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram)), rows.T @ targets)
    found = (np.asarray(new, np.float64) @ effects).astype(choice.features.dtype)
    weights = np.ones(len(new), choice.observation_weights.dtype)
    return replace(
        choice,
        features=np.concatenate([choice.features, found]),
        observation_weights=np.concatenate([choice.observation_weights, weights]),
    )


def constants(value_range: tuple[float, float]) -> dict[str, Any]:
    """Return the constants of the ranking, for exports."""
    return {
        "popularity_power": POPULARITY_POWER,
        "least_popularity": _LEAST_POPULARITY,
        "value_weight": value_weight(value_range),
        "exploring_place": EXPLORING_PLACE,
        "compared": COMPARED,
        "drawn": DRAWN,
        "prime": PRIME,
        "added": list(ADDED),
        "stride": STRIDE,
    }


def mixed(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a hash of whole numbers from 0 to below `PRIME`, in the same range.

    >>> mixed(np.array([0, 1, 2])).tolist()
    [1395855938, 593989014, 1724295369]
    """
    for added in ADDED:
        numbers = (numbers * numbers + added) % PRIME
    return numbers


def history_seeds(indptr: NDArray[np.int64], tasks: Codes) -> NDArray[np.int64]:
    """Return a number for each user: the sum of a hash of its items, in whatever order they are.

    >>> history_seeds(np.array([0, 2, 4]), np.array([3, 5, 5, 3], np.int32)).tolist()[1:] == history_seeds(
    ...     np.array([0, 2]), np.array([3, 5], np.int32)).tolist()
    True
    """
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(mixed(tasks.astype(np.int64)))])
    return np.asarray((sums[indptr[1:]] - sums[indptr[:-1]]) % PRIME)


def _listed(drawn: Codes, lists: Codes) -> NDArray[np.bool_]:
    """Return which of the items are on their user's list."""
    return np.asarray((drawn[:, :, None] == lists[:, None, :]).any(axis=2))


def _among_excluded(drawn: Codes, excluded: Excluded | None) -> NDArray[np.bool_]:
    """Return which of the items their user must not get."""
    if excluded is None:
        return np.zeros(drawn.shape, bool)
    indptr, codes = excluded
    owner = np.repeat(np.arange(len(drawn), dtype=np.int64), np.diff(indptr))
    width = int(max(codes.max(initial=0), drawn.max(initial=0))) + 1
    held = np.sort(owner * width + codes)
    asked = np.arange(len(drawn), dtype=np.int64)[:, None] * width + drawn
    place = np.searchsorted(held, asked)
    there = place < len(held)
    there[there] = held[place[there]] == asked[there]
    return there

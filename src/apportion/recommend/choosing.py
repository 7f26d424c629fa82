"""How a model of ratings ranks items if it knows what users choose: a list to choose from.

A user's score for item i is

    (c_i · u_c) / t_i^0.15 + 0.025 · (predicted value) / (a quarter of the scale)

u_c solves the regression of choices on the user's own rows, in which a row counts as chosen by its place in the scale:
1 at the top, 0 at the bottom. t_i is released popularity. The division shows items that are not popular more often.
(The constants were found on validation rows of MovieLens 1M and FilmTrust.)

Every 20th place explores: of four items drawn for that user, it shows the one with the best predicted value, doubt
counted in its favour. The draw is a hash of the user's own history. So it is the same each time, depends on no other
user and costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.linalg import keyed_words
from apportion.linalg.fixed_order import Excluded, dot_rows
from apportion.recommend.ranking import best_items

Codes = NDArray[np.int32]
Floats = NDArray[np.floating[Any]]

POPULARITY_POWER: Final = 0.15
VALUE_WEIGHT: Final = 0.025
EXPLORING_PLACE: Final = 20
"""Every so many places one explores."""

_LEAST_POPULARITY: Final = 0.05  # of the mean
_COMPARED = 4  # items of an exploring place, of which the best is shown
_DRAWN = 16  # items drawn for it, some of which the user has
_SEED: Final = bytes(32)


def discounted(popularity: Floats, features: Floats) -> NDArray[np.float32]:
    """Return features of choices over a small power of popularity, relative to the most popular item."""
    known = np.maximum(np.asarray(popularity, np.float64), _LEAST_POPULARITY * float(np.mean(popularity)))
    scale = (known / max(float(known.max()), 1e-12)) ** -POPULARITY_POWER
    return np.asarray(features * scale[:, None], np.float32)


@dataclass(frozen=True, eq=False)
class ChoiceRanking:
    """Ranks items for users.

    Attributes:
        choices: vectors of users' choices.
        values: vectors of users' values.
        choice_features: of the items, discounted.
        value_features: of the items.
        seeds: one of each user, from its own history.
        offset: what is added to every predicted value.
        value_range: the public scale.
        doubts: of the items' values: standard deviations.
    """

    choices: Floats
    values: Floats
    choice_features: Floats
    value_features: Floats
    seeds: NDArray[np.uint64]
    offset: float
    value_range: tuple[float, float]
    doubts: Floats

    def best(
        self, users: NDArray[np.integer[Any]], k: int, excluded: Excluded | None, candidates: Codes | None
    ) -> tuple[Codes, NDArray[np.float32]]:
        """Return the k best items of these users, best first, and their predicted values; -1 and -inf at the end.

        Args:
            users: codes of the users.
            k: how many items for each.
            excluded: items that a user is not to get, as (indptr, codes).
            candidates: the items that may be recommended, ascending; None for all.
        """
        low, high = self.value_range
        weight = np.float32(VALUE_WEIGHT * 4 / (high - low))
        vectors = np.concatenate([self.choices[users], weight * self.values[users]], axis=1).astype(np.float32)
        features = np.concatenate([self.choice_features, self.value_features], axis=1).astype(np.float32)
        ranked, _ = best_items(vectors, features, k, offset=0.0, excluded=excluded, candidates=candidates)
        for place in range(EXPLORING_PLACE - 1, k, EXPLORING_PLACE):
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
        compared = allowed & (np.cumsum(allowed, axis=1) <= _COMPARED)
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
        number = np.arange(_DRAWN, dtype=np.uint64) + np.uint64(place * _DRAWN)
        points = np.stack([np.repeat(self.seeds[users], _DRAWN), np.tile(number, len(users))], axis=1)
        n_items = len(self.doubts) if candidates is None else len(candidates)
        codes = (keyed_words(_SEED, points) % np.uint64(max(n_items, 1))).astype(np.int64).reshape(len(users), _DRAWN)
        return codes.astype(np.int32) if candidates is None or not n_items else candidates[codes]

    def _predicted(self, users: NDArray[np.integer[Any]], items: Codes, *, clip: bool = True) -> NDArray[np.float32]:
        """Return predicted values, within the scale; -inf where there is no item."""
        vectors = np.repeat(self.values[users], items.shape[1], axis=0)
        values = dot_rows(vectors, self.value_features[np.maximum(items, 0).ravel()]).reshape(items.shape) + self.offset
        held = np.clip(values, *self.value_range) if clip else values
        return np.asarray(np.where(items < 0, -np.inf, held), np.float32)


def history_seeds(indptr: NDArray[np.int64], tasks: Codes) -> NDArray[np.uint64]:
    """Return a number of 64 bits for each user: the sum of a hash of its items, in whatever order they are.

    >>> history_seeds(np.array([0, 2, 4]), np.array([3, 5, 5, 3], np.int32)).tolist()[1:] == history_seeds(
    ...     np.array([0, 2]), np.array([3, 5], np.int32)).tolist()
    True
    """
    points = np.stack([tasks.astype(np.uint64), np.ones(len(tasks), np.uint64)], axis=1)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(keyed_words(_SEED, points), dtype=np.uint64)])
    return np.asarray(sums[indptr[1:]] - sums[indptr[:-1]])


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

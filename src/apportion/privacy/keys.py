"""Keys that are private: the hidden counts of a list that only its release makes known, and the threshold for it.

A key (an item, a group) is in the list because users hold it. One that a single user holds is there in one of two
neighbouring data sets only, so no noise on its count hides it; a threshold does, up to a probability of

    δ_τ = max over t of 1 − F(τ − w(t))^t,        t = 1 .. most keys that one user gives weight to,

F the distribution function of the noise and w(t) the largest weight that each of t keys of one user can have: that of a
user of t keys, or of the fewest that a user counts as having
(docs/proofs/keys.md). It is added to δ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from apportion.errors import BudgetError, InputError
from apportion.privacy.bounded_sum import _KEY, BoundedSum
from apportion.privacy.bounds import Hidden
from apportion.privacy.neighbours import Neighbours

Law = Literal["gaussian", "laplace"]
Floats = NDArray[np.float64]

_SLACK = 1e-9  # relative: more than the rounding of a tail probability, and than noise scales rounded upwards
_STEPS = 60  # of a bisection
_ALMOST_1 = 1 - 2.0**-53


class CountsOfKeys(BoundedSum):
    """The hidden counts of keys, by code, how many keys one user gives weight to at most, and as how few it counts."""

    __slots__ = ("_least", "_most")

    def __init__(self, key: object, most: int, least: int, *arguments: Any, **named: Any) -> None:
        super().__init__(key, *arguments, **named)
        self._most, self._least = most, least

    @property
    def least(self) -> int:
        """A user of fewer keys gives them the weight that one of so many gives."""
        return self._least

    @property
    def most(self) -> int:
        """How many keys one user gives weight to at most."""
        return self._most


@dataclass(frozen=True, eq=False)
class KeyedValues:
    """Counts by key, as a session opens them for a draw.

    Attributes:
        texts: the keys that exist, in text order.
        counts: in whole steps of a lattice, or as numbers.
        known: which of them are public.
        most: how many keys one user gives weight to at most.
        least: as how few it counts.
    """

    texts: NDArray[np.object_]
    counts: NDArray[Any]
    known: NDArray[np.bool_]
    most: int
    least: int = 1


@dataclass(frozen=True, eq=False)
class Listed:
    """A list of keys that was released: nothing of those below the threshold.

    Attributes:
        texts: of the keys, in text order.
        counts: with noise; all at least the threshold, but for keys that were public before.
        known: which of the keys were public before.
        threshold: that the counts of the others passed.
        scale: of the noise.
    """

    texts: tuple[str, ...]
    counts: Floats
    known: NDArray[np.bool_]
    threshold: float
    scale: float

    @property
    def shape(self) -> tuple[int, ...]:
        """How many keys are listed."""
        return (len(self.texts),)


class KeyedSum(Hidden):
    """Hidden counts of hidden keys. Neither the keys nor how many there are can be read.

    Args:
        counts: by code, as an engine added them up.
        texts: of the keys, by code, in text order.
        known: texts of keys that are public, whoever holds them.
    """

    __slots__ = ("_counts", "_known", "_texts")

    def __init__(self, counts: CountsOfKeys, texts: Sequence[str], known: Sequence[str] = ()) -> None:
        names = np.array(list(texts), object)
        if counts.shape != names.shape or any(a >= b for a, b in itertools.pairwise(texts)):
            raise InputError(
                "Expected the text of every key that was counted, once each and in text order.", argument=None
            )
        self._counts, self._texts, self._known = counts, names, tuple(known)

    @property
    def shape(self) -> tuple[int, ...]:
        """Nothing: how many keys there are is hidden."""
        return ()

    @property
    def neighbours(self) -> Neighbours:
        """The relation that the sensitivity is for."""
        return self._counts.neighbours

    @property
    def derivation(self) -> str:
        """Where the sensitivity comes from, in words."""
        return self._counts.derivation

    @property
    def l2_sensitivity(self) -> float:
        """How far one user moves the counts."""
        return self._counts.l2_sensitivity

    @property
    def l1_sensitivity(self) -> float:
        """The same in the L1 norm."""
        return self._counts.l1_sensitivity

    @property
    def most(self) -> int:
        """How many keys one user gives weight to at most."""
        return self._counts.most

    @property
    def least(self) -> int:
        """As how few keys one user counts."""
        return self._counts.least

    @property
    def step(self) -> float | None:
        """The step of the lattice that the counts are on."""
        return self._counts.step

    @property
    def scales(self) -> None:
        """All keys get the same noise."""

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a statement must say of where the counts were formed."""
        return self._counts.caveats

    @property
    def in_shares(self) -> bool:
        """Whether nobody holds the counts."""
        return self._counts.in_shares

    def _reveal(self, key: object, *, steps: bool = False) -> KeyedValues:
        """The keys that exist, which somebody holds, and the public ones."""
        if key is not _KEY:
            self._refuse("read")
        counts = self._counts._reveal_steps(key) if steps else self._counts._reveal(key)
        held = {str(self._texts[k]): counts[k] for k in np.flatnonzero(counts > 0)}
        texts = sorted({*held, *self._known})
        public = set(self._known)
        return KeyedValues(
            np.array(texts, object),
            np.array([held.get(text, 0) for text in texts], counts.dtype),
            np.array([text in public for text in texts], bool),
            self.most,
            self.least,
        )

    def __repr__(self) -> str:
        return "KeyedSum(keys and counts hidden)"


def chance_of_own_keys(threshold: float, scale: float, most: int, law: Law, least: int = 1) -> float:
    """δ_τ: the largest probability with which a key of one user alone is listed, rounded up.

    >>> round(chance_of_own_keys(5.0, 1.0, 1, "gaussian"), 7)
    3.17e-05
    """
    tail, power = (_normal_tail, 0.5) if law == "gaussian" else (_laplace_tail, 1.0)
    tails = (min(tail((threshold - max(t, least) ** -power) / scale), _ALMOST_1) for t in range(1, most + 1))
    chances = (-math.expm1(t * math.log1p(-p)) for t, p in enumerate(tails, start=1))
    return min(1.0, max(chances) * (1 + _SLACK))


@lru_cache(maxsize=256)
def threshold_for(delta: float, scale: float, most: int, law: Law, least: int = 1) -> float:
    """The least threshold τ at which δ_τ is within δ; it is itself within.

    >>> threshold_for(1e-6, 1.0, 1, "gaussian")  # doctest: +ELLIPSIS
    5.753...
    """
    if not 0 < delta < 1:
        raise BudgetError(f"Expected a part of delta for the list of keys, above 0, got {delta}.")
    low, high = 0.0, 1.0 + 4 * scale
    while chance_of_own_keys(high, scale, most, law, least) > delta:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if chance_of_own_keys(middle, scale, most, law, least) > delta else (low, middle)
    return high


def _normal_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def _laplace_tail(x: float) -> float:
    return 0.5 * math.exp(-x) if x >= 0 else 1 - 0.5 * math.exp(x)

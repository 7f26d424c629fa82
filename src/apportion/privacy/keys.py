"""Private lists of keys: the hidden counts, and the threshold that a noisy count must pass to be listed.

A key (an item, a group) exists because users hold it. A key held by one user alone is in only one of two neighbouring
data sets, so noise on its count cannot hide it. A threshold can, except with probability

    δ_τ = max over t of 1 − F(τ − w(t))^t,        t = 1 .. most keys that one user gives weight to,

where F is the distribution function of the noise and w(t) the largest weight that a user can give to each of t keys. A
user with fewer keys than a public minimum gives each the weight of a user with that many. δ_τ is added to δ
(docs/proofs/keys.md).
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
    """The hidden counts of keys by code, with the most and the fewest keys that a user is counted with."""

    __slots__ = ("_least", "_most")

    def __init__(self, key: object, most: int, least: int, *arguments: Any, **named: Any) -> None:
        super().__init__(key, *arguments, **named)
        self._most, self._least = most, least

    @property
    def least(self) -> int:
        """A user with fewer keys gives each the weight of a user with this many."""
        return self._least

    @property
    def most(self) -> int:
        """The most keys that one user gives weight to."""
        return self._most


@dataclass(frozen=True, eq=False)
class KeyedValues:
    """Counts by key, as a session opens them for a draw.

    Attributes:
        texts: the keys that exist, in text order.
        counts: in whole steps of a lattice, or as numbers.
        known: which of them are public.
        most: the most keys that one user gives weight to.
        least: a user with fewer keys gives each the weight of a user with this many.
    """

    texts: NDArray[np.object_]
    counts: NDArray[Any]
    known: NDArray[np.bool_]
    most: int
    least: int = 1


@dataclass(frozen=True, eq=False)
class Listed:
    """A released list of keys. It holds nothing about keys below the threshold.

    Attributes:
        texts: of the keys, in text order.
        counts: with noise; at least the threshold, except for keys that were public before.
        known: which of the keys were public before.
        threshold: what the noisy counts of the other keys passed.
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
    """Hidden counts of hidden keys. Neither the keys nor their number can be read.

    Args:
        counts: by code, as an engine added them up.
        texts: of the keys, by code, in text order.
        known: texts of the keys that are public, whether anyone holds them or not.
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
        """Empty: the number of keys is hidden."""
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
        """The most keys that one user gives weight to."""
        return self._counts.most

    @property
    def least(self) -> int:
        """A user with fewer keys gives each the weight of a user with this many."""
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
        """Return the keys that somebody holds, and the public ones."""
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
    """Return δ_τ, the largest probability that a key held by one user alone is listed, rounded up.

    >>> round(chance_of_own_keys(5.0, 1.0, 1, "gaussian"), 7)
    3.17e-05
    """
    tail, power = (_normal_tail, 0.5) if law == "gaussian" else (_laplace_tail, 1.0)
    tails = (min(tail((threshold - max(t, least) ** -power) / scale), _ALMOST_1) for t in range(1, most + 1))
    chances = (-math.expm1(t * math.log1p(-p)) for t, p in enumerate(tails, start=1))
    return min(1.0, max(chances) * (1 + _SLACK))


@lru_cache(maxsize=256)
def threshold_for(delta: float, scale: float, most: int, law: Law, least: int = 1) -> float:
    """Return the smallest threshold τ whose δ_τ is at most δ.

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

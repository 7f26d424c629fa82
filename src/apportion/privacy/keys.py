"""Private lists of keys: the hidden counts, and the threshold that a noisy count must pass to be listed.

A key (an item, a group) exists because users hold it. A key held by one user alone is in only one of two neighbouring
data sets, so noise on its count cannot hide it. A threshold can, except with probability

    δ_τ = max over t of 1 − F(τ − w(t))^t,        t = 1 .. most keys that one user gives weight to,

where F is the distribution function of the noise and w(t) the largest weight that a user can give to each of t keys. A
user with fewer keys than a public minimum gives each the weight of a user with that many. δ_τ is added to δ
(docs/proofs/keys.md). What a list of two rounds keeps hidden between them is a `Seen`.
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


@dataclass(frozen=True)
class OwnWeights:
    """The largest weight that a user gives to each of t keys: min(reach / t^p, 1 / least^p).

    p is 1/2 for Gaussian noise, and 1 for Laplace noise.

    Attributes:
        most: the most keys that one user gives weight to.
        least: a user with fewer keys gives each the weight of a user with this many.
        reach: by how much a weight may exceed that of keys that are all alike, where some of a user's keys get less.
    """

    most: int
    least: int = 1
    reach: float = 1.0

    def each(self, law: Law) -> Floats:
        """The weight for t = 1 .. most."""
        power = 0.5 if law == "gaussian" else 1.0
        return np.asarray(np.minimum(self.reach * np.arange(1, self.most + 1.0) ** -power, self.least**-power))


class CountsOfKeys(BoundedSum):
    """The hidden counts of keys by code, with the largest weights that a user gives."""

    __slots__ = ("_own",)

    def __init__(self, key: object, own: OwnWeights, *arguments: Any, **named: Any) -> None:
        super().__init__(key, *arguments, **named)
        self._own = own

    @property
    def own(self) -> OwnWeights:
        """The largest weight that a user gives to each of its keys."""
        return self._own


@dataclass(frozen=True, eq=False)
class KeyedValues:
    """Counts by key, as a session opens them for a draw.

    Attributes:
        texts: the keys that exist, in text order.
        counts: in whole steps of a lattice, or as numbers.
        known: which of them are public.
        own: the largest weights that a user gives.
    """

    texts: NDArray[np.object_]
    counts: NDArray[Any]
    known: NDArray[np.bool_]
    own: OwnWeights


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
        whole: whether noise is drawn for keys without a count, too; they are never listed.
    """

    __slots__ = ("_counts", "_known", "_texts", "_whole")

    def __init__(
        self, counts: CountsOfKeys, texts: Sequence[str], known: Sequence[str] = (), *, whole: bool = False
    ) -> None:
        names = np.array(list(texts), object)
        if counts.shape != names.shape or any(a >= b for a, b in itertools.pairwise(texts)):
            raise InputError(
                "Expected the text of every key that was counted, once each and in text order.", argument=None
            )
        self._counts, self._texts, self._known, self._whole = counts, names, tuple(known), whole

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
    def own(self) -> OwnWeights:
        """The largest weights that a user gives."""
        return self._counts.own

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
        held = {str(self._texts[k]): counts[k] for k in np.flatnonzero((counts > 0) | self._whole)}
        texts = sorted({*held, *self._known})
        public = set(self._known)
        return KeyedValues(
            np.array(texts, object),
            np.array([held.get(text, 0) for text in texts], counts.dtype),
            np.array([text in public for text in texts], bool),
            self.own,
        )

    def __repr__(self) -> str:
        return "KeyedSum(keys and counts hidden)"


def chance_of_own_keys(threshold: float, scale: float, most: int, law: Law, least: int = 1) -> float:
    """Return δ_τ, the largest probability that a key held by one user alone is listed, rounded up.

    >>> round(chance_of_own_keys(5.0, 1.0, 1, "gaussian"), 7)
    3.17e-05
    """
    return _chance(threshold, scale, OwnWeights(most, least).each(law), law)


@lru_cache(maxsize=256)
def threshold_for(delta: float, scale: float, most: int, law: Law, least: int = 1) -> float:
    """Return the smallest threshold τ whose δ_τ is at most δ.

    >>> threshold_for(1e-6, 1.0, 1, "gaussian")  # doctest: +ELLIPSIS
    5.753...
    """
    return threshold_of(delta, scale, OwnWeights(most, least).each(law), law)


def threshold_of(delta: float, scale: float, weights: Floats, law: Law) -> float:
    """The same for the largest weights that a user gives to each of 1, 2, .. keys."""
    if not 0 < delta < 1:
        raise BudgetError(f"Expected a part of delta for the list of keys, above 0, got {delta}.")
    low, high = 0.0, 1.0 + 4 * scale
    while _chance(high, scale, weights, law) > delta:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if _chance(middle, scale, weights, law) > delta else (low, middle)
    return high


def _chance(threshold: float, scale: float, weights: Floats, law: Law) -> float:
    tail = _normal_tail if law == "gaussian" else _laplace_tail
    tails = (min(tail((threshold - weight) / scale), _ALMOST_1) for weight in weights.tolist())
    chances = (-math.expm1(t * math.log1p(-p)) for t, p in enumerate(tails, start=1))
    return min(1.0, max(chances) * (1 + _SLACK))


def _normal_tail(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2))


def _laplace_tail(x: float) -> float:
    return 0.5 * math.exp(-x) if x >= 0 else 1 - 0.5 * math.exp(x)

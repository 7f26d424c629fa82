"""Polynomials over the prime field of Shamir's shares: through points, and nearest to points of which some are wrong.

Values of one polynomial with k coefficients at n places are a word of a Reed-Solomon code. Up to (n - k) / 2 wrong
values are found by the syndromes of the word and the shortest recurrence that they follow (Massey, *Shift-register
synthesis and BCH decoding*, 1969). Arrays hold Python's whole numbers, so that a step is one operation on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PRIME: Final = 2**256 + 297  # the least above 2^256

Point = tuple[int, int]
"""A place and the value there."""


@dataclass(frozen=True)
class Polynomial:
    """A polynomial c_0 + c_1 (x - x_0) + c_2 (x - x_0)(x - x_1) + ..: Newton's form.

    Attributes:
        places: x_0, x_1 and so on.
        differences: c_0, c_1 and so on, divided differences of the values at these places.
    """

    places: Sequence[int]
    differences: Sequence[int]

    @classmethod
    def through(cls, points: Sequence[Point]) -> Polynomial:
        """Return the polynomial of least degree through points at different places."""
        places, held = (_numbers(each) for each in zip(*points, strict=True))
        for k in range(1, len(points)):
            held[k:] = (held[k:] - held[k - 1 : -1]) * _small_inverses(places[k:] - places[:-k]) % PRIME
        return cls(places.tolist(), held.tolist())

    def at(self, places: Sequence[int]) -> list[int]:
        """Return the values at some places, by Horner's rule."""
        where = _numbers(places)
        values = 0 * where
        for place, difference in zip(reversed(self.places), reversed(self.differences), strict=True):
            values = (values * (where - place) + difference) % PRIME
        return list(values)

    def missed(self, points: Sequence[Point]) -> list[int]:
        """Return the places of points that are not on it, where it was not made from the points at its own places."""
        further = [point for point in points if point[0] not in self.places]
        values = self.at([x for x, _ in further])
        return [x for (x, y), value in zip(further, values, strict=True) if y != value]


def nearest(points: Sequence[Point], n_coefficients: int) -> Polynomial | None:
    """Return the polynomial that misses at most (n - n_coefficients) / 2 of n points at places above 0.

    If there is none, None or another one is returned: whoever uses it counts what it misses.
    """
    places = _numbers([x for x, _ in points])
    recurrence = _shortest_recurrence(_syndromes(places, _numbers([y for _, y in points]), n_coefficients))
    roots = 0 * places
    for coefficient in recurrence:
        roots = (roots * places + coefficient) % PRIME
    right = [point for point, root in zip(points, roots, strict=True) if root]
    return Polynomial.through(right[:n_coefficients]) if len(right) >= n_coefficients else None


def _syndromes(places: NDArray[Any], values: NDArray[Any], n_coefficients: int) -> list[int]:
    """Return sums of y x^i / w(x) over the points, w(x) the product of x - z over the other places z.

    All are zero if and only if the values are those of one polynomial with so many coefficients.
    """
    products = 0 * places + 1
    for k, place in enumerate(places):
        apart = places - place
        apart[k] = 1
        products = products * apart % PRIME
    terms = values * _numbers([pow(each, -1, PRIME) for each in products]) % PRIME
    found = []
    for _ in range(len(places) - n_coefficients):
        found.append(int(terms.sum()) % PRIME)
        terms = terms * places % PRIME
    return found


def _shortest_recurrence(terms: Sequence[int]) -> list[int]:
    """Return c_0 = 1, c_1, .. c_L of the least L with c_0 s_n + c_1 s_(n-1) + .. + c_L s_(n-L) = 0 for all n >= L."""
    now, before, length, gap, last = [1], [1], 0, 1, 1
    for n, _ in enumerate(terms):
        error = sum(each * terms[n - k] for k, each in enumerate(now)) % PRIME
        if not error:
            gap += 1
            continue
        factor = error * pow(last, -1, PRIME) % PRIME
        better = now + [0] * (gap + len(before) - len(now))
        for k, each in enumerate(before):
            better[gap + k] = (better[gap + k] - factor * each) % PRIME
        if 2 * length <= n:
            before, length, gap, last = now, n + 1 - length, 1, error
        else:
            gap += 1
        now = better
    return (now + [0] * (length + 1 - len(now)))[: length + 1]


def _numbers(values: Sequence[int]) -> NDArray[Any]:
    """Return whole numbers of any size as an array."""
    held = np.empty(len(values), object)
    held[:] = values
    return held


@lru_cache(maxsize=1 << 16)
def _inverse(number: int) -> int:
    return pow(number, -1, PRIME)


def _small_inverses(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return the inverses of differences of places, of which there are few."""
    return _numbers([_inverse(each) for each in numbers])

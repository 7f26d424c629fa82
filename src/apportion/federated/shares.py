"""Shamir's secret sharing of 32 bytes over a prime field: any `threshold` shares give the secret, fewer give nothing.

A secret s is the constant term of a polynomial f(x) = s + a_1 x + .. + a_(t-1) x^(t-1) modulo the least prime above
2^256, with coefficients drawn uniformly. The holder at position k gets f(k + 1).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from apportion.errors import InputError

PRIME: Final = 2**256 + 297
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33


def divided(secret: bytes, holders: Iterable[int], threshold: int) -> dict[int, bytes]:
    """Return one share for each holder, of which `threshold` give the secret.

    Args:
        secret: 32 bytes.
        holders: positions of the holders, from 0.
        threshold: number of shares that the secret can be joined from.

    >>> parts = divided(bytes(31) + b"x", range(5), 3)
    >>> joined({k: parts[k] for k in (0, 2, 4)}, 3)[-1:]
    b'x'
    """
    if len(secret) != SECRET_BYTES:
        raise InputError(f"Expected a secret of {SECRET_BYTES} bytes, got {len(secret)}.", argument="secret")
    positions = list(holders)
    if not 1 <= threshold <= len(positions):
        raise InputError(f"Expected a threshold from 1 to {len(positions)}, got {threshold}.", argument="threshold")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {each: _value(coefficients, each + 1).to_bytes(SHARE_BYTES, "big") for each in positions}


def joined(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from shares by holder. Exactly `threshold` of them are used; further ones must agree."""
    if len(shares) < threshold:
        raise InputError(f"Expected at least {threshold} shares of a secret, got {len(shares)}.", argument="shares")
    points = [(each + 1, int.from_bytes(share, "big")) for each, share in sorted(shares.items())]
    used = points[:threshold]
    weights = _weights(tuple(x for x, _ in used), 0)
    value = sum(weight * y for weight, (_, y) in zip(weights, used, strict=True)) % PRIME
    if value >= 1 << 8 * SECRET_BYTES or not _agrees(used, points[threshold : threshold + 1]):
        raise InputError("Expected shares of one secret, got shares that do not belong together.", argument="shares")
    return value.to_bytes(SECRET_BYTES, "big")


def corrected(shares: Mapping[int, bytes], threshold: int) -> tuple[bytes, tuple[int, ...]]:
    """Return the secret, and the holders whose shares are seen not to be of it, as long as they are few.

    Where the first shares agree, the others are not looked at, to save time.

    With n shares, up to (n - threshold) / 2 wrong ones leave one polynomial that all others lie on. It is looked for
    through groups of `threshold` shares that have none in common, so one of n / threshold groups must be without a
    wrong share.

    >>> parts = divided(bytes(31) + b"x", range(5), 2)
    >>> secret, wrong = corrected({**parts, 1: bytes(33)}, 2)
    >>> secret[-1:], wrong
    (b'x', (1,))
    """
    try:
        return joined(shares, threshold), ()
    except InputError:
        if len(shares) < threshold:
            raise
    points = [(each + 1, int.from_bytes(share, "big")) for each, share in sorted(shares.items())]
    for first in range(0, len(points) - threshold + 1, threshold):
        used = points[first : first + threshold]
        weights = _weights(tuple(x for x, _ in used), 0)
        value = sum(weight * y for weight, (_, y) in zip(weights, used, strict=True)) % PRIME
        wrong = tuple(x - 1 for x, y in points if not _agrees(used, [(x, y)]))
        if value < 1 << 8 * SECRET_BYTES and 2 * len(wrong) <= len(points) - threshold:
            return value.to_bytes(SECRET_BYTES, "big"), wrong
    raise InputError("Expected shares of one secret, got shares that do not belong together.", argument="shares")


def _agrees(used: list[tuple[int, int]], further: list[tuple[int, int]]) -> bool:
    """Whether one further share lies on the polynomial of those used. If it does not, some share is wrong."""
    for x, y in further:
        weights = _weights(tuple(each for each, _ in used), x)
        if sum(weight * held for weight, (_, held) in zip(weights, used, strict=True)) % PRIME != y:
            return False
    return True


def _value(coefficients: list[int], x: int) -> int:
    """Evaluate a polynomial by Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value


@lru_cache(maxsize=64)
def _weights(points: tuple[int, ...], at: int) -> list[int]:
    """Return Lagrange's weights of values at the points for the value at another."""
    weights = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * (at - other) % PRIME, below * (x - other) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights

"""Shamir's secret sharing of 32 bytes over a prime field: any `threshold` shares give the secret, fewer give nothing.

A secret s is the constant term of a polynomial f(x) = s + a_1 x + .. + a_(t-1) x^(t-1) modulo the least prime above
2^256, with coefficients drawn uniformly. The holder at position k gets f(k + 1).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from apportion.errors import InputError
from apportion.federated.polynomials import PRIME, Point, Polynomial, nearest

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
    """Return the secret from shares by holder, at least `threshold`. All of them must be of one secret."""
    secret, wrong = corrected(shares, threshold)
    if wrong:
        raise _apart()
    return secret


def corrected(
    shares: Mapping[int, bytes], threshold: int, doubted: Collection[int] = ()
) -> tuple[bytes, tuple[int, ...]]:
    """Return the secret, and the holders whose shares are not of it, as long as they are few.

    All shares are compared. With n of them, at most one polynomial has all but (n - threshold) / 2 shares on it. The
    one through `threshold` shares is tried first; if it is not that one, it is found as in a Reed-Solomon code.

    Args:
        shares: by holder.
        threshold: number of shares that the secret can be joined from.
        doubted: holders whose shares of other secrets were wrong. Theirs are not tried first, which saves time.

    >>> parts = divided(bytes(31) + b"x", range(5), 2)
    >>> secret, wrong = corrected({**parts, 1: bytes(33)}, 2)
    >>> secret[-1:], wrong
    (b'x', (1,))
    """
    if len(shares) < threshold:
        raise InputError(f"Expected at least {threshold} shares of a secret, got {len(shares)}.", argument="shares")
    order = sorted(shares, key=lambda each: (each in doubted, each))
    points = [(each + 1, int.from_bytes(shares[each], "big") % PRIME) for each in order]
    found = _secret_of(Polynomial.through(points[:threshold]), points, threshold)
    found = found or _secret_of(nearest(points, threshold), points, threshold)
    if found is None:
        raise _apart()
    return found


def _secret_of(found: Polynomial | None, points: list[Point], threshold: int) -> tuple[bytes, tuple[int, ...]] | None:
    """Return the secret of a polynomial, and the holders whose points it misses; None if they are too many."""
    if found is None:
        return None
    value, wrong = found.at([0])[0], found.missed(points)
    if value >= 1 << 8 * SECRET_BYTES or 2 * len(wrong) > len(points) - threshold:
        return None
    return value.to_bytes(SECRET_BYTES, "big"), tuple(sorted(x - 1 for x in wrong))


def _apart() -> InputError:
    return InputError("Expected shares of one secret, got shares that do not belong together.", argument="shares")


def _value(coefficients: list[int], x: int) -> int:
    """Evaluate a polynomial by Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value

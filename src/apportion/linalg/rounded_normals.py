"""Whole numbers with exact noise: sum + scale · normal, rounded to the nearest whole number without any error.

A key fixes an endless string of random bits for each normal number, and so a real number Z that is exactly normal
(Box-Muller). Its first 104 bits give Z up to a known error (docs/proofs/exact.md), which nearly always determines the
rounded value of sum + scale · Z. Otherwise more bits are read, and the number is computed to more digits, until it is
determined. So the result is distributed exactly as the rounded sum of the whole number and a true normal number.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg import chacha, kernel
from apportion.linalg.backend import active_backend

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_SHIFT = 52
LARGEST_SCALE = 2.0**40
_FURTHER_BITS = 256  # bits read at a time if the first 52 do not suffice
_DIGITS = 140
_BATCHES = 512  # numbers at a time in the NumPy path


def add_rounded_normals(sums: Counts, shift: int, scales: Floats, key: bytes, *, threads: int | None = None) -> Counts:
    """Return sums / 2^shift + scale · normal, each to the nearest whole number.

    Args:
        sums: int64, contiguous; the scales repeat along its entries.
        shift: the shift, from 0 to 52.
        scales: standard deviations, in units of the result.
        key: 32 bytes, secret and never used before.
        threads: number of threads; None is all.
    """
    if not 0 <= shift <= MOST_SHIFT:
        raise InputError(f"Expected a shift from 0 to {MOST_SHIFT}, got {shift}.", argument="shift")
    if len(key) != 32:
        raise InputError(f"Expected a key of 32 bytes, got {len(key)}.", argument="key")
    if scales.size == 0 or sums.size % scales.size or not ((scales > 0) & (scales < LARGEST_SCALE)).all():
        raise InputError(
            "Expected positive scales below 2^40, a whole number of times as many sums as scales.", argument="scales"
        )
    out, doubtful = np.empty(sums.shape, np.int64), np.zeros(sums.size, np.uint8)
    flat, held = out.reshape(-1), np.ascontiguousarray(sums)
    if active_backend() == "compiled":
        kernel.rounded_normals(held, shift, np.ascontiguousarray(scales), bytes(key), out, doubtful, threads=threads)
    else:
        _by_numpy(held.reshape(-1), shift, scales.reshape(-1), bytes(key), flat, doubtful)
    every = scales.reshape(-1)
    for at in np.flatnonzero(doubtful):
        sum_, scale = int(held.reshape(-1)[at]), float(every[at % every.size])
        flat[at] = wrapped(settled(sum_, shift, scale, bytes(key), int(at)))
    return in_range(out, shift)


def in_range(numbers: Counts, shift: int) -> Counts:
    """Wrap around to 64 - shift bits. That much of the result is known if the sum is known modulo 2^64."""
    return np.asarray((numbers.view(np.uint64) << np.uint64(shift)).view(np.int64) >> np.int64(shift))


def wrapped(number: int) -> int:
    """Wrap around to 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def settled(sum_: int, shift: int, scale: float, key: bytes, at: int) -> int:
    """Do the same for one entry, by reading bits and computing digits until there is no doubt."""
    batch, within = divmod(at, chacha.NORMALS_AT_A_TIME)
    pair, within = divmod(within, 2 * chacha.BLOCKS_AT_A_TIME)
    is_sine, lane = divmod(within, chacha.BLOCKS_AT_A_TIME)
    counter = batch * chacha.BLOCKS_AT_A_TIME + lane
    words = np.ascontiguousarray(chacha.chacha20_blocks(key, counter, 1)).view("<u8")[0] >> np.uint64(12)
    level, turn, bits = int(words[pair]), int(words[4 + pair]), 52
    nonce = 1 + pair  # further bits come from other streams of the same block, the same for both numbers of a pair
    while True:
        with localcontext(Context(prec=_DIGITS + bits)):
            normal, error = _normal(level, turn, bits, is_sine=bool(is_sine))
            exact = Decimal(sum_) / Decimal(2) ** shift + Decimal(scale) * normal
            low, high = (nearest(exact + sign * Decimal(scale) * error) for sign in (-1, 1))
        if low == high:
            return low
        more = chacha.chacha20_blocks(key, counter, 1, nonce)[0].tobytes()
        level = level << _FURTHER_BITS | int.from_bytes(more[:32], "little")
        turn = turn << _FURTHER_BITS | int.from_bytes(more[32:], "little")
        bits, nonce = bits + _FURTHER_BITS, nonce + 4


def _normal(level: int, turn: int, bits: int, *, is_sine: bool) -> tuple[Decimal, Decimal]:
    """Return the normal number in the middle of all continuations of these bits, and its largest error."""
    size, half = Decimal(2) ** bits, Decimal("0.5")
    uniform, angle = (level + half) / size, 2 * _PI * (turn + half) / size
    if level == 0:
        return Decimal(0), Decimal(1000 + bits)  # beyond any bound, so that more bits are read
    radius = (-2 * uniform.ln()).sqrt()
    normal = radius * (_cosine(angle - _PI / 2) if is_sine else _cosine(angle))
    of_bits = half / size * (2 / (uniform * radius) + 2 * _PI * (radius + 1))
    return normal, 2 * of_bits + Decimal(10) ** (20 - _DIGITS)


def _cosine(angle: Decimal) -> Decimal:
    """Compute the cosine by its series, for an angle within ±7."""
    total, term, k = Decimal(0), Decimal(1), 0
    while abs(term) > Decimal(10) ** -(_DIGITS + 10) or k < 16:
        total += term
        k += 2
        term = -term * angle * angle / (k * (k - 1))
    return total


def nearest(value: Decimal) -> int:
    """Return the nearest whole number."""
    return int((value + Decimal("0.5")).to_integral_value(rounding="ROUND_FLOOR"))


def _pi() -> Decimal:
    """Compute π to the digits needed, by Machin's formula."""
    with localcontext(Context(prec=_DIGITS + 20)):
        return +(16 * _arctan_of_inverse(5) - 4 * _arctan_of_inverse(239))


def _arctan_of_inverse(whole: int) -> Decimal:
    total, power, k = Decimal(0), Decimal(1) / whole, 0
    while power > Decimal(10) ** -(_DIGITS + 20):
        total += (-1) ** k * power / (2 * k + 1)
        power /= whole * whole
        k += 1
    return total


_PI = _pi()


def _by_numpy(sums: Counts, shift: int, scales: Floats, key: bytes, out: Counts, doubtful: NDArray[np.uint8]) -> None:
    step = _BATCHES * chacha.NORMALS_AT_A_TIME
    for first in range(0, sums.size, step):
        part = slice(first, min(first + step, sums.size))
        count = part.stop - first
        batches = -(-count // chacha.NORMALS_AT_A_TIME)
        counter = first // chacha.NORMALS_AT_A_TIME * chacha.BLOCKS_AT_A_TIME
        normal, spread = (each.reshape(-1)[:count] for each in chacha.normals_and_spreads(key, counter, batches))
        scale = scales[np.arange(part.start, part.stop) % scales.size]
        noisy = (sums[part] & ((1 << shift) - 1)) * math.ldexp(1.0, -shift) + scale * normal
        rounded = np.rint(noisy)
        error = scale * spread + np.abs(noisy) * 2.0**-51 + 2.0**-51
        out[part] = (sums[part] >> shift) + rounded.astype(np.int64)
        doubtful[part] = ~(0.5 - np.abs(noisy - rounded) > error)

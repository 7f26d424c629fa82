"""Whole numbers with exact Laplace noise, like `rounded_normals` with normal noise.

A Laplace number is ± log(1 / U) for U uniform on (0, 1). 52 bits of U and one bit for the sign nearly always determine
the rounded sum. Otherwise further bits of U are read.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext

import numpy as np

from apportion.errors import InputError
from apportion.linalg import chacha
from apportion.linalg.rounded_normals import LARGEST_SCALE, MOST_SHIFT, Counts, in_range, nearest, wrapped

_PER_BLOCK = 4  # numbers at a time, of two words each
_FURTHER_BITS = 256


def add_rounded_laplace(sums: Counts, shift: int, scale: float, key: bytes) -> Counts:
    """Return sums / 2^shift + Laplace(scale), each to the nearest whole number.

    Args:
        sums: the sums, int64.
        shift: the shift, from 0 to 52.
        scale: the scale of the noise, in units of the result.
        key: 32 bytes, secret and never used before.
    """
    if not (0 <= shift <= MOST_SHIFT and 0 < scale < LARGEST_SCALE and len(key) == 32):
        raise InputError(
            f"Expected a shift from 0 to {MOST_SHIFT}, a scale below 2^40 and a key of 32 bytes.", argument=None
        )
    flat = np.ascontiguousarray(sums, np.int64).reshape(-1)
    words = chacha.chacha20_blocks(bytes(key), 0, -(-flat.size // _PER_BLOCK))
    pairs = np.ascontiguousarray(words).view("<u8").reshape(-1, 2)[: flat.size]
    levels, signs = pairs[:, 0] >> np.uint64(12), np.where(pairs[:, 1] >> np.uint64(63), -1.0, 1.0)
    uniforms = (levels + 0.5) * 2.0**-52
    draws = -np.log(uniforms)
    noisy = (flat & ((1 << shift) - 1)) * math.ldexp(1.0, -shift) + signs * scale * draws
    rounded = np.rint(noisy)
    spread = np.where(levels == 0, np.inf, draws * 2.0**-46 + 2.0**-52 / uniforms)
    error = scale * spread + np.abs(noisy) * 2.0**-51 + 2.0**-51
    out = (flat >> shift) + rounded.astype(np.int64)
    for at in np.flatnonzero(~(0.5 - np.abs(noisy - rounded) > error)):
        sum_, level, sign = int(flat[at]), int(levels[at]), int(signs[at])
        out[at] = wrapped(settled(sum_, shift, sign * scale, level, bytes(key), int(at)))
    return np.asarray(in_range(out, shift).reshape(sums.shape))


def settled(sum_: int, shift: int, signed_scale: float, level: int, key: bytes, at: int) -> int:
    """Do the same for one entry whose first 52 bits are `level`, reading on until there is no doubt."""
    bits, nonce = 52, 1 + at % _PER_BLOCK
    while True:
        with localcontext(Context(prec=60 + bits)):
            size = Decimal(2) ** bits
            base, factor = Decimal(sum_) / Decimal(2) ** shift, Decimal(signed_scale)
            ends = [nearest(base - factor * ((level + end) / size).ln()) for end in (0, 1) if level + end]
        if len(ends) == 2 and ends[0] == ends[1]:
            return ends[0]
        more = chacha.chacha20_blocks(key, at // _PER_BLOCK, 1, nonce)[0].tobytes()
        level = level << _FURTHER_BITS | int.from_bytes(more[:32], "little")
        bits, nonce = bits + _FURTHER_BITS, nonce + _PER_BLOCK

"""ChaCha20 (RFC 8439, section 2.3) and normal numbers made from it, in NumPy.

This is the reference for the compiled generator, and runs without it. The same key gives the same normal numbers on
both, up to rounding. The counter has 64 bits, as in the cipher's first publication; the RFC's first nonce word is the
upper half of the counter, so its test vectors apply.

A block holds eight 64-bit words. Words 0..3 give radii r = sqrt(-2 log u), words 4..7 angles 2 pi t, and
each pair the two normal numbers r cos and r sin (Box-Muller). u = (k + 1/2) / 2^52 and t = k / 2^52 for
the upper 52 bits k of a word; no number exceeds 8.6 in size (the true chance of one that does is 1e-17).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCKS_AT_A_TIME = 16
NORMALS_AT_A_TIME = 8 * BLOCKS_AT_A_TIME
_CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")


def chacha20_blocks(key: bytes, counter: int, n_blocks: int, nonce: int = 0) -> NDArray[np.uint32]:
    """Return words [n_blocks, 16] of the blocks counter, counter + 1, ...

    Args:
        key: 32 bytes.
        counter: number of the first block, 64 bits.
        n_blocks: how many blocks.
        nonce: 64 bits.
    """
    counters = np.uint64(counter) + np.arange(n_blocks, dtype=np.uint64)
    return chacha20_at(key, counters, np.full(n_blocks, nonce, np.uint64))


def chacha20_at(key: bytes, counters: NDArray[np.uint64], nonces: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return words [n, 16] of the blocks that each have their own counter and nonce."""
    start = np.empty((16, len(counters)), dtype=np.uint32)
    start[:4] = _CONSTANTS[:, None]
    start[4:12] = np.frombuffer(key, dtype="<u4")[:, None]
    for row, numbers in ((12, counters), (14, nonces)):
        start[row], start[row + 1] = numbers & np.uint64(0xFFFFFFFF), numbers >> np.uint64(32)
    x = start.copy()
    for _ in range(10):
        _quarter_rounds(x[:4], x[4:8], x[8:12], x[12:])
        turned = [np.roll(x[4 * i : 4 * i + 4], -i, axis=0) for i in range(4)]
        _quarter_rounds(*turned)
        for i in range(4):
            x[4 * i : 4 * i + 4] = np.roll(turned[i], i, axis=0)
    return (x + start).T


def _quarter_rounds(a: NDArray[np.uint32], b: NDArray[np.uint32], c: NDArray[np.uint32], d: NDArray[np.uint32]) -> None:
    """Do four quarter rounds side by side, in place."""
    for bits_d, bits_b in ((16, 12), (8, 7)):
        a += b
        d ^= a
        _rotate(d, bits_d)
        c += d
        b ^= c
        _rotate(b, bits_b)


def _rotate(x: NDArray[np.uint32], bits: int) -> None:
    high = x << np.uint32(bits)
    x >>= np.uint32(32 - bits)
    x |= high


def normals(key: bytes, counter: int, n_batches: int) -> NDArray[np.float64]:
    """Return normal numbers [n_batches, NORMALS_AT_A_TIME] from BLOCKS_AT_A_TIME blocks each."""
    return normals_and_spreads(key, counter, n_batches)[0]


def normals_and_spreads(key: bytes, counter: int, n_batches: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return normal numbers, and a bound on their distance from the values that any further bits could give."""
    words = chacha20_blocks(key, counter, n_batches * BLOCKS_AT_A_TIME)
    bits = np.ascontiguousarray(words).view("<u8") >> np.uint64(12)
    uniforms = (bits[:, :4] + 0.5) * 2.0**-52
    radii = np.sqrt(-2.0 * np.log(uniforms))
    angles = bits[:, 4:] * (2.0 * np.pi * 2.0**-52)
    spreads = np.where(uniforms < 2.0**-52, np.inf, radii * 2.0**-46 + 2.0**-52 / (uniforms * radii))
    pairs = np.stack([radii * np.cos(angles), radii * np.sin(angles)])  # [2, blocks, 4]
    return _in_batches(pairs, n_batches), _in_batches(np.stack([spreads, spreads]), n_batches)


def _in_batches(pairs: NDArray[np.float64], n_batches: int) -> NDArray[np.float64]:
    by_batch = pairs.reshape(2, n_batches, BLOCKS_AT_A_TIME, 4)
    return by_batch.transpose(1, 3, 0, 2).reshape(n_batches, NORMALS_AT_A_TIME)

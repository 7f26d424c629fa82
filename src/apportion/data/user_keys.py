"""Numbers that depend only on a user: on its id alone, or on its id, a task and a public seed."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data.vocabulary import Vocabulary, is_plain_integer
from apportion.linalg import keyed_words

Keys = NDArray[np.uint64]


def sampling_keys(user_ids: Vocabulary) -> Keys:
    """Return two numbers for each user from its id alone, [n_users, 2], for Poisson samples.

    Whole numbers are their own keys, even if they are stored as text because another user's id is text. Other text is
    hashed to 127 bits, so that nobody can choose two ids that are always sampled together; the last bit separates it
    from whole numbers.
    """
    if user_ids.holds_text:
        keys = np.frombuffer(b"".join(_key_of_text(str(name)) for name in user_ids), "<u8")
        return keys.reshape(-1, 2).astype(np.uint64)
    ids = np.asarray(user_ids.ids).astype(np.uint64)
    return np.stack([ids, np.zeros_like(ids)], axis=1)


def seeded_keys(keys: Keys, seed: int) -> Keys:
    """Return one number per user from its two keys and a public seed, because codes depend on other users."""
    return keyed_words((seed % 2**256).to_bytes(32, "little"), keys)


def pair_keys(keys: Keys, owner: NDArray[Any], tasks: NDArray[Any], seed: int) -> Keys:
    """Hash (user, task, seed) of each observation, so that a user's sample of tasks does not depend on other users.

    The sample need not be secret: whichever tasks are kept, the user's weights are within the bound. So ChaCha20
    computes one number per user, and a mixer (the finaliser of SplitMix64) derives those of the user's tasks.

    Args:
        keys: two numbers for each user.
        owner: position of each observation's user among them.
        tasks: the task of each observation: a code that does not depend on other users, or a hash.
        seed: a public seed.
    """
    return _mixed(seeded_keys(keys, seed)[owner] ^ (tasks.astype(np.uint64) * np.uint64(0xA24BAED4963EE407)))


def buckets_of(keys: Keys, bits: int) -> NDArray[np.int64]:
    """Return the first bits of a hash of each user, which decide where the user is stored. They need not be secret."""
    if not bits:
        return np.zeros(len(keys), np.int64)
    hashed = _mixed(keys[:, 0] ^ _mixed(keys[:, 1]))
    return (hashed >> np.uint64(64 - bits)).astype(np.int64)


def _mixed(words: Keys) -> Keys:
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _key_of_text(name: str) -> bytes:
    """Return 16 bytes. If the text is a plainly written whole number, they are the key of that number."""
    if is_plain_integer(name):
        return (int(name) % 2**64).to_bytes(8, "little") + bytes(8)
    digest = blake2b(name.encode(), digest_size=16).digest()
    return digest[:15] + bytes([digest[15] | 0x80])

"""Masks: long vectors of numbers modulo 2^64 from short secrets.

Two clients agree on a key by X25519. HKDF-SHA256 derives from it, and from what the key is for, 32 bytes that ChaCha20
expands. One client adds the pair's mask, the other subtracts it, so that it is gone from the sum.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from apportion.errors import InputError

Numbers = NDArray[np.uint64]
"""Whole numbers modulo 2^64."""

KEY_BYTES: Final = 32


class KeyPair:
    """A client's X25519 keys for one pass.

    Args:
        private: 32 secret bytes.
    """

    def __init__(self, private: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.private = private
        self.public = self._key.public_key().public_bytes_raw()
        self._agreed: dict[bytes, bytes] = {}

    def agreed(self, public: bytes, purpose: bytes) -> bytes:
        """Return the 32 bytes that this client and another have in common for one purpose.

        Args:
            public: the other's public key.
            purpose: what the key is for: the pass, the kind, the pair. Two purposes never share a key.
        """
        if public not in self._agreed:
            self._agreed[public] = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        return derived_key(self._agreed[public], purpose)

    def __repr__(self) -> str:
        return "KeyPair(secret)"


def is_public_key(key: bytes) -> bool:
    """Whether these bytes are a public key that others can agree on a secret with."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:  # of another length, or a point of small order
        return False
    return True


def derived_key(secret: bytes, purpose: bytes) -> bytes:
    """Return 32 bytes for one purpose from a secret."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=b"apportion masks 1|" + purpose).derive(secret)


def expanded(key: bytes, length: int) -> Numbers:
    """Return uniform numbers modulo 2^64: the key stream of ChaCha20. A key is used for one vector only."""
    if len(key) != KEY_BYTES:
        raise InputError(f"Expected a key of {KEY_BYTES} bytes, got {len(key)}.", argument="key")
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    return np.frombuffer(stream, "<u8").astype(np.uint64, copy=False)

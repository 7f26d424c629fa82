"""Masks: two clients agree on the same one, for one purpose, and its numbers are uniform."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import chi2

from apportion.errors import InputError
from apportion.federated.masks import KeyPair, expanded, is_public_key


def test_two_clients_agree_on_a_key_and_another_purpose_gives_another():
    ann, bob = KeyPair(os.urandom(32)), KeyPair(os.urandom(32))
    assert ann.agreed(bob.public, b"pair") == bob.agreed(ann.public, b"pair")
    assert ann.agreed(bob.public, b"pair") != ann.agreed(bob.public, b"shares")
    assert "secret" in repr(ann)


def test_expansion_is_the_key_stream_of_chacha20():
    # RFC 8439, appendix A.1, test vector 1: the key stream of the zero key, nonce and counter.
    first = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28")
    assert expanded(bytes(32), 2).astype("<u8").tobytes() == first


def test_every_byte_of_a_mask_is_uniform():
    # False alarm: 1e-9. Power: a byte value whose frequency is off by 10 % in 2^18 bytes adds 10.24 to a statistic
    # that has 255 degrees of freedom; 16 such values are found with a probability above 0.9.
    counts = np.bincount(expanded(os.urandom(32), 1 << 15).view(np.uint8), minlength=256)
    expected = (1 << 18) / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 255)


def test_a_short_key_is_refused():
    with pytest.raises(InputError, match="a key of 32 bytes, got 4"):
        expanded(b"seed", 3)


def test_points_of_small_order_and_other_bytes_are_no_public_keys():
    assert is_public_key(KeyPair(os.urandom(32)).public)
    assert not is_public_key(bytes(32))
    assert not is_public_key(b"short")

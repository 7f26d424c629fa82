"""Shamir's shares: enough give the secret, fewer are spread evenly whatever the secret, wrong ones are seen."""

from __future__ import annotations

import os
from itertools import combinations

import pytest

from apportion.errors import InputError
from apportion.federated.shares import PRIME, SHARE_BYTES, divided, joined


def test_any_shares_as_many_as_the_threshold_give_the_secret_and_more_do_too():
    for secret in (os.urandom(32), bytes(32), b"\xff" * 32):
        shares = divided(secret, (0, 3, 4, 7, 9), 3)
        for size in (3, 4, 5):
            for holders in combinations(shares, size):
                assert joined({each: shares[each] for each in holders}, 3) == secret


def test_fewer_shares_than_the_threshold_are_refused():
    shares = divided(os.urandom(32), range(5), 3)
    with pytest.raises(InputError, match="at least 3 shares of a secret, got 2"):
        joined({each: shares[each] for each in (0, 1)}, 3)


def test_any_secret_fits_one_share_too_few():
    # Two shares of three, and any third point: the line through them exists for every secret, so they say nothing.
    shares = divided(os.urandom(32), range(3), 3)
    for guess in (bytes(32), os.urandom(32)):
        weights = {1: 3, 2: -3, 3: 1}  # of a parabola: f(0) = 3 f(1) - 3 f(2) + f(3)
        held = [int.from_bytes(shares[each], "big") for each in (0, 1)]
        third = (int.from_bytes(guess, "big") - weights[1] * held[0] - weights[2] * held[1]) % PRIME
        assert joined({0: shares[0], 1: shares[1], 2: third.to_bytes(SHARE_BYTES, "big")}, 3) == guess


def test_a_changed_share_is_seen_where_there_is_one_to_spare():
    shares = divided(os.urandom(32), range(4), 3)
    shares[1] = bytes([shares[1][0], shares[1][1] ^ 1, *shares[1][2:]])
    with pytest.raises(InputError, match="do not belong together"):
        joined(shares, 3)


@pytest.mark.parametrize(
    ("secret", "threshold", "problem"),
    [(b"short", 2, "a secret of 32 bytes, got 5"), (bytes(32), 0, "from 1 to 3, got 0"), (bytes(32), 4, "got 4")],
)
def test_a_short_secret_and_an_impossible_threshold_are_refused(secret, threshold, problem):
    with pytest.raises(InputError, match=problem):
        divided(secret, range(3), threshold)

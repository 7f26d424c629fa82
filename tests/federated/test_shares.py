"""Shamir's shares: enough give the secret, fewer are spread evenly whatever the secret, wrong ones are seen."""

from __future__ import annotations

import os
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.federated.polynomials import PRIME
from apportion.federated.shares import SHARE_BYTES, corrected, divided, joined


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


def moved(shares, by):
    """Shares of the same holders, each with a number added to it."""
    held = {each: int.from_bytes(share, "big") for each, share in shares.items()}
    return {each: ((value + by(each + 1)) % PRIME).to_bytes(SHARE_BYTES, "big") for each, value in held.items()}


def test_holders_at_the_lowest_places_who_move_their_shares_together_are_seen():
    # The two add (x - 3)(x - 4), which is zero for the next two holders: the first four shares are of another secret.
    secret = os.urandom(32)
    shares = divided(secret, range(7), 3)
    false = {**shares, **moved({each: shares[each] for each in (0, 1)}, lambda x: (x - 3) * (x - 4))}
    assert joined({each: false[each] for each in range(4)}, 3) != secret
    with pytest.raises(InputError, match="do not belong together"):
        joined(false, 3)
    assert corrected(false, 3) == (secret, (0, 1))


@given(st.data())
def test_as_many_wrong_shares_as_half_of_those_to_spare_are_found_wherever_they_are(data):
    n_shares = data.draw(st.integers(1, 14))
    threshold = data.draw(st.integers(1, n_shares))
    holders = sorted(data.draw(st.sets(st.integers(0, 40), min_size=n_shares, max_size=n_shares)))
    few = st.sets(st.sampled_from(holders), max_size=(n_shares - threshold) // 2)
    wrong, doubted = sorted(data.draw(few)), data.draw(st.sets(st.sampled_from(holders)))
    shares = divided(bytes(range(32)), holders, threshold)
    false = {**shares, **moved({each: shares[each] for each in wrong}, lambda x: x + 1)}
    assert corrected(false, threshold, doubted) == (bytes(range(32)), tuple(wrong))


def test_more_wrong_shares_than_can_be_told_from_right_ones_are_refused():
    shares = divided(os.urandom(32), range(9), 4)
    with pytest.raises(InputError, match="do not belong together"):
        corrected({**shares, **{each: os.urandom(33) for each in (1, 4, 7)}}, 4)


def test_a_polynomial_that_gives_no_secret_is_refused():
    with pytest.raises(InputError, match="do not belong together"):
        joined(dict.fromkeys(range(5), (PRIME - 1).to_bytes(SHARE_BYTES, "big")), 2)


@pytest.mark.parametrize(
    ("secret", "threshold", "problem"),
    [(b"short", 2, "a secret of 32 bytes, got 5"), (bytes(32), 0, "from 1 to 3, got 0"), (bytes(32), 4, "got 4")],
)
def test_a_short_secret_and_an_impossible_threshold_are_refused(secret, threshold, problem):
    with pytest.raises(InputError, match=problem):
        divided(secret, range(3), threshold)

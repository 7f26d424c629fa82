"""Partial sums: they add up, only the reducer of their own pass takes them, and nobody reads them."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import raw_steps
from apportion.engines import LocalEngine, Processors
from apportion.errors import InputError
from apportion.privacy.contributions import Channel, PartialSums
from contribution_cases import CONTRIBUTIONS, users_of

from strategies import random_interactions

ALL = [make() for make in CONTRIBUTIONS.values()]
CHANNEL = Channel(bytes(range(32)))


def users(n_users=30):
    return users_of(random_interactions(3, n_users=n_users))


def partial(some, contributions=ALL, *, exact=True):
    return PartialSums.over(some, contributions, Processors(np.float64, exact=exact))


def steps(sums):
    return [raw_steps(each) for each in sums.sealed(ALL)]


MESSAGE = partial(users()).to_wire(CHANNEL)


@given(number=st.integers(1, 9), order=st.randoms(use_true_random=False), grouping=st.integers(1, 8))
@settings(max_examples=15)
def test_partial_sums_add_up_to_the_same_in_any_order_and_grouping(number, order, grouping):
    parts = [partial(run) for run in users().cut(number)]
    order.shuffle(parts)
    cut = min(grouping, number)
    first, *rest = parts[:cut]
    for each in rest:
        first = first + each
    if parts[cut:]:
        second, *others = parts[cut:]
        for each in others:
            second = second + each
        first = second + first
    whole = LocalEngine(np.float64, exact=True).add_up(users(), ALL)
    for one, two in zip(steps(first), whole, strict=True):
        np.testing.assert_array_equal(one, raw_steps(two))


def test_what_was_sent_is_what_arrives():
    sent = partial(users())
    arrived = PartialSums.from_wire(sent.to_wire(CHANNEL), Channel(CHANNEL.secret))
    for one, two in zip(sent.sealed(ALL), arrived.sealed(ALL), strict=True):
        np.testing.assert_array_equal(raw_steps(one), raw_steps(two))
        assert (one.step, one.l2_sensitivity, one.derivation) == (two.step, two.l2_sensitivity, two.derivation)
    none = PartialSums.from_wire(partial(users(), []).to_wire(CHANNEL), CHANNEL)
    assert none.sealed([]) == []


def test_a_message_of_another_channel_is_refused():
    for channel in (Channel(), Channel(bytes(32)), Channel(CHANNEL.secret[:-1] + b"\0")):
        with pytest.raises(InputError, match="bytes that none of its workers sent"):
            PartialSums.from_wire(MESSAGE, channel)
    assert Channel().secret != Channel().secret
    assert len(Channel().secret) == 32


@given(place=st.integers(0, len(MESSAGE) - 1), bit=st.integers(0, 7))
@settings(max_examples=200)
def test_a_message_with_any_bit_flipped_is_refused(place, bit):
    changed = bytearray(MESSAGE)
    changed[place] ^= 1 << bit
    with pytest.raises(InputError, match="bytes that none of its workers sent"):
        PartialSums.from_wire(bytes(changed), CHANNEL)


@pytest.mark.parametrize("message", [b"", MESSAGE[:31], MESSAGE[:-1], MESSAGE + b"\0", MESSAGE[32:]])
def test_a_message_that_is_too_short_or_too_long_is_refused(message):
    with pytest.raises(InputError, match="bytes that none of its workers sent"):
        PartialSums.from_wire(message, CHANNEL)


def test_a_worker_that_was_wrong_about_its_own_bytes_is_refused():
    """Bytes that were damaged before they were sealed."""
    body = CHANNEL.opened(MESSAGE)
    with pytest.raises(InputError, match="checksum of these does not match"):
        PartialSums.from_wire(CHANNEL.sealed(body[:-1] + bytes([body[-1] ^ 1])), CHANNEL)


def test_a_pickle_in_a_message_is_not_loaded(tmp_path):
    np.savez(tmp_path / "bad.npz", n_users=np.int64(1), **{"0.0": np.array([json], dtype=object, copy=True)[:0]})
    content = (tmp_path / "bad.npz").read_bytes()
    message = CHANNEL.sealed(hashlib.blake2b(content, digest_size=16).digest() + content)
    with pytest.raises(ValueError, match="allow_pickle"):
        PartialSums.from_wire(message, CHANNEL)


def test_sums_in_floating_point_neither_add_up_nor_cross():
    """Their last bits would depend on how users were cut into runs."""
    one, two = (partial(run, exact=False) for run in users().cut(2))
    with pytest.raises(InputError, match="whole numbers in sums over several runs"):
        one + two
    with pytest.raises(InputError, match="whole numbers in sums that cross a process"):
        one.to_wire(CHANNEL)
    assert len(one.sealed(ALL)) == len(steps(partial(users())))


@pytest.mark.parametrize("number", [2**62, -(2**62), -(2**63), 2**63 - 1])
def test_sums_that_could_wrap_around_are_refused(number):
    large, small = (PartialSums([(np.array([each, 0]),)], 1) for each in (number, 1))
    for one, two in ((large, small), (small, large)):
        with pytest.raises(ArithmeticError, match="more steps than 64 bits hold"):
            one + two
    almost = PartialSums([(np.array([2**62 - 1, 1 - 2**62]),)], 1)
    assert (almost + almost)._sums[0][0].tolist() == [2**63 - 2, 2 - 2**63]


def test_sums_that_do_not_belong_together_are_refused():
    moments, grams = (CONTRIBUTIONS[name]() for name in ("moments", "grams"))
    with pytest.raises(InputError, match=r"of one shape, got \(9, 3\) and \(9, 6\)"):
        partial(users(), [moments]) + partial(users(), [grams])
    with pytest.raises(ValueError, match="zip"):
        partial(users(), ALL[1:2]) + partial(users(), ALL[1:3])
    with pytest.raises(ValueError, match="zip"):
        partial(users(), ALL[1:2]).sealed(ALL)


SEALED = [PartialSums.over(users(), ALL, Processors(np.float64, exact=True)), *partial(users()).sealed(ALL)]


@pytest.mark.parametrize("hidden", SEALED, ids=repr)
def test_sums_cannot_be_pickled_copied_iterated_or_converted(hidden):
    for read in (pickle.dumps, copy.copy, copy.deepcopy, np.asarray, list, iter, float, json.dumps):
        with pytest.raises(TypeError, match=r"private values|must be|not JSON serializable"):
            read(hidden)


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{!r:>10}".format])
def test_printing_shows_the_same_whatever_the_sums_are(show):
    nobody = users().run(0, 0)
    for one, two in zip(
        [partial(users()), *partial(users()).sealed(ALL)],
        [partial(nobody), *partial(nobody).sealed(ALL)],
        strict=True,
    ):
        assert "hidden" in show(one)
        assert show(one) == show(two)

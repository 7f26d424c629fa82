"""Partial sums that two real processes send to a third add up to the reference's whole numbers."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from apportion import linalg
from apportion.errors import InputError
from apportion.privacy.contributions import Channel, PartialSums
from engine_passes import FITS, differences, reference_passes
from wire_workers import send_partial_sums

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
SENT = [name for name in FITS if name != "ratings, sampled gradient, adaptive"]  # whose noise takes long to calibrate


@pytest.fixture(scope="module")
def workers():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield pool


def messages(workers, one, channel):
    """What two processes send, each of half of the users."""
    made = [
        workers.apply_async(send_partial_sums, (run, one.contributions, channel.secret)) for run in one.users.cut(2)
    ]
    return [each.get(timeout=300) for each in made]


def test_two_processes_send_sums_that_add_up_to_the_same(workers):
    seen = set()
    for one in (each for name in SENT for each in reference_passes(name)):
        channel = Channel()
        (first, here), (second, there) = messages(workers, one, channel)
        added = PartialSums.from_wire(second, channel) + PartialSums.from_wire(first, channel)
        sums = added.sealed(one.contributions)
        assert [differences(*both) for both in zip(one.sums, sums, strict=True)] == [[]] * len(one.sums), str(one)
        seen |= {here, there}
    assert os.getpid() not in seen
    assert 1 <= len(seen) <= 2


def test_a_message_of_the_pass_before_is_refused(workers):
    one, *_ = reference_passes("ratings")
    (first, _), (second, _) = messages(workers, one, Channel())
    for message in (first, second):
        with pytest.raises(InputError, match="bytes that none of its workers sent"):
            PartialSums.from_wire(message, Channel())

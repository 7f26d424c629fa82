"""Requests that wait together: each gets its own answer, a failing one fails alone, and too many are sent away."""

from __future__ import annotations

import asyncio

import pytest

from apportion.serving.batches import Batches
from apportion.serving.refusals import RefusedError


def ask_all(batches, requests):
    """Ask at once; returns answers or what was raised."""

    async def asked():
        return await asyncio.gather(*(batches.answer(each) for each in requests), return_exceptions=True)

    return asyncio.run(asked())


def test_requests_that_arrive_together_are_solved_together():
    sizes = []

    def solve(asked):
        sizes.append(len(asked))
        return [f"answer {each}".encode() for each in asked]

    assert ask_all(Batches(solve, 200), list(range(100))) == [f"answer {each}".encode() for each in range(100)]
    assert sizes == [64, 36]


def test_a_request_that_fails_fails_alone():
    def solve(asked):
        if "bad" in asked:
            raise ValueError("what a user likes")
        return [each.encode() for each in asked]

    batches = Batches(solve, 10)
    found = ask_all(batches, ["a", "bad", "c"])
    assert [found[0], type(found[1]), found[2]] == [b"a", ValueError, b"c"]
    assert batches.n_waiting == 0


def test_who_comes_when_too_many_wait_is_told_to_come_back():
    found = ask_all(Batches(lambda asked: [b"" for _ in asked], 3), range(5))
    assert found[:3] == [b""] * 3
    for refused in found[3:]:
        assert (refused.status, refused.headers) == (503, {"retry-after": "1"})
        with pytest.raises(RefusedError):
            raise refused

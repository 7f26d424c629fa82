"""Requests that arrive together are answered together.

They are solved in the event loop itself: the arithmetic of a batch takes a few milliseconds, less than the cost of
handing it to another thread and back under load. Requests that arrive meanwhile form the next batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from apportion.serving.refusals import RefusedError
from apportion.serving.requests import Asked

_MOST_AT_ONCE: Final = 64

Solve = Callable[[Sequence[Asked]], list[bytes]]
_Answer = bytes | Exception


class Batches:
    """A queue of requests. They are answered as soon as all that have arrived are in the queue.

    Args:
        solve: a function that answers several requests.
        most_waiting: how many requests may wait. Further clients are told to try again later.
    """

    def __init__(self, solve: Solve, most_waiting: int) -> None:
        self._solve, self._most_waiting = solve, most_waiting
        self._waiting: deque[tuple[Asked, asyncio.Future[_Answer]]] = deque()

    @property
    def n_waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting)

    async def answer(self, asked: Asked) -> bytes:
        """Return the answer to one request, which is solved together with all that wait at the time."""
        if len(self._waiting) >= self._most_waiting:
            raise RefusedError(503, "Too many requests are waiting; try again in a second.", {"retry-after": "1"})
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Answer] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._answer_some)
        self._waiting.append((asked, future))
        found = await future
        if isinstance(found, Exception):
            raise found
        return found

    def _answer_some(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._answer_some)
        for (_, future), answer in zip(batch, self._answers([asked for asked, _ in batch]), strict=True):
            if not future.done():
                future.set_result(answer)  # never set as an exception: one that nobody fetches would be logged

    def _answers(self, asked: list[Asked]) -> Sequence[_Answer]:
        """Return answers or errors. A request that fails does not affect the others."""
        try:
            return self._solve(asked)
        except Exception as error:
            if len(asked) == 1:
                return [error]
        return [self._answers([each])[0] for each in asked]

"""Requests that wait together are answered together, in one thread beside the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from apportion.serving.refusals import RefusedError
from apportion.serving.requests import Asked

_MOST_AT_ONCE: Final = 256

Solve = Callable[[Sequence[Asked]], list[bytes]]
_Answer = bytes | BaseException


class Batches:
    """A queue of requests and the task that answers them.

    Args:
        solve: answers several requests.
        most_waiting: how many may wait; one more is told to come back.
    """

    def __init__(self, solve: Solve, most_waiting: int) -> None:
        self._solve, self._most_waiting = solve, most_waiting
        self._waiting: deque[tuple[Asked, asyncio.Future[_Answer]]] = deque()
        self._n_open = 0
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._task: asyncio.Task[None] | None = None

    @property
    def n_waiting(self) -> int:
        """How many requests have no answer yet."""
        return self._n_open

    def start(self) -> None:
        """Begin to answer; called once, in the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop answering; whoever still waits is answered no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown()

    async def answer(self, asked: Asked) -> bytes:
        """The answer to one request, together with those that wait at the time."""
        if self._n_open >= self._most_waiting:
            raise RefusedError(503, "Too many requests are waiting; try again in a second.", {"retry-after": "1"})
        future: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        self._wake.set()
        self._n_open += 1
        try:
            found = await future
        finally:
            self._n_open -= 1
        if isinstance(found, BaseException):
            raise found
        return found

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            batch = [self._waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))]
            if not self._waiting:
                self._wake.clear()
            answers = await loop.run_in_executor(self._thread, self._answers, [asked for asked, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)  # never as an exception: one that nobody fetches would be logged

    def _answers(self, asked: list[Asked]) -> Sequence[_Answer]:
        """Answers, or what went wrong; a request that fails fails alone."""
        try:
            return self._solve(asked)
        except Exception as error:
            if len(asked) == 1:
                return [error]
        return [self._answers([each])[0] for each in asked]

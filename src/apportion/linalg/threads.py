"""The number of threads, and work on several pieces at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TypeVar

from apportion.errors import InputError

_one_of_several: ContextVar[bool] = ContextVar("apportion_linalg_one_of_several", default=False)
_MOST_SIDE_BY_SIDE = 16  # each of them needs memory

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def thread_count(threads: int | None = None) -> int:
    """Return the number of threads: the argument, or APPORTION_THREADS, or the processors we may use.

    It is 1 for work that already runs `side_by_side`.
    """
    if _one_of_several.get():
        return 1
    if threads is None:
        text = os.environ.get("APPORTION_THREADS", "")
        if not text:
            return _processors()
        if not text.isdecimal() or int(text) < 1:
            raise InputError(f"Expected APPORTION_THREADS to be a positive integer, got {text!r}.", argument=None)
        return int(text)
    if threads < 1:
        raise InputError(f"Expected threads >= 1, got {threads}.", argument="threads")
    return int(threads)


def side_by_side(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], threads: int | None = None
) -> Iterator[Result]:
    """Yield what `work` returns for each piece, in order. Several pieces are processed at a time, one per thread.

    Args:
        work: called in other threads, with the context of the caller (backend, instruction set, NumPy's error state).
        pieces: taken as they are needed, so that only a few are in memory.
        threads: number of threads; None is all.

    >>> list(side_by_side(abs, [-1, -2]))
    [1, 2]
    """
    several = min(thread_count(threads), _MOST_SIDE_BY_SIDE)
    if several == 1:
        yield from map(work, pieces)
        return
    with ThreadPoolExecutor(several) as pool:
        begun: deque[Future[Result]] = deque()
        try:
            for piece in pieces:
                begun.append(pool.submit(copy_context().run, _alone, work, piece))
                if len(begun) > several:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for each in begun:
                each.cancel()


def _alone(work: Callable[[Piece], Result], piece: Piece) -> Result:
    _one_of_several.set(True)
    return work(piece)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1

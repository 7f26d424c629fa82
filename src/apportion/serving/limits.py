"""Limits on one request, one client and all clients together."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apportion.errors import InputError

_ADDRESSES_KEPT: Final = 10_000
_BURST_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Limits:
    """Limits of the service.

    Attributes:
        body_bytes: the largest body of a request.
        rate: requests per second from one address; 0 for no limit. Twice as many may come at once.
        most_items: the largest `k`.
        waiting: requests that may wait for an answer at a time.
        connections: connections that may be open at a time.
        seconds: the time within which a request's head, and then its body, must arrive.
        answer_seconds: the time within which a client must have read its answer.

    >>> Limits(body_bytes=1000).rate
    100.0
    """

    body_bytes: int = 256 * 1024
    rate: float = 100.0
    most_items: int = 1000
    waiting: int = 1024
    connections: int = 2048
    seconds: float = 10.0
    answer_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("body_bytes", "most_items", "waiting", "connections", "seconds", "answer_seconds"):
            if not getattr(self, name) > 0:
                raise InputError(f"Expected {name} above 0, got {getattr(self, name)}.", argument=name)
        if not self.rate >= 0:
            raise InputError(f"Expected a rate of at least 0, got {self.rate}.", argument="rate")


class Rate:
    """A token bucket for each address, refilled at a rate; only the most recent addresses are kept.

    Args:
        rate: tokens per second; 0 lets everything through.
        clock: returns the time in seconds; for tests.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._most = max(1.0, _BURST_SECONDS * rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def seconds_to_wait(self, address: str) -> float:
        """Take a token; return 0 if there was one, otherwise the seconds until there will be."""
        if not self._rate:
            return 0.0
        now = self._clock()
        tokens, then = self._buckets.pop(address, (self._most, now))
        tokens = min(self._most, tokens + (now - then) * self._rate)
        allowed = tokens >= 1
        self._buckets[address] = (tokens - allowed, now)
        if len(self._buckets) > _ADDRESSES_KEPT:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self._rate

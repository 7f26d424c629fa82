"""Buckets that a worker process keeps between passes, so that their rows are not sent to it in every pass.

A bucket is kept under the token of what was read, its number and its checksum, as it was when it was checked. It is
forgotten when there is no room, when nobody has asked for it for a while, or when its process ends: Spark ends a worker
process that has had no task for a minute.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from apportion.engines.spark.buckets import Bucket

LONGEST = 600.0  # seconds without use

Key = tuple[bytes, int, str]
"""The token of what was read, the number of the bucket, and its checksum."""


@dataclass(eq=False, repr=False)
class _Entry:
    bucket: Bucket
    size: int
    used: float


class KeptBuckets:
    """Buckets by key, of so many bytes in all; those not used for longest go first.

    Args:
        clock: tells the time in seconds.

    Example:
        >>> from apportion.data.users import Users
        >>> nobody = Bucket(Users([0], {}), routes=None)
        >>> kept = KeptBuckets()
        >>> kept.put((b"token", 0, "checksum"), nobody, size=10, most=100)
        >>> kept.get((b"token", 0, "checksum")) is nobody, kept.get((b"token", 1, "checksum")) is None
        (True, True)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._lock = threading.Lock()  # some servers run several tasks in one process

    def get(self, key: Key) -> Bucket | None:
        """Return a bucket that is kept, or None."""
        with self._lock:
            self._drop_unused()
            entry = self._entries.get(key)
            if entry is None:
                return None
            entry.used = self._clock()
            self._entries.move_to_end(key)
            return entry.bucket

    def put(self, key: Key, bucket: Bucket, size: int, most: int) -> None:
        """Keep a bucket of so many bytes, if all that is kept may have that many."""
        with self._lock:
            self._drop_unused()
            if size > most:
                return
            self._entries.pop(key, None)
            while self._entries and size + sum(entry.size for entry in self._entries.values()) > most:
                self._entries.popitem(last=False)
            self._entries[key] = _Entry(bucket, size, self._clock())

    def _drop_unused(self) -> None:
        before = self._clock() - LONGEST
        while self._entries and next(iter(self._entries.values())).used < before:
            self._entries.popitem(last=False)

    def __repr__(self) -> str:
        return "KeptBuckets(values hidden)"


KEPT = KeptBuckets()
"""What this process keeps."""

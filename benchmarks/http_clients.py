"""Many clients of one service at once. Each sends its next request when the last one is answered."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Load:
    """What clients saw.

    Attributes:
        rate: answers a second.
        p99: seconds that all but one in a hundred answers took at most.
        failed: answers other than 200.
    """

    rate: float
    p99: float
    failed: int


def as_request(document: dict[str, Any]) -> bytes:
    """Return an HTTP/1.1 request for recommendations."""
    body = json.dumps(document).encode()
    head = f"POST /recommend HTTP/1.1\r\nHost: service\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def ask_at_once(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
    """Let this many clients ask for this long."""
    times: list[float] = []
    failed = asyncio.run(_all(port, itertools.cycle(requests), clients, seconds, times))
    return Load(len(times) / seconds, float(np.quantile(times, 0.99)), failed)


async def _all(port: int, requests: Iterator[bytes], clients: int, seconds: float, times: list[float]) -> int:
    until = time.perf_counter() + seconds
    return sum(await asyncio.gather(*(_client(port, requests, until, times) for _ in range(clients))))


async def _client(port: int, requests: Iterator[bytes], until: float, times: list[float]) -> int:
    failed = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (began := time.perf_counter()) < until:
        status, _ = await exchange(reader, writer, next(requests))
        times.append(time.perf_counter() - began)
        failed += status != 200
    writer.close()
    return failed


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """Send a request and read its answer."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


def ask_once(port: int, request: bytes) -> tuple[int, bytes]:
    """Return the status and the body of one answer."""

    async def asked() -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await exchange(reader, writer, request)
        finally:
            writer.close()

    return asyncio.run(asked())

"""Generated requests that a service must survive: huge, malformed, slow, of wrong types, or cut off.

All of them name items whose ids contain `MARK`, so that a log that quotes one of them can be detected.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

MARK: Final = "kept-secret-"
_HEAD: Final = b"POST /recommend HTTP/1.1\r\nHost: service\r\nContent-Type: application/json\r\n"
_ODD: Final[tuple[Any, ...]] = (None, True, -1, 0, 1e308, 10**40, "", "\ud800", [], {}, [[]], {"item": {}}, f"{MARK}x")


def item(rng: random.Random) -> str:
    """Return an id, often one that the model knows."""
    return f"{MARK}{rng.randrange(2500)}"


def history(rng: random.Random) -> list[Any]:
    """Return a history in which most entries are valid."""
    return [item(rng) if rng.random() < 0.98 else rng.choice(_ODD) for _ in range(rng.randrange(60))]


def wrong_types(rng: random.Random) -> bytes:
    """Return a request with odd values in odd places."""
    document: dict[Any, Any] = {"history": history(rng)}
    for name in rng.sample(("history", "k", "allow", "deny", "categories", "caps", item(rng)), 2):
        document[name] = rng.choice(_ODD) if rng.random() < 0.7 else {item(rng): rng.choice(_ODD)}
    return _with_length(json.dumps(document if rng.random() < 0.9 else [document]).encode())


def malformed(rng: random.Random) -> bytes:
    """Return a request with some of its bytes changed, dropped or doubled."""
    raw = bytearray(_with_length(json.dumps({"history": history(rng), "k": 5}).encode()))
    for _ in range(rng.randrange(1, 20)):
        place = rng.randrange(len(raw))
        raw[place : place + rng.randrange(2)] = bytes(rng.randrange(256) for _ in range(rng.randrange(3)))
    return bytes(raw)


def huge(rng: random.Random) -> bytes:
    """Return a body, a head or a nesting that is far too large, or a large one that is allowed."""
    size = rng.choice((10_000, 200_000, 400_000, 3_000_000))
    return rng.choice(
        (
            lambda: _with_length(json.dumps({"history": [item(rng) for _ in range(size // 20)]}).encode()),
            lambda: _with_length(b"[" * size),
            lambda: _with_length(b'{"history": [' + b"7" * size + b"]}"),
            lambda: _HEAD + b"X: " + MARK.encode() * (size // 10) + b"\r\n\r\n",
            lambda: _HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + b" " * size,
        )
    )()


def other(rng: random.Random) -> bytes:
    """Return a request with another method, path, type of body or protocol."""
    method, path = rng.choice(("GET", "PUT", "DELETE", "POST", "BREW")), f"/{rng.choice(('recommend', item(rng), ''))}"
    kind = rng.choice(("text/plain", "application/json; charset=utf-16", "multipart/form-data"))
    upgrade = rng.choice(("", "Upgrade: websocket\r\nConnection: Upgrade\r\n", "Expect: 100-continue\r\n"))
    head = f"{method} {path}?history={item(rng)} HTTP/1.1\r\nHost: service\r\nContent-Type: {kind}\r\n{upgrade}"
    return head.encode() + b"Content-Length: 2\r\n\r\n{}"


def good(rng: random.Random) -> bytes:
    """Return a valid request."""
    return _with_length(json.dumps({"history": [f"{MARK}{rng.randrange(2000)}"], "k": rng.randrange(1, 50)}).encode())


KINDS: Final[dict[str, Callable[[random.Random], bytes]]] = {
    "wrong types": wrong_types,
    "malformed": malformed,
    "huge": huge,
    "other": other,
    "good": good,
}


async def send_for(port: int, seconds: float, clients: int, seed: int) -> Counter[str]:
    """Send generated requests for so long; returns how often each kind got each status ("cut" for none)."""
    counts: Counter[str] = Counter()
    until = time.monotonic() + seconds
    await asyncio.gather(*(_client(port, until, random.Random(f"{seed}-{k}"), counts) for k in range(clients)))
    return counts


async def _client(port: int, until: float, rng: random.Random, counts: Counter[str]) -> None:
    while time.monotonic() < until:
        kind = rng.choice(list(KINDS))
        slow = kind != "good" and rng.random() < 0.02
        status = await _one(port, KINDS[kind](rng), rng, slow=slow)
        counts[f"{'slow ' if slow else ''}{kind} {status}"] += 1


async def _one(port: int, request: bytes, rng: random.Random, *, slow: bool) -> str:
    """Send one request over a connection of its own, perhaps slowly or only in part."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if slow:
            for place in range(0, min(len(request), 100), 10):
                if writer.is_closing():
                    break
                writer.write(request[place : place + 10])
                await asyncio.sleep(rng.random())
        else:
            writer.write(request)
        line = await asyncio.wait_for(reader.readline(), 15)
        return line.split(b" ")[1].decode("ascii", "replace") if line.startswith(b"HTTP/1.1 ") else "cut"
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return "cut"
    finally:
        writer.close()


def _with_length(body: bytes) -> bytes:
    return _HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body

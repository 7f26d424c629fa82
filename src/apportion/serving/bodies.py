"""Bodies of requests and answers over ASGI: they are read within limits of size and time, and sent in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from apportion.serving.refusals import RefusedError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON: Final = "application/json"
_PART_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Response:
    """The response that is sent back."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


class GoneError(Exception):
    """The client disconnected before its request arrived."""


async def body_of(receive: Receive, headers: Mapping[bytes, bytes], most: int, seconds: float) -> bytes:
    """Return the body of a request, unless it is too large or too slow.

    Args:
        receive: the receiving function of the request.
        headers: the headers of the request. A length that is too large is refused before anything is read.
        most: the largest number of bytes.
        seconds: the time within which the body must have arrived.
    """
    if int(headers.get(b"content-length", b"0")) > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, most)
    except TimeoutError:
        sentence = f"The body did not arrive within {seconds:g} seconds."
        raise RefusedError(408, sentence, {"connection": "close"}) from None


async def sent(response: Response, send: Send) -> None:
    """Send a response."""
    headers = {
        "content-type": response.content_type,
        "content-length": str(len(response.body)),
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        **response.headers,
    }
    encoded = [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": encoded})
    for place in range(0, len(response.body) or 1, _PART_BYTES):  # a slow reader then holds little memory
        part, more = response.body[place : place + _PART_BYTES], place + _PART_BYTES < len(response.body)
        await send({"type": "http.response.body", "body": part, "more_body": more})


async def _read(receive: Receive, most: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return b"".join(parts)


def _too_large(most: int) -> RefusedError:
    return RefusedError(413, f"Expected a body of at most {most} bytes.", {"connection": "close"})

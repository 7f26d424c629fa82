"""Limits on connections: how many may be open, and how fast a request's head must arrive.

uvicorn itself waits for a head without limit, so slow clients could occupy all connections.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from apportion.serving.limits import Limits


def protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return a class of connections with these limits."""
    return type("Connection", (Connection,), {"limits": limits})


class Connection(H11Protocol):
    """An HTTP/1.1 connection.

    Attributes:
        limits: the limits of the connection.
    """

    limits: Limits
    _due: asyncio.TimerHandle | None = None
    _head_is_due = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the head of a request, unless too many connections are open."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._end(503, "Too many connections are open; try again in a second.")
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take the data that arrived, and set the timer for what is due next."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_answering:
            self._expect_reader()
        elif not self._head_is_due:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timer."""
        self._expect_nothing()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer something that is not HTTP in the same form as everything else."""
        self._end(400, "This is not an HTTP/1.1 request.")

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        self._expect_nothing()
        self._head_is_due = True
        self._due = self.loop.call_later(self.limits.seconds, self._head_is_late)

    def _expect_reader(self) -> None:
        """Begin to wait until the client has taken its answer."""
        self._expect_nothing()
        self._due = self.loop.call_later(self.limits.answer_seconds, self._answer_is_late)

    def _expect_nothing(self) -> None:
        self._head_is_due = False
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _head_is_late(self) -> None:
        self._expect_nothing()
        if not self._is_answering:
            self._end(408, f"The head of the request did not arrive within {self.limits.seconds:g} seconds.")

    def _answer_is_late(self) -> None:
        """Drop a client that does not read its answer. Nothing more can be sent to it."""
        self._expect_nothing()
        if self._is_answering or self.transport.get_write_buffer_size():
            self.transport.abort()

    def _end(self, status: int, sentence: str) -> None:
        """Send the reason and close."""
        body = json.dumps({"error": sentence}).encode()
        head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        if not self._is_answering:
            self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        self.transport.close()

"""Accepts a server's TCP connections, and counts them from that moment on, before any TLS.

The number of all connections is limited, and so is the number from one address. There are time limits for agreeing on
TLS, for sending the head of a request and for reading an answer. Where a limit on connections is reached, a new one is
accepted and an old one closed: the oldest without a good ticket, from the address that has most of these. The newest
connection on which a client showed a good ticket is kept.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections import Counter as Counts
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from uvicorn import Config
from uvicorn.server import ServerState

from apportion.carrier.counter import KNOWN
from apportion.carrier.limits import CarrierLimits, network_of
from apportion.serving.connections import Connection
from apportion.serving.limits import Limits

_PAUSE: Final = 0.5  # seconds after a connection could not be accepted
_log = logging.getLogger(__name__)


class _Visit(Connection):
    """A connection that says when it is over."""

    def __init__(self, *args: Any, limits: Limits, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.limits = limits
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.over.set()


class Listener:
    """Accepts connections to an ASGI application, over TLS.

    Args:
        application: behind it.
        tls: the server's certificate and key.
        limits: on connections.
    """

    def __init__(self, application: Callable[..., Any], tls: ssl.SSLContext, limits: CarrierLimits) -> None:
        self._tls, self._limits = tls, limits
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # strangers cannot fill a log
        self._settings = Config(
            application,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # anybody could name another address
            timeout_keep_alive=math.ceil(limits.body),  # a slow line may still be reading an answer
        )
        self._state = ServerState()
        self._inside: dict[asyncio.Task[None], str] = {}  # whence they came, the oldest first
        self._kept: dict[int, asyncio.Task[None]] = {}  # by position of the client
        self._at: socket.socket | None = None

    def open(self, at: socket.socket) -> None:
        """Accept connections, in the event loop that runs."""
        self._settings.load()
        at.setblocking(False)
        asyncio.get_running_loop().add_reader(at, self._accept, at)
        self._at = at

    async def close(self, seconds: float) -> None:
        """Accept no more, wait for what is being answered, then end every connection."""
        if self._at is not None:
            asyncio.get_running_loop().remove_reader(self._at)
            self._at = None
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._inside:
            await asyncio.wait(self._inside, timeout=seconds)
        for visit in list(self._inside):
            visit.cancel()
        await asyncio.gather(*self._inside, return_exceptions=True)

    def _accept(self, at: socket.socket) -> None:
        """Take one connection; if no file descriptor is left for it, take none for a while."""
        try:
            connection, address = at.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the other side is gone already
            return
        except OSError as problem:
            _log.warning("No connection could be accepted: %s", type(problem).__name__)
            loop = asyncio.get_running_loop()
            loop.remove_reader(at)
            loop.call_later(_PAUSE, self._again)
            return
        self._let_in(connection, network_of(str(address[0])))

    def _again(self) -> None:
        if self._at is not None:
            asyncio.get_running_loop().add_reader(self._at, self._accept, self._at)

    def _let_in(self, connection: socket.socket, address: str) -> None:
        """Take a newcomer in, if need be in the place of a stranger."""
        there = Counts(self._inside.values())
        if there[address] >= self._limits.each:
            room = self._show_out(address)
        else:
            room = there.total() < self._limits.connections or self._show_out(None)
        if not room:
            connection.close()
            return
        visit = asyncio.create_task(self._visit(connection))
        self._inside[visit] = address
        visit.add_done_callback(partial(self._let_out, connection))

    def _show_out(self, address: str | None) -> bool:
        """End the oldest connection of a stranger at an address, None for the one with most; say if there was any."""
        kept = set(self._kept.values())
        strangers = {visit: whence for visit, whence in self._inside.items() if visit not in kept}
        address = _most_common(strangers.values()) if address is None else address
        for visit, whence in strangers.items():
            if whence == address:
                del self._inside[visit]
                visit.cancel()
                return True
        return False

    def _let_out(self, connection: socket.socket, visit: asyncio.Task[None]) -> None:
        connection.close()  # one that was shown out before it began
        self._inside.pop(visit, None)
        self._kept = {position: each for position, each in self._kept.items() if each is not visit}

    def _known(self, visit: asyncio.Task[None] | None, position: int) -> None:
        """Keep the connection on which a client showed a ticket, and the client's older one no more."""
        if visit in self._inside:
            self._kept[position] = visit

    async def _visit(self, connection: socket.socket) -> None:
        """Agree on TLS within the time for it, and stay until the connection is over."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        transport, known = None, partial(self._known, asyncio.current_task())
        try:
            transport, visit = await loop.connect_accepted_socket(
                partial(self._connection, known), connection, ssl=self._tls,
                ssl_handshake_timeout=self._limits.handshake, ssl_shutdown_timeout=self._limits.body,
            )  # fmt: skip
            await visit.over.wait()
        except OSError:  # of TLS too: not our protocol, or not in time
            pass
        finally:
            if transport is not None:
                transport.abort()

    def _connection(self, known: Callable[[int], None]) -> _Visit:
        return _Visit(
            config=self._settings, server_state=self._state, app_state={KNOWN: known}, limits=self._limits.requests
        )  # fmt: skip


def _most_common(addresses: Iterable[str]) -> str | None:
    return max(Counts(addresses).items(), key=lambda each: each[1], default=(None, 0))[0]

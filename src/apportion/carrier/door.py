"""The door of a server: TCP connections are counted from the moment that they are accepted, before any TLS.

There is a limit on all connections and on those from one address, and a time for TLS to be agreed on, for the head of a
request and for an answer to be read. So whoever opens connections and stays silent holds few of them for seconds.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter as Counts
from collections.abc import Callable
from typing import Any, Final

from uvicorn import Config
from uvicorn.server import ServerState

from apportion.carrier.limits import CarrierLimits
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


class Door:
    """Lets connections in to an ASGI application, over TLS.

    Args:
        application: behind it.
        tls: the server's certificate and key.
        limits: on connections.
    """

    def __init__(self, application: Callable[..., Any], tls: ssl.SSLContext, limits: CarrierLimits) -> None:
        self._tls, self._limits = tls, limits
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # strangers cannot fill a log
        self._settings = Config(
            application, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False
        )
        self._state = ServerState()
        self._inside: Counts[str] = Counts()
        self._visits: set[asyncio.Task[None]] = set()
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
        if self._visits:
            await asyncio.wait(self._visits, timeout=seconds)
        for visit in list(self._visits):
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

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
        self._let_in(connection, str(address[0]))

    def _again(self) -> None:
        if self._at is not None:
            asyncio.get_running_loop().add_reader(self._at, self._accept, self._at)

    def _let_in(self, connection: socket.socket, address: str) -> None:
        if self._inside.total() >= self._limits.connections or self._inside[address] >= self._limits.each:
            connection.close()
            return
        self._inside[address] += 1
        visit = asyncio.create_task(self._visit(connection))
        self._visits.add(visit)
        visit.add_done_callback(lambda done: self._let_out(done, address))

    def _let_out(self, visit: asyncio.Task[None], address: str) -> None:
        self._visits.discard(visit)
        self._inside -= Counts([address])  # addresses that nobody is in from are forgotten

    async def _visit(self, connection: socket.socket) -> None:
        """Agree on TLS within the time for it, and stay until the connection is over."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        transport = None
        try:
            transport, visit = await loop.connect_accepted_socket(
                self._connection, connection, ssl=self._tls, ssl_handshake_timeout=self._limits.handshake,
                ssl_shutdown_timeout=self._limits.handshake,
            )  # fmt: skip
            await visit.over.wait()
        except OSError:  # of TLS too: not our protocol, or not in time
            pass
        finally:
            if transport is not None:
                transport.abort()

    def _connection(self) -> _Visit:
        return _Visit(
            config=self._settings, server_state=self._state, app_state={}, limits=self._limits.requests
        )  # fmt: skip

"""A server's side: a post over HTTPS, whose port takes letters and answers of clients of the roster, nothing else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from apportion.carrier.counter import Counter
from apportion.carrier.limits import CarrierLimits
from apportion.errors import ApportionError, InputError
from apportion.transport.conditions import Conditions

Result = TypeVar("Result")

_LOOK: Final = 0.1  # seconds between looks at who is there
_GRACE: Final = 5.0  # seconds for what is being answered when the server stops


class HttpsPost:
    """Letters over HTTPS to clients who come for them; a context manager that listens meanwhile.

    Args:
        conditions: with the roster.
        at: the socket to listen on; it is closed at the end.
        tls: with the server's certificate and key; `server_tls` makes one.
        timeout: seconds to wait for answers.
        limits: on connections and requests; None for those that fit the number of clients.
    """

    def __init__(
        self,
        conditions: Conditions,
        at: socket.socket,
        tls: ssl.SSLContext,
        timeout: float,
        limits: CarrierLimits | None = None,
    ) -> None:
        try:
            from apportion.carrier.listener import Listener
        except ImportError:
            raise InputError("A federation needs uvicorn: pip install 'apportion[federated]'.", argument=None) from None
        limits = limits or CarrierLimits.of(len(conditions.roster), timeout)
        self._conditions, self._at, self._timeout = conditions, at, timeout
        self._counter = Counter(conditions, limits)
        self._listener = Listener(self._counter, tls, limits)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="carrier", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(2 * _GRACE)
        self._at.close()

    def gathered(self) -> int:
        """Wait until all clients have asked for letters, or the time is over; refuse if too few have."""
        until, least = time.monotonic() + self._timeout, self._conditions.trust.least
        while self._counter.present < len(self._conditions.roster) and time.monotonic() < until:
            time.sleep(_LOOK)
        if self._counter.present < least:
            raise InputError(
                f"Expected at least {least} clients of the roster to be connected, got {self._counter.present}.",
                argument="roster",
            )
        return self._counter.present

    def exchanged(self, by_position: Mapping[int, bytes], most: int) -> dict[int, bytes]:
        """Hand out letters, and return the answers that came in time."""
        return self._result(self._counter.exchanged(by_position, most, self._timeout))

    def _result(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something in the thread that serves."""
        if not self._thread.is_alive():
            work.close()
            raise ApportionError("The server of the federation does not listen any more.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(self._timeout + 2 * _GRACE)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        """Accept connections until it is time to stop."""
        self._listener.open(self._at)
        await self._stop.wait()
        self._counter.close()
        await self._listener.close(_GRACE)


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return TLS 1.3 with a server's certificate and key; refuse files that are not such."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError):
        raise InputError(
            f"Expected a certificate and its private key (PEM) in {certificate.name} and {key.name}, got other files.",
            argument="certificate",
        ) from None
    return context

"""The service on a socket, until it is stopped."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from apportion.errors import InputError
from apportion.serving.limits import Limits
from apportion.serving.logs import log_errors_only
from apportion.serving.service import Service

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket at this address; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


def needed_server() -> Any:
    """Return the module `uvicorn`. If it is missing, say which extra provides it."""
    try:
        import uvicorn
    except ImportError:
        raise InputError(
            "Serving needs uvicorn; install it with: pip install 'apportion[serve]'.", argument=None
        ) from None
    return uvicorn


def run(service: Service, at: socket.socket, limits: Limits, *, grace: int) -> None:
    """Serve until SIGINT or SIGTERM. Open requests then have `grace` seconds to be answered."""
    log_errors_only()
    with _signals_end_it_quietly():
        server(service, limits, grace=grace).run(sockets=[at])


def server(service: Service, limits: Limits, *, grace: int) -> Any:
    """Return the uvicorn server that runs the service."""
    uvicorn = needed_server()
    from apportion.serving.connections import protocol

    settings = uvicorn.Config(
        service,
        http=protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips="127.0.0.1",  # otherwise an environment variable could let anybody name another address
        timeout_graceful_shutdown=grace,
    )
    return uvicorn.Server(settings)


@contextmanager
def _signals_end_it_quietly() -> Iterator[None]:
    """Let the server handle signals. It raises them again after it has stopped, and by then they have been obeyed."""
    before = {each: signal.signal(each, lambda *_: None) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

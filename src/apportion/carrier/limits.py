"""Limits of a server that clients reach over HTTPS."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from apportion.serving.limits import Limits

WAIT: Final = 20.0  # seconds that a client is kept waiting for a letter
_SPARE: Final = 128  # connections beyond those that clients need


@dataclass(frozen=True)
class CarrierLimits:
    """Limits on connections and requests.

    Attributes:
        connections: that may be open at a time, TLS agreed on or not.
        each: of them, from one address.
        rate: requests per second from one address.
        client_rate: requests per second of one client, wherever it is.
        handshake: seconds to agree on TLS.
        head: seconds for the head of a request.
        body: seconds for its body, and for its answer to be read.
        wait: seconds that a client is kept waiting for a letter.
    """

    connections: int
    each: int
    rate: float
    client_rate: float = 10.0
    handshake: float = 5.0
    head: float = 5.0
    body: float = 120.0
    wait: float = WAIT

    @classmethod
    def of(cls, n_clients: int, seconds: float) -> CarrierLimits:
        """Return limits that let a number of clients work, all from one address too.

        Args:
            n_clients: of the roster.
            seconds: for answers.
        """
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = min(4 * n_clients + _SPARE, max(files - _SPARE, _SPARE))  # files are left for the rest of the program
        return cls(most, most // 2, max(100.0, 4.0 * n_clients), body=seconds)

    @property
    def requests(self) -> Limits:
        """Those that a connection keeps to."""
        return Limits(
            connections=self.connections, seconds=self.head, answer_seconds=2 * max(self.body, self.wait)
        )  # fmt: skip

"""Limits of a server that clients reach over HTTPS."""

from __future__ import annotations

import ipaddress
import resource
from dataclasses import dataclass
from typing import Final

from apportion.errors import InputError
from apportion.serving.limits import Limits

WAIT: Final = 20.0  # seconds that a client is kept waiting for a letter
_SPARE: Final = 128  # connections beyond those that clients need


@dataclass(frozen=True)
class CarrierLimits:
    """Limits on connections and requests.

    Attributes:
        connections: that may be open at a time, TLS agreed on or not.
        each: of them, from one address, or from one network /64 of IPv6.
        rate: requests per second without a good ticket from one address.
        client_rate: requests per second of one client, wherever it is.
        handshake: seconds to agree on TLS.
        head: seconds for the head of a request.
        body: seconds for its body, for its answer to be read, and until a connection without requests is ended.
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
        """Return limits that let a number of clients work, all from one address too, and allow as many files.

        Args:
            n_clients: of the roster.
            seconds: for answers.
        """
        most = 4 * n_clients + _SPARE
        _allow_files(most + _SPARE)  # files are left for the rest of the program
        return cls(most, most // 2, max(100.0, 4.0 * n_clients), body=seconds)

    @property
    def requests(self) -> Limits:
        """Those that a connection keeps to."""
        return Limits(
            connections=self.connections, seconds=self.head, answer_seconds=2 * max(self.body, self.wait)
        )  # fmt: skip


def network_of(address: str) -> str:
    """Return what counts as one address: an address of IPv4, or the network /64 of one of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Address(int(found) >> 64 << 64))


def _allow_files(wanted: int) -> None:
    """Let this process open so many files; refuse to start where the system does not allow it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now >= wanted or now == resource.RLIM_INFINITY:
        return
    if most != resource.RLIM_INFINITY and most < wanted:
        raise InputError(
            f"Expected at least {wanted} files that this process may open (ulimit -n), got {most}.", argument=None
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))

"""A client's side: it asks a server for letters over HTTPS, gives them to its desk, and posts the answers.

Nothing listens at a client. The server's certificate is checked, and its name; redirects are not followed. What comes
is bytes of a limited size for the desk, which trusts none of them.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.carrier.counter import ANSWER, COUNT, LETTER, NUMBER, SESSION
from apportion.carrier.limits import WAIT
from apportion.carrier.tickets import SESSION_BYTES, Ticket, digest_of, federation_of
from apportion.errors import ApportionError, InputError
from apportion.transport.conditions import Conditions
from apportion.transport.desk import Desk
from apportion.transport.plain import MOST_BYTES

_LOG: Final = logging.getLogger(__name__)
_PATIENCE: Final = 3 * WAIT  # seconds for one answer of the server
_PAUSES: Final = (1.0, 2.0, 5.0, 10.0)  # seconds before another try, the last one again and again
_LEAST: Final = 0.1  # seconds from one request for letters to the next, if nothing new came
_NUMBERS: Final = 2**64  # of letters, and of tickets


@dataclass(frozen=True)
class Received:
    """A letter.

    Attributes:
        session: of the server.
        number: of the letter in it.
        content: for the desk.
    """

    session: bytes
    number: int
    content: bytes


class Letterbox:
    """One client's way to a server, on one connection as long as it lasts.

    Args:
        address: HOST:PORT of the server.
        tls: that checks its certificate; `client_tls` makes one.
        conditions: with the roster and the server's key.
        identity: the client's Ed25519 secret key.
    """

    def __init__(self, address: str, tls: ssl.SSLContext, conditions: Conditions, identity: bytes) -> None:
        host, port = _host_and_port(address)
        self._server = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=tls)
        self._federation = federation_of(conditions)
        self._identity = Ed25519PrivateKey.from_private_bytes(identity)
        self.position = conditions.position(self._identity.public_key().public_bytes_raw())
        self._session = bytes(SESSION_BYTES)
        self._count = time.time_ns()  # above that of every ticket before a restart, if the clock has not gone back

    def close(self) -> None:
        """End the connection; another request opens a new one."""
        self._server.close()

    def letter(self) -> Received | None:
        """Return the letter that is open for this client; None if none came within some seconds."""
        status, headers, body = self._asked(LETTER, 0, b"")
        if status == http.HTTPStatus.NO_CONTENT:
            return None
        number = _number(headers, NUMBER)
        if status != http.HTTPStatus.OK or number is None:
            raise http.client.HTTPException(f"The server answered with status {status}.")
        return Received(self._session, number, body)

    def give(self, number: int, answer: bytes) -> None:
        """Post the answer to a letter. One that is closed meanwhile needs none."""
        status, _, _ = self._asked(ANSWER, number, answer)
        if status == http.HTTPStatus.CONFLICT:
            _LOG.warning("The answer came too late, or twice.")
        elif status != http.HTTPStatus.NO_CONTENT:
            raise http.client.HTTPException(f"The server answered with status {status}.")

    def _asked(self, route: str, number: int, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Post a request; if the server names another session or a later count, post it again with these."""
        for _ in range(3):
            status, headers, content = self._posted(route, number, body)
            if status != http.HTTPStatus.UNAUTHORIZED:
                return status, headers, content
            self._session = _session(headers)
            self._count = max(self._count, _number(headers, COUNT) or 0)
        raise ApportionError("The server does not take this client's key. Is its roster the client's?")

    def _ticket(self, route: str, number: int, body: bytes) -> str:
        self._count = min(self._count + 1, _NUMBERS - 1)
        ticket = Ticket(self.position, self._session, self._count, number, digest_of(body))
        return ticket.signed(route, self._federation, self._identity)

    def _posted(self, route: str, number: int, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Post a request on the connection that is open, or on a new one if the server has closed it meanwhile."""
        if self._server.sock is not None:
            with suppress(ConnectionError):
                return self._exchanged(route, self._ticket(route, number, body), body)
        return self._exchanged(route, self._ticket(route, number, body), body)

    def _exchanged(self, route: str, ticket: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = {"authorization": ticket, "content-type": "application/octet-stream"}
        try:
            self._server.request("POST", route, body, headers)
            response = self._server.getresponse()
            content = response.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES or not response.isclosed():
                raise http.client.HTTPException("The server sent more than a letter may hold.")
        except BaseException:
            self.close()
            raise
        return response.status, response.headers, content


class _Clerk:
    """Takes letters from a box to a desk, and answers back; it remembers the last one."""

    def __init__(self, desk: Desk, box: Letterbox) -> None:
        self._desk, self._box = desk, box
        self._last, self._answer = (b"", 0), b""

    def serve(self) -> None:
        """Answer one letter, or the last one again. If nothing new came at once, wait a little."""
        began = time.monotonic()
        letter = self._box.letter()
        if letter is not None and (letter.session, letter.number) != self._last:
            self._answer = self._desk.answered(letter.content)
            self._last = (letter.session, letter.number)
            self._box.give(letter.number, self._answer)
            return
        if letter is not None:  # the answer got lost on its way
            self._box.give(letter.number, self._answer)
        time.sleep(max(0.0, began + _LEAST - time.monotonic()))


def answer_letters(desk: Desk, box: Letterbox, going_on: Callable[[], bool]) -> None:
    """Answer what comes, each letter once. Where the server cannot be reached, try again after a while.

    Args:
        desk: of the client.
        box: of the same client.
        going_on: says whether to go on.
    """
    clerk, failed = _Clerk(desk, box), 0
    with closing(box):
        while going_on():
            try:
                clerk.serve()
                failed = 0
            except (OSError, http.client.HTTPException, ApportionError) as problem:
                _LOG.warning("The server was not reached, or its answer was no good: %r", str(problem)[:200])
                time.sleep(_PAUSES[min(failed, len(_PAUSES) - 1)])
                failed += 1


def client_tls(root_certificates: Path) -> ssl.SSLContext:
    """Return TLS 1.3 that trusts the certificates in a file alone: those of authorities, or the server's own."""
    try:
        context = ssl.create_default_context(cafile=root_certificates)
    except (ssl.SSLError, OSError):
        raise InputError(
            f"Expected certificates (PEM) in {root_certificates.name}, got another file.", argument="root-certificates"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # so that a server's own certificate can be named
    return context


def _host_and_port(address: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        if parts.hostname and parts.port and parts.netloc == address and "@" not in address:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise InputError(f"Expected the address of a server as HOST:PORT, got {address!r}.", argument="server")


def _session(headers: http.client.HTTPMessage) -> bytes:
    try:
        session = bytes.fromhex(headers.get(SESSION, ""))
    except ValueError:
        session = b""
    if len(session) != SESSION_BYTES:
        raise http.client.HTTPException("The server did not name its session.")
    return session


def _number(headers: http.client.HTTPMessage, name: str) -> int | None:
    """Return the number in a header; None if there is none, or one that no ticket can hold."""
    said = headers.get(name, "")
    return int(said) if said.isdecimal() and len(said) <= 20 and int(said) < _NUMBERS else None

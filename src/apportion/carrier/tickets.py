"""A client's ticket: who asks, for what, in whose session, signed with the key of the roster, and good once.

A server has a session, 32 bytes of chance that it draws when it starts. A ticket names the session, the route, the
letter and the hash of the body that it is for, and a count that grows from ticket to ticket. What is signed begins with
the federation, as the client's own file has it: its roster and its server's key. So a ticket that was seen cannot be
used again, for another body, on another route, or by a server that hands out the session of another federation.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import astuple, dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from apportion.transport.conditions import Conditions

SESSION_BYTES: Final = 32
SCHEME: Final = "Apportion "
_FIELDS: Final = struct.Struct(">I32sQQ32s")
_SIGNATURE_BYTES: Final = 64
_PURPOSE: Final = b"apportion carrier 1|"  # nothing else that a client signs begins so


@dataclass(frozen=True)
class Ticket:
    """What one request is.

    Attributes:
        position: the client's place in the roster.
        session: of the server.
        count: larger than that of every ticket before.
        letter: number of the letter that the body answers; 0 if there is none.
        digest: SHA-256 of the body.
    """

    position: int
    session: bytes
    count: int
    letter: int
    digest: bytes

    def signed(self, route: str, federation: bytes, identity: Ed25519PrivateKey) -> str:
        """Return the ticket as the header Authorization, for one route of one federation."""
        fields = _FIELDS.pack(*astuple(self))
        return SCHEME + (fields + identity.sign(_signed_text(route, federation, fields))).hex()


class TicketOffice:
    """Lets requests of clients in, each once.

    Args:
        conditions: with the keys of all clients and of the server.

    Attributes:
        session: of this server.
    """

    def __init__(self, conditions: Conditions) -> None:
        self._keys = [Ed25519PublicKey.from_public_bytes(each) for each in conditions.roster]
        self._counts = [0] * len(self._keys)
        self._federation = federation_of(conditions)
        self.session = os.urandom(SESSION_BYTES)

    def read(self, route: str, header: bytes) -> Ticket | None:
        """Return the ticket in a header, used or not; None if it is not one that a client signed for this session.

        Args:
            route: that was asked for.
            header: Authorization.
        """
        try:
            held = bytes.fromhex(header.decode("ascii").removeprefix(SCHEME))
            fields, signature = held[: _FIELDS.size], held[_FIELDS.size :]
            ticket = Ticket(*_FIELDS.unpack(fields))
            known = ticket.session == self.session and ticket.position < len(self._keys)
            if not known or len(signature) != _SIGNATURE_BYTES:
                return None
            self._keys[ticket.position].verify(signature, _signed_text(route, self._federation, fields))
        except (ValueError, struct.error, InvalidSignature):
            return None
        return ticket

    def admits(self, ticket: Ticket) -> bool:
        """Whether a ticket that was read is good now; it cannot be used again."""
        if ticket.count <= self.last(ticket):
            return False
        self._counts[ticket.position] = ticket.count
        return True

    def last(self, ticket: Ticket) -> int:
        """Return the count of the last good ticket of the same client."""
        return self._counts[ticket.position]


def digest_of(body: bytes) -> bytes:
    """Return the hash of a body that a ticket names."""
    return hashlib.sha256(body).digest()


def federation_of(conditions: Conditions) -> bytes:
    """Return the hash of the server's key and the roster."""
    return hashlib.sha256(conditions.server + b"".join(conditions.roster)).digest()


def _signed_text(route: str, federation: bytes, fields: bytes) -> bytes:
    return _PURPOSE + federation + route.encode("ascii") + b"|" + fields

"""A server of letters over HTTPS in this process, its clients, and whoever attacks it."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import contextmanager

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.carrier import HttpsPost, Letterbox, answer_letters
from apportion.carrier.client import client_tls
from apportion.carrier.limits import CarrierLimits
from apportion.carrier.server import server_tls
from apportion.carrier.tickets import Ticket, digest_of, federation_of
from apportion.serving.running import bound
from loopback_federation import HOST, write_certificates

LIMITS = CarrierLimits(24, 12, rate=1000.0, client_rate=1000.0, wait=0.05)


class Office:
    """A running server, with what is needed to reach it."""

    def __init__(self, federation, folder, limits=LIMITS, timeout=20.0, host=HOST):
        self.federation = federation
        self.certificate, self.key, self.root = write_certificates(folder)
        self.host = host
        at = bound(host, 0)
        self.port = at.getsockname()[1]
        self.post = HttpsPost(federation.conditions, at, server_tls(self.certificate, self.key), timeout, limits)

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    @property
    def session(self):
        return self.post._counter._office.session

    def box(self, position):
        return Letterbox(
            self.address, client_tls(self.root), self.federation.conditions, self.federation.secrets[position]
        )

    def ticket(self, position, route, body=b"", letter=0, **changes):
        """A ticket of a client, made by hand."""
        secret, federation = changes.pop("secret", self.federation.secrets[position]), changes.pop("federation", None)
        held = {"session": self.session, "count": time.time_ns(), "digest": digest_of(body), **changes}
        made = Ticket(position, letter=letter, **held)
        return made.signed(
            route, federation or federation_of(self.federation.conditions), Ed25519PrivateKey.from_private_bytes(secret)
        )

    def asked(self, route, ticket=None, body=b"", method="POST", **headers):
        """Send a request; return status, headers and body."""
        given = {"authorization": ticket, **headers} if ticket else headers
        server = http.client.HTTPSConnection(self.host, self.port, timeout=5, context=client_tls(self.root))
        try:
            server.request(method, route, body, given, encode_chunked=not isinstance(body, bytes))
            response = server.getresponse()
            return response.status, response.headers, response.read()
        finally:
            server.close()

    def open_letter(self, position, content=b"letter", most=100):
        """Open a letter for a client who has been here, in a thread; return the number of it, and what comes of it."""
        came, thread = {}, threading.Thread()
        status, headers, body = self.asked("/letter", self.ticket(position, "/letter"))
        while status != 200:
            if not thread.is_alive():
                thread = threading.Thread(target=lambda: came.update(self.post.exchanged({position: content}, most)))
                thread.start()
            status, headers, body = self.asked("/letter", self.ticket(position, "/letter"))
        assert body == content
        return int(headers["apportion-letter"]), came, thread

    def expire(self, position):
        """End the wait for an answer now, as when its time is over."""
        letter = self.post._counter._places[position].letter
        self.post._loop.call_soon_threadsafe(letter.answer.cancel)

    def raw(self, tls=True):
        """A connection that may say anything."""
        plain = socket.create_connection((self.host, self.port), timeout=5)
        return client_tls(self.root).wrap_socket(plain, server_hostname=self.host) if tls else plain


@contextmanager
def clients_at_work(office, desks):
    """Clients with desks, each in a thread, as long as the block lasts."""
    going = threading.Event()
    going.set()
    threads = [
        threading.Thread(target=answer_letters, args=(desk, office.box(each), going.is_set))
        for each, desk in desks.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        going.clear()
        for thread in threads:
            thread.join(10)


def until_closed(connection):
    """Return the seconds until the other side closes a connection."""
    began = time.monotonic()
    try:
        while connection.recv(1000):
            pass
    except (ssl.SSLError, ConnectionError):
        pass
    return time.monotonic() - began

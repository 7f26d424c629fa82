"""`apportion federate` over HTTPS, between machines."""

from __future__ import annotations

from pathlib import Path

from apportion.carrier.client import Letterbox, answer_letters, client_tls
from apportion.carrier.server import HttpsPost, server_tls
from apportion.cli.federate_app import agreed, fit_over, secret_key
from apportion.errors import InputError
from apportion.serving.running import bound
from apportion.transport import ClientsByPost, Conditions, Desk
from apportion.transport.configuration import Federation


def serve_by_https(
    federation: Federation, identity: Path, out: Path, host: str, port: int, certificate: Path, key: Path
) -> None:
    """Listen, wait for the clients, fit, and write what is released.

    Args:
        federation: what is agreed on.
        identity: folder with the server's key.
        out: folder for what is released.
        host: address to listen on.
        port: to listen on.
        certificate: of the server.
        key: of the certificate.
    """
    conditions, secret, tls = agreed(federation), secret_key(identity, "server"), server_tls(certificate, key)
    try:
        at = bound(host, port)
    except OSError as problem:
        raise InputError(f"Nothing can listen at {host} port {port}: {problem.strerror}.", argument="port") from None
    with HttpsPost(conditions, at, tls, federation.timeout) as post:
        post.gathered()
        fit_over(federation, conditions, ClientsByPost(post, conditions, secret), out)


def answer_by_https(desk: Desk, conditions: Conditions, address: str, root_certificates: Path, folder: Path) -> None:
    """Ask for letters and answer them, until interrupted.

    Args:
        desk: of the client.
        conditions: that its owner agreed to.
        address: of the server.
        root_certificates: that its certificate is checked against.
        folder: with the client's key.
    """
    box = Letterbox(address, client_tls(root_certificates), conditions, secret_key(folder, "client"))
    answer_letters(desk, box, lambda: True)

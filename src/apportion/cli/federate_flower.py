"""`apportion federate` over Flower, between processes of one machine."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from apportion.cli.federate_app import agreed, fit_over, secret_key
from apportion.cli.federate_processes import (
    LOCAL,
    environment,
    link_command,
    node_command,
    started_run,
    write_app,
    write_connection,
)
from apportion.errors import ApportionError, InputError
from apportion.transport import ClientsByPost, Desk
from apportion.transport.configuration import Federation
from apportion.transport.flower import FlowerPost, answer_letters, connected, fit_in_run

_PATIENCE: Final = 90.0  # seconds for a program to listen


def refuse_other_machines(host: str) -> None:
    """Refuse an address that other machines reach."""
    if host != LOCAL:
        raise InputError(
            f"Expected the host {LOCAL}, got {host}: whoever reaches a link of Flower can start, stop and read runs "
            "on it without a key, so it is for clients on this machine alone. `--carrier https` is for other machines.",
            argument="host",
        )


def serve_by_flower(
    federation: Federation, identity: Path, out: Path, port: int, certificate: Path, key: Path, root_certificates: Path
) -> None:
    """Open a link of Flower, wait for the clients, fit, and write what is released.

    Args:
        federation: what is agreed on.
        identity: folder with the server's key.
        out: folder for what is released.
        port: on this machine alone.
        certificate: of the link.
        key: of the certificate.
        root_certificates: that it is checked against.
    """
    with tempfile.TemporaryDirectory(prefix="apportion-federation-") as folder:
        home, app = Path(folder) / "flower", Path(folder) / "app"
        write_app(app)
        write_connection(home, f"localhost:{port}", root_certificates)
        shared = _new_secret(home / "secret")
        with _running(link_command(port, certificate, key, root_certificates, home / "secret"), home, port):
            fit = partial(_fit, federation=federation, identity=identity, out=out)
            number = started_run(app, home)
            fit_in_run(f"localhost:{port}", root_certificates.read_bytes(), shared, number, fit)


def answer_by_flower(desk: Desk, address: str, root_certificates: Path, local_port: int) -> None:
    """Start a node of Flower, and answer the letters that come to it, until it ends.

    Args:
        desk: of the client.
        address: of the link.
        root_certificates: that the link's certificate is checked against.
        local_port: of the node, on this machine alone.
    """
    with tempfile.TemporaryDirectory(prefix="apportion-client-") as name:
        home = Path(name)
        secret = _new_secret(home / "secret")
        with _running(node_command(address, root_certificates, local_port, home / "secret"), home, local_port) as node:
            answer_letters(desk, f"{LOCAL}:{local_port}", secret, lambda: node.poll() is None)


def _fit(grid: Any, federation: Federation, identity: Path, out: Path) -> None:
    """Fit over the connected clients, and write what was released."""
    conditions = agreed(federation)
    nodes = connected(grid, conditions, federation.timeout)
    post = FlowerPost(grid, nodes, federation.timeout)
    fit_over(federation, conditions, ClientsByPost(post, conditions, secret_key(identity, "server")), out)


def _new_secret(path: Path) -> bytes:
    """Write a new secret that a program of Flower and this process share; nobody else on the machine can read it."""
    secret = os.urandom(32).hex().encode()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    return secret


def _listens(port: int) -> bool:
    with socket.socket() as found:
        return found.connect_ex(("localhost", port)) == 0


@contextmanager
def _running(command: list[str], home: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of Flower's programs for a while, from when it listens."""
    with subprocess.Popen(command, env=environment(home)) as process:
        try:
            until = time.monotonic() + _PATIENCE
            while not _listens(port) and process.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
            if process.poll() is not None or not _listens(port):
                raise ApportionError("Flower did not start; the lines above say why.")
            yield process
        finally:
            process.terminate()

"""`apportion federate`: one fit over clients that keep their rows, and a page for each of them."""

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
from typing import Final

import click

from apportion.cli.option_types import FILE
from apportion.cli.outputs import REPORT, refuse_folder, refuse_unless_writable_model, say_page, write_text
from apportion.errors import ApportionError, InputError

_PATIENCE: Final = 90.0  # seconds for a program to listen
_CONFIG: Final = click.argument("federation", type=FILE, metavar="FEDERATION.toml")
_OUT: Final = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for what is released."
)  # fmt: skip
_ROOT: Final = click.option(
    "--root-certificates", type=FILE, required=True, help="Certificates (PEM) that the server's is checked against."
)
_CLIENT: Final = click.option(
    "--client",
    "own",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("client"),
    show_default=True,
    help="Folder with this client's key and account; keep it, keep it secret, and never copy it.",
)


@click.group(short_help="Fit over clients that keep their rows: key, server, client, page, simulate.")
def federate() -> None:
    """Fit over clients that keep their rows.

    \b
    apportion federate key                                    # every client, once; the keys make the roster
    apportion federate key --client server                    # the server, once; clients answer to this key alone
    apportion federate server federation.toml --out model --certificate link.pem --key link.key \\
        --root-certificates ca.pem
    apportion federate client federation.toml ratings.csv --server localhost:9443 --root-certificates ca.pem

    FEDERATION.toml says which items there are, who the server and the clients are, how many clients may collude with
    the server or drop out, what epsilon may be spent, and who draws the noise. The server and every client have a copy;
    a client goes by its own. Rows never leave a client: it sends masked whole numbers, and the server can read their
    sum only. Server and clients are processes of one machine.
    """  # noqa: D301


@federate.command(short_help="Make the key and the account of a new client.")
@_CLIENT
def key(own: Path) -> None:
    """Make a client's secret key and its account, once, and print the public key for the roster."""
    from apportion.cli.federate_app import new_client

    click.echo(new_client(own))


@federate.command(short_help="Wait for the clients, fit, and write what is released.")
@_CONFIG
@_OUT
@click.option("--certificate", type=FILE, required=True, help="This server's TLS certificate (PEM).")
@click.option("--key", "secret", type=FILE, required=True, help="Its private key (PEM).")
@_ROOT
@click.option(
    "--identity",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("server"),
    show_default=True,
    help="Folder with the key that clients know this server by; `federate key --client server` makes it.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on: this machine alone.")
@click.option("--port", type=click.IntRange(1, 65535), default=9443, show_default=True, help="Port to listen on.")
def server(
    federation: Path,
    out: Path,
    certificate: Path,
    secret: Path,
    root_certificates: Path,
    identity: Path,
    host: str,
    port: int,
) -> None:
    """Open a Flower link over TLS, wait for the clients, fit, and write the result with its statement.

    Clients must be on this machine: whoever reaches a link of Flower can start and stop runs on it.
    """
    from apportion.cli.federate_app import agreed, run_server, secret_key
    from apportion.cli.federate_processes import (
        LOCAL,
        link_command,
        started_run,
        write_app,
        write_connection,
    )
    from apportion.transport.configuration import Federation
    from apportion.transport.flower import fit_in_run

    if host != LOCAL:
        raise InputError(
            f"Expected the host {LOCAL}, got {host}: whoever reaches a link of Flower can start, stop and read runs "
            "on it without a key, so it is for clients on this machine alone.",
            argument="host",
        )
    refuse_unless_writable_model(out)
    told = Federation.read(federation)
    agreed(told)  # refused before anything listens
    secret_key(identity, "server")
    with tempfile.TemporaryDirectory(prefix="apportion-federation-") as folder:
        home, app = Path(folder) / "flower", Path(folder) / "app"
        write_app(app)
        write_connection(home, f"localhost:{port}", root_certificates)
        shared = _new_secret(home / "secret")
        with _running(link_command(port, certificate, secret, root_certificates, home / "secret"), home, port):
            fit = partial(run_server, federation=told, identity=identity, out=out)
            number = started_run(app, home)
            fit_in_run(f"localhost:{port}", root_certificates.read_bytes(), shared, number, fit)
    _say(out)


@federate.command(short_help="Take part with the rows of a file.")
@_CONFIG
@click.argument("rows", type=FILE)
@click.option("--server", "address", metavar="HOST:PORT", required=True, help="Where the server listens.")
@_ROOT
@_CLIENT
@click.option(
    "--local-port", type=click.IntRange(1, 65535), default=9094, show_default=True, help="Port on this machine alone."
)
def client(federation: Path, rows: Path, address: str, root_certificates: Path, own: Path, local_port: int) -> None:
    """Answer the server's questions with the rows in ROWS (user, item, value), until interrupted.

    The file is checked before the first question, so that nobody drops out because of what a row holds. What was asked
    and what it cost is in the account before it is answered; `apportion federate page` shows it.
    """
    from apportion.cli.federate_app import agreed, desk_of, users_of
    from apportion.cli.federate_processes import LOCAL, node_command
    from apportion.transport.configuration import Federation
    from apportion.transport.flower import answer_letters

    told = Federation.read(federation)
    desk = desk_of(agreed(told), users_of(told, rows), own)
    with tempfile.TemporaryDirectory(prefix="apportion-client-") as name:
        home = Path(name)
        secret = _new_secret(home / "secret")
        with _running(node_command(address, root_certificates, local_port, home / "secret"), home, local_port) as node:
            answer_letters(desk, f"{LOCAL}:{local_port}", secret, lambda: node.poll() is None)


@federate.command(short_help="Show a client what it was asked, what left it, and what is promised.")
@_CONFIG
@_CLIENT
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("client.html"), show_default=True, help="The page."
)
def page(federation: Path, own: Path, out: Path) -> None:
    """Write a page for the owner of a client, from the client's own account."""
    from apportion.cli.federate_app import ACCOUNT
    from apportion.report.client_page import client_page
    from apportion.transport import Account
    from apportion.transport.configuration import Federation

    refuse_folder(out)
    if not (own / ACCOUNT).exists():
        raise InputError(f"There is no account in {own}; `apportion federate key` makes one.", argument="client")
    told = Federation.read(federation)
    write_text(out, client_page(told, len(told.keys), Account.shown(own / ACCOUNT)))
    say_page(out)


@federate.command(short_help="Rehearse a federation: every file of rows is a client in this process.")
@_CONFIG
@click.argument("rows", type=FILE, nargs=-1, required=True)
@_OUT
def simulate(federation: Path, rows: tuple[Path, ...], out: Path) -> None:
    """Fit over clients in this process, with the same letters as between processes and keys made for it; no Flower."""
    from apportion.cli.federate_app import desk_of, fit_over, new_client, rehearsed, secret_key, users_of
    from apportion.transport import ClientsByPost, LocalPost
    from apportion.transport.configuration import Federation

    refuse_unless_writable_model(out)
    told = Federation.read(federation)
    with tempfile.TemporaryDirectory(prefix="apportion-rehearsal-") as name:
        folders = [Path(name) / str(each) for each in range(len(rows))]
        keys, asking = tuple(bytes.fromhex(new_client(each)) for each in folders), Path(name) / "server"
        conditions = rehearsed(told, keys, bytes.fromhex(new_client(asking)))
        users = [users_of(told, path) for path in rows]
        desks = {each: desk_of(conditions, users[each], folder) for each, folder in enumerate(folders)}
        clients = ClientsByPost(LocalPost(desks), conditions, secret_key(asking, "server"))
        statement = fit_over(told, conditions, clients, out)
    click.echo(statement)
    _say(out)


def _say(out: Path) -> None:
    click.echo(f"\nReleased: {out}")
    if (out / REPORT).exists():
        say_page(out / REPORT)


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
    from apportion.cli.federate_processes import environment

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

"""`apportion federate`: one fit over clients that keep their rows, and a page for each of them."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from apportion.cli.options import FILE
from apportion.cli.outputs import REPORT, refuse_folder, refuse_unless_writable_model, say_page, write_text
from apportion.errors import ApportionError, InputError

_CONFIG: Final = click.argument("federation", type=FILE, metavar="FEDERATION.toml")
_OUT: Final = click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the model.")
_ROOT: Final = click.option(
    "--root-certificates", type=FILE, required=True, help="Certificates (PEM) that the server's is checked against."
)
_STATE: Final = click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("client-state"),
    show_default=True,
    help="File for what this client spent and wrote down; keep it, and keep it secret.",
)


@click.group(short_help="Fit over clients that keep their rows: server, client, page, simulate.")
def federate() -> None:
    """Fit one private recommender over clients that keep their rows.

    \b
    apportion federate server federation.toml --out model --certificate link.pem --key link.key \\
        --root-certificates ca.pem
    apportion federate client federation.toml ratings.csv --server host:9443 --root-certificates ca.pem

    FEDERATION.toml is public and the same for everybody. It says which items there are, how many clients take part,
    how many of them may collude with the server or drop out, what epsilon may be spent, and who draws the noise. Rows
    never leave a client: it sends masked whole numbers, and the server can read their sum only.
    """  # noqa: D301


@federate.command(short_help="Wait for the clients, fit, and write the model.")
@_CONFIG
@_OUT
@click.option("--certificate", type=FILE, required=True, help="This server's TLS certificate (PEM).")
@click.option("--key", type=FILE, required=True, help="Its private key (PEM).")
@_ROOT
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=9443, show_default=True, help="Port to listen on.")
def server(
    federation: Path, out: Path, certificate: Path, key: Path, root_certificates: Path, host: str, port: int
) -> None:
    """Open a Flower link over TLS, wait for all clients, fit, and write the model with its statement."""
    from apportion.cli.federate_processes import environment, link_command, run_command, write_app, write_connection
    from apportion.federated.configuration import Federation

    refuse_unless_writable_model(out)
    Federation.read(federation)  # refused before anything listens
    with tempfile.TemporaryDirectory(prefix="apportion-federation-") as folder:
        home, app = Path(folder) / "flower", Path(folder) / "app"
        write_app(app)
        write_connection(home, f"localhost:{port}", root_certificates)
        with _running(link_command(host, port, certificate, key, root_certificates), home):
            asked = {"federation": str(federation.resolve()), "out": str(out.resolve())}
            subprocess.run(run_command(app, asked), env=environment(home), check=False)
    if not (out / REPORT).exists():
        raise ApportionError("The fit ended without a model; the lines above say why.")
    click.echo(f"\nModel: {out}")
    say_page(out / REPORT)


@federate.command(short_help="Take part with the rows of a file.")
@_CONFIG
@click.argument("rows", type=FILE)
@click.option("--server", "address", metavar="HOST:PORT", required=True, help="Where the server listens.")
@_ROOT
@_STATE
@click.option(
    "--local-port", type=click.IntRange(1, 65535), default=9094, show_default=True, help="Port for this client alone."
)
def client(federation: Path, rows: Path, address: str, root_certificates: Path, state: Path, local_port: int) -> None:
    """Answer the server's questions with the rows in ROWS (user, item, value), until interrupted.

    The file is checked before the first question, so that nobody drops out because of what a row holds. What was asked
    and what left is written to --state; `apportion federate page` shows it.
    """
    from apportion.cli.federate_app import users_of
    from apportion.cli.federate_processes import environment, node_command
    from apportion.federated.configuration import Federation

    users_of(Federation.read(federation), rows)
    refuse_folder(state)
    settings = {"federation": federation, "rows": rows, "state": state}
    with tempfile.TemporaryDirectory(prefix="apportion-client-") as home:
        told = {name: str(path.resolve()) for name, path in settings.items()}
        command = node_command(address, root_certificates, local_port, told)
        subprocess.run(command, env=environment(Path(home)), check=False)


@federate.command(short_help="Show a client what it was asked, what left it, and what is promised.")
@_CONFIG
@_STATE
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("client.html"), show_default=True, help="The page."
)
def page(federation: Path, state: Path, out: Path) -> None:
    """Write a page for the owner of a client, from what the client wrote down itself."""
    from apportion.cli.federate_state import state_at
    from apportion.federated.configuration import Federation
    from apportion.report.client_page import client_page

    refuse_folder(out)
    if not state.exists():
        raise InputError(f"There is no {state}: this client has answered nothing yet.", argument="state")
    kept = state_at(state)
    write_text(out, client_page(Federation.read(federation), kept.journal, kept.spent))
    say_page(out)


@federate.command(short_help="Rehearse a federation: every file of rows is a client in this process.")
@_CONFIG
@click.argument("rows", type=FILE, nargs=-1, required=True)
@_OUT
def simulate(federation: Path, rows: tuple[Path, ...], out: Path) -> None:
    """Fit over clients in this process, with the same messages as between machines; needs no Flower."""
    from apportion.cli.federate_app import fit_over, users_of
    from apportion.cli.outputs import write_model
    from apportion.federated.configuration import Federation
    from apportion.federated.desk import Desk
    from apportion.federated.post import ClientsByPost, LocalPost

    refuse_unless_writable_model(out)
    told = Federation.read(federation)
    if len(rows) != told.clients:
        raise InputError(f"Expected rows of {told.clients} clients, got {len(rows)} files.", argument="rows")
    users = [users_of(told, path) for path in rows]
    desks = {each: Desk(lambda own=own: own, told.conditions) for each, own in enumerate(users)}  # type: ignore[misc]
    model = fit_over(told, ClientsByPost(LocalPost(desks)))
    write_model(model, out, None)
    assert model.statement is not None
    click.echo(model.statement.to_text())
    click.echo(f"\nModel: {out}")
    say_page(out / REPORT)


@contextmanager
def _running(command: list[str], home: Path) -> Iterator[None]:
    """Run one of Flower's programs for a while."""
    from apportion.cli.federate_processes import environment

    with subprocess.Popen(command, env=environment(home)) as process:
        try:
            time.sleep(1)  # a link that cannot listen ends at once
            if process.poll() is not None:
                raise ApportionError("The link did not start; the lines above say why.")
            yield
        finally:
            process.terminate()

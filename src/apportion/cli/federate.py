"""`apportion federate`: one fit over clients that keep their rows, and a page for each of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final, Literal

import click

from apportion.cli.option_types import FILE, PAGE
from apportion.cli.outputs import REPORT, refuse_folder, refuse_unless_writable_model, say_page, write_text
from apportion.errors import InputError

_CONFIG: Final = click.argument("federation", type=FILE, metavar="FEDERATION.toml")
_OUT: Final = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for what is released."
)  # fmt: skip
_CARRIER: Final = click.option(
    "--carrier",
    type=click.Choice(["https", "flower"]),
    default="https",
    show_default=True,
    help="What carries letters: HTTPS between machines, or Flower between processes of one machine.",
)
_CLIENT: Final = click.option(
    "--client",
    "own",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("client"),
    show_default=True,
    help="Folder with this client's key and account; keep it, keep it secret, and never copy it.",
)

Carrier = Literal["https", "flower"]


@click.group(short_help="Fit over clients that keep their rows: key, server, client, page, learn, simulate.")
def federate() -> None:
    """Fit over clients that keep their rows.

    \b
    apportion federate key                                    # every client, once; the keys make the roster
    apportion federate key --client server                    # the server, once; clients answer to this key alone
    apportion federate server federation.toml --out model --host 0.0.0.0 --certificate server.pem --key server.key
    apportion federate client federation.toml ratings.csv --server example.org:9443 --root-certificates ca.pem

    FEDERATION.toml says which items there are, who the server and the clients are, how many clients may collude with
    the server or drop out, what epsilon may be spent, and who draws the noise. The server and every client have a copy;
    a client goes by its own. Rows never leave a client: it sends masked whole numbers, and the server can read their
    sum only.
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
@click.option(
    "--identity",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("server"),
    show_default=True,
    help="Folder with the key that clients know this server by; `federate key --client server` makes it.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=9443, show_default=True, help="Port to listen on.")
@_CARRIER
@click.option(
    "--root-certificates", type=FILE, help="For Flower: certificates (PEM) that the server's is checked against."
)
def server(
    federation: Path,
    out: Path,
    certificate: Path,
    secret: Path,
    identity: Path,
    host: str,
    port: int,
    carrier: Carrier,
    root_certificates: Path | None,
) -> None:
    """Listen over TLS, wait for the clients, fit, and write the result with its statement.

    The port takes letters and answers of the clients of the roster, and nothing else. With Flower, clients must be on
    this machine: whoever reaches a link of Flower can start and stop runs on it.
    """
    from apportion.cli.federate_app import agreed, secret_key
    from apportion.transport.configuration import Federation

    refuse_unless_writable_model(out)
    told = Federation.read(federation)
    agreed(told)  # refused before anything listens
    secret_key(identity, "server")
    if carrier == "https":
        from apportion.cli.federate_https import serve_by_https

        serve_by_https(told, identity, out, host, port, certificate, secret)
    else:
        from apportion.cli.federate_flower import refuse_other_machines, serve_by_flower

        refuse_other_machines(host)
        if root_certificates is None:
            raise InputError("Flower needs the certificates that its link is checked against.", argument="carrier")
        serve_by_flower(told, identity, out, port, certificate, secret, root_certificates)
    _say(out)


@federate.command(short_help="Take part with the rows of a file.")
@_CONFIG
@click.argument("rows", type=FILE)
@click.option("--server", "address", metavar="HOST:PORT", required=True, help="Where the server listens.")
@click.option(
    "--root-certificates",
    type=FILE,
    required=True,
    help="Certificates (PEM) that the server's is checked against: of authorities, or the server's own.",
)
@_CLIENT
@_CARRIER
@click.option(
    "--local-port",
    type=click.IntRange(1, 65535),
    default=9094,
    show_default=True,
    help="For Flower: port of its node, on this machine alone.",
)
def client(
    federation: Path, rows: Path, address: str, root_certificates: Path, own: Path, carrier: Carrier, local_port: int
) -> None:
    """Answer the server's questions with the rows in ROWS (user, item, value; of parties: features and label).

    The command runs until it is interrupted.

    The file is checked before the first question, so that nobody drops out because of what a row holds. What was asked
    and what it cost is in the account before it is answered; `apportion federate page` shows it. It opens
    no port.
    """
    from apportion.cli.federate_app import agreed, desk_of, users_of
    from apportion.transport.configuration import Federation

    told = Federation.read(federation)
    conditions = agreed(told)
    desk = desk_of(conditions, users_of(told, rows), own)
    if carrier == "https":
        from apportion.cli.federate_https import answer_by_https

        answer_by_https(desk, conditions, address, root_certificates, own)
    else:
        from apportion.cli.federate_flower import answer_by_flower

        answer_by_flower(desk, address, root_certificates, local_port)


@federate.command(short_help="Show a client what it was asked, what left it, and what is promised.")
@_CONFIG
@_CLIENT
@click.option("--out", type=PAGE, default=Path("client.html"), show_default=True, help="The page.")
def page(federation: Path, own: Path, out: Path) -> None:
    """Write a page for the owner of a client, from the client's own account."""
    from apportion.cli.federate_app import ACCOUNT
    from apportion.report.client_page import client_page
    from apportion.transport import ClientAccount
    from apportion.transport.configuration import Federation

    refuse_folder(out)
    if not (own / ACCOUNT).exists():
        raise InputError(f"There is no account in {own}; `apportion federate key` makes one.", argument="client")
    told = Federation.read(federation)
    write_text(out, client_page(told, len(told.keys), ClientAccount.shown(own / ACCOUNT)))
    say_page(out)


@federate.command(short_help="Parties: learn your own model from what was released.")
@_CONFIG
@click.argument("rows", type=FILE)
@click.argument("released", type=FILE, metavar="RELEASED.json")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File for the model; it is yours alone.")
def learn(federation: Path, rows: Path, released: Path, out: Path) -> None:
    """Learn the model of one party from its ROWS and from what the server released. Nothing leaves this machine."""
    from apportion.cli.federate_parties import features_of, in_json, learned_at_home
    from apportion.transport.configuration import Federation

    refuse_folder(out)
    told = Federation.read(federation)
    write_text(out, in_json(learned_at_home(told, rows, released), features_of(told)))
    click.echo(f"Your own model, not to be shared: {out}")


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

"""`apportion serve`: a saved model as a service over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from apportion.cli.option_types import FILE

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel


@click.command(short_help="Serve a model over HTTP: post a history, get items.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes a free one."
)
@click.option("--titles", type=FILE, help="File with titles of items (id, title), to include in answers.")
@click.option("--categories", type=FILE, help="File of item features to take categories from, if the model has none.")
@click.option("--explorer", is_flag=True, help="Also serve the explorer of the model at /.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=100.0,
    show_default=True,
    help="Requests per second from one address; 0 for no limit.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=256 * 1024,
    show_default=True,
    help="Largest body of a request, in bytes.",
)
@click.option(
    "--max-items",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Largest number of items in one answer.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds within which the head of a request, and then its body, must arrive.",
)
@click.option(
    "--grace",
    type=click.IntRange(min=0),
    default=30,
    show_default=True,
    help="Seconds for open requests when the service stops.",
)
def serve(
    model: Path,
    host: str,
    port: int,
    titles: Path | None,
    categories: Path | None,
    explorer: bool,
    rate: float,
    max_body: int,
    max_items: int,
    timeout: float,
    grace: int,
) -> None:
    """Serve a saved MODEL: POST /recommend takes a history and returns items.

    The service keeps nothing: a history is neither stored nor logged, and its items are left out of the answer. A
    request may name allowed and denied items and categories. /health, /metrics (Prometheus) and /openapi.json describe
    the service. It stops on Ctrl-C or SIGTERM once open requests are answered. Put a TLS proxy in front of it before
    exposing it to the internet.
    """
    from apportion.cli.item_files import titles_of
    from apportion.cli.recommend import take_categories
    from apportion.recommend import load
    from apportion.report.explorer import explorer_page
    from apportion.serving import Limits, Service
    from apportion.serving.running import bound, needed_server, run

    needed_server()
    limits = Limits(body_bytes=max_body, rate=rate, most_items=max_items, seconds=timeout)
    fitted = load(model)
    names = titles_of(fitted, titles)
    take_categories(fitted, categories)
    page = explorer_page(fitted, titles=names) if explorer else None
    _warn(fitted)
    service = Service(fitted, titles=names, limits=limits, page=page)
    with bound(host, port) as at:
        address = f"http://{f'[{host}]' if ':' in host else host}:{at.getsockname()[1]}"
        click.echo(f"Serving {model} at {address} (Ctrl-C stops it).")
        click.echo(f"Try it: curl {address}/recommend --json '{_example(fitted)}'")
        if explorer:
            click.echo(f"Open the explorer in a browser: {address}/")
        run(service, at, limits, grace=grace)
    click.echo("Stopped.")


def _warn(model: ItemModel) -> None:
    """Warn on stderr if what is served has no guarantee."""
    if model.statement is None:
        click.echo("Warning: this model was fitted without privacy; its answers may reveal training data.", err=True)
    elif not model.statement.releasable:
        click.echo("NOT FOR RELEASE: the model's noise came from a seed.", err=True)


def _example(model: ItemModel) -> str:
    """Return a request with the most popular item."""
    item = model.task_ids.id_of(int(model.popularity.argmax()))
    entry = item if model.kind == "clicks" else {"item": item, "value": model.value_range[1]}
    return json.dumps({"history": [entry], "k": 5})

"""`apportion serve`: a saved model as a service over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from apportion.cli.options import FILE

if TYPE_CHECKING:
    from apportion.recommend.model import ItemModel


@click.command(short_help="Serve a model over HTTP: post a history, get items.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--titles", type=FILE, help="Titles of items (id, title), which answers then carry.")
@click.option("--categories", type=FILE, help="Features of items to take categories from, if the model keeps none.")
@click.option("--explorer", is_flag=True, help="Serve the explorer of the model at /, too.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=100.0,
    show_default=True,
    help="Requests a second from one address; 0 for any number.",
)
@click.option(
    "--max-body", type=click.IntRange(min=1), default=256 * 1024, show_default=True, help="Bytes of a request's body."
)
@click.option(
    "--max-items", type=click.IntRange(min=1), default=1000, show_default=True, help="The most items of one answer."
)
@click.option(
    "--grace", type=click.IntRange(min=0), default=30, show_default=True, help="Seconds for open requests at the end."
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
    grace: int,
) -> None:
    """Serve a saved MODEL: POST /recommend takes a history and returns items.

    The service keeps nothing: a history is neither stored nor logged, and items of the history are left out of the
    answer. A request may name allowed and denied items and categories. /health, /metrics (Prometheus) and
    /openapi.json describe it. It stops on Ctrl-C or SIGTERM once open requests are answered. Put a proxy with TLS in
    front of it before it faces the internet.
    """
    from apportion.cli.item_files import read_titles
    from apportion.cli.recommend import take_categories
    from apportion.recommend import load
    from apportion.report.explorer import explorer_page
    from apportion.serving import Limits, Service
    from apportion.serving.running import bound, needed_server, run

    needed_server()
    limits = Limits(body_bytes=max_body, rate=rate, most_items=max_items)
    fitted = load(model)
    names = None if titles is None else read_titles(titles, fitted.task_ids)
    take_categories(fitted, categories)
    page = explorer_page(fitted, titles=names) if explorer else None
    service = Service(fitted, titles=names, limits=limits, page=page)
    with bound(host, port) as at:
        address = f"http://{f'[{host}]' if ':' in host else host}:{at.getsockname()[1]}"
        click.echo(f"Serving {model} at {address} (Ctrl-C stops it).")
        click.echo(f"Try it: curl {address}/recommend --json '{_example(fitted)}'")
        if explorer:
            click.echo(f"Open the explorer in a browser: {address}/")
        run(service, at, limits, grace=grace)
    click.echo("Stopped.")


def _example(model: ItemModel) -> str:
    """A request with the most popular item."""
    item = model.task_ids.id_of(int(model.popularity.argmax()))
    entry = item if model.kind == "clicks" else {"item": item, "value": model.value_range[1]}
    return json.dumps({"history": [entry], "k": 5})

"""`apportion card`: the privacy card of a model or a statement, for machines and as a page."""

from __future__ import annotations

from pathlib import Path

import click

from apportion.cli.options import open_option
from apportion.cli.outputs import refuse_folder, refuse_to_open_nothing, say_page, write_text


@click.command(short_help="Print a model's privacy card: JSON, and optionally a page.")
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="MODEL|STATEMENT.json")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="CARD.json", help="Write to this file instead of printing."
)
@click.option(
    "--page", type=click.Path(path_type=Path), metavar="CARD.html", help="Also write the card as an HTML page."
)
@open_option
def card(source: Path, out: Path | None, page: Path | None) -> None:
    """Print the privacy card of a MODEL folder or of a privacy statement's file.

    The card is a JSON document. It states the guarantee, epsilon without and with tuning, every release, the
    assumptions, the source of the noise and where charges are recorded. It may be shared wherever the statement may.
    """
    from apportion.report.card import card_json, card_page, read_card

    refuse_to_open_nothing(page)
    for target in (out, page):
        if target is not None:
            refuse_folder(target)
    made = read_card(source)
    if out is None:
        click.echo(card_json(made), nl=False)
    else:
        write_text(out, card_json(made))
    if page is not None:
        write_text(page, card_page(made))
    if out is not None:
        click.echo(f"Card: {out}")
    if page is not None:
        say_page(page, err=out is None)

"""`apportion card`: the privacy card of a model or a statement, for machines, as a page, or for a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from apportion.cli.card_options import deployment_of, deployment_options, refuse_deployment
from apportion.cli.option_types import PAGE
from apportion.cli.options import open_option
from apportion.cli.outputs import refuse_folder, refuse_to_open_nothing, say_page, write_text


@click.command(short_help="Print a model's privacy card: JSON, a page, or a record for a registry.")
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="MODEL|STATEMENT.json")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file instead of printing.")
@click.option("--page", type=PAGE, metavar="CARD.html", help="Also write the card as an HTML page.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["card", "registry"]),
    default="card",
    show_default=True,
    help="The card as JSON, or a record for the OpenDP deployment registry as YAML.",
)
@deployment_options
@open_option
def card(source: Path, out: Path | None, page: Path | None, form: str, **deployment: Any) -> None:
    """Print the privacy card of a MODEL folder, of a privacy statement's file, or of what a command printed as JSON.

    The card is a JSON document. It states the guarantee, epsilon without and with tuning, every release, the
    assumptions, the source of the noise and where charges are recorded. It may be shared wherever the statement may.

    With --format registry it becomes a record for the OpenDP deployment registry, at the registry's highest tier. The
    registry also asks for facts that no statement holds, such as who publishes and why: give them as options.
    """
    from apportion.report.card import card_json, card_page, read_card

    refuse_to_open_nothing(page)
    for target in (out, page):
        if target is not None:
            refuse_folder(target)
    if form == "card":
        refuse_deployment(deployment)
    made = read_card(source)
    text = card_json(made) if form == "card" else _record(made, deployment)
    if out is None:
        click.echo(text, nl=False)
    else:
        write_text(out, text)
    if page is not None:
        write_text(page, card_page(made))
    if out is not None:
        click.echo(f"{'Card' if form == 'card' else 'Record'}: {out}")
    if page is not None:
        say_page(page, err=out is None)


def _record(card: dict[str, Any], deployment: dict[str, Any]) -> str:
    from apportion.report.registry_record import record_yaml, registry_record

    return record_yaml(registry_record(card, deployment_of(deployment)))

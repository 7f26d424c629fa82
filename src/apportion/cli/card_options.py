"""Options of `apportion card --format registry`: what a registry asks for and only the deployer knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from apportion.errors import InputError

_OPTIONS: Final = {
    "name": ("--name", "TEXT", "name of the data product"),
    "curators": ("--curator", "NAME", "organisation that publishes it; may be repeated"),
    "description": ("--description", "TEXT", "what the data product is"),
    "intended_use": ("--intended-use", "TEXT", "what it is for"),
    "region": ("--region", "TEXT", "region that the data describe, or whose law applies"),
    "sector": ("--sector", "TEXT", "its industry, as the registry lists them (Technology, Healthcare, ...)"),
    "published": ("--published", "YYYY-MM-DD", "date of publication"),
    "data": ("--about-data", "TEXT", "what the rows are, and whose"),
    "releases": ("--releases", "", "one publication, or many over time"),
    "later": ("--later", "TEXT", "what else will be published from these data, and how the budget is renewed"),
    "refreshed": ("--refreshed", "", "whether rows keep arriving"),
    "exploration": ("--exploration", "TEXT", "what was looked at in the raw data beforehand"),
    "security": ("--security", "TEXT", "how the raw data and the machine are protected"),
    "reason": ("--reason", "TEXT", "why these epsilon, delta and settings were chosen"),
    "contact": ("--contact", "TEXT", "whom to ask"),
    "sources": ("--source", "TEXT", "paper, page or place of the product; may be repeated"),
    "authors": ("--author", "NAME", "author of the record; may be repeated"),
    "trust": ("--trust", "", "who holds the raw rows: a curator, or everybody their own"),
}
_CHOICES: Final = {
    "releases": ("one", "many"),
    "refreshed": ("static", "dynamic"),
    "trust": ("central", "federated"),
}
_REPEATED: Final = ("curators", "sources", "authors")


def deployment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a deployment."""
    for name, (flag, metavar, words) in reversed(_OPTIONS.items()):
        choices = _CHOICES.get(name)
        command = click.option(
            flag,
            name,
            type=click.Choice(choices) if choices else str,
            metavar=metavar or None,
            multiple=name in _REPEATED,
            help=f"For a registry: {words}.",
        )(command)
    return command


def deployment_of(values: Mapping[str, Any]) -> Any:
    """Return the `Deployment` that the options describe. Refuse gaps in one sentence that names the options."""
    from apportion.report.registry_record import Deployment

    given = {name: values[name] for name in _OPTIONS if values[name]}
    found = Deployment(**given)
    if found.missing:
        asked = ", ".join(_OPTIONS[name][0] for name in found.missing)
        raise InputError(f"A registry asks for facts that no statement holds; give also {asked}.", argument=None)
    return found


def refuse_deployment(values: Mapping[str, Any]) -> None:
    """Refuse facts for a registry where no record is asked for."""
    given = [_OPTIONS[name][0] for name in _OPTIONS if values[name]]
    if given:
        raise InputError(f"{given[0]} is for a record of a registry; add --format registry.", argument=None)

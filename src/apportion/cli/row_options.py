"""Which rows of a file are kept: the options that `fit` and the statistics share, and what they say on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args

import click

from apportion.errors import InputError

Missing = Literal["drop", "refuse"]

where_option: Final = click.option(
    "--where",
    metavar="EXPRESSION",
    help="Keep rows where this is true of their own columns, such as \"rating > 0 and country = 'DE'\".",
)


def missing_option(default: Missing | None, words: str) -> Any:
    """Return the option that says what to do about rows with an empty cell.

    Args:
        default: what is done if nothing is said; None if that depends on other options.
        words: the help.
    """
    return click.option(
        "--missing",
        type=click.Choice(get_args(Missing)),
        default=default,
        show_default=default is not None,
        help=words,
    )


def said_of_rows(name: str, left_out: Mapping[str, int], cells: str, **further: str) -> Iterator[str]:
    """Say how many rows each rule left out; this is private, for the terminal alone.

    Args:
        name: what the data are called.
        left_out: how many rows each rule left out.
        cells: which cells must not be empty.
        further: what to say about other rules, after the number of rows.
    """
    refusing = if_option("missing", " (--missing refuse refuses them)")
    reasons = {
        "where": "did not fulfil --where; they were left out.",
        "missing": f"had an empty {cells}; they were left out{refusing}.",
    }
    for rule, reason in (reasons | further).items():
        if n_rows := left_out.get(rule, 0):
            yield f"{name}: {n_rows} row{'s' if n_rows > 1 else ''} {reason}"


def if_option(name: str, words: str) -> str:
    """Return words on an option if the command that is running has it; nothing otherwise."""
    context = click.get_current_context(silent=True)
    return words if context is not None and any(option.name == name for option in context.command.params) else ""


def refuse_rules(given: Any, name: str, instead: str, *, unless: Missing | None) -> None:
    """Refuse rules for rows where none can be applied; empty cells and repeated rows are refused there.

    Args:
        given: the options.
        name: what the data are called.
        instead: what to do instead.
        unless: the default of --missing, which may not have been asked for.
    """
    for argument, default in (("where", None), ("missing", unless), ("repeats", None)):
        if getattr(given, argument, None) not in (None, "refuse", default):
            raise InputError(f"{name}: rows cannot be chosen here; {instead}.", argument=argument)

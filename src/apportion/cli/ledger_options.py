"""Options that name the account of a ledger, and the session that charges it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from apportion.cli.option_types import Command

if TYPE_CHECKING:
    from apportion.privacy import Account, Budget, Checkpoint, NoiseSource, Session

_NO_WINDOW: Final = "not declared"


def ledger_options(command: Command) -> Command:
    """Add the options that name an account to be charged."""
    for option in reversed(_LEDGER):
        command = option(command)
    return command


def charged_session(
    ledger: str | None,
    account: str | None,
    budget: Budget,
    window: str,
    noise: NoiseSource,
    checkpoint: Checkpoint | None = None,
) -> Session | None:
    """Return a session of this budget that charges a ledger's account; None if no ledger was named."""
    result = account_of(ledger, account)
    declared = None if window == _NO_WINDOW else window
    return None if result is None else result.session(budget, noise=noise, window=declared, checkpoint=checkpoint)


def account_of(ledger: str | None, account: str | None) -> Account | None:
    """Return an account of a ledger; None if no ledger was named."""
    if ledger is None and account is None:
        return None
    if ledger is None or account is None:
        raise click.UsageError("--ledger and --account must be given together.")
    from apportion.privacy import Ledger

    asked = click.get_current_context().meta
    where = {name: asked.get(_GUARDED_BY + name) for name in ("key", "head", "fingerprints")}
    result = Ledger.open(ledger, create=False, **where).account(account)
    given = [value for name, value in click.get_current_context().params.items() if name in _DATA_ARGUMENTS]
    data = next((value for value in given if isinstance(value, Path) and value.exists()), None)
    return result if data is None else result.for_data(data, lambda said: click.echo(f"Warning: {said}", err=True))


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Remember where a guard of the ledger is for `account_of`, so that no command has to pass it on."""
    context.meta[_GUARDED_BY + str(option.name).removeprefix("ledger_")] = value


_GUARDED_BY: Final = "apportion.ledger."
_DATA_ARGUMENTS: Final = ("data", "file", "folder")
_LEDGER: Final = (
    click.option(
        "--ledger", metavar="URL", help="Charge a ledger first: a SQLite file or postgresql://...; see `ledger`."
    ),
    click.option("--account", metavar="NAME", help="With --ledger: the account for these data."),
    click.option(
        "--ledger-key",
        metavar="FILE",
        expose_value=False,
        callback=_remember,
        help="With --ledger: its key file; default: $APPORTION_LEDGER_KEY.",
    ),
    click.option(
        "--ledger-head",
        metavar="FILE|URL",
        expose_value=False,
        callback=_remember,
        help="With --ledger: where its heads are stored; default: $APPORTION_LEDGER_HEAD.",
    ),
    click.option(
        "--ledger-fingerprints",
        metavar="FILE",
        expose_value=False,
        callback=_remember,
        help="With --ledger-key: warn if other data were charged before; default: $APPORTION_LEDGER_FINGERPRINTS.",
    ),
)

"""Options that name the account of a ledger, and the session that charges it."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import Command

if TYPE_CHECKING:
    from apportion.privacy import Account, Budget, Checkpoint, NoiseSource, Session
    from apportion.privacy.ledger import Reservation

_NO_WINDOW: Final = "not declared"
_RESERVED: Final = "apportion.reserved"
_NOTHING_SET_ASIDE: Final = (
    "Nothing of account {!r} is set aside for this run; if others charge it meanwhile, the run may be refused half-way."
)
_KEPT: Final = (
    "Reservation {} of account {!r} stays for when this fit goes on; `apportion ledger give-back` ends it instead."
)


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
    """Return a session of this budget that charges a ledger's account; None if no ledger was named.

    The whole budget is set aside until the command ends. Sessions of one command share it.
    """
    reserved = _reserved(ledger, account, budget, checkpoint)
    declared = None if window == _NO_WINDOW else window
    return None if reserved is None else reserved.session(noise=noise, window=declared)


def _reserved(
    ledger: str | None, account: str | None, budget: Budget, checkpoint: Checkpoint | None
) -> Reservation | None:
    """Set the budget aside, unless this command has done so."""
    context = click.get_current_context()
    made: dict[Any, Reservation] = context.meta.setdefault(_RESERVED, {})
    if (ledger, account, budget) not in made:
        charged = account_of(ledger, account)
        if charged is None:
            return None
        reserved = made[ledger, account, budget] = charged.reserve(budget, checkpoint=checkpoint)
        if reserved.number is None and not reserved.finished:
            click.echo(_NOTHING_SET_ASIDE.format(account), err=True)
        context.call_on_close(_heed_termination())
        context.call_on_close(lambda: _end(reserved))
    return made[ledger, account, budget]


def _heed_termination() -> Callable[[], object]:
    """Let SIGTERM end the command as Ctrl-C does, so that what was set aside is given back. Return what undoes that."""
    on_its_own = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not (on_its_own and threading.current_thread() is threading.main_thread()):
        return lambda: None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(reserved: Reservation) -> None:
    """Give back what was not used, or say why it was kept."""
    finished = sys.exc_info()[0] is None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = not reserved.end(finished=finished)
    for each in caught:
        click.echo(f"Warning: {each.message}", err=True)
    if kept and reserved.number is not None and not caught:
        click.echo(_KEPT.format(reserved.number, reserved.name), err=True)


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

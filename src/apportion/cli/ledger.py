"""`apportion ledger`: accounts of privacy budget that all runs on a data set share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.options import PositiveNumber, json_option
from apportion.cli.outputs import print_json, refuse_folder, table, write_text

if TYPE_CHECKING:
    from apportion.privacy.ledger import Account, Entry, Ledger, Status

ALTERED: Final = 1
_RELATIONS: Final = (
    "add-remove", "replace-values", "replace-labels", "add-remove-task", "replace-task", "add-remove-example",
    "replace-values-public-graph",
)  # fmt: skip
_WHERE: Final = click.argument("ledger", metavar="LEDGER")
_ACCOUNT: Final = click.option("--account", metavar="NAME", help="The account; needed where there are several.")
_KEY_FILE: Final = click.option(
    "--key", metavar="FILE", help="The ledger's key, kept elsewhere; default: $APPORTION_LEDGER_KEY."
)
_HEAD: Final = click.option(
    "--head",
    metavar="FILE|URL",
    help="Where heads are kept, outside the ledger: a file, or http(s)://...; default: $APPORTION_LEDGER_HEAD.",
)


@click.group(short_help="Budgets shared by all runs on a data set: open, look, export, check.")
def ledger() -> None:
    """Accounts of privacy budget that all runs on a data set share.

    \b
    export APPORTION_LEDGER_KEY=~/keys/visits.key APPORTION_LEDGER_HEAD=/mnt/other/visits.head
    apportion ledger init visits.db --account visits --epsilon 2 --delta 1e-6 --window 2025 --key ~/keys/visits.key
    apportion fit visits.csv --epsilon 1 --ledger visits.db --account visits
    apportion ledger verify visits.db

    LEDGER is a SQLite file on a local disk, or postgresql://... Every release is charged before its noise is drawn.
    Nothing is ever refunded. With a key nobody else can rewrite an account; with a head, kept where those who can write
    to the ledger cannot, entries that were cut off or rolled back are refused at the next charge.
    """  # noqa: D301


@ledger.command(short_help="Open an account.")
@_WHERE
@click.option("--account", required=True, metavar="NAME", help="Its name: one account for each data set.")
@click.option("--epsilon", type=PositiveNumber(), required=True, help="The privacy loss that all runs may have.")
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, max_open=True),
    required=True,
    help="Slack of the guarantee, well below one over the number of users; 0 for pure releases only.",
)
@click.option(
    "--keys-delta",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    help="The part of delta that is kept for lists of private items or groups; default: nothing.",
)
@click.option(
    "--neighbours",
    type=click.Choice(_RELATIONS),
    default="add-remove",
    show_default=True,
    help="What is protected: all rows of a user, what they hold, their labels, or their values where it is public who "
    "has which task; a party's whole task; one row.",
)
@click.option(
    "--kind",
    type=click.Choice(["gaussian", "pure", "renyi"]),
    help="What adds up; default: gaussian, or pure where delta is 0. Runs on samples of users need renyi.",
)
@click.option(
    "--order", "orders", type=int, multiple=True, metavar="A", help="With --kind renyi: a whole order; several times."
)
@click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data.")
@click.option("--owner", default="", metavar="TEXT", help="Who answers for the account.")
@click.option("--key", metavar="FILE", help="The ledger's key, kept elsewhere; a new one is written if there is none.")
@_HEAD
@json_option
def init(
    ledger: str,
    account: str,
    epsilon: float,
    delta: float,
    keys_delta: float,
    neighbours: str,
    kind: str | None,
    orders: tuple[int, ...],
    window: str,
    owner: str,
    key: str | None,
    head: str | None,
    as_json: bool,
) -> None:
    """Open an account in LEDGER, which is made if it is not there. An account never changes afterwards.

    An account that was opened with a key or a head is not charged without it.
    """
    from apportion.privacy import Budget, Ledger
    from apportion.privacy.ledger import LedgerKey
    from apportion.privacy.ledger.chain import make_filter
    from apportion.privacy.neighbours import RELATIONS

    budget = Budget(epsilon, delta, keys_delta)
    make_filter(budget, kind or ("pure" if budget.pure else "gaussian"), orders or None)  # before a file is made
    if key is not None and not Path(key).exists():
        LedgerKey.create(key)
        click.echo(f"Wrote a new key to {key}; keep it away from those who can write to the ledger.", err=True)
    with Ledger.open(ledger, key=key, head=head) as opened:
        made = opened.create_account(
            account,
            budget,
            neighbours=RELATIONS[neighbours],
            window=window,
            owner=owner,
            kind=kind,
            orders=orders or None,
        )
        _print_status([made.status()], as_json)


@ledger.command(short_help="What was spent, and what is left.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
@json_option
def status(ledger: str, account: str | None, key: str | None, head: str | None, as_json: bool) -> None:
    """Say what was spent of each account in LEDGER, what is left, and the head of its chain."""
    from apportion.privacy import Ledger

    with Ledger.open(ledger, create=False, key=key, head=head) as opened:
        names = opened.accounts() if account is None else [account]
        _print_status([opened.account(name).status() for name in names], as_json)


@ledger.command(short_help="Every charge.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@json_option
def history(ledger: str, account: str | None, key: str | None, as_json: bool) -> None:
    """List every charge to an account."""
    with _one_account(ledger, account, key) as found:
        if as_json:
            print_json(found.export()["entries"])
        else:
            click.echo(_as_table(found.history()) or f"Nothing was charged to {found.name!r} yet.")


@ledger.command(short_help="An account as JSON, with its events in dp_accounting's words.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.json", help="Write there in place of printing.")
def export(ledger: str, account: str | None, key: str | None, out: Path | None) -> None:
    """Export an account as JSON: its status, every entry with its hash, and the event in dp_accounting's words."""
    import json

    if out is not None:
        refuse_folder(out)
    with _one_account(ledger, account, key) as found:
        content = found.export()
    if out is None:
        print_json(content)
    else:
        write_text(out, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        click.echo(f"Wrote {len(content['entries'])} entries to {out}; head {content['head']}.")


@ledger.command(short_help="Write the first head of accounts that were opened without one.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
def head(ledger: str, account: str | None, key: str | None, head: str | None) -> None:
    """Check an account, and write its head where none is kept yet. Afterwards every charge renews it."""
    with _one_account(ledger, account, key, head) as found:
        standing = found.write_first_head()
    click.echo(f"Wrote the head of {standing.name!r}: it is at entry {standing.entries}, {standing.head}.")


@ledger.command(short_help="Recompute every hash, code, cost and sum; compare the head.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
@click.option("--kept", metavar="HASH", help="A hash from a statement or card; the chain must still hold it.")
@json_option
def verify(
    ledger: str, account: str | None, key: str | None, head: str | None, kept: str | None, as_json: bool
) -> None:
    """Recompute every hash, code, cost and sum of LEDGER, compare its heads, and name the first thing that is wrong.

    Says on stderr what cannot be seen without a key or a head. The exit code is 1 if the ledger was altered.
    """
    from apportion.privacy import Ledger

    if kept is not None and account is None:
        raise click.UsageError("--kept goes with --account: every account has its own entries.")
    with Ledger.open(ledger, create=False, key=key, head=head) as opened:
        names = [*opened.accounts(), *opened.removed()] if account is None else [account]
        answers = [_verified(opened, name, kept) for name in names]
    if as_json:
        print_json(answers)
    else:
        _print_verified(answers)
    if not all(each["holds"] for each in answers):
        click.get_current_context().exit(ALTERED)


def _verified(opened: Ledger, name: str, kept: str | None) -> dict[str, Any]:
    from apportion.privacy import LedgerError

    try:
        account = opened.account(name)
        found = account.verify(kept)
    except LedgerError as error:
        return {"account": name, "holds": False, "why": str(error)}
    unseen = list(account.unseen())
    return {"account": name, "holds": True, "entries": found.entries, "head": found.head, "unseen": unseen}


def _print_verified(answers: Sequence[dict[str, Any]]) -> None:
    for each in answers:
        words = f"{each['entries']} entries hold; head {each['head']}" if each["holds"] else each["why"]
        click.echo(f"{each['account']}: {words}", err=not each["holds"])
        for sentence in each.get("unseen", ()):
            click.echo(f"{each['account']}: {sentence}", err=True)


@contextmanager
def _one_account(url: str, name: str | None, key: str | None, head: str | None = None) -> Iterator[Account]:
    """The account that was named, or the only one; the ledger is closed afterwards."""
    from apportion.privacy import Ledger

    with Ledger.open(url, create=False, key=key, head=head) as opened:
        names = opened.accounts()
        if name is None and len(names) != 1:
            raise click.UsageError(f"Name one with --account; there are: {', '.join(names) or 'none'}.")
        yield opened.account(names[0] if name is None else name)


def _print_status(found: Sequence[Status], as_json: bool) -> None:
    if as_json:
        print_json([asdict(each) for each in found])
        return
    click.echo("\n\n".join(map(_in_words, found)) or "There are no accounts.")


def _in_words(found: Status) -> str:
    from apportion.privacy.statement import rounded_up

    delta = "" if found.delta == 0 else f" at delta {found.delta:g}"
    spent_mu = "" if found.spent_mu is None else f" (mu {rounded_up(found.spent_mu):g})"
    left_mu = "" if found.left_mu is None else f" (mu {_rounded_down(found.left_mu):g})"
    return "\n".join(
        [
            f"Account {found.name!r} ({found.kind}): epsilon {found.epsilon:g}{delta} in all.",
            f"Spent: epsilon {rounded_up(found.spent_epsilon):g}{delta}{spent_mu}, "
            f"in {found.entries} entr{'y' if found.entries == 1 else 'ies'}.",
            f"Left:  epsilon {_rounded_down(found.left_epsilon):g}{delta}{left_mu}, to one session that takes it all.",
            f"Unit: {found.unit}. Neighbours: {found.neighbours}.",
            f"Time window: {found.window}. Owner: {found.owner or 'not declared'}. Opened: {found.created}.",
            f"Head: {found.head}",
        ]
    )


def _as_table(entries: Sequence[Entry]) -> str:
    from apportion.privacy.ledger.events import in_words

    rows = [[str(e.number), e.at, e.run, e.name, in_words(e.event), e.hash[:12]] for e in entries]
    return table(["entry", "at", "run", "release", "cost", "hash"], rows) if rows else ""


def _rounded_down(value: float, digits: int = 4) -> float:
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.floor(value / unit + 1e-9) * unit:.{digits + 2}g}")

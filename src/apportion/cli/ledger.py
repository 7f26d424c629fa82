"""`apportion ledger`: privacy budget accounts that all runs on a data set share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from apportion.cli.option_types import PositiveNumber
from apportion.cli.options import json_option
from apportion.cli.outputs import print_json, refuse_folder, table, write_text

if TYPE_CHECKING:
    from apportion.privacy.ledger import Account, Entry, Ledger, Status

ALTERED: Final = 1
_RELATIONS: Final = (
    "add-remove", "replace-values", "replace-labels", "add-remove-task", "replace-task", "add-remove-example",
    "replace-values-public-graph",
)  # fmt: skip
_WHERE: Final = click.argument("ledger", metavar="LEDGER")
_ACCOUNT: Final = click.option("--account", metavar="NAME", help="The account; required if there are several.")
_KEY_FILE: Final = click.option(
    "--key", metavar="FILE", help="The ledger's key file, stored elsewhere; default: $APPORTION_LEDGER_KEY."
)
_HEAD: Final = click.option(
    "--head",
    metavar="FILE|URL",
    help="Where heads are stored, outside the ledger: a file or http(s)://...; default: $APPORTION_LEDGER_HEAD.",
)


@click.group(short_help="Manage budgets shared by all runs on a data set: init, status, history, verify, give-back.")
def ledger() -> None:
    """Manage privacy budget accounts that all runs on a data set share.

    \b
    export APPORTION_LEDGER_KEY=~/keys/visits.key APPORTION_LEDGER_HEAD=/mnt/other/visits.head
    apportion ledger init visits.db --account visits --epsilon 2 --delta 1e-6 --window 2025 --key ~/keys/visits.key
    apportion fit visits.csv --epsilon 1 --ledger visits.db --account visits
    apportion ledger verify visits.db

    LEDGER is a SQLite file on a local disk, or postgresql://... Every release is charged before its noise is drawn. No
    charge is ever refunded. A fit sets its whole budget aside when it begins, or is refused, and gives back what it did
    not charge. With a key, nobody else can rewrite an account. With a head, stored where people who can write to the
    ledger cannot write, the next charge detects entries that were removed or rolled back.
    """  # noqa: D301


@ledger.command(short_help="Open an account.")
@_WHERE
@click.option(
    "--account", required=True, metavar="NAME", help="Name of the account; use one account for each data set."
)
@click.option("--epsilon", type=PositiveNumber(), required=True, help="Privacy loss (epsilon) of all runs together.")
@click.option(
    "--delta",
    type=click.FloatRange(0, 1, max_open=True),
    required=True,
    help="Slack of the guarantee, well below 1 / number of users; 0 allows pure releases only.",
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
    help="What is protected: all rows of a user, their contents, their labels, or their values if "
    "it is public who has which task; a party's whole task; or one row.",
)
@click.option(
    "--kind",
    type=click.Choice(["gaussian", "pure", "renyi"]),
    help="How charges add up; default: gaussian, or pure if delta is 0. Runs on samples of users need renyi.",
)
@click.option(
    "--order",
    "orders",
    type=int,
    multiple=True,
    metavar="A",
    help="With --kind renyi: a whole order; may be given several times.",
)
@click.option("--window", default="not declared", metavar="TEXT", help="Time span of the data.")
@click.option("--owner", default="", metavar="TEXT", help="Who is responsible for the account.")
@click.option(
    "--key", metavar="FILE", help="The ledger's key file, stored elsewhere; a new key is written if there is none."
)
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
    """Open an account in LEDGER, which is created if needed. An account never changes afterwards.

    An account opened with a key or a head can only be charged with it.
    """
    from apportion.privacy import Budget, Ledger
    from apportion.privacy.ledger import LedgerKey
    from apportion.privacy.ledger.chain import make_filter
    from apportion.privacy.neighbours import RELATIONS

    budget = Budget(epsilon, delta, keys_delta)
    make_filter(budget, kind or ("pure" if budget.pure else "gaussian"), orders or None)  # before any file is created
    if key is not None and not Path(key).exists():
        LedgerKey.create(key)
        click.echo(f"Wrote a new key to {key}; keep it away from people who can write to the ledger.", err=True)
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


@ledger.command(short_help="Show what was spent and what is left.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
@json_option
def status(ledger: str, account: str | None, key: str | None, head: str | None, as_json: bool) -> None:
    """Show what was spent of each account in LEDGER, what is left, and the head of its chain."""
    from apportion.privacy import Ledger

    with Ledger.open(ledger, create=False, key=key, head=head) as opened:
        names = opened.accounts() if account is None else [account]
        _print_status([opened.account(name).status() for name in names], as_json)


@ledger.command(short_help="List every charge.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@json_option
def history(ledger: str, account: str | None, key: str | None, as_json: bool) -> None:
    """List every charge to an account."""
    with _one_account(ledger, account, key) as result:
        if as_json:
            print_json(result.export()["entries"])
        else:
            click.echo(_as_table(result.history()) or f"Nothing has been charged to {result.name!r} yet.")


@ledger.command(short_help="Export an account as JSON, with its events in dp_accounting's terms.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE.json", help="Write to this file instead of printing."
)
def export(ledger: str, account: str | None, key: str | None, out: Path | None) -> None:
    """Export an account as JSON: its status, and every entry with its hash and its event in dp_accounting's terms."""
    import json

    if out is not None:
        refuse_folder(out)
    with _one_account(ledger, account, key) as result:
        content = result.export()
    if out is None:
        print_json(content)
    else:
        write_text(out, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        click.echo(f"Wrote {len(content['entries'])} entries to {out}; head {content['head']}.")


@ledger.command("give-back", short_help="Free what is set aside for a run that died.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
@click.option(
    "--reservation", type=click.IntRange(min=1), required=True, metavar="ENTRY", help="The entry that set it aside."
)
@json_option
def give_back(
    ledger: str, account: str | None, key: str | None, head: str | None, reservation: int, as_json: bool
) -> None:
    """Free what is still set aside for a run that died. What it had charged stays spent.

    Every release is charged before its noise is drawn, so the entries say all that the run can have released. If the
    run is still at work, it goes on charging what is free, and may be refused. `status` lists what is set aside.
    """
    from apportion.privacy.ledger.filters import to_text
    from apportion.privacy.statement import rounded_up

    with _one_account(ledger, account, key, head) as result:
        result.verify()
        charged = result.give_back(reservation)
        status, spent = result.status(), result.epsilon_of(charged)
    if as_json:
        print_json({"reservation": reservation, "charged": to_text(charged), "account": asdict(status)})
        return
    click.echo(f"Reservation {reservation} is closed. Charged against it, and spent: epsilon {rounded_up(spent):g}.\n")
    click.echo(_in_words(status))


@ledger.command(short_help="Write the first head of an account that was opened without one.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
def head(ledger: str, account: str | None, key: str | None, head: str | None) -> None:
    """Check an account and write its first head. From then on every charge updates it."""
    with _one_account(ledger, account, key, head) as result:
        standing = result.write_first_head()
    click.echo(f"Wrote the head of {standing.name!r}: entry {standing.entries}, {standing.head}.")


@ledger.command(short_help="Recompute every hash, code, cost and sum; compare the head.")
@_WHERE
@_ACCOUNT
@_KEY_FILE
@_HEAD
@click.option("--kept", metavar="HASH", help="A hash from a statement or card; the chain must still contain it.")
@json_option
def verify(
    ledger: str, account: str | None, key: str | None, head: str | None, kept: str | None, as_json: bool
) -> None:
    """Recompute every hash, code, cost and sum of LEDGER, compare its heads, and name the first error.

    What cannot be detected without a key or a head is listed on stderr. The exit code is 1 if the ledger was altered.
    """
    from apportion.privacy import Ledger

    if kept is not None and account is None:
        raise click.UsageError("--kept needs --account: every account has its own entries.")
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
        result = account.verify(kept)
    except LedgerError as error:
        return {"account": name, "holds": False, "why": str(error)}
    unseen = list(account.unseen())
    return {"account": name, "holds": True, "entries": result.entries, "head": result.head, "unseen": unseen}


def _print_verified(answers: Sequence[dict[str, Any]]) -> None:
    for each in answers:
        words = f"all {each['entries']} entries are intact; head {each['head']}" if each["holds"] else each["why"]
        click.echo(f"{each['account']}: {words}", err=not each["holds"])
        for sentence in each.get("unseen", ()):
            click.echo(f"{each['account']}: {sentence}", err=True)


@contextmanager
def _one_account(url: str, name: str | None, key: str | None, head: str | None = None) -> Iterator[Account]:
    """Return the named account, or the only one. The ledger is closed afterwards."""
    from apportion.privacy import Ledger

    with Ledger.open(url, create=False, key=key, head=head) as opened:
        names = opened.accounts()
        if name is None and len(names) != 1:
            raise click.UsageError(f"Name an account with --account; the ledger has: {', '.join(names) or 'none'}.")
        yield opened.account(names[0] if name is None else name)


def _print_status(result: Sequence[Status], as_json: bool) -> None:
    if as_json:
        print_json([asdict(each) for each in result])
        return
    click.echo("\n\n".join(map(_in_words, result)) or "There are no accounts.")


def _in_words(result: Status) -> str:
    from apportion.privacy.statement import rounded_up

    delta = "" if result.delta == 0 else f" at delta {result.delta:g}"
    spent_mu = "" if result.spent_mu is None else f" (mu {rounded_up(result.spent_mu):g})"
    left_mu = "" if result.left_mu is None else f" (mu {_rounded_down(result.left_mu):g})"
    return "\n".join(
        [
            f"Account {result.name!r} ({result.kind}): epsilon {result.epsilon:g}{delta} in all.",
            f"Spent: epsilon {rounded_up(result.spent_epsilon):g}{delta}{spent_mu}, "
            f"in {result.entries} entr{'y' if result.entries == 1 else 'ies'}.",
            *(
                f"Set aside: epsilon {rounded_up(each.epsilon):g}{delta}, by entry {each.number} of run {each.run}, at "
                f"{each.at}."
                for each in result.reserved
            ),
            f"Left:  epsilon {_rounded_down(result.left_epsilon):g}{delta}{left_mu}, for one session "
            "that takes it all.",
            f"Unit: {result.unit}. Neighbours: {result.neighbours}.",
            f"Time window: {result.window}. Owner: {result.owner or 'not declared'}. Opened: {result.created}.",
            f"Head: {result.head}",
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

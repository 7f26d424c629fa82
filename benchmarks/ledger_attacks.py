"""Attacks on a ledger by somebody who can write to its store and knows the format, but has neither key nor head.

An attack is a function from what the store holds of an account to what it is to hold instead. Hashes are made to fit as
far as that is possible without the key.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from apportion.privacy.ledger.chain import Row, Stored

LEAST_ROWS = 3  # that an account must have to be attacked in every way
_GUARDS = [
    f"DROP TRIGGER IF EXISTS {table}_{action}"
    for table in ("apportion_accounts", "apportion_entries")
    for action in ("UPDATE", "DELETE", "INSERT")
]


@dataclass(frozen=True)
class Held:
    """What a store holds of an account."""

    stored: Stored
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Attack:
    """One way to tamper.

    Attributes:
        change: what is put in place of an account.
        seen_by: what a new process needs to notice it: "nothing", "key or head", "key" or "head".
    """

    change: Callable[[Held], Held]
    seen_by: str

    def is_seen(self, *, key: bool, head: bool) -> bool:
        """Whether a new process notices it with these guards."""
        has = {"nothing": True, "key or head": key or head, "key": key, "head": head}
        return has[self.seen_by]


def forged(row: Row, **fields: Any) -> Row:
    """An entry with other fields and the hash that fits; its code cannot be made."""
    body = _canonical(json.loads(row.body) | fields)
    return row._replace(number=json.loads(body)["number"], body=body, hash=_hash(body))


def redefined(stored: Stored, **fields: Any) -> Stored:
    """An account with other words and the hash that fits; its code cannot be made."""
    body = _canonical(json.loads(stored.body) | fields)
    return replace(stored, body=body, hash=_hash(body))


def rechained(stored: Stored, rows: Iterable[Row]) -> tuple[Row, ...]:
    """Entries numbered, summed up and hashed anew from the account on."""
    made: list[Row] = []
    account, previous, spent = json.loads(stored.body)["name"], stored.hash, None
    for number, row in enumerate(rows, start=1):
        cost = [Fraction(text) for text in json.loads(row.body)["cost"]]
        spent = cost if spent is None else [a + b for a, b in zip(spent, cost, strict=True)]
        sums = [str(amount) for amount in spent]
        made.append(forged(row, account=account, number=number, previous=previous, spent=sums))
        previous = made[-1].hash
    return tuple(made)


def _no_spend(held: Held) -> Held:
    *before, last = held.rows
    nothing = ["0"] * len(json.loads(last.body)["spent"])
    return replace(held, rows=(*before, forged(last, spent=nothing)))


def _last_spend_edited_in_place(held: Held) -> Held:
    *before, last = held.rows
    return replace(held, rows=(*before, last._replace(body=forged(last, spent=["0"]).body)))


def _cheaper_last(held: Held) -> Held:
    """The last entry once more has the event of the first, which is another release, at its right cost."""
    first, last = json.loads(held.rows[0].body), held.rows[-1]
    cheaper = forged(last, event=first["event"], cost=first["cost"], name="harmless")
    return replace(held, rows=rechained(held.stored, (*held.rows[:-1], cheaper)))


def _middle_edited(held: Held) -> Held:
    rows = list(held.rows)
    rows[1] = forged(rows[1], name="harmless")
    return replace(held, rows=tuple(rows))


def _middle_edited_in_place(held: Held) -> Held:
    rows = list(held.rows)
    rows[1] = rows[1]._replace(body=rows[1].body.replace("release", "re1ease"))
    return replace(held, rows=tuple(rows))


def _two_swapped(held: Held) -> Held:
    first, second, *rest = held.rows
    return replace(held, rows=(second._replace(number=1), first._replace(number=2), *rest))


def _budget_raised(held: Held) -> Held:
    fields = json.loads(held.stored.body)
    totals = [str(4 * Fraction(total)) for total in fields["totals"]]
    return replace(held, stored=redefined(held.stored, epsilon=4 * fields["epsilon"], totals=totals))


def _owner_changed_and_rechained(held: Held) -> Held:
    stored = redefined(held.stored, owner="me", headed=False)
    return Held(stored, rechained(stored, held.rows))


def _codes_dropped_and_rechained(held: Held) -> Held:
    stored = replace(redefined(held.stored, key=None, owner="me"), code="")
    return Held(stored, tuple(row._replace(code="") for row in rechained(stored, held.rows[:1])))


def _rows_of_another(held: Held) -> Held:
    """The entries that another account of the same name, budget and size might have."""
    other = redefined(held.stored, mark="0" * 32)
    return replace(held, rows=rechained(other, held.rows))


ATTACKS = {
    "spend of the last entry set to 0": Attack(_no_spend, "nothing"),
    "spend of the last entry set to 0, hash left": Attack(_last_spend_edited_in_place, "nothing"),
    "last entry made cheaper": Attack(_cheaper_last, "key or head"),
    "middle entry edited": Attack(_middle_edited, "nothing"),
    "middle entry edited, hash left": Attack(_middle_edited_in_place, "nothing"),
    "last entry deleted": Attack(lambda held: replace(held, rows=held.rows[:-1]), "head"),
    "all entries deleted": Attack(lambda held: replace(held, rows=()), "head"),
    "rolled back": Attack(lambda held: replace(held, rows=held.rows[:1]), "head"),
    "middle entry deleted": Attack(lambda held: replace(held, rows=(held.rows[0], *held.rows[2:])), "nothing"),
    "middle entry deleted, rechained": Attack(
        lambda held: replace(held, rows=rechained(held.stored, (held.rows[0], *held.rows[2:]))), "key or head"
    ),
    "two entries swapped": Attack(_two_swapped, "nothing"),
    "two entries swapped, rechained": Attack(
        lambda held: replace(held, rows=rechained(held.stored, (held.rows[1], held.rows[0], *held.rows[2:]))),
        "key or head",
    ),
    "budget raised": Attack(_budget_raised, "nothing"),
    "account changed, all rechained": Attack(_owner_changed_and_rechained, "key or head"),
    "codes dropped, one entry left": Attack(_codes_dropped_and_rechained, "key or head"),
    "entries of another account": Attack(_rows_of_another, "nothing"),
    "entries of another account, rechained": Attack(
        lambda held: replace(held, rows=rechained(held.stored, reversed(held.rows))), "key or head"
    ),
}


def tamper(url: str, account: str, change: Callable[[Held], Held]) -> Held:
    """Change an account behind the ledger's back, in one transaction; returns what was there."""
    if url.startswith("postgres"):
        return _tamper_postgres(url, account, change)
    with closing(sqlite3.connect(url, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _GUARDS:
            connection.execute(statement)
        before = _changed(lambda text, values: connection.execute(text, values), account, change)
        connection.execute("COMMIT")
    return before


def _tamper_postgres(url: str, account: str, change: Callable[[Held], Held]) -> Held:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("SET session_replication_role = replica")  # triggers sleep
        connection.execute("SELECT 1 FROM apportion_accounts WHERE name = %s FOR UPDATE", (account,))
        return _changed(lambda text, values: connection.execute(text.replace("?", "%s"), values), account, change)


def _changed(run: Callable[[Any, tuple[Any, ...]], Any], account: str, change: Callable[[Held], Held]) -> Held:
    found = run("SELECT body, hash, code FROM apportion_accounts WHERE name = ?", (account,)).fetchone()
    query = "SELECT number, body, hash, code FROM apportion_entries WHERE account = ? ORDER BY number"
    before = Held(Stored(*found), tuple(map(Row._make, run(query, (account,)).fetchall())))
    after = change(before)
    values = (after.stored.body, after.stored.hash, after.stored.code, account)
    run("UPDATE apportion_accounts SET body = ?, hash = ?, code = ? WHERE name = ?", values)
    run("DELETE FROM apportion_entries WHERE account = ?", (account,))
    for row in after.rows:
        run("INSERT INTO apportion_entries VALUES (?, ?, ?, ?, ?)", (account, *row))
    return before


def _canonical(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

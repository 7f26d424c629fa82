"""Entries chained by hash: each holds the hash of the one before, so that an altered one shows.

An account's definition is hashed first; an entry is hashed together with the hash before it. Both are JSON in one
canonical form, and what is hashed is what is stored. Whoever can write to the store can also rewrite a whole chain, or
cut its tail: that shows only against a head that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from apportion.errors import ApportionError, BudgetError, InputError
from apportion.privacy.budget import Budget
from apportion.privacy.ledger import events
from apportion.privacy.ledger.events import Event
from apportion.privacy.ledger.filters import Amounts, Filter, GaussianFilter, PureFilter, added, from_text, to_text
from apportion.privacy.ledger.renyi import RenyiFilter
from apportion.privacy.neighbours import RELATIONS, Neighbours, relation_of

FORMAT = 1
KINDS = ("gaussian", "pure", "renyi")
_SAME_COST = 1e-6  # relative: how far two versions of a numerical library may differ in the cost of a sampled run


class LedgerError(ApportionError):
    """The ledger cannot be reached, or was altered; nothing was drawn."""


@dataclass(frozen=True)
class Row:
    """What the store keeps of an entry."""

    number: int
    body: str
    hash: str


@dataclass(frozen=True)
class Definition:
    """An account as it was opened; it never changes.

    Attributes:
        name: of the account.
        filter: what it adds up, and up to where.
        neighbours: which two data sets are to be indistinguishable.
        window: the time span of the data, declared.
        owner: a note on who answers for the account.
        created: when, in UTC.
        hash: of all this.
    """

    name: str
    filter: Filter
    neighbours: Neighbours
    window: str
    owner: str
    created: str
    hash: str = ""


@dataclass(frozen=True)
class Entry:
    """One charge.

    Attributes:
        number: from 1.
        at: when, in UTC.
        run: who charged: a text that marks one handle on the account.
        name: of the release.
        event: what was charged for.
        cost: what it added to each amount.
        spent: each amount afterwards.
        previous: hash of the entry before, or of the account.
        hash: of this entry.
    """

    number: int
    at: str
    run: str
    name: str
    event: Event
    cost: Amounts
    spent: Amounts
    previous: str
    hash: str = ""


def now() -> str:
    """The time in UTC, to the second, as entries have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_filter(budget: Budget, kind: str, orders: Iterable[int] | None = None) -> Filter:
    """The filter of a kind; orders are for "renyi" alone."""
    if kind not in KINDS:
        raise InputError(f"Expected an account of kind {', '.join(KINDS)}, got {kind!r}.")
    if kind == "renyi":
        return RenyiFilter(budget, None if orders is None else tuple(orders))
    if orders is not None:
        raise InputError(f"Expected orders for an account of kind 'renyi' alone, got them for {kind!r}.")
    return GaussianFilter(budget) if kind == "gaussian" else PureFilter(budget)


def written_definition(definition: Definition) -> tuple[str, str]:
    """The canonical text of an account, and its hash."""
    adds, relation = definition.filter, definition.neighbours
    if RELATIONS.get(relation.key, relation) != relation:
        raise InputError(f"Expected a key of their own for other neighbours, got {relation.key!r}, which is taken.")
    body = _canonical(
        {
            "format": FORMAT,
            "name": definition.name,
            "kind": adds.kind,
            "epsilon": adds.budget.epsilon,
            "delta": adds.budget.delta,
            "orders": list(adds.orders) if isinstance(adds, RenyiFilter) else None,
            "totals": to_text(adds.totals),
            "neighbours": [relation.key, relation.unit, relation.relation],
            "window": definition.window,
            "owner": definition.owner,
            "created": definition.created,
        }
    )
    return body, _hash(body)


def read_definition(name: str, body: str, stored_hash: str) -> Definition:
    """Read an account back; one that was altered is refused."""
    try:
        fields = json.loads(body)
        if fields["format"] != FORMAT:
            raise LedgerError(f"Expected an account of format {FORMAT}, got {fields['format']!r} for {name!r}.")
        adds = make_filter(Budget(fields["epsilon"], fields["delta"]), fields["kind"], fields["orders"])
        totals = from_text(fields["totals"])
        key, unit, relation = fields["neighbours"]
        definition = Definition(
            fields["name"],
            adds,
            relation_of(key, unit, relation),
            fields["window"],
            fields["owner"],
            fields["created"],
            stored_hash,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _altered(name) from error
    if _hash(body) != stored_hash or definition.name != name or not adds.agrees_with(totals):
        raise _altered(name)
    adds.totals = totals  # as they were worth when the account was opened
    return definition


def written_entry(account: str, entry: Entry) -> Row:
    """The canonical text of an entry, and its hash."""
    body = _canonical(
        {
            "account": account,
            "number": entry.number,
            "at": entry.at,
            "run": entry.run,
            "name": entry.name,
            "event": events.to_json(entry.event),
            "cost": to_text(entry.cost),
            "spent": to_text(entry.spent),
            "previous": entry.previous,
        }
    )
    return Row(entry.number, body, _hash(body))


def read_entry(account: str, row: Row) -> Entry:
    """Read an entry back; one that was altered is refused."""
    try:
        fields = json.loads(row.body)
        entry = Entry(
            fields["number"],
            fields["at"],
            fields["run"],
            fields["name"],
            events.from_json(fields["event"]),
            from_text(fields["cost"]),
            from_text(fields["spent"]),
            fields["previous"],
            row.hash,
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise _broken(account, row.number, "cannot be read") from error
    if _hash(row.body) != row.hash:
        raise _broken(account, row.number, "was altered: its hash is another")
    if fields["account"] != account or entry.number != row.number or written_entry(account, entry) != row:
        raise _broken(account, row.number, "was altered: it belongs elsewhere")
    return entry


def check(definition: Definition, rows: Iterable[Row]) -> Iterable[Entry]:
    """Read every entry, recomputing hashes, costs and sums; refuses at the first that is not as it was written."""
    adds, previous, spent = definition.filter, definition.hash, definition.filter.nothing
    for number, row in enumerate(rows, start=1):
        if row.number != number:
            raise _broken(definition.name, number, "is missing")
        entry = read_entry(definition.name, row)
        if entry.previous != previous:
            raise _broken(definition.name, number, "does not follow the one before")
        if not _is_cost(adds, entry):
            raise _broken(definition.name, number, "has a cost that is not that of its event")
        spent = added(spent, entry.cost)
        if entry.spent != spent:
            raise _broken(definition.name, number, "has a sum that does not add up")
        if not adds.allows(spent):
            raise _broken(definition.name, number, "goes beyond the account's total")
        previous = entry.hash
        yield entry


def _is_cost(adds: Filter, entry: Entry) -> bool:
    try:
        expected = adds.cost(entry.event)
    except BudgetError:
        return False
    if not isinstance(entry.event, events.SampledRun | events.SelectionRun):  # computed in floating point
        return entry.cost == expected
    if len(entry.cost) != len(expected):
        return False
    return all(abs(one - other) <= _SAME_COST * abs(other) for one, other in zip(entry.cost, expected, strict=True))


def _canonical(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def _altered(name: str) -> LedgerError:
    return LedgerError(f"The account {name!r} was altered: it is not as it was opened.")


def _broken(account: str, number: int, how: str) -> LedgerError:
    return LedgerError(f"Entry {number} of account {account!r} {how}.")

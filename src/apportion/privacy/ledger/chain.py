"""Entries chained by hash: each entry holds the hash of the one before, so that an alteration shows.

The account's definition is hashed first. Each entry is hashed together with the hash before it. Both are JSON in a
canonical form, and what is hashed is what is stored. With a key, each hash has an authentication code that only the key
can make, so nobody else can write a new chain. A chain that was cut at its end can only be detected by a head stored
elsewhere (`heads`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from apportion.errors import ApportionError, BudgetError, InputError
from apportion.privacy.budget import Budget
from apportion.privacy.ledger import events
from apportion.privacy.ledger.filters import Filter, GaussianFilter, PureFilter, from_text, to_text
from apportion.privacy.ledger.keys import LedgerKey
from apportion.privacy.ledger.listed import FilterWithKeys
from apportion.privacy.ledger.renyi import RenyiFilter
from apportion.privacy.ledger.standing import Entry, Standing
from apportion.privacy.neighbours import RELATIONS, Neighbours

FORMAT = 2  # the format of tables, rows, heads and the files beside them; other formats are refused
WITH_RESERVATIONS = 3  # of a ledger from its first reservation on, so that programs that do not know them refuse it
KINDS = ("gaussian", "pure", "renyi")
_SAME_COST = 1e-6  # relative difference allowed between versions of a numerical library in the cost of a sampled run


class LedgerError(ApportionError):
    """The ledger cannot be reached, or was altered; nothing was drawn."""


def require_ledger_format(what: str, stored: object, newest: int = FORMAT) -> None:
    """Refuse part of a ledger in another format, in one sentence that says what to do.

    Args:
        what: the part, as the subject of the sentence.
        stored: the format that it states.
        newest: the newest format of such a part.
    """
    if isinstance(stored, int) and FORMAT <= stored <= newest:
        return
    newer = isinstance(stored, int) and stored > newest
    advice = "install a newer apportion to read it" if newer else "use the version of apportion that wrote it"
    known = f"format {FORMAT}" if newest == FORMAT else f"formats {FORMAT} to {newest}"
    raise LedgerError(f"{what} has format {stored!r}, but this version of apportion reads {known}: {advice}.")


class Row(NamedTuple):
    """A stored entry."""

    number: int
    body: str
    hash: str
    code: str

    @property
    def plain(self) -> Row:
        """Return the row without its code."""
        return self._replace(code="")


@dataclass(frozen=True)
class Stored:
    """A stored account."""

    body: str
    hash: str
    code: str


@dataclass(frozen=True)
class Definition:
    """An account as it was opened; it never changes.

    Attributes:
        name: the name of the account.
        filter: what it adds up, and the totals.
        neighbours: which two data sets are to be indistinguishable.
        window: the time span of the data, declared.
        owner: a note on who answers for the account.
        created: when, in UTC.
        mark: random text, so that no two accounts are alike.
        key: name of the key that authenticates it, if any.
        headed: whether it was opened with a head outside the ledger.
        hash: the hash of all of the above.
    """

    name: str
    filter: Filter
    neighbours: Neighbours
    window: str
    owner: str
    created: str
    mark: str
    key: str | None = None
    headed: bool = False
    hash: str = ""

    @property
    def start(self) -> Standing:
        """The state before the first entry."""
        return Standing(0, self.hash, self.filter.nothing)


def now() -> str:
    """Return the time in UTC to the second, in the form that entries use."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def make_filter(budget: Budget, kind: str, orders: Iterable[int] | None = None) -> Filter:
    """Make the filter of a kind; orders apply only to "renyi"."""
    if kind not in KINDS:
        raise InputError(f"Expected an account of kind {', '.join(KINDS)}, got {kind!r}.", argument="kind")
    if orders is not None and kind != "renyi":
        raise InputError(
            f"Expected orders only for an account of kind 'renyi', got them for {kind!r}.", argument="orders"
        )
    noise: Filter
    if kind == "renyi":
        noise = RenyiFilter(budget, None if orders is None else tuple(orders))
    else:
        noise = GaussianFilter(budget) if kind == "gaussian" else PureFilter(budget)
    return FilterWithKeys(noise) if budget.keys_delta else noise


def written_definition(definition: Definition, key: LedgerKey | None) -> Stored:
    """Return the canonical text of an account, its hash, and its code if there is a key."""
    adds, relation = definition.filter, definition.neighbours
    if RELATIONS.get(relation.key, relation) != relation:
        raise InputError(
            f"Expected a new key for a neighbour relation of your own, got {relation.key!r}, which is taken.",
            argument="neighbours",
        )
    body = _canonical(
        {
            "format": FORMAT,
            "name": definition.name,
            "kind": adds.kind,
            "epsilon": adds.budget.epsilon,
            "delta": adds.budget.delta,
            "keys_delta": adds.budget.keys_delta,
            "orders": _orders(adds),
            "totals": to_text(adds.totals),
            "neighbours": [relation.key, relation.unit, relation.relation],
            "window": definition.window,
            "owner": definition.owner,
            "created": definition.created,
            "mark": definition.mark,
            "key": definition.key,
            "headed": definition.headed,
        }
    )
    hashed = _hash(body)
    return Stored(body, hashed, "" if key is None else key.code("account", hashed))


def read_definition(name: str, stored: Stored, key: LedgerKey | None) -> Definition:
    """Read an account back. Refuse one that was altered or was not written under the given key."""
    try:
        fields = json.loads(stored.body)
        require_ledger_format(f"Account {name!r}", fields["format"])
        definition = _definition(fields, stored.hash)
        totals = from_text(fields["totals"])
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise _altered(name) from error
    if _hash(stored.body) != stored.hash or definition.name != name or not definition.filter.agrees_with(totals):
        raise _altered(name)
    _refuse_other_key(definition, key)
    if not _is_authentic(definition, key, "account", stored.hash, stored.code):
        raise LedgerError(f"Account {name!r} was altered: its code was not made with the ledger's key.")
    definition.filter.totals = totals  # what the budget was worth when the account was opened
    return definition


def _definition(fields: Mapping[str, Any], hashed: str) -> Definition:
    key, unit, words = fields["neighbours"]
    return Definition(
        fields["name"],
        make_filter(
            Budget(fields["epsilon"], fields["delta"], fields.get("keys_delta", 0.0)), fields["kind"], fields["orders"]
        ),
        RELATIONS.get(key, Neighbours(key, unit, words)),
        fields["window"],
        fields["owner"],
        fields["created"],
        fields["mark"],
        fields["key"],
        fields["headed"],
        hashed,
    )


def _orders(adds: Filter) -> list[int] | None:
    noise = adds.noise if isinstance(adds, FilterWithKeys) else adds
    return list(noise.orders) if isinstance(noise, RenyiFilter) else None


def _refuse_other_key(definition: Definition, key: LedgerKey | None) -> None:
    if key is None or key.name == definition.key:
        return
    has = "no key" if definition.key is None else f"key {definition.key}"
    raise LedgerError(
        f"Account {definition.name!r} has {has}, but {key.place!r} is key {key.name}: the account was "
        "opened with another key, or rewritten."
    )


def _is_authentic(definition: Definition, key: LedgerKey | None, label: str, hashed: str, code: str) -> bool:
    """Whether the key made this code. Without the key, only an entry that never had a code can be judged."""
    if key is not None:
        return key.made(code, label, hashed)
    return definition.key is not None or code == ""


def written_entry(account: str, entry: Entry, key: LedgerKey | None) -> Row:
    """Return the canonical text of an entry, its hash, and its code if there is a key."""
    against = {} if entry.against is None else {"against": entry.against}
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
            **against,
        }
    )
    hashed = _hash(body)
    return Row(entry.number, body, hashed, "" if key is None else key.code("entry", hashed))


def read_entry(definition: Definition, row: Row, key: LedgerKey | None) -> Entry:
    """Read an entry back. Refuse one that was altered or was not written under the given key."""
    account = definition.name
    if not all(
        isinstance(text, str) for text in (row.body, row.hash, row.code)
    ):  # SQLite accepts any type in any column
        raise _broken(account, row.number, "cannot be read")
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
            fields.get("against"),
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise _broken(account, row.number, "cannot be read") from error
    if _hash(row.body) != row.hash:
        raise _broken(account, row.number, "was altered: its hash does not match")
    if fields["account"] != account or entry.number != row.number or written_entry(account, entry, None) != row.plain:
        raise _broken(account, row.number, "was altered: it belongs elsewhere")
    if not _is_authentic(definition, key, "entry", row.hash, row.code):
        raise _broken(account, row.number, "was altered: its code was not made with the ledger's key")
    return entry


def check(
    definition: Definition, rows: Iterable[Row], key: LedgerKey | None, after: Standing | None = None
) -> Iterator[tuple[Entry, Standing]]:
    """Read entries and recompute hashes, codes, costs and sums. Refuse at the first mismatch.

    Each comes with the state of the chain after it.

    Args:
        definition: the definition of the account.
        rows: the rows in order, from the one that follows `after`.
        key: the ledger's key; without it, codes are not checked.
        after: the state after the rows already checked; by default, the start of the account.
    """
    standing = after or definition.start
    for row in rows:
        number = standing.number + 1
        if row.number != number:
            raise _broken(definition.name, number, "is missing")
        entry = read_entry(definition, row, key)
        if entry.previous != standing.hash:
            raise _broken(definition.name, number, "does not follow the one before")
        if not _is_cost(definition.filter, entry):
            raise _broken(definition.name, number, "has a cost that does not match its event")
        following = standing.after(entry)
        if following is None:
            raise _broken(definition.name, number, "does not fit the reservations before it")
        standing = following
        if entry.spent != standing.spent:
            raise _broken(definition.name, number, "has a sum that does not add up")
        if not definition.filter.allows(standing.taken):
            raise _broken(definition.name, number, "goes beyond the account's total")
        yield entry, standing


def _is_cost(adds: Filter, entry: Entry) -> bool:
    if isinstance(entry.event, events.Note):
        return entry.cost == adds.nothing
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
    return LedgerError(f"Account {name!r} was altered: it differs from the account that was opened.")


def _broken(account: str, number: int, how: str) -> LedgerError:
    return LedgerError(f"Entry {number} of account {account!r} {how}.")

"""Accounts of a ledger that are tampered with while others are charged, and whether that was noticed.

The guards of an account are the last word of its name. Each guarded account has a head file of its own, so that many
accounts do not wait for one file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path

from apportion.privacy import Account, Budget, Ledger, LedgerError
from apportion.privacy.ledger import GaussianRelease, LedgerKey
from apportion.privacy.ledger.heads import FileHeads, open_heads
from apportion.privacy.ledger.store import Store
from benchmarks.ledger_attacks import ATTACKS, LEAST_ROWS, Held, tamper

GUARDS = ("plain", "keyed", "headed", "both")
GUARDS_OF_OTHERS = ("plain", "keyed", "plain", "headed", "plain", "both", "plain", "plain")
_BUDGET = Budget(1.0, 1e-6)


@dataclass(frozen=True)
class Tampered:
    """An account that was tampered with.

    Attributes:
        attack: its name.
        began: before the attack, by the clock that all processes share.
        ended: after it.
        kept: the hash that a statement would have had before.
        seen: whether a new process is to notice it.
    """

    attack: str
    began: float
    ended: float
    kept: str
    seen: bool


@dataclass(frozen=True)
class Doors:
    """Opens accounts with their guards, all through one store."""

    store: Store
    folder: Path

    @classmethod
    def make(cls, store: Store, folder: Path) -> Doors:
        """The same with a new key."""
        LedgerKey.create(folder / "key")
        (folder / "heads").mkdir()
        return cls(store, folder)

    def ledger(self, account: str) -> Ledger:
        """The ledger as those see it who have the guards of this account."""
        guards = account.rpartition(" ")[2]
        key = LedgerKey.read(self.folder / "key") if guards in ("keyed", "both") else None
        head = self.folder / "heads" / account if guards in ("headed", "both") else None
        return Ledger(self.store, key, open_heads(head))

    def open(self, account: str) -> Account:
        """A new handle."""
        return self.ledger(account).account(account)


def victims(number: int) -> Iterator[tuple[str, str]]:
    """Names of accounts, and the attack on each: all attacks under all guards, in turns."""
    for k, (attack, guards) in enumerate(islice(zip(cycle(ATTACKS), cycle(GUARDS), strict=False), number)):
        yield f"gaussian at random victim {attack} {k} {guards}", attack


def open_victim(doors: Doors, name: str) -> None:
    """Make an account that has something to tamper with."""
    account = doors.ledger(name).create_account(name, _BUDGET)
    for k in range(LEAST_ROWS):
        account.charge("release", GaussianRelease(_BUDGET.mu * (0.05 + 0.01 * k)))


def attacked(url: str, folder: Path, name: str, attack: str) -> Tampered:
    """Tamper with an account, whoever charges it meanwhile."""
    began, guards = time.monotonic(), name.rpartition(" ")[2]
    below_head = guards in ("headed", "both")

    def change(held: Held) -> Held:
        nonlocal below_head
        after = ATTACKS[attack].change(held)
        if below_head:  # entries beyond the head were not drawn on, after a kill just before it was written
            head = FileHeads(folder / "heads" / name).read(name)
            covered = 0 if head is None else head.entries
            below_head = held.stored != after.stored or held.rows[:covered] != after.rows[:covered]
        return after

    before = tamper(url, name, change)
    seen = ATTACKS[attack].is_seen(key=guards in ("keyed", "both"), head=below_head)
    return Tampered(attack, began, time.monotonic(), before.rows[-1].hash, seen)


def missed(tampered: Mapping[str, Tampered], acknowledged: Sequence[tuple[str, float]], doors: Doors) -> list[str]:
    """Tampering that did not keep a process from charging: during the run, or a new process afterwards."""
    late = [name for name, started in acknowledged if name in tampered and started > tampered[name].ended]
    found = [f"{name}: charged after it was tampered with" for name in {*late} if tampered[name].seen]
    for name, how in tampered.items():
        if how.seen and not _refuses(partial(_charge, doors, name)):
            found.append(f"{name}: a new process charged it")
    return found


def unreported(tampered: Mapping[str, Tampered], doors: Doors) -> list[str]:
    """Tampering that `verify` does not report, given a hash that was kept where the guards do not see it."""
    found = []
    for name, how in tampered.items():
        kept = None if how.seen else how.kept
        if not _refuses(partial(_verify, doors, name, kept)):
            found.append(f"{name}: verify says that it holds")
    return found


def _charge(doors: Doors, name: str) -> None:
    doors.open(name).charge("x", GaussianRelease(1e-4))


def _verify(doors: Doors, name: str, kept: str | None) -> None:
    doors.open(name).verify(kept)


def _refuses(use: Callable[[], object]) -> bool:
    try:
        use()
    except LedgerError:
        return True
    return False

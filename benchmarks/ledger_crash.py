"""Claim: processes that charge one ledger at once, killed at random and tampered with, never overspend it.

Eight processes run schedules: short random sequences of charges to one of many small accounts, more in all than the
accounts can bear. Now and then one of the processes is killed (SIGKILL) wherever it is, and another takes its place;
the PostgreSQL server itself crashes a few times too. A process writes a line to a file of its own after a charge was
acknowledged, where a session would draw. Afterwards every account is recomputed from what the store holds: no sum is
beyond its total, every acknowledged charge is there, every refused one would still be too much, all chains verify.

A fifth of the accounts is charged against reservations only: a schedule sets a part aside, or is refused, charges less
than that, and gives the rest back. No charge of theirs is refused; what a killed process leaves open is given back
afterwards, without any change of what was spent.

Some accounts have a key, a head outside the ledger, or both. Meanwhile further accounts are tampered with, each in one
of the ways of `ledger_attacks`, under all guards. No charge that begins afterwards passes if the guards can see it (a
key sees every rewrite, a head all that is changed or cut off below it); `verify` reports it, if need be against a hash
that was kept; and no account that was left alone is ever refused as altered.
"""

from __future__ import annotations

import json
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, cast

from apportion.privacy import Account, Budget, Ledger, LedgerError
from apportion.privacy.gaussian import mu_of_pure
from apportion.privacy.ledger import Note, Reserved
from apportion.privacy.ledger.events import Event, GaussianRelease, PureRelease, from_json
from apportion.privacy.ledger.renyi import RenyiFilter
from benchmarks.claim import Outcome, UnavailableError, print_table
from benchmarks.ledger_runs import LONGEST, charge_against_a_reservation, given_back, told
from benchmarks.ledger_victims import (
    GUARDS_OF_OTHERS,
    Doors,
    Tampered,
    attacked,
    missed,
    open_victim,
    unreported,
    victims,
)
from benchmarks.postgres_server import Server, find_binaries, temporary_server

PROCESSES = 8
SCHEDULES, QUICK_SCHEDULES = 100_000, 400
KILLS, QUICK_KILLS = 520, 12
ACCOUNTS, QUICK_ACCOUNTS = 4000, 15
CRASHES, QUICK_CRASHES = 5, 1
TAMPERINGS, QUICK_TAMPERINGS = 680, 20  # all attacks under all guards, in turns
BUDGETS = {"gaussian": Budget(1.0, 1e-6), "pure": Budget(2.0, 0.0), "renyi": Budget(2.0, 1e-6)}
STYLES = ("in halves", "in a bit more", "at random", "at random", "set aside")
"""How an account is charged: by powers of two of its total, which fill it exactly; by the next floats, which would be
beyond it by as little as floats can say; by random amounts; or against reservations."""
ASIDE = STYLES[-1]
CHARGES_THAT_FIT = 25

_FORK = multiprocessing.get_context("fork")


@dataclass
class Found:
    """What was found in a store afterwards."""

    schedules: int = 0
    kills: int = 0
    crashes: int = 0
    charges: int = 0
    acknowledged: int = 0
    refused: int = 0
    reserved: int = 0
    left_open: int = 0
    half_way: int = 0
    overspent: int = 0
    lost: int = 0
    wrongly_refused: int = 0
    broken: int = 0
    silent: int = 0
    unexplained: int = 0
    tampered: int = 0
    missed: int = 0
    unreported: int = 0
    false_alarms: int = 0
    exactly_full: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing went wrong."""
        wrong = (self.overspent, self.lost, self.wrongly_refused, self.broken, self.silent, self.unexplained)
        return not any((*wrong, self.half_way, self.missed, self.unreported, self.false_alarms))


@dataclass(frozen=True)
class Sizes:
    """How much is done in each store."""

    schedules: int
    kills: int
    accounts: int
    crashes: int
    tamperings: int


@dataclass
class Heard:
    """What the processes were told.

    Attributes:
        acknowledged: account, number and hash of each charge, and when it began.
        refused: account and event of each charge that was too much, and whether it was said what is left.
        altered: account that was said to be altered, and when that was said.
        half_way: charges of runs with a reservation that were refused.
        failures: charges that ended with a server's crash, on accounts that nobody tampered with.
    """

    acknowledged: list[tuple[str, int, str, float]] = field(default_factory=list)
    refused: list[tuple[str, Event, bool]] = field(default_factory=list)
    altered: list[tuple[str, float, str]] = field(default_factory=list)
    half_way: int = 0
    failures: int = 0


@dataclass
class Crowd:
    """The processes that charge; each place is taken again when its process is killed."""

    url: str
    folder: Path
    rng: random.Random
    counts: Any = field(default_factory=lambda: _FORK.RawArray("Q", PROCESSES))
    places: list[Any] = field(default_factory=list)
    started: int = 0

    def start(self, place: int) -> None:
        """Put a new process in a place."""
        self.started += 1
        log = self.folder / f"{self.started}.log"
        seed = self.rng.getrandbits(64)
        process = _FORK.Process(target=_charge_forever, args=(self.url, log, seed, self.counts, place), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads do not matter: the child opens all it uses
            process.start()
        self.places[place : place + 1] = [process]

    def kill(self, place: int) -> None:
        """Kill the process in a place, wherever it is."""
        process = self.places[place]
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        process.close()


def measure(quick: bool) -> Outcome:
    """Run the crowd on every store that is here."""
    sizes = (
        Sizes(QUICK_SCHEDULES, QUICK_KILLS, QUICK_ACCOUNTS, QUICK_CRASHES, QUICK_TAMPERINGS)
        if quick
        else Sizes(SCHEDULES, KILLS, ACCOUNTS, CRASHES, TAMPERINGS)
    )
    found = {"SQLite": _in_sqlite(sizes)}
    try:
        find_binaries()
        found["PostgreSQL"] = _in_postgres(sizes)
    except UnavailableError as missing:
        if not quick:
            raise
        print(f"PostgreSQL is left out: {missing}")
    names = list(Found.__dataclass_fields__)
    print_table(["", *found], [[name.replace("_", " "), *(getattr(f, name) for f in found.values())] for name in names])
    kills = min(f.kills for f in found.values())
    return Outcome(
        value={store: {name: getattr(f, name) for name in names} for store, f in found.items()},
        target={
            "schedules": sizes.schedules,
            "kills": sizes.kills,
            "overspent, lost, wrongly refused, half-way, broken, silent, missed, unreported, false alarms": 0,
        },
        holds=all(f.holds and f.schedules >= sizes.schedules and f.kills >= sizes.kills for f in found.values()),
        headline=f"{' and '.join(found)}: {min(f.schedules for f in found.values()):,} spend schedules over "
        f"{PROCESSES} processes with {kills} kills each: {sum(f.overspent for f in found.values())} overspends, "
        f"{sum(f.lost for f in found.values())} lost charges, {sum(f.broken for f in found.values())} broken chains, "
        f"{sum(f.half_way for f in found.values())} of {min(f.reserved for f in found.values()):,} runs with a "
        f"reservation refused half-way; {min(f.tampered for f in found.values())} accounts tampered with: "
        f"{sum(f.missed + f.unreported for f in found.values())} unnoticed",
        settings={
            "processes": PROCESSES,
            "accounts": sizes.accounts,
            "seed": 0,
            "budgets": {kind: str(budget) for kind, budget in BUDGETS.items()},
        },
    )


def _in_sqlite(sizes: Sizes) -> Found:
    with _folder() as folder:
        return _measured(str(folder / "ledger.db"), folder, sizes, None)


def _in_postgres(sizes: Sizes) -> Found:
    with _folder() as folder, temporary_server() as server:
        return _measured(server.url, folder, sizes, server)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _measured(url: str, folder: Path, sizes: Sizes, server: Server | None) -> Found:
    with Ledger.open(url) as ledger:
        plans = _prepare(Doors.make(ledger._store, folder), sizes)
    start = time.monotonic()
    found, tampered = Found(), dict[str, Tampered]()
    crowd = Crowd(url, folder, random.Random(0))
    n_crashes = 0 if server is None else sizes.crashes
    for place in range(PROCESSES):
        crowd.start(place)
    while sum(crowd.counts) < sizes.schedules or found.kills < sizes.kills or plans:
        time.sleep(crowd.rng.expovariate(1000))
        done = sum(crowd.counts) / sizes.schedules
        if found.kills < sizes.kills * done + 1:
            place = crowd.rng.randrange(PROCESSES)
            crowd.kill(place)
            crowd.start(place)
            found.kills += 1
        if server is not None and found.crashes < n_crashes and done >= (2 * found.crashes + 1) / (2 * n_crashes):
            server.crash()
            found.crashes += 1
        if plans and len(tampered) <= done * (len(plans) + len(tampered)):
            name, attack = plans.pop()
            tampered[name] = attacked(url, folder, name, attack)
    for place in range(PROCESSES):
        crowd.kill(place)
    found.kills += PROCESSES
    found.schedules, found.seconds = sum(crowd.counts), round(time.monotonic() - start, 1)
    _check(url, folder, found, tampered)
    return found


def _prepare(doors: Doors, sizes: Sizes) -> list[tuple[str, str]]:
    """Open all accounts; returns which ones will be tampered with, and how, in a random order."""
    for k in range(sizes.accounts):
        kind = tuple(BUDGETS)[k % len(BUDGETS)]
        how = STYLES[k // len(BUDGETS) % len(STYLES)]
        name = f"{kind} {how} {k} {GUARDS_OF_OTHERS[k % len(GUARDS_OF_OTHERS)]}"
        doors.ledger(name).create_account(name, BUDGETS[kind], kind=kind)
    plans = list(victims(sizes.tamperings))
    for name, _ in plans:
        open_victim(doors, name)
    random.Random(1).shuffle(plans)
    return plans


def _charge_forever(url: str, log: Path, seed: int, counts: Any, place: int) -> None:
    """What a process does until it is killed: schedules, and a line for everything it was told."""
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # a server that crashes is what is wanted here
    rng, handles = random.Random(seed), dict[str, Account]()
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ledger = _opened(url)
    names, doors = _names(ledger), Doors(ledger._store, log.parent)
    while True:
        name, started = rng.choice(names), time.monotonic()
        try:
            account = handles.get(name) or doors.open(name)
            handles[name] = account
            if ASIDE in name:
                charge_against_a_reservation(account, rng, written)
                counts[place] += 1
                continue
            for _ in range(rng.randint(1, LONGEST)):
                started = time.monotonic()
                os.write(written, told(account, _event(name, rng), started))
        except LedgerError as error:
            if "cannot be used" in str(error):  # the server crashed: what was under way may stand or not
                os.write(written, f"failed {json.dumps([name])}\n".encode())
                time.sleep(0.05)
            else:
                os.write(written, f"altered {json.dumps([name, time.monotonic(), str(error)])}\n".encode())
                names.remove(name)
        else:
            counts[place] += 1


def _opened(url: str) -> Ledger:
    while True:
        try:
            return Ledger.open(url, create=False)
        except LedgerError:
            time.sleep(0.05)


def _names(ledger: Ledger) -> list[str]:
    while True:
        try:
            return ledger.accounts()
        except LedgerError:
            time.sleep(0.05)


def _event(account: str, rng: random.Random) -> Event:
    """A release in the style of the account."""
    budget = BUDGETS[account.split()[0]]
    at_random = "at random" in account
    part = rng.uniform(0.2, 1.8) / CHARGES_THAT_FIT if at_random else 4.0 ** -rng.randint(1, 3)
    whole, size = (budget.epsilon, part) if budget.pure else (budget.mu, part**0.5)
    if "in a bit more" in account:
        whole = math.nextafter(whole, math.inf)
    if budget.pure or (at_random and rng.random() < 0.2):
        return PureRelease(whole * size)
    return GaussianRelease(whole * size)


def _check(url: str, folder: Path, found: Found, tampered: dict[str, Tampered]) -> None:
    """Recompute every account from what the store holds, by nothing but rationals; then ask about the others."""
    heard = _read_logs(folder, tampered)
    told = [(name, number, hashed) for name, number, hashed, _ in heard.acknowledged if name not in tampered]
    refused = [each for each in heard.refused if each[0] not in tampered]
    found.acknowledged, found.refused = len(told), len(refused)
    found.silent = sum(not said for _, _, said in refused)
    found.half_way = heard.half_way
    spent: dict[str, tuple[Fraction, ...]] = {}
    hashes: dict[tuple[str, int], str] = {}
    with Ledger.open(url, create=False) as ledger:
        doors = Doors(ledger._store, folder)
        for name in (name for name in ledger.accounts() if name not in tampered):
            try:
                doors.open(name).verify()
            except LedgerError as error:
                print(error)
                found.broken += 1
                continue
            rows = list(ledger._store.rows(name))
            hashes |= {(name, row.number): row.hash for row in rows}
            events = [from_json(json.loads(row.body)["event"]) for row in rows]
            costs = [_cost(name, event) for event in events if not isinstance(event, Note)]
            found.charges += len(costs)
            found.reserved += sum(isinstance(event, Reserved) for event in events)
            left_open, as_before = given_back(doors.open(name))
            found.left_open += left_open
            found.broken += not as_before
            spent[name] = tuple(sum((cost[k] for cost in costs), Fraction(0)) for k in range(len(_totals(name))))
            found.overspent += not _within(name, spent[name])
            found.exactly_full += spent[name] == _totals(name)
        _check_tampered(found, heard, tampered, doors)
    found.lost = sum(hashes.get((name, number)) != hashed for name, number, hashed in told)
    for name, event, _ in refused:
        more = tuple(a + b for a, b in zip(spent[name], _cost(name, event), strict=True))
        found.wrongly_refused += _within(name, more)
    twice = sum(count - 1 for count in Counter(told).values())
    wasted = found.charges - len(told)
    found.unexplained = twice + max(0, wasted - found.kills - heard.failures) + max(0, -wasted)


def _check_tampered(found: Found, heard: Heard, tampered: dict[str, Tampered], doors: Doors) -> None:
    unnoticed = missed(tampered, [(name, started) for name, _, _, started in heard.acknowledged], doors)
    unsaid = unreported(tampered, doors)
    alarms = [f"{name}: {words}" for name, at, words in heard.altered if _is_false(at, tampered.get(name))]
    for sentence in (*unnoticed, *unsaid, *alarms):
        print(sentence)
    found.tampered, found.missed = len(tampered), len(unnoticed)
    found.unreported, found.false_alarms = len(unsaid), len(alarms)


def _is_false(at: float, how: Tampered | None) -> bool:
    return how is None or at < how.began


def _read_logs(folder: Path, tampered: dict[str, Tampered]) -> Heard:
    heard = Heard()
    for line in (line for log in folder.glob("*.log") for line in log.read_text(encoding="utf-8").splitlines()):
        kind, _, rest = line.partition(" ")
        said = json.loads(rest)
        if kind == "charged":
            heard.acknowledged.append(tuple(said))
        elif kind == "refused":
            heard.refused.append((said[0], cast(Event, from_json(said[1])), said[2]))
        elif kind == "altered":
            heard.altered.append(tuple(said))
        elif kind == "half-way":
            heard.half_way += 1
        else:
            heard.failures += said[0] not in tampered
    return heard


def _cost(name: str, event: Event) -> tuple[Fraction, ...]:
    kind = name.split()[0]
    if kind == "renyi":
        orders = _renyi().orders
        if isinstance(event, GaussianRelease):
            return tuple(order * Fraction(event.mu) ** 2 / 2 for order in orders)
        assert isinstance(event, PureRelease)
        return tuple(min(Fraction(event.epsilon), order * Fraction(event.epsilon) ** 2 / 2) for order in orders)
    if isinstance(event, GaussianRelease):
        return (Fraction(event.mu) ** 2,)
    assert isinstance(event, PureRelease)
    return (Fraction(event.epsilon) if kind == "pure" else Fraction(mu_of_pure(event.epsilon)) ** 2,)


@cache
def _renyi() -> RenyiFilter:
    return RenyiFilter(BUDGETS["renyi"])


def _totals(name: str) -> tuple[Fraction, ...]:
    kind = name.split()[0]
    budget = BUDGETS[kind]
    if kind == "renyi":
        return _renyi().totals
    return (Fraction(budget.epsilon),) if budget.pure else (Fraction(budget.mu) ** 2,)


def _within(name: str, spent: tuple[Fraction, ...]) -> bool:
    return any(amount <= total for amount, total in zip(spent, _totals(name), strict=True))

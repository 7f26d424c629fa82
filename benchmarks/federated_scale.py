"""Claim: a client's bytes and seconds grow with its neighbours, not with the number of clients, as a formula says.

For 100, 1,000 and 10,000 clients, a tenth of whom may collude and a tenth drop out, some clients run all stages of a
pass of 10^5 numbers with all of their neighbours. A client sends 64 + k (66 + 16) + 8 L + 33 k bytes, for k neighbours
and L numbers: keys, sealed shares, numbers, revealed shares; and what its messages take beyond that, as they travel. It
makes k + 1 masks. The server joins and expands one
secret for each client that finishes; its seconds are those of the clients that were run, times the number of clients.
A whole pass of 100 clients shows whether that product is right. Beside it: how long Flower's SecAgg+ takes to make one
mask of as many numbers, from a seed of 32 bits, in the same run.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.federated import MaskingClient, Stage, Trust, aggregated
from apportion.federated.client import self_key
from apportion.federated.masks import expanded
from apportion.federated.messages import Advertised, Confirmations, Delivered, Directory, Masked, Survivors, Terms
from apportion.federated.shares import SHARE_BYTES, corrected, divided
from benchmarks.claim import Outcome, Rehearsal, UnavailableError, print_table

SIZES, QUICK_SIZES = (100, 1000, 10_000), (20, 40)
LENGTH, QUICK_LENGTH = 100_000, 1000
SAMPLED, SERVED = 5, 300  # clients that are run in full, and those whose secrets the server joins
MOST_BYTES, MOST_SERVER = 1.02, 2.0  # over what the formula says

_SECAGGPLUS = """
import time
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
begun = time.process_time()
for _ in range(20):
    pseudo_rand_gen(bytes(range(32)), 1 << 32, [({length},)])
print((time.process_time() - begun) / 20)
"""


@dataclass(frozen=True)
class Cost:
    """What one client costs in a pass.

    Attributes:
        clients: number of clients.
        neighbours: of each.
        sent: bytes that a client sent.
        formula: what it should send.
        client: seconds of a client's processor.
        server: seconds of the server's processor for all clients.
    """

    clients: int
    neighbours: int
    sent: int
    formula: int
    client: float
    server: float


def measure(quick: bool) -> Outcome | Rehearsal:
    """Run some clients at each size, and one whole pass."""
    length = QUICK_LENGTH if quick else LENGTH
    python = None if quick else _flower()
    costs = [_cost(n_clients, length) for n_clients in (QUICK_SIZES if quick else SIZES)]
    header = ["clients", "neighbours", "bytes sent", "by formula", "client s", "server s"]
    print_table(header, [list(vars(each).values()) for each in costs])
    bytes_ratio = max(each.sent / each.formula for each in costs)
    if python is None:
        shows = {"bytes are at most twice those of the formula, for few numbers": bytes_ratio <= 2}
        return Rehearsal({"bytes": bytes_ratio}, shows)
    whole = _whole_pass(SIZES[0], length) / (costs[0].server + SIZES[0] * costs[0].client)
    theirs, ours = _secaggplus(python, length), _mask_seconds(length)
    grown = costs[-1].client / costs[0].client / (costs[-1].neighbours / costs[0].neighbours)
    return Outcome(
        value={
            "costs": [vars(each) for each in costs],
            "bytes_ratio": bytes_ratio,
            "whole_pass_ratio": whole,
            "growth_over_neighbours": grown,
            "mask_seconds": {"ours": ours, "secaggplus": theirs},
        },
        target={"bytes_ratio": MOST_BYTES, "whole_pass_ratio": MOST_SERVER, "growth_over_neighbours": 1.5},
        holds=bytes_ratio <= MOST_BYTES and whole <= MOST_SERVER and grown <= 1.5,
        headline=f"a client of {SIZES[-1]:,} sends {costs[-1].sent / 1e6:.2f} MB and computes {costs[-1].client:.2f} s "
        f"for {length:,} numbers; the server {costs[-1].server:.0f} s; a mask takes {1e3 * ours:.1f} ms, SecAgg+'s "
        f"{1e3 * theirs:.1f} ms",
        settings={"numbers": length, "sampled": SAMPLED, "served": SERVED, "colluding": 0.1, "dropping": 0.1},
    )


def _terms(n_clients: int, length: int) -> Terms:
    return Trust(n_clients, colluding=n_clients // 10, dropping=n_clients // 10).terms(length)


def _cost(n_clients: int, length: int) -> Cost:
    """Run a few clients with all of their neighbours."""
    terms = _terms(n_clients, length)
    seconds, sent = zip(*(_one(terms, k) for k in range(SAMPLED)), strict=True)
    formula = 64 + terms.graph.degree * (2 * SHARE_BYTES + 16) + 8 * length + SHARE_BYTES * terms.graph.degree
    return Cost(
        n_clients, terms.graph.degree, max(sent), formula, float(np.median(seconds)), _server(terms) * n_clients
    )


def _one(terms: Terms, k: int) -> tuple[float, int]:
    """Run one client through all stages; return its seconds, and the bytes that it sent."""
    beside = {n: MaskingClient(terms, n) for n in terms.graph.neighbours(k)}
    keys = {n: neighbour.advertise() for n, neighbour in beside.items()}
    begun = time.process_time()
    client = MaskingClient(terms, k)
    own = client.advertise()
    shared = client.share(Directory(terms.run, keys))
    spent = time.process_time() - begun
    boxes = {n: neighbour.share(_directory(terms, n, {**keys, k: own})).boxes[k] for n, neighbour in beside.items()}
    begun = time.process_time()
    mask = client.mask(Delivered(terms.run, boxes))
    client.confirm(Survivors(terms.run, tuple(range(terms.n_clients))))
    revealed = client.reveal(Confirmations(terms.run, {}))
    spent += time.process_time() - begun
    messages = own, shared, Masked(terms.run, k, mask), revealed
    return spent, sum(_size(each) for each in messages)


def _size(value: Any) -> int:
    """Bytes of a message: of its keys, boxes, shares, signatures and numbers, and 8 for each other number."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_size(each) for pair in value.items() for each in pair)
    return sum(_size(getattr(value, each.name)) for each in fields(value)) if is_dataclass(value) else 8


def _flower() -> str:
    """Return an interpreter that has Flower, for its SecAgg+."""
    named = os.environ.get("APPORTION_FLOWER_PYTHON", "")
    if not Path(named).is_file():
        raise UnavailableError("Name an interpreter that has Flower in APPORTION_FLOWER_PYTHON.")
    return named


def _directory(terms: Terms, client: int, keys: dict[int, Advertised]) -> Directory:
    """Return the keys of a client's neighbours, made up where they are not given."""
    beside = terms.graph.neighbours(client)
    return Directory(terms.run, {n: keys[n] if n in keys else MaskingClient(terms, n).advertise() for n in beside})


def _server(terms: Terms) -> float:
    """Return the server's seconds for one client that finishes: join its seed, expand it, add two vectors.

    All shares are compared. Clients are different ones: what the server keeps for one may help it with the next.
    """
    served = range(min(SERVED, terms.n_clients))
    shares = [divided(os.urandom(32), terms.graph.neighbours(k), terms.threshold) for k in served]
    total = np.zeros(terms.length, np.uint64)
    begun = time.process_time()
    for k, held in enumerate(shares):
        total += expanded(self_key(terms, k, corrected(held, terms.threshold)[0]), terms.length)
        total += total
    return (time.process_time() - begun) / len(served)


def _whole_pass(n_clients: int, length: int) -> float:
    """Return the seconds of a whole pass, all clients and the server in this process."""
    numbers = np.zeros(length, np.uint64)
    parts = {k: (lambda mask: numbers + mask) for k in range(n_clients)}
    begun = time.process_time()
    aggregated(_terms(n_clients, length), parts, {0: Stage.REVEAL})
    return time.process_time() - begun


def _mask_seconds(length: int) -> float:
    begun = time.process_time()
    for _ in range(20):
        expanded(os.urandom(32), length)
    return (time.process_time() - begun) / 20


def _secaggplus(python: str, length: int) -> float:
    """Return the seconds of one of Flower's masks."""
    own = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    done = subprocess.run(
        [python, "-c", _SECAGGPLUS.format(length=length)], env=own, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])

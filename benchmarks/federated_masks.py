"""Claim: what the server receives from clients looks uniform unless it has the whole sum, and weak masks are found out.

All clients send zeros, so that whatever is not uniform is a leak. The server's view is tested in every way in which it
could use it: single vectors, sums over sets of clients, vectors without the self masks that survivors reveal, vectors
of dropped clients without the pair masks, and differences between two passes. Each test looks at all bytes by chi²,
with a false-alarm rate of 1e-9. Its power is measured: 2 % of numbers without a mask are found in 20 of 20 tries.

Planted: a pair key that serves two passes, a client without a self mask, and seeds of few bits. The first two are found
by the same statistics; the last by trying all seeds, and by the check on the length of keys.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from apportion.errors import InputError
from apportion.federated.client import MaskingClient, add_pair_mask, self_key
from apportion.federated.graph import Graph, planned
from apportion.federated.masks import KeyPair, Numbers, expanded
from apportion.federated.messages import Terms
from apportion.federated.server import MaskingServer
from benchmarks.claim import Outcome, print_table

ALPHA = 1e-9
CLIENTS, COLLUDING, DROPPING = 8, 2, 2
NUMBERS, QUICK_NUMBERS = 1 << 15, 1 << 12
SEED_BITS, QUICK_SEED_BITS = 20, 8
Entropy = Callable[[int], bytes]


def measure(quick: bool) -> Outcome:
    """Test the server's view of an honest pass, then plant each weakness."""
    numbers, bits = (QUICK_NUMBERS, QUICK_SEED_BITS) if quick else (NUMBERS, SEED_BITS)
    views = _honest_views(numbers)
    uniform = {name: [_uniform(each) for each in found] for name, found in views.items()}
    print_table(
        ["view of the server", "vectors", "uniform"], [[name, len(each), sum(each)] for name, each in uniform.items()]
    )
    vectors = sum(map(len, uniform.values()))
    false_alarms = vectors - sum(map(sum, uniform.values()))
    caught = {
        "pair key of two passes": not _uniform(_reused_pair_key(numbers)),
        "no self mask": not _uniform(_dropped_without_self_mask(numbers)),
        f"seeds of {bits} bits, tried out": _recovered(bits),
        "seeds of few bytes, refused": _short_seeds_refused(),
    }
    print_table(["planted weakness", "caught"], [[name, found] for name, found in caught.items()])
    power = sum(not _uniform(_partly_masked(numbers)) for _ in range(20))
    return Outcome(
        value={"vectors": vectors, "not_uniform": false_alarms, "caught": caught, "power": power},
        target={"not_uniform": 0, "caught": "all", "power": 20},
        holds=not false_alarms and all(caught.values()) and power == 20,
        headline=f"{vectors} views of the server look uniform at {ALPHA:g}; "
        f"{sum(caught.values())} of {len(caught)} planted weaknesses are found out",
        settings={"clients": CLIENTS, "colluding": COLLUDING, "numbers": numbers, "false_alarm_rate": ALPHA},
    )


class _Pass:
    """A pass up to the masked vectors of zeros.

    Args:
        length: numbers in a vector.
        entropy: of each client.
        run: name of the pass.
        seed: of the graph.
    """

    def __init__(self, length: int, entropy: dict[int, Entropy] | None = None, run: bytes | None = None) -> None:
        degree = planned(CLIENTS, COLLUDING, DROPPING)
        graph, least = Graph(CLIENTS, degree.neighbours, bytes(32)), CLIENTS - DROPPING
        self.terms = Terms(run or os.urandom(16), graph, degree.threshold, least, COLLUDING, length)
        drawn = entropy or {}
        self.clients = [MaskingClient(self.terms, k, entropy=drawn.get(k, os.urandom)) for k in range(CLIENTS)]
        server = MaskingServer(self.terms)
        for client in self.clients:
            server.take(client.advertise())
        directories = server.directories()
        for client in self.clients:
            server.take(client.share(directories[client.position]))
        self.keys = {k: held.keys for k, held in directories.items()}
        self.sent = [client.mask(box) for client, box in zip(self.clients, server.deliveries().values(), strict=True)]

    def without_self_mask(self, k: int) -> Numbers:
        """What a survivor sent, without the self mask that its neighbours reveal."""
        state = self.clients[k].state
        return self.sent[k] - expanded(self_key(self.terms, k, state.secrets[2]), self.terms.length)

    def without_pair_masks(self, k: int) -> Numbers:
        """What a client sent too late, without the pair masks that its neighbours reveal."""
        total, keys = np.zeros(self.terms.length, np.uint64), KeyPair(self.clients[k].state.secrets[0])
        for other in range(CLIENTS):
            if other != k:
                add_pair_mask(total, self.terms, keys, k, other, self.keys[k][other].mask_key)
        return self.sent[k] - total


def _honest_views(numbers: int) -> dict[str, list[Numbers]]:
    one, two = _Pass(numbers), _Pass(numbers)
    sets = [held for size in range(2, CLIENTS) for held in itertools.combinations(range(CLIENTS), size)]
    honest = range(COLLUDING, CLIENTS)
    return {
        "single vectors": one.sent,
        "sums over sets of clients": [np.sum([one.sent[k] for k in held], axis=0) for held in sets[::7]],
        "survivors without self masks": [one.without_self_mask(k) for k in range(CLIENTS)],
        "sets of survivors without self masks": [
            np.sum([one.without_self_mask(k) for k in held], axis=0) for held in itertools.combinations(honest, 3)
        ][::2],
        "late clients without pair masks": [one.without_pair_masks(k) for k in range(CLIENTS)],
        "differences between passes": [one.without_self_mask(k) - two.without_self_mask(k) for k in range(CLIENTS)],
    }


def _uniform(vector: Numbers) -> bool:
    """Whether the bytes of a vector look uniform, by chi² with 255 degrees of freedom (Laurent and Massart's bound)."""
    counts = np.bincount(np.ascontiguousarray(vector).view(np.uint8), minlength=256)
    expected = counts.sum() / 256
    x = -np.log(ALPHA)
    return bool(((counts - expected) ** 2 / expected).sum() < 255 + 2 * np.sqrt(255 * x) + 2 * x)


def _partly_masked(numbers: int) -> Numbers:
    vector = expanded(os.urandom(32), numbers).copy()
    vector[: numbers // 50] >>= np.uint64(24)
    return vector


def _reused_pair_key(numbers: int) -> Numbers:
    """The difference of two passes under one name, in which two clients and their neighbours kept their mask keys."""
    run, kept = os.urandom(16), [os.urandom(32) for _ in range(CLIENTS)]
    one, two = (_Pass(numbers, {k: _first(kept[k]) for k in range(CLIENTS)}, run) for _ in range(2))
    return one.without_self_mask(0) - two.without_self_mask(0)


def _first(key: bytes) -> Entropy:
    """Entropy whose first draw, the key for masks, is given."""
    given = iter([key])
    return lambda size: next(given, None) or os.urandom(size)


def _dropped_without_self_mask(numbers: int) -> Numbers:
    """What a late client without a self mask sent, after its neighbours revealed its key."""
    one = _Pass(numbers)
    one.sent[0] = one.without_self_mask(0)
    return one.without_pair_masks(0)


def _recovered(bits: int) -> bool:
    """Whether a self mask from a seed of few bits is found by trying all seeds."""
    weak = int.from_bytes(os.urandom(4), "big") % (1 << bits)
    draws = iter([os.urandom(32), os.urandom(32), weak.to_bytes(32, "big")])
    one = _Pass(4, {0: lambda size: next(draws)})
    left = one.without_pair_masks(0)
    return any(_is_mask(one.terms, left, seed) for seed in range(1 << bits))


def _is_mask(terms: Terms, left: Numbers, seed: int) -> bool:
    return bool((expanded(self_key(terms, 0, seed.to_bytes(32, "big")), terms.length) == left).all())


def _short_seeds_refused() -> bool:
    refused = 0
    for attempt in (lambda: expanded(bytes(4), 3), lambda: KeyPair(bytes(4)), lambda: _Pass(3, {0: _short_seed()})):
        try:
            attempt()
        except (InputError, ValueError):
            refused += 1
    return refused == 3


def _short_seed() -> Entropy:
    lengths: Any = iter([32, 32, 4])
    return lambda size: os.urandom(next(lengths))

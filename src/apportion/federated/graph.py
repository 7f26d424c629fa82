"""Who masks with whom: a ring of clients in random order, each joined to the nearest on both sides.

With few clients everybody is joined to everybody. With thousands, k neighbours are enough (Bell et al. 2020, section
3): the graph of the honest clients who stay must be connected, no client may have `threshold` colluding neighbours,
and every client must keep `threshold` neighbours until the end. All three fail with a probability that `planned`
bounds (docs/proofs/secure_aggregation.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from apportion.errors import InputError
from apportion.federated.masks import expanded

SECURITY_BITS: Final = 40  # privacy fails with a probability of at most 2^-40
CORRECTNESS_BITS: Final = 20  # a pass stops for want of shares with a probability of at most 2^-20


@dataclass(frozen=True)
class Graph:
    """The neighbours of every client; public.

    Attributes:
        n_clients: number of clients that were asked to take part.
        degree: neighbours of each; n_clients - 1 for a complete graph, and otherwise even.
        seed: 32 public bytes that the order on the ring follows from.
    """

    n_clients: int
    degree: int
    seed: bytes

    def __post_init__(self) -> None:
        complete = self.degree == self.n_clients - 1
        if not 1 <= self.degree < self.n_clients or (self.degree % 2 and not complete):
            raise InputError(
                f"Expected an even number of neighbours below {self.n_clients - 1}, or {self.n_clients - 1}, got "
                f"{self.degree}.",
                argument="degree",
            )

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.degree == self.n_clients - 1

    def neighbours(self, client: int) -> tuple[int, ...]:
        """Return the positions of a client's neighbours, in order."""
        if self.complete:
            return tuple(each for each in range(self.n_clients) if each != client)
        order, place = self._ring
        reach = [*range(-self.degree // 2, 0), *range(1, self.degree // 2 + 1)]
        return tuple(sorted(order[(place[client] + step) % self.n_clients] for step in reach))

    @cached_property
    def _ring(self) -> tuple[list[int], list[int]]:
        """The clients in the order of the ring, and the place of each."""
        order = np.argsort(expanded(self.seed, self.n_clients), kind="stable")
        return order.tolist(), np.argsort(order).tolist()


@dataclass(frozen=True)
class Degree:
    """How many neighbours a client has, and how many of them recover its secrets."""

    neighbours: int
    threshold: int


def planned(n_clients: int, colluding: int, dropping: int) -> Degree:
    """Return the fewest neighbours that so many colluding and dropping clients allow.

    Args:
        n_clients: number of clients that are asked to take part.
        colluding: how many may collude with the server.
        dropping: how many may drop out, at any stage.

    >>> planned(8, 2, 2)
    Degree(neighbours=7, threshold=3)
    >>> planned(10_000, 1000, 1000)
    Degree(neighbours=54, threshold=31)
    """
    _require_honest(n_clients, colluding, dropping)
    for degree in range(8, n_clients - 1, 2):
        if not _connected(n_clients, degree, colluding + dropping):
            continue
        for threshold in range(degree // 2, degree + 1):
            if _tail(n_clients - 1, colluding, degree, threshold) <= 2.0**-SECURITY_BITS / (4 * n_clients):
                if _tail(n_clients - 1, dropping, degree, degree - threshold + 1) <= _per_client(n_clients):
                    return Degree(degree, threshold)
                break
    return _complete(n_clients, colluding)


def _per_client(n_clients: int) -> float:
    return 2.0**-CORRECTNESS_BITS / n_clients


def everybody(n_clients: int, colluding: int, dropping: int) -> Degree:
    """Return the complete graph, for a server that may not keep to the protocol; refuse too few clients for it.

    A secret takes one share more than colluding clients hold. So many signatures of one list of survivors are needed
    that no client's masks lack others of the list (`Terms.quorum`), and those who stay must be as many.

    >>> everybody(9, 2, 2)
    Degree(neighbours=8, threshold=3)
    """
    _require_honest(n_clients, colluding, dropping)
    needed = 3 * dropping + colluding + 1
    if n_clients < needed:
        raise InputError(
            f"Expected at least {needed} clients, three for each that may drop out, one for each that may collude and "
            f"one more, got {n_clients} clients of whom {colluding} may collude and {dropping} may drop out.",
            argument="dropping",
        )
    return _complete(n_clients, colluding)


def _complete(n_clients: int, colluding: int) -> Degree:
    """Return the complete graph. Those who stay hold enough: without the owner, they are more than the colluding."""
    return Degree(n_clients - 1, colluding + 1)


def _require_honest(n_clients: int, colluding: int, dropping: int) -> None:
    if min(colluding, dropping) < 0 or colluding + dropping + 2 > n_clients:
        raise InputError(
            f"Expected at least 2 honest clients who stay, got {n_clients} clients of whom {colluding} may collude "
            f"and {dropping} may drop out.",
            argument="colluding",
        )


def _connected(n_clients: int, degree: int, missing: int) -> bool:
    """Whether the honest who stay are connected: no two runs of degree/2 consecutive clients may be missing."""
    run = degree // 2
    logarithm = sum(math.log((missing - k) / (n_clients - k)) if missing > k else -math.inf for k in range(run))
    return math.log(n_clients) + logarithm <= -(SECURITY_BITS + 2) * math.log(2)


def _tail(population: int, marked: int, drawn: int, least: int) -> float:
    """Return the probability that at least so many of those drawn are marked: a hypergeometric tail."""
    ways = _log_choose(population, drawn)
    found = range(max(least, drawn - (population - marked), 0), min(marked, drawn) + 1)
    return math.fsum(
        math.exp(_log_choose(marked, k) + _log_choose(population - marked, drawn - k) - ways) for k in found
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

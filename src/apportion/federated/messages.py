"""The messages of one pass of secure aggregation, and the terms that everybody knows before the first.

A pass has five stages. In each, clients send one kind of message and the server answers with another. Messages are
plain bytes and numbers; every one names its pass and its sender.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from apportion.errors import ApportionError, InputError
from apportion.federated.graph import Graph
from apportion.federated.masks import KEY_BYTES, Numbers


class RefusedError(ApportionError):
    """A message, or a whole pass, that does not keep to the terms. The reason is one sentence; nothing was revealed."""


class DisturbedError(RefusedError):
    """A pass that comes to nothing because of what one client dealt out.

    Args:
        sentence: what happened.
        client: its position.
    """

    def __init__(self, sentence: str, client: int) -> None:
        super().__init__(sentence)
        self.client = client


class Stage(IntEnum):
    """The stages of a pass, in order."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    CONFIRM = 3
    REVEAL = 4
    DONE = 5


@dataclass(frozen=True)
class Terms:
    """What everybody knows of a pass before the first message; public.

    Attributes:
        run: 16 bytes or more that name this pass and no other.
        graph: who masks with whom.
        threshold: shares that recover a secret.
        least: clients that must finish; with fewer, nobody reveals anything.
        colluding: clients that may collude with the server.
        length: numbers in a vector.
        identities: Ed25519 public keys of all clients, which they know beforehand, for a server that may not keep to
            the protocol; empty for one that does.
        question: a hash of what is asked, so that clients who were asked different things have different terms; empty
            within one process.
    """

    run: bytes
    graph: Graph
    threshold: int
    least: int
    colluding: int
    length: int
    identities: tuple[bytes, ...] = ()
    question: bytes = b""

    def __post_init__(self) -> None:
        if not self.colluding + 2 <= self.least <= self.n_clients:
            raise InputError(
                f"Expected from {self.colluding + 2} to {self.n_clients} clients to finish, so that two of them are "
                f"honest, got {self.least}.",
                argument="least",
            )
        if not 1 <= self.threshold <= self.graph.degree or (self.graph.complete and self.threshold <= self.colluding):
            raise InputError(
                f"Expected a threshold above the {self.colluding} colluding clients and at most the "
                f"{self.graph.degree} neighbours, got {self.threshold}.",
                argument="threshold",
            )
        known = {each for each in self.identities if len(each) == KEY_BYTES}
        if self.active and not (len(known) == len(self.identities) == self.n_clients and self.graph.complete):
            raise InputError(
                "Against a server that may not keep to the protocol, every client needs an identity of its own "
                f"and everybody must be everybody's neighbour, got {len(known)} identities and {self.graph.degree} "
                f"neighbours for {self.n_clients} clients.",
                argument="identities",
            )
        if self.active and self.quorum > self.least:
            raise InputError(
                f"Expected at most {(self.n_clients - self.colluding - 1) // 3} of {self.n_clients} clients to be able "
                f"to drop out, so that the {self.quorum} who must sign are there, got {self.n_clients - self.least}.",
                argument="least",
            )
        if len(self.run) < 16 or self.length < 1:
            raise InputError(
                f"Expected a name of at least 16 bytes and at least 1 number, got {len(self.run)} and {self.length}.",
                argument="run",
            )

    @property
    def n_clients(self) -> int:
        """Number of clients that were asked to take part."""
        return self.graph.n_clients

    @property
    def active(self) -> bool:
        """Whether clients check that the server keeps to the protocol."""
        return bool(self.identities)

    @property
    def quorum(self) -> int:
        """Clients who must have signed a list of survivors.

        Two lists cannot both have so many signatures, and no honest clients of a list can be without masks with the
        others of it: they do not sign, and would be too many (`docs/proofs/secure_aggregation.md`).
        """
        one_list = (self.n_clients + self.colluding) // 2 + 1
        return max(one_list, 2 * (self.n_clients - self.least) + self.colluding + 1)

    @cached_property
    def digest(self) -> bytes:
        """A hash of all terms, which every key and signature depends on."""
        numbers = (self.n_clients, self.graph.degree, self.threshold, self.least, self.colluding, self.length)
        parts = [self.run, self.graph.seed, repr(numbers).encode(), self.question, *self.identities]
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)  # no other parts give the same text
        return hashlib.sha256(b"apportion terms 2|" + text).digest()

    def purpose(self, kind: bytes, *clients: int) -> bytes:
        """Return the purpose of a key of this pass."""
        return b"|".join([self.digest, kind, *(b"%d" % each for each in clients)])


@dataclass(frozen=True)
class Message:
    """What every message of a client says."""

    run: bytes
    sender: int


@dataclass(frozen=True)
class Advertised(Message):
    """Stage 1: a client's two public keys, one for masks and one for shares, signed if the server is not trusted."""

    mask_key: bytes
    share_key: bytes
    signature: bytes = b""


@dataclass(frozen=True)
class Directory:
    """The server's answer: the keys of a client's neighbours."""

    run: bytes
    keys: Mapping[int, Advertised]


@dataclass(frozen=True)
class SealedShares(Message):
    """Stage 2: shares of a client's two secrets, sealed for each neighbour."""

    boxes: Mapping[int, bytes]


@dataclass(frozen=True)
class Delivered:
    """The server's answer: what a client's neighbours sealed for it."""

    run: bytes
    boxes: Mapping[int, bytes]


@dataclass(frozen=True, eq=False)
class Masked(Message):
    """Stage 3: a client's numbers with all of its masks."""

    numbers: Numbers


@dataclass(frozen=True)
class Survivors:
    """The server's answer: who finished stage 3. It is the same for every client."""

    run: bytes
    clients: tuple[int, ...]

    @property
    def digest(self) -> bytes:
        """What a client signs of it."""
        return hashlib.sha256(b"apportion survivors 1|" + np.array(self.clients, "<u4").tobytes()).digest()


@dataclass(frozen=True)
class Confirmed(Message):
    """Stage 4: a client's signature of the survivors that it was told; empty if the server is trusted."""

    signature: bytes = b""


@dataclass(frozen=True)
class Confirmations:
    """The server's answer: the signatures of all who confirmed."""

    run: bytes
    signatures: Mapping[int, bytes]


@dataclass(frozen=True)
class Revealed(Message):
    """Stage 5: shares of neighbours' secrets: of the self mask if the neighbour finished, else of the key for masks."""

    shares: Mapping[int, bytes]


@dataclass(frozen=True, eq=False)
class Total:
    """What a pass ends with: the sum of masked vectors, and the sum of masks that is left in it.

    Attributes:
        numbers: the sum of masked vectors modulo 2^64.
        masks: the masks in it that did not cancel.
        clients: whose vectors are in it.
    """

    numbers: Numbers
    masks: Numbers
    clients: tuple[int, ...]

"""What the owner of a client agreed to, from the owner's own files; nothing that a server sends changes it.

The terms of a pass are not sent. Client and server derive them alike, from the roster, the numbers here, the name of
the pass and the hash of the question. Where a server has other ones, keys and signatures of the pass do not fit, and
nothing is revealed.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from apportion.errors import InputError
from apportion.federated import Graph, RefusedError, Terms, Trust
from apportion.federated.masks import KEY_BYTES
from apportion.privacy.budget import Budget
from apportion.transport.catalogue import CATALOGUE
from apportion.transport.listed import PublicFacts

NoisePlace = Literal["clients", "server"]

MOST_CLIENTS: Final = 512
OPEN_SECONDS: Final = 3600  # that an opening is good for; clocks may differ by as much
MOST_USERS: Final = 1 << 17  # of one client: with so many, no sum of 64 bits wraps around
_ROUNDING: Final = 1 + 1e-9  # of a sum of squares


@dataclass(frozen=True)
class Conditions:
    """What a client takes part in.

    Attributes:
        roster: Ed25519 public keys of all clients, in order, from somewhere that the client trusts, not the server.
        server: Ed25519 public key of the server, from the same place; nobody else can open a pass.
        facts: the public list of items and the scale of values.
        allowed: names of contributions that it answers.
        colluding: how many clients may collude with the server.
        dropping: how many clients may drop out of a pass.
        noise: who draws the noise. If it is the server, the server is trusted with exact sums.
        epsilon: the ε that all passes of all fits together may cost.
        delta: the δ of it.
        passes: the most passes that it answers in all.
        sums: of each name, the most sums that it lets the server read if the server draws the noise; 1 for names that
            are not here. Two sums of one name over different clients could differ by one client's part.
    """

    roster: tuple[bytes, ...]
    server: bytes
    facts: PublicFacts
    allowed: frozenset[str]
    colluding: int = 1
    dropping: int = 1
    noise: NoisePlace = "clients"
    epsilon: float = 1.0
    delta: float = 1e-6
    passes: int = 100
    sums: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if {len(each) for each in self.roster} != {KEY_BYTES} or len(set(self.roster)) != len(self.roster):
            raise InputError(
                f"Expected a roster of different keys of {KEY_BYTES} bytes, got {len(self.roster)} entries.",
                argument="roster",
            )
        if len(self.server) != KEY_BYTES or self.server in self.roster:
            raise InputError(
                f"Expected a key of the server of {KEY_BYTES} bytes that is no client's, got another.",
                argument="server",
            )
        if not 3 <= len(self.roster) <= MOST_CLIENTS:
            raise InputError(f"Expected from 3 to {MOST_CLIENTS} clients, got {len(self.roster)}.", argument="roster")
        if self.noise not in get_args(NoisePlace):
            raise InputError(f"Expected noise of clients or of the server, got {self.noise!r}.", argument="noise")
        unknown = sorted(self.allowed - set(CATALOGUE))
        if unknown or not self.allowed:
            raise InputError(
                f"Expected names of contributions ({', '.join(CATALOGUE)}), got {', '.join(unknown) or 'none'}.",
                argument="allowed",
            )
        if not 1 <= self.passes <= 10**6 or Budget(self.epsilon, self.delta).pure:
            raise InputError(
                f"Expected at least 1 pass and a delta above 0, got {self.passes} and {self.delta}.", argument="passes"
            )
        if any(most < 1 for most in self.sums.values()):
            raise InputError(f"Expected at least 1 sum of each name, got {dict(self.sums)}.", argument="sums")
        _ = self.trust  # refuses impossible numbers

    @property
    def trust(self) -> Trust:
        """How many clients there are, collude and drop out."""
        return Trust(len(self.roster), self.colluding, self.dropping, self.roster)

    @property
    def budget(self) -> Budget:
        """What all passes together may cost."""
        return Budget(self.epsilon, self.delta)

    def terms(self, run: bytes, length: int, question: bytes) -> Terms:
        """Return the terms of a pass: everybody is everybody's neighbour, and the threshold is the least that holds.

        Args:
            run: the name of the pass.
            length: numbers in a vector, which follows from the question.
            question: the hash of the question.
        """
        trust, degree = self.trust, self.trust.degree
        graph = Graph(trust.n_clients, degree.neighbours, bytes(32))
        return Terms(run, graph, degree.threshold, trust.least, trust.colluding, length, self.roster, question)

    def opening(self, run: bytes, question: bytes, until: int) -> bytes:
        """Return what a server signs to open a pass: its name, the question, its end, and what this client knows.

        Args:
            run: the name of the pass.
            question: as it is sent.
            until: the second, of Unix time, after which nobody begins it.
        """
        clients = hashlib.sha256(b"".join(self.roster)).digest()
        return b"apportion pass 2|" + clients + run + until.to_bytes(8, "big") + self.facts.digest_with(question)

    def refuse_stranger(self, run: bytes, question: bytes, until: int, signature: bytes) -> None:
        """Refuse a pass that somebody else than the server opens, or that should have begun earlier."""
        try:
            Ed25519PublicKey.from_public_bytes(self.server).verify(signature, self.opening(run, question, until))
        except InvalidSignature:
            raise RefusedError("Expected a pass that the server signed, got another's or a changed one.") from None
        if not time.time() - OPEN_SECONDS <= until <= time.time() + 2 * OPEN_SECONDS:
            raise RefusedError("Expected a pass that was opened within the hour; is this machine's clock right?")

    def position(self, identity: bytes) -> int:
        """Return the place of a public key in the roster; refuse one that is not there."""
        if identity not in self.roster:
            raise InputError("Expected a roster with this client's own key in it, got one without.", argument="roster")
        return self.roster.index(identity)

    def refuse_more_sums(self, names: Sequence[str], before: Mapping[str, int]) -> None:
        """Refuse to let the server read more sums of a name than agreed, without noise.

        Args:
            names: of the contributions of a question.
            before: how many sums of each name the server may have read.
        """
        name = self.too_often(names, before)
        if name is not None:
            raise RefusedError(
                f"The server may read {self.sums.get(name, 1)} of the sums {name} without noise, and may have read "
                f"{before.get(name, 0)}; more could differ by one client's part."
            )

    def too_often(self, names: Sequence[str], before: Mapping[str, int]) -> str | None:
        """Return the first of the names whose sum the server would read too often without noise; None if none is."""
        if self.noise == "clients":
            return None
        more = Counter(names).items()
        return next((name for name, asked in more if before.get(name, 0) + asked > self.sums.get(name, 1)), None)

    def refuse_beyond(self, spent: float, cost: float, answered: int) -> None:
        """Refuse what is more than agreed.

        Args:
            spent: Σ μ² of the passes before.
            cost: μ² of this one.
            answered: number of passes before.
        """
        if answered >= self.passes:
            raise RefusedError(f"This client answers {self.passes} passes, and has answered {answered}.")
        if spent + cost > self.budget.mu**2 * _ROUNDING:
            raise RefusedError(
                f"This pass would cost more than what is left of epsilon = {self.epsilon:g} at delta = {self.delta:g}."
            )

"""A client of secure aggregation: it makes masks, shares its secrets, and reveals what unmasks the sum alone.

A client is a state machine: it answers each stage once, in order, and refuses what does not keep to the terms. It does
not hold the numbers: it makes the mask that is added to them (`PartialSums.masked`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from apportion.federated.masks import KEY_BYTES, KeyPair, Numbers, derived_key, expanded
from apportion.federated.messages import (
    Advertised,
    Confirmations,
    Confirmed,
    Delivered,
    Directory,
    RefusedError,
    Revealed,
    SealedShares,
    Stage,
    Survivors,
    Terms,
)
from apportion.federated.shares import SHARE_BYTES, divided

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class MaskingState:
    """What a client knows between the stages of a pass, its secrets among it; for checks of the masks.

    Attributes:
        terms: of the pass.
        position: of the client.
        secrets: its keys for masks and for shares, and the seed of its self mask.
        stage: the one it answers next.
        directory: keys of its neighbours.
        held: shares that neighbours sealed for it.
        told: the survivors that it confirmed.
    """

    terms: Terms
    position: int
    secrets: tuple[bytes, bytes, bytes]
    stage: Stage
    directory: Mapping[int, Advertised]
    held: Mapping[int, bytes]
    told: Survivors | None

    def __repr__(self) -> str:
        return f"MaskingState(client {self.position}, {self.stage.name}, secret)"


class MaskingClient:
    """One client in one pass.

    Args:
        terms: of the pass.
        position: of this client among those who were asked.
        identity: its Ed25519 secret key; needed if the terms name identities.
        entropy: makes fresh secret bytes; tests put something else in its place.
    """

    def __init__(
        self,
        terms: Terms,
        position: int,
        identity: bytes | None = None,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if not 0 <= position < terms.n_clients:
            raise RefusedError(f"Expected a position from 0 to {terms.n_clients - 1}, got {position}.")
        self.terms = terms
        self.position = position
        self._identity = None if identity is None else Ed25519PrivateKey.from_private_bytes(identity)
        self._mask_key, self._share_key = (KeyPair(entropy(KEY_BYTES)) for _ in range(2))
        self._self_seed = entropy(KEY_BYTES)
        self._neighbours = frozenset(terms.graph.neighbours(position))
        self._directory: dict[int, Advertised] = {}
        self._held: dict[int, bytes] = {}
        self._told: Survivors | None = None
        self._stage = Stage.ADVERTISE
        self._require_identity()

    @property
    def state(self) -> MaskingState:
        """What this client knows now."""
        secrets = self._mask_key.private, self._share_key.private, self._self_seed
        kept = dict(self._directory), dict(self._held), self._told
        return MaskingState(self.terms, self.position, secrets, self._stage, *kept)

    def _require_identity(self) -> None:
        if not self.terms.active:
            return
        known = self.terms.identities[self.position]
        if self._identity is None or self._identity.public_key().public_bytes_raw() != known:
            raise RefusedError("Expected this client's own identity among those of the terms, got another or none.")

    def advertise(self) -> Advertised:
        """Return this client's public keys."""
        self._enter(Stage.ADVERTISE, self.terms.run)
        keys = self._mask_key.public, self._share_key.public
        return Advertised(self.terms.run, self.position, *keys, self._signed(b"keys|" + b"".join(keys)))

    def share(self, directory: Directory) -> SealedShares:
        """Return shares of both secrets, each sealed for one neighbour.

        A client with fewer neighbours than the threshold takes no further part: its masks could not be removed.
        """
        self._enter(Stage.SHARE, directory.run)
        self._check_directory(directory)
        present = sorted(self._directory)
        seeds = divided(self._self_seed, present, self.terms.threshold)
        keys = divided(self._mask_key.private, present, self.terms.threshold)
        boxes = {each: self._seal(each, seeds[each] + keys[each]) for each in present}
        return SealedShares(self.terms.run, self.position, boxes)

    def mask(self, delivered: Delivered) -> Numbers:
        """Return the mask of this client's numbers: its own, and one with each neighbour who shared."""
        self._enter(Stage.MASK, delivered.run)
        needed = self._fewest_neighbours
        if not set(delivered.boxes) <= set(self._directory) or len(delivered.boxes) < needed:
            raise RefusedError(
                f"Expected shares of at least {needed} neighbours in the directory, got those of "
                f"{len(delivered.boxes)}."
            )
        self._held = {each: self._unsealed(each, box) for each, box in delivered.boxes.items()}
        total = expanded(self_key(self.terms, self.position, self._self_seed), self.terms.length).copy()
        for each in self._held:
            add_pair_mask(total, self.terms, self._mask_key, self.position, each, self._directory[each].mask_key)
        return total

    def confirm(self, survivors: Survivors) -> Confirmed:
        """Return a signature of the list of survivors. A client signs one list in a pass."""
        self._enter(Stage.CONFIRM, survivors.run)
        clients = survivors.clients
        if len(set(clients)) != len(clients) or not set(clients) <= set(range(self.terms.n_clients)):
            raise RefusedError("Expected a list of different clients of this pass, got another.")
        if len(clients) < self.terms.least:
            raise RefusedError(f"Expected at least {self.terms.least} clients to finish, got {len(clients)}.")
        if self.terms.graph.complete and not set(clients) - {self.position} <= set(self._held):
            raise RefusedError("Expected survivors that this client has masks with, got others.")
        self._told = survivors
        return Confirmed(self.terms.run, self.position, self._signed(b"survivors|" + survivors.digest))

    def reveal(self, confirmations: Confirmations) -> Revealed:
        """Return one share for each neighbour: of its self mask if it finished, of its key if it did not."""
        self._enter(Stage.REVEAL, confirmations.run)
        assert self._told is not None
        self._check_quorum(confirmations)
        finished = set(self._told.clients)
        shares = {each: _part(held, own_mask=each in finished) for each, held in self._held.items() if held}
        self._held = {}
        return Revealed(self.terms.run, self.position, shares)

    @property
    def _fewest_neighbours(self) -> int:
        """Fewer give no sum: the threshold, and on a complete graph all but one of those who must finish.

        Otherwise a server could divide clients into small circles, each with a sum of its own.
        """
        terms = self.terms
        return max(terms.threshold, terms.least - 1) if terms.graph.complete else terms.threshold

    def _enter(self, stage: Stage, run: bytes) -> None:
        """Refuse a stage that is not next, or a message of another pass; each stage is answered once."""
        if run != self.terms.run:
            raise RefusedError("Expected a message of this pass, got one of another.")
        if stage is not self._stage:
            raise RefusedError(f"Expected the stage {self._stage.name.lower()} next, got {stage.name.lower()}.")
        self._stage = Stage(stage + 1)

    def _check_directory(self, directory: Directory) -> None:
        """Keep the keys of neighbours; refuse strangers, repeated keys, too few keys and bad signatures."""
        held = {each: keys for each, keys in directory.keys.items() if each != self.position}
        if not set(held) <= self._neighbours or any(each != keys.sender for each, keys in held.items()):
            raise RefusedError("Expected the keys of this client's own neighbours, got others.")
        if len(held) < self.terms.threshold:
            raise RefusedError(f"Expected the keys of at least {self.terms.threshold} neighbours, got {len(held)}.")
        every = [key for keys in held.values() for key in (keys.mask_key, keys.share_key)]
        if len(set(every)) != len(every):
            raise RefusedError("Expected different keys of all neighbours, got one twice.")
        if self.terms.active:
            for each, keys in held.items():
                verify(self.terms, each, keys.signature, b"keys|" + keys.mask_key + keys.share_key)
        self._directory = held

    def _check_quorum(self, confirmations: Confirmations) -> None:
        if not self.terms.active:
            return
        assert self._told is not None
        for each, signature in confirmations.signatures.items():
            verify(self.terms, each, signature, b"survivors|" + self._told.digest)
        if len(confirmations.signatures) < self.terms.quorum:
            raise RefusedError(
                f"Expected {self.terms.quorum} clients to have signed the same survivors, got "
                f"{len(confirmations.signatures)}."
            )

    def _signed(self, text: bytes) -> bytes:
        """Return a signature of a text in this pass, if identities are known."""
        return b"" if self._identity is None else self._identity.sign(self.terms.digest + b"|" + text)

    def _seal(self, receiver: int, text: bytes) -> bytes:
        purpose = self.terms.purpose(b"shares", self.position, receiver)
        key = self._share_key.agreed(self._directory[receiver].share_key, purpose)
        return ChaCha20Poly1305(key).encrypt(bytes(12), text, purpose)  # the key is for this one text

    def _unsealed(self, sender: int, box: bytes) -> bytes:
        """Return the shares of a neighbour; none if its box cannot be opened, which the log says.

        The pass goes on: whoever has no share of a secret cannot reveal one, and others may.
        """
        try:
            return self._unseal(sender, box)
        except RefusedError as problem:
            _LOG.warning("No share of client %d: %s", sender, problem)
            return b""

    def _unseal(self, sender: int, box: bytes) -> bytes:
        purpose = self.terms.purpose(b"shares", sender, self.position)
        key = self._share_key.agreed(self._directory[sender].share_key, purpose)
        try:
            text = ChaCha20Poly1305(key).decrypt(bytes(12), box, purpose)
        except InvalidTag:
            raise RefusedError(f"Expected shares that client {sender} sealed for this one, got others.") from None
        if len(text) != 2 * SHARE_BYTES:
            raise RefusedError(f"Expected two shares of client {sender}, got {len(text)} bytes.")
        return text


def verify(terms: Terms, client: int, signature: bytes, text: bytes) -> None:
    """Refuse what is not this client's signature of a text in this pass."""
    if client not in range(terms.n_clients):
        raise RefusedError(f"Expected a signature of one of {terms.n_clients} clients, got one of {client}.")
    try:
        Ed25519PublicKey.from_public_bytes(terms.identities[client]).verify(signature, terms.digest + b"|" + text)
    except InvalidSignature:
        raise RefusedError(f"Expected a signature of client {client}, got another's or none.") from None


def self_key(terms: Terms, client: int, seed: bytes) -> bytes:
    """Return the key of a client's self mask."""
    return derived_key(seed, terms.purpose(b"self", client))


def add_pair_mask(total: Numbers, terms: Terms, keys: KeyPair, client: int, other: int, public: bytes) -> None:
    """Add the mask of a pair to a client's vector: with a plus for the first of the two, a minus for the second."""
    mask = expanded(keys.agreed(public, terms.purpose(b"pair", *sorted((client, other)))), terms.length)
    (np.add if client < other else np.subtract)(total, mask, out=total)


def _part(held: bytes, *, own_mask: bool) -> bytes:
    return held[:SHARE_BYTES] if own_mask else held[SHARE_BYTES:]

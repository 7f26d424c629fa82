"""The server of secure aggregation: it passes messages on, adds masked vectors, and removes the masks from the sum.

The server is a state machine. It takes the messages of one stage, each client's once, and refuses others with the
reason. `close` ends a stage: whoever has not sent is out of what follows. If too few are left, the pass is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from apportion.errors import InputError
from apportion.federated.client import add_pair_mask, self_key, verify
from apportion.federated.masks import KEY_BYTES, KeyPair, Numbers, expanded, is_public_key
from apportion.federated.messages import (
    Advertised,
    Confirmations,
    Confirmed,
    Delivered,
    Directory,
    DisturbedError,
    Masked,
    Message,
    RefusedError,
    Revealed,
    SealedShares,
    Stage,
    Survivors,
    Terms,
    Total,
)
from apportion.federated.shares import SHARE_BYTES, corrected

_KINDS: dict[Stage, type[Message]] = {
    Stage.ADVERTISE: Advertised,
    Stage.SHARE: SealedShares,
    Stage.MASK: Masked,
    Stage.CONFIRM: Confirmed,
    Stage.REVEAL: Revealed,
}


class MaskingServer:
    """The server in one pass.

    Args:
        terms: of the pass.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.stage = Stage.ADVERTISE
        self._waiting: dict[int, bool] = dict.fromkeys(range(terms.n_clients), True)
        self._keys: dict[int, Advertised] = {}
        self._boxes: dict[int, Mapping[int, bytes]] = {}
        self._sum: Numbers = np.zeros(terms.length, np.uint64)
        self._finished: list[int] = []
        self._signatures: dict[int, bytes] = {}
        self._shares: dict[int, dict[int, bytes]] = {}
        self._sent: set[int] = set()
        self.doubted: list[tuple[int, int]] = []

    def take(self, message: Message) -> None:
        """Take one message of this stage, or refuse it with the reason. A refused message leaves no trace."""
        self._check(message)
        if isinstance(message, Advertised):
            self._keys[message.sender] = message
        elif isinstance(message, SealedShares):
            self._boxes[message.sender] = message.boxes
        elif isinstance(message, Masked):
            self._sum += message.numbers
            self._finished.append(message.sender)
        elif isinstance(message, Confirmed):
            self._signatures[message.sender] = message.signature
        elif isinstance(message, Revealed):
            for owner, share in message.shares.items():
                self._shares.setdefault(owner, {})[message.sender] = share
        self._sent.add(message.sender)

    def directories(self) -> dict[int, Directory]:
        """End stage 1: return each client's directory."""
        self._close(Stage.ADVERTISE)
        return {each: Directory(self.terms.run, self._of_neighbours(each, self._keys)) for each in sorted(self._keys)}

    def deliveries(self) -> dict[int, Delivered]:
        """End stage 2: return what was sealed for each client. Clients with too few neighbours left are out."""
        self._close(Stage.SHARE)
        while few := [each for each in self._boxes if len(self._sealed_for(each)) < self.terms.threshold]:
            for each in few:
                del self._boxes[each]  # its secrets could not be recovered; its neighbours may now have too few
        self._waiting = dict.fromkeys(self._boxes, True)
        self._require_enough(len(self._boxes))
        return {each: Delivered(self.terms.run, self._sealed_for(each)) for each in sorted(self._boxes)}

    def survivors(self) -> Survivors:
        """End stage 3: return whose vectors are in the sum. Without identities, stage 4 is left out."""
        self._close(Stage.MASK)
        if not self.terms.active:
            self.stage = Stage.REVEAL
        return Survivors(self.terms.run, tuple(sorted(self._finished)))

    def confirmations(self) -> Confirmations:
        """End stage 4: return the signatures."""
        self._close(Stage.CONFIRM, enough=False)
        return Confirmations(self.terms.run, dict(self._signatures))

    def total(self) -> Total:
        """End stage 5: return the sum, and the masks that are left in it."""
        self._close(Stage.REVEAL, enough=False)
        finished = set(self._finished)
        masks = np.zeros(self.terms.length, np.uint64)
        for client in sorted(finished):
            masks += expanded(self_key(self.terms, client, self._recovered(client)), self.terms.length)
        for client in sorted(set(self._boxes) - finished):
            self._add_pair_masks(masks, client, finished)
        return Total(self._sum, masks, tuple(sorted(finished)))

    def _add_pair_masks(self, masks: Numbers, dropped: int, finished: set[int]) -> None:
        """Add the masks that survivors share with a client who shared its secrets but did not finish."""
        beside = [each for each in self.terms.graph.neighbours(dropped) if each in finished]
        if not beside:
            return
        keys = KeyPair(self._recovered(dropped))
        if keys.public != self._keys[dropped].mask_key:
            raise self._stopped(dropped, f"The shares of client {dropped} give another key than it advertised.")
        for each in beside:  # seen from the survivor, whose vector holds the mask
            total = np.zeros(self.terms.length, np.uint64)
            add_pair_mask(total, self.terms, keys, dropped, each, self._keys[each].mask_key)
            masks -= total

    def _recovered(self, client: int) -> bytes:
        """Return a client's secret from its shares; a few wrong ones are left out, and noted."""
        held, doubted = self._shares.get(client, {}), {holder for _, holder in self.doubted}
        try:
            secret, wrong = corrected(held, self.terms.threshold, doubted)
        except InputError as problem:
            raise self._stopped(client, f"The masks of client {client} cannot be removed: {problem}") from None
        self.doubted += [(client, each) for each in wrong]
        return secret

    def _stopped(self, owner: int, sentence: str) -> RefusedError:
        """Return why a secret cannot be joined; its owner is named if those who may collude are too few to do it.

        If b neighbours revealed shares, at least b - c of them honest ones, then c others can neither withhold nor
        change enough to matter while b >= t + 2 c.
        """
        beside = sum(each in self._waiting for each in self.terms.graph.neighbours(owner))
        if beside >= self.terms.threshold + 2 * self.terms.colluding:
            return DisturbedError(sentence, owner)
        return RefusedError(f"{sentence} It is not clear by whose fault.")

    def _check(self, message: Message) -> None:
        """Refuse what is of another pass, another stage, a stranger, or was sent before; then what it holds."""
        sender = message.sender
        if message.run != self.terms.run:
            raise RefusedError(f"Client {sender} sent a message of another pass.")
        if type(message) is not _KINDS.get(self.stage):
            raise RefusedError(
                f"Client {sender} sent {type(message).__name__} too early or too late: this is stage {self.stage.name}."
            )
        if sender in self._sent:
            raise RefusedError(f"Client {sender} sent {type(message).__name__} twice.")
        if not self._waiting.get(sender, False):
            raise RefusedError(f"Client {sender} is not, or no longer, part of this pass.")
        self._check_content(message)

    def _check_content(self, message: Message) -> None:
        """Refuse a vector of the wrong kind or length, and keys or shares of the wrong size or number."""
        problem = ""
        if isinstance(message, Masked):
            numbers = message.numbers
            if (
                not isinstance(numbers, np.ndarray)
                or numbers.dtype != np.uint64
                or numbers.shape != (self.terms.length,)
            ):
                problem = f"a vector of {self.terms.length} numbers of 64 bits"
        elif isinstance(message, Advertised):
            if not all(map(is_public_key, (message.mask_key, message.share_key))):
                problem = f"two keys of {KEY_BYTES} bytes"
        elif isinstance(message, SealedShares):
            if set(message.boxes) != set(self._of_neighbours(message.sender, self._keys)):
                problem = "shares for each of its neighbours"
        elif isinstance(message, Revealed):
            known = set(self._sealed_for(message.sender))
            if not set(message.shares) <= known or {len(each) for each in message.shares.values()} != {SHARE_BYTES}:
                problem = f"shares of {SHARE_BYTES} bytes of neighbours who shared"
        if problem:
            raise RefusedError(f"Expected {problem} of client {message.sender}, got something else.")
        if self.terms.active:
            self._check_signature(message)

    def _check_signature(self, message: Message) -> None:
        """Refuse what other clients would refuse, so that one client's bad signature does not end the pass."""
        if isinstance(message, Advertised):
            verify(self.terms, message.sender, message.signature, b"keys|" + message.mask_key + message.share_key)
        elif isinstance(message, Confirmed):
            survivors = Survivors(self.terms.run, tuple(sorted(self._finished)))
            verify(self.terms, message.sender, message.signature, b"survivors|" + survivors.digest)

    def _of_neighbours(self, client: int, held: Mapping[int, Advertised]) -> dict[int, Advertised]:
        return {each: held[each] for each in self.terms.graph.neighbours(client) if each in held}

    def _sealed_for(self, client: int) -> dict[int, bytes]:
        """Return what neighbours sealed for a client."""
        beside = self.terms.graph.neighbours(client)
        return {each: self._boxes[each][client] for each in beside if client in self._boxes.get(each, {})}

    def _close(self, stage: Stage, *, enough: bool = True) -> None:
        """End a stage. Whoever did not send is out; refuse the pass if too few are left."""
        if self.stage is not stage:
            raise RefusedError(f"Expected the end of stage {self.stage.name}, got {stage.name}.")
        self.stage = Stage(stage + 1)
        self._waiting = dict.fromkeys(sorted(self._sent), True)
        if enough:
            self._require_enough(len(self._sent))
        self._sent = set()

    def _require_enough(self, left: int) -> None:
        if left < self.terms.least:
            ended, self.stage = Stage(self.stage - 1), Stage.DONE
            raise RefusedError(
                f"Only {left} clients are left after stage {ended.name}; the terms ask for {self.terms.least}. "
                "Nothing was revealed."
            )

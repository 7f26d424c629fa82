"""The server's way to clients by letters: one exchange for each stage of a pass, over any post."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.data.users import UserParts
from apportion.errors import ApportionError, InputError
from apportion.federated import MaskingServer, Question, Terms, Total
from apportion.federated.messages import DisturbedError
from apportion.transport import letters
from apportion.transport.conditions import OPEN_SECONDS, Conditions
from apportion.transport.desk import Desk
from apportion.transport.question import offered, question_bytes

_LOG: Final = logging.getLogger(__name__)


class Post(Protocol):
    """Carries letters to clients, and their answers back."""

    def exchanged(self, by_position: Mapping[int, bytes], most: int) -> Mapping[int, bytes]:
        """Return the answers that came in time, by position.

        Args:
            by_position: letters.
            most: bytes that an answer may have; longer ones need not be taken.
        """


class ClientsByPost:
    """Clients that are reached by letters.

    Args:
        post: to them.
        conditions: what the server expects that clients agreed to; terms follow from it.
        identity: the server's Ed25519 secret key, with which it opens passes.

    Attributes:
        left_out: for each position, why it was left out, or what was wrong with it, the last time that it was.
    """

    def __init__(self, post: Post, conditions: Conditions, identity: bytes) -> None:
        self._post = post
        self._identity = Ed25519PrivateKey.from_private_bytes(identity)
        self._conditions = conditions
        if self._identity.public_key().public_bytes_raw() != conditions.server:
            raise InputError("Expected the key of the server that clients know, got another.", argument="identity")
        self.left_out: dict[int, str] = {}
        self._barred: set[int] = set()
        self._read = Counter[str]()
        self._last: tuple[bytes, Total] | None = None

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        """Run a pass of secure aggregation; refuse it if too few clients finish.

        A sum without noise that was asked for last is not asked for again: the server has it. A client that stops a
        pass by what it dealt out is asked no more. If the server draws the noise and clients let it read another sum
        of the same names, the pass is run again without that client; with noise it would cost clients twice.
        """
        asked = question_bytes(question, self._conditions.facts)
        if question.noise is None and self._last is not None and self._last[0] == asked:
            return self._last[1]
        total = self._asked(terms, question, asked)
        self._last = asked, total
        return total

    def _asked(self, terms: Terms, question: Question, asked: bytes) -> Total:
        """Run a pass, and if one client stops it another without it, where that is allowed."""
        names = offered(asked, self._conditions).names
        ours = self._conditions.terms(terms.run, terms.length, self._conditions.facts.digest_with(asked))
        self._check(ours, terms, question)
        while True:
            try:
                return self._run(ours, asked, names)
            except DisturbedError as found:
                self._note(found.client, str(found))
                self._barred.add(found.client)
                again = question.noise is None and self._conditions.too_often(names, self._read) is None
                if not again or len(self._barred) > self._conditions.dropping:
                    raise
            ours = replace(ours, run=os.urandom(letters.RUN_BYTES))

    def _run(self, ours: Terms, asked: bytes, names: Sequence[str]) -> Total:
        """Run one pass with everybody who was not barred."""
        server = MaskingServer(ours)
        opening = self._opening(ours.run, asked)
        self._stage(server, {each: opening for each in range(ours.n_clients) if each not in self._barred})
        self._stage(server, self._written(ours, server.directories()))
        self._stage(server, self._written(ours, server.deliveries()))
        survivors = server.survivors()
        self._stage(server, self._written(ours, dict.fromkeys(survivors.clients, survivors)))
        self._read.update(names)  # by the accounts of clients who signed
        confirmations = server.confirmations()
        self._stage(server, self._written(ours, dict.fromkeys(confirmations.signatures, confirmations)))
        total = server.total()
        for owner, holder in server.doubted:
            self._note(holder, f"Its share of a secret of client {owner} was wrong: either of them sent a wrong one.")
        return total

    def _opening(self, run: bytes, asked: bytes) -> bytes:
        """Return the letter that opens a pass, good for a while."""
        until = int(time.time()) + OPEN_SECONDS
        signature = self._identity.sign(self._conditions.opening(run, asked, until))
        return letters.first_letter(run, asked, until, signature)

    def _note(self, position: int, reason: str) -> None:
        self.left_out[position] = reason
        _LOG.warning("Client %d: %s", position, reason)

    def _stage(self, server: MaskingServer, by_position: Mapping[int, bytes]) -> None:
        """Send everybody's letter, and take the answers that are good."""
        for position, content in self._post.exchanged(by_position, letters.most_answer(server.terms)).items():
            try:
                server.take(letters.message_of(content, position, server.terms))
            except ApportionError as problem:
                self._note(position, f"It was left out: {problem}")

    @staticmethod
    def _written(terms: Terms, contents: Mapping[int, Any]) -> dict[int, bytes]:
        sizes = {"clients": terms.n_clients}
        return {each: letters.letter(content, sizes) for each, content in contents.items()}

    def _check(self, ours: Terms, terms: Terms, question: Question) -> None:
        """Refuse an engine whose numbers are not those that clients derive."""
        counted = None if question.noise is None else question.noise.counted
        same = (ours.n_clients, ours.least, ours.colluding) == (terms.n_clients, terms.least, terms.colluding)
        if not same or counted not in (None, self._conditions.trust.counted):
            raise InputError(
                "Expected an engine with the numbers of clients that the federation has, got one with others.",
                argument="engine",
            )


class LocalPost:
    """A post to desks in this process.

    Args:
        desks: by position.
    """

    def __init__(self, desks: Mapping[int, Desk]) -> None:
        self._desks = dict(desks)

    def exchanged(self, by_position: Mapping[int, bytes], most: int) -> dict[int, bytes]:
        """Let each desk answer."""
        return {each: self._desks[each].answered(letter) for each, letter in by_position.items() if each in self._desks}

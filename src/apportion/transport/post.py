"""The server's way to clients by letters: one exchange for each stage of a pass, over any post."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.data.users import UserParts
from apportion.errors import ApportionError, InputError
from apportion.federated import MaskingServer, Question, Terms, Total
from apportion.transport import letters
from apportion.transport.conditions import Conditions
from apportion.transport.desk import Desk
from apportion.transport.question import question_bytes

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
        left_out: for each position, why it was left out, the last time that it was.
    """

    def __init__(self, post: Post, conditions: Conditions, identity: bytes) -> None:
        self._post = post
        self._identity = Ed25519PrivateKey.from_private_bytes(identity)
        self._conditions = conditions
        if self._identity.public_key().public_bytes_raw() != conditions.server:
            raise InputError("Expected the key of the server that clients know, got another.", argument="identity")
        self.left_out: dict[int, str] = {}

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        """Run a pass of secure aggregation; refuse it if too few clients finish."""
        asked = question_bytes(question, self._conditions.facts)
        ours = self._conditions.terms(terms.run, terms.length, self._conditions.facts.digest_with(asked))
        self._check(ours, terms, question)
        server = MaskingServer(ours)
        signature = self._identity.sign(self._conditions.opening(ours.run, asked))
        self._stage(server, dict.fromkeys(range(ours.n_clients), letters.first_letter(ours.run, asked, signature)))
        self._stage(server, self._written(ours, server.directories()))
        self._stage(server, self._written(ours, server.deliveries()))
        survivors = server.survivors()
        self._stage(server, self._written(ours, dict.fromkeys(survivors.clients, survivors)))
        confirmations = server.confirmations()
        self._stage(server, self._written(ours, dict.fromkeys(confirmations.signatures, confirmations)))
        return server.total()

    def _stage(self, server: MaskingServer, by_position: Mapping[int, bytes]) -> None:
        """Send everybody's letter, and take the answers that are good."""
        for position, content in self._post.exchanged(by_position, letters.most_answer(server.terms)).items():
            try:
                server.take(letters.message_of(content, position, server.terms))
            except ApportionError as problem:
                self.left_out[position] = str(problem)
                _LOG.warning("Client %d was left out: %s", position, problem)

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

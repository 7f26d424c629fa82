"""The server's side of letters: one pass over clients that a post reaches.

A post brings letters to clients and their answers back; who does not answer in time is left out. A message that does
not keep to the protocol is refused, with the reason, and counts as none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from apportion.data.users import UserParts
from apportion.errors import ApportionError
from apportion.federated.desk import Desk, Letter
from apportion.federated.engine import Question
from apportion.federated.messages import Message, RefusedError, Terms, Total
from apportion.federated.server import MaskingServer
from apportion.federated.values import from_bytes, to_bytes

_LOG = logging.getLogger(__name__)


class Post(Protocol):
    """Brings letters to clients."""

    def exchanged(self, letters: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """Deliver letters by position, and return the answers that came in time."""


class ClientsByPost:
    """Clients that a post reaches, as the engine needs them.

    Args:
        post: brings letters and answers.

    Attributes:
        refused: reasons of the last pass, by client.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self.refused: dict[int, str] = {}

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        """Run one pass, stage by stage."""
        self.refused = {}
        server = MaskingServer(terms)
        self._stage(server, dict.fromkeys(range(terms.n_clients), terms))
        self._stage(server, server.directories())
        self._stage(server, server.deliveries(), question)
        survivors = server.survivors()
        self._stage(server, dict.fromkeys(survivors.clients, survivors))
        if terms.active:
            confirmations = server.confirmations()
            self._stage(server, dict.fromkeys(confirmations.signatures, confirmations))
        return server.total()

    def _stage(self, server: MaskingServer, contents: Mapping[int, Any], question: Question | None = None) -> None:
        """Send everybody's letter, and take the answers."""
        letters = {each: to_bytes(Letter(each, content, question)) for each, content in contents.items()}
        for position, answer in self._post.exchanged(letters).items():
            try:
                server.take(_message(position, answer))
            except (ApportionError, TypeError, ValueError, AttributeError) as problem:  # whatever a stranger sends
                self.refused[position] = str(problem)
                _LOG.warning("Client %d was left out: %s", position, problem)


class LocalPost:
    """A post to desks in this process.

    Args:
        desks: by position.
    """

    def __init__(self, desks: Mapping[int, Desk]) -> None:
        self._desks = dict(desks)

    def exchanged(self, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        """Let each desk answer; a desk that refuses stays silent."""
        answers = {}
        for position, letter in letters.items():
            if position in self._desks:
                try:
                    answers[position] = self._desks[position].answered(letter)
                except ApportionError as problem:
                    _LOG.warning("Client %d refused: %s", position, problem)
        return answers


def _message(position: int, answer: bytes) -> Message:
    held = from_bytes(answer)
    if not isinstance(held, Message) or held.sender != position:
        raise RefusedError(f"Client {position} sent something that is no message of its own.")
    return held

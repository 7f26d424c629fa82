"""A client's desk: it answers the letters of a fit, from its own rows, within its own conditions.

A desk holds what its owner agreed to. It refuses terms that protect less, noise that is too small, and more releases
than the budget allows; the server cannot change that. Between letters it keeps its secrets in bytes that never leave
the client. It writes down what it was asked and what left it, for the client's page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from apportion.data.users import Users
from apportion.errors import InputError
from apportion.federated.client import MaskingClient, MaskingState
from apportion.federated.engine import Question
from apportion.federated.messages import (
    Confirmations,
    Delivered,
    Directory,
    Masked,
    Message,
    RefusedError,
    Survivors,
    Terms,
)
from apportion.federated.values import from_bytes, to_bytes
from apportion.privacy.budget import Budget
from apportion.privacy.noise import NoiseSource, SystemNoise

_ROUNDING = 1 + 1e-9  # of a sum of squares


@dataclass(frozen=True)
class Conditions:
    """What the owner of a client agreed to.

    Attributes:
        least: clients that must finish a pass.
        colluding: clients that may collude with the server without harm.
        noisy: whether the client must add its share of the noise itself, so that it need not trust the server.
        epsilon: the ε that all passes together may cost, if `noisy`.
        delta: the δ of it.
    """

    least: int = 3
    colluding: int = 1
    noisy: bool = False
    epsilon: float = 1.0
    delta: float = 1e-6

    def refuse(self, terms: Terms, question: Question, spent: float) -> None:
        """Refuse a pass that protects less than agreed.

        Args:
            terms: of the pass.
            question: what is asked.
            spent: Σ μ² of the passes before.
        """
        if terms.least < self.least or terms.colluding < self.colluding:
            raise RefusedError(
                f"Expected a pass of at least {self.least} clients of whom {self.colluding} may collude, got "
                f"{terms.least} and {terms.colluding}."
            )
        noise = question.noise
        if noise is None:
            if self.noisy:
                raise RefusedError("Expected to add a share of the noise, got a question without noise.")
            return
        if noise.counted > terms.least - terms.colluding - 1:
            raise RefusedError(
                f"Expected noise from at most {terms.least - terms.colluding - 1} other honest clients to count, got "
                f"{noise.counted}."
            )
        budget = Budget(self.epsilon, self.delta).mu ** 2
        if self.noisy and spent + noise.multiplier**-2 > budget * _ROUNDING:
            raise RefusedError(
                f"This pass would cost more than what is left of epsilon = {self.epsilon:g} at delta = {self.delta:g}."
            )


@dataclass(frozen=True)
class Entry:
    """What one pass asked of a client, and what left it.

    Attributes:
        run: the name of the pass.
        asked: the sums, in words.
        numbers: how many numbers left, all masked.
        noise: the standard deviation of the whole noise over the sensitivity, if clients drew it; else None.
    """

    run: str
    asked: tuple[str, ...]
    numbers: int
    noise: float | None


@dataclass(frozen=True)
class DeskState:
    """What a desk keeps between letters; it holds secrets and stays on the client.

    Attributes:
        masking: the pass under way.
        spent: Σ μ² of all passes in which this client added a share of the noise.
        journal: every pass that was answered.
    """

    masking: MaskingState | None = None
    spent: float = 0.0
    journal: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Letter:
    """What a server sends in one stage.

    Attributes:
        position: of the receiver among the clients of the fit.
        content: terms, a directory, what neighbours sealed, survivors, or confirmations.
        question: what is asked, in the stage in which numbers are sent.
    """

    position: int
    content: Any
    question: Question | None = None


@dataclass(eq=False)
class Desk:
    """Answers letters.

    Args:
        users: returns the client's own users, on the public list of items.
        conditions: what its owner agreed to.
        identity: its Ed25519 secret key, where terms name identities.
        noise: its own source of randomness.
        state: what is kept between letters.
    """

    users: Callable[[], Users]
    conditions: Conditions = Conditions()
    identity: bytes | None = None
    noise: NoiseSource = field(default_factory=lambda: SystemNoise(exact=True))
    state: DeskState = DeskState()

    def answered(self, letter: bytes) -> bytes:
        """Return the answer to a letter, or refuse it with the reason."""
        held = from_bytes(letter)
        if not isinstance(held, Letter):
            raise RefusedError(f"Expected a letter, got {type(held).__name__}.")
        return to_bytes(self._answer(held))

    def _answer(self, letter: Letter) -> Message:
        content = letter.content
        if isinstance(content, Terms):
            client = MaskingClient(content, letter.position, self.identity)
            return self._kept(client, client.advertise())
        client = self._client()
        if isinstance(content, Directory):
            return self._kept(client, client.share(content))
        if isinstance(content, Delivered):
            return self._kept(client, self._masked(client, content, letter.question))
        if isinstance(content, Survivors):
            confirmed = client.confirm(content)
            if client.terms.active:
                return self._kept(client, confirmed)
            content = Confirmations(content.run, {})
        if isinstance(content, Confirmations):
            return self._kept(client, client.reveal(content))
        raise RefusedError(f"Expected a message of a server, got {type(content).__name__}.")

    def _masked(self, client: MaskingClient, delivered: Delivered, question: Question | None) -> Masked:
        """Evaluate the question on the client's own users, and mask the answer."""
        if not isinstance(question, Question):
            raise RefusedError("Expected a question with the stage in which numbers are sent.")
        terms = client.terms
        self.conditions.refuse(terms, question, self.state.spent)
        answer = question.answered(self.users(), self.noise)
        if answer.n_numbers != terms.length:
            raise RefusedError(f"Expected a question for {terms.length} numbers, got one for {answer.n_numbers}.")
        numbers = answer.masked(client.mask(delivered), terms.n_clients)
        self._write_down(terms, question)
        return Masked(terms.run, client.position, numbers)

    def _write_down(self, terms: Terms, question: Question) -> None:
        noise = question.noise
        chosen = question.contributions if noise is None else (question.contributions[noise.contribution],)
        asked = tuple(type(each).__name__ for each in chosen)
        entry = Entry(terms.run.hex(), asked, terms.length, None if noise is None else noise.multiplier)
        cost = 0.0 if noise is None else noise.multiplier**-2
        self.state = replace(self.state, spent=self.state.spent + cost, journal=(*self.state.journal, entry))

    def _client(self) -> MaskingClient:
        if self.state.masking is None:
            raise RefusedError("Expected the terms of a pass first.")
        return MaskingClient.restored(self.state.masking, self.identity)

    def _kept(self, client: MaskingClient, message: Message) -> Message:
        self.state = replace(self.state, masking=client.state)
        return message


def state_from(content: bytes) -> DeskState:
    """Read back a desk's state from the bytes of `to_bytes`."""
    held = from_bytes(content)
    if not isinstance(held, DeskState):
        raise InputError(f"Expected the state of a desk, got {type(held).__name__}.", argument="content")
    return held

"""A client's desk: it answers a server's letters from its own rows, within its owner's conditions.

What it does in a pass, in this order: it refuses whoever is not the server; it reads the question and refuses what it
does not know or what was not agreed to; it writes the name and the cost of the pass into its account, on disk; then it
takes part. Rows are first looked at in the stage of masks, when nothing can be refused any more because of them. Before
it signs who finished, it writes that into its account as well: it lets a server read only so many sums of a name. The
secrets of a pass are in memory only: after a restart the pass cannot go on, and its name is never answered again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from apportion.data.users import Users
from apportion.errors import InputError
from apportion.federated import MaskingClient, RefusedError
from apportion.federated.messages import Confirmations, Confirmed, Delivered, Masked, Message, Survivors
from apportion.privacy.contributions.distinct_tasks import require_distinct_tasks
from apportion.privacy.noise import NoiseSource, SystemNoise
from apportion.transport import letters
from apportion.transport.account import ClientAccount, Entry
from apportion.transport.conditions import MOST_USERS, Conditions
from apportion.transport.question import Asked, offered

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Pass:
    """The pass under way."""

    masking: MaskingClient
    asked: Asked


class Desk:
    """Answers letters.

    Args:
        users: the client's own users, on the public list of items; checked here, before any letter.
        conditions: what its owner agreed to.
        identity: its Ed25519 secret key.
        account: of the same key.
        noise: its own source of randomness; None for the operating system's.
    """

    def __init__(
        self,
        users: Users,
        conditions: Conditions,
        identity: bytes,
        account: ClientAccount,
        noise: NoiseSource | None = None,
    ) -> None:
        _check_users(users, conditions)
        public = Ed25519PrivateKey.from_private_bytes(identity).public_key().public_bytes_raw()
        self.position = conditions.position(public)
        self._users = users
        self._conditions = conditions
        self._identity = identity
        self._account = account
        self._noise = SystemNoise(exact=True) if noise is None else noise
        self._pass: _Pass | None = None

    def answered(self, letter: bytes) -> bytes:
        """Return the answer to a letter. A refusal is always the same bytes; the client's own log has the reason."""
        try:
            under_way, self._pass = self._pass, None  # one refusal ends a pass
            return self._answer(letter, under_way)
        except Exception as problem:  # nothing of what went wrong may reach the server
            _LOG.warning("Refused: %s", problem)
            return letters.REFUSAL

    def _answer(self, letter: bytes, under_way: _Pass | None) -> bytes:
        stage, held = letters.opened(letter, len(self._conditions.roster))
        if stage == "hello":
            return letters.here(self.position, held["nonce"], Ed25519PrivateKey.from_private_bytes(self._identity))
        if stage == "terms":
            under_way = self._begun(held["run"], held["question"], held["until"], held["signature"])
            message: Message = under_way.masking.advertise()
        elif under_way is None:
            raise RefusedError("Expected the question of a pass first.")
        else:
            message = self._next(stage, held, under_way)
        answer = letters.answer(message, {"length": under_way.asked.length, "clients": len(self._conditions.roster)})
        self._pass = under_way
        return answer

    def _begun(self, run: bytes, question: bytes, until: int, signature: bytes) -> _Pass:
        """Agree to a pass, pay for it, and only then begin. What costs too much is refused before it makes work."""
        conditions, account = self._conditions, self._account
        conditions.refuse_stranger(run, question, until, signature)
        offer = offered(question, conditions)
        account.refuse_again(run.hex())
        conditions.refuse_beyond(account.spent, offer.cost, len(account.entries))
        conditions.refuse_more_sums(offer.names, account.sums)
        asked = offer.understood(conditions.facts)
        terms = conditions.terms(run, asked.length, asked.digest)
        account.charge(Entry(run.hex(), asked.names, asked.length, asked.cost, terms.least))
        return _Pass(MaskingClient(terms, self.position, self._identity), asked)

    def _next(self, stage: str, held: dict[str, Any], under_way: _Pass) -> Message:
        client, run = under_way.masking, held["run"]
        if stage == "directory":
            return client.share(letters.directory(held))
        if stage == "delivered":
            return self._masked(under_way, Delivered(run, held["boxes"]))
        if stage == "survivors":
            return self._confirmed(under_way, Survivors(run, held["clients"]))
        return client.reveal(Confirmations(run, held["signatures"]))

    def _masked(self, under_way: _Pass, delivered: Delivered) -> Masked:
        """Check the letter first, then look at rows."""
        client = under_way.masking
        mask = client.mask(delivered)
        sums = under_way.asked.answered(self._users, self._noise)
        return Masked(client.terms.run, client.position, sums.masked(mask, client.terms.n_clients))

    def _confirmed(self, under_way: _Pass, survivors: Survivors) -> Confirmed:
        """Check the list of survivors, and write on disk that it is signed before the signature leaves."""
        confirmed = under_way.masking.confirm(survivors)
        self._conditions.refuse_more_sums(under_way.asked.names, self._account.sums)
        self._account.sign(survivors.run.hex())
        return confirmed


def _check_users(users: Users, conditions: Conditions) -> None:
    """Refuse rows that no pass could use, before the first letter."""
    if users.n_tasks != conditions.facts.n_items:
        raise InputError(
            f"Expected users on the public list of {conditions.facts.n_items} items, got {users.n_tasks}.",
            argument="users",
        )
    if users.n_users > MOST_USERS:
        raise InputError(f"Expected at most {MOST_USERS} users at one client, got {users.n_users}.", argument="users")
    of_a_party = users.has_column("features")
    for name in ("features", "labels") if of_a_party else ("values",):
        if not np.isfinite(users.column(name)).all():
            raise InputError(
                f"Expected {name} that are numbers, got some that are infinite or missing.", argument="users"
            )
    if of_a_party and (users.n_users > 1 or users.column("features").shape[1:] != (users.n_tasks,)):
        raise InputError("Expected the rows of one party, with all features of the public list.", argument="users")
    if not of_a_party:
        require_distinct_tasks(users)

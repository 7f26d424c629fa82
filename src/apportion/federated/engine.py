"""The engine for clients that keep their rows: each evaluates contributions alone, and secure aggregation adds up.

Where noise is drawn is a choice. By the server, after it added up (`FederatedEngine`): the guarantee then holds against
everybody but the server, which sees exact sums over many clients. Or by clients, in shares (`NoisyClientsEngine`): the
server never sees a sum without noise, and the guarantee holds against it too, and against those who collude with it
(docs/proofs/federated_noise.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from apportion.data.users import UserParts, Users
from apportion.engines import Processors
from apportion.errors import InputError
from apportion.federated.elsewhere import Change, UsersElsewhere
from apportion.federated.graph import Degree, Graph, everybody, planned
from apportion.federated.masks import Numbers
from apportion.federated.messages import Stage, Terms, Total
from apportion.federated.passes import Part, aggregated
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import Contribution, Kernels, PartialSums
from apportion.privacy.noise import NoiseSource, SystemNoise
from apportion.privacy.noise_shares import NoiseShare, promised, with_share


@dataclass(frozen=True)
class Trust:
    """How many clients there are, and how many of them a guarantee allows to fail.

    Attributes:
        n_clients: clients that are asked to take part in every pass; public.
        colluding: how many may collude with the server.
        dropping: how many may drop out of a pass; with more, it is refused.
        identities: Ed25519 public keys of all clients, for a server that may not keep to the protocol; else empty.

    Example:
        >>> Trust(100, colluding=10, dropping=20).counted
        69
    """

    n_clients: int
    colluding: int = 1
    dropping: int = 1
    identities: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        _ = self.degree  # refuses impossible numbers

    @property
    def degree(self) -> Degree:
        """How many neighbours a client has, and how many of them recover its secrets."""
        return (everybody if self.identities else planned)(self.n_clients, self.colluding, self.dropping)

    @property
    def least(self) -> int:
        """Clients that must finish a pass."""
        return self.n_clients - self.dropping

    @property
    def counted(self) -> int:
        """How many clients' noise counts, at least 1: those who finish, less the colluding and the protected one."""
        return self.least - self.colluding - 1

    def terms(self, length: int) -> Terms:
        """Return the terms of a new pass."""
        degree = self.degree
        graph = Graph(self.n_clients, degree.neighbours, os.urandom(32))
        return Terms(
            os.urandom(16), graph, degree.threshold, self.least, self.colluding, length, self.identities
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Question:
    """What clients are asked in a pass; it holds public and released numbers only.

    Attributes:
        contributions: what each evaluates on its own users.
        dtype: the precision that users compute with.
        noise: which of the sums is wanted, with a share of its noise; None for all sums, without noise.
        changes: what each client does to its own users first, in order; see `UserParts.mapped`.
    """

    contributions: tuple[Contribution, ...]
    dtype: np.dtype[Any]
    noise: NoiseShare | None = None
    changes: tuple[Change, ...] = ()

    def answered(self, users: Users, source: NoiseSource, threads: int | None = None) -> PartialSums:
        """Return one client's answer, before its mask.

        Args:
            users: the client's own users, with all of their rows.
            source: the client's randomness.
            threads: number of threads.
        """
        kernels = Processors(self.dtype, threads, exact=True)
        changed = reduce(lambda held, change: change(held), self.changes, users)
        sums = PartialSums.over(changed, self.contributions, kernels)
        return sums if self.noise is None else with_share(sums, self.contributions, self.noise, source)


Lie = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Makes other whole numbers of a client's sums, in an experiment on clients that do not send what they should."""


class Clients(Protocol):
    """The way to clients: it carries one pass to them and back."""

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        """Run a pass of secure aggregation on the clients' answers. `users` are what the engine was given."""


class SimulatedClients:
    """Clients in this process, each with an equal run of the users that the engine is given.

    Args:
        leaving: clients who drop out, and the first stage in which they send nothing.
        identities: secret keys of clients, where the terms name identities.
        lies: what some clients do to their numbers before they mask them.
    """

    def __init__(
        self,
        leaving: Mapping[int, Stage] | None = None,
        identities: Mapping[int, bytes] | None = None,
        lies: Mapping[int, Lie] | None = None,
    ) -> None:
        self.leaving = dict(leaving or {})
        self.identities = dict(identities or {})
        self.lies = dict(lies or {})

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        """Cut the users into as many runs as there are clients, and run a pass."""
        n_clients, source = terms.n_clients, SystemNoise(exact=True)
        answers = (question.answered(run, source, threads=1) for run in divided(users, n_clients))
        parts = {each: partial(answer.masked, n_clients=n_clients) for each, answer in enumerate(answers)}
        told = {each: partial(_lied, parts[each], lie) for each, lie in self.lies.items()}
        return aggregated(terms, {**parts, **told}, self.leaving, self.identities)


def divided(users: UserParts, n_clients: int) -> list[Users]:
    """Return users in memory in as many runs as there are simulated clients."""
    whole, *further = users.parts()
    if further:
        raise InputError("Expected users in memory, because simulated clients divide them.", argument="users")
    return list(whole.cut(n_clients))


def _lied(honest: Part, lie: Lie, mask: Numbers) -> Numbers:
    """Mask other numbers than those that a client should send."""
    return np.asarray(lie(honest(np.zeros_like(mask)).view(np.int64)).view(np.uint64) + mask)


class FederatedEngine:
    """Adds up over clients that keep their rows. The server adds the noise.

    Args:
        trust: how many clients there are, collude and drop out.
        clients: the way to them; by default they are simulated in this process.
        dtype: precision of what users compute for themselves.

    Example:
        >>> from apportion.allocation import SplitEqually
        >>> from apportion.data import Interactions
        >>> from apportion.privacy.contributions import TaskCounts
        >>> data = Interactions.from_arrays(["ann", "ann", "bob", "cem"], [10, 20, 10, 10])
        >>> engine = FederatedEngine(Trust(n_clients=4))
        >>> engine.add_up(data.as_users, [TaskCounts(SplitEqually())])
        [BoundedSum(shape=(2,), l2_sensitivity=1, value hidden)]
    """

    exact = True

    def __init__(self, trust: Trust, clients: Clients | None = None, dtype: DTypeLike = np.float32) -> None:
        self.trust = trust
        self.clients: Clients = SimulatedClients() if clients is None else clients
        self.dtype = np.dtype(dtype)
        self.kernels: Kernels = Processors(self.dtype, exact=True)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the statement says is not protected."""
        trust = self.trust
        return (
            f"anything against the server, which draws the noise: it sees exact sums over at least {trust.least} of "
            f"{trust.n_clients} clients; none of them shows a client's own part if at most {trust.colluding} clients "
            "collude with it, but two over different clients may differ by one",
        )

    def add_up(self, users: UserParts, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """Ask all clients once, and add up what they send."""
        like = self._over_nobody(users, contributions)
        total = self._asked(like, Question(tuple(contributions), self.dtype, changes=_changes(users)), users)
        return total.sealed(contributions, self.caveats)

    def _over_nobody(self, users: UserParts, contributions: Sequence[Contribution]) -> PartialSums:
        """Return the sums over no users, which give the shapes that clients' answers must have."""
        return PartialSums.over(users.nobody(), contributions, self.kernels)

    def _asked(self, like: PartialSums, question: Question, users: UserParts) -> PartialSums:
        total = self.clients.add_up(self.trust.terms(like.n_numbers), question, users)
        return like.unmasked(total.numbers, total.masks)


class NoisyClientsEngine(FederatedEngine):
    """Adds up over clients that draw the noise in shares: each release is a pass of its own.

    Only Gaussian releases can be drawn so; a session refuses others. The noise is that of the statement if as many
    clients collude and drop out as allowed, and larger if fewer do.

    Args:
        trust: how many clients there are, collude and drop out.
        clients: the way to them; by default they are simulated in this process.
        dtype: precision of what users compute for themselves.
    """

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the statement says is not protected."""
        trust = self.trust
        return (
            "that a client takes part, against the server: clients draw the noise, so the guarantee holds against the "
            f"server and up to {trust.colluding} of {trust.n_clients} clients who collude with it, where two data sets "
            "are neighbours if the contribution of one user at one client is zero in one of them; all rows of a user "
            "must be at one client",
        )

    def add_up(self, users: UserParts, contributions: Sequence[Contribution]) -> list[BoundedSum]:
        """Return sums that clients will form in their releases."""
        asked = tuple(contributions)

        def draw(like: PartialSums, contribution: int, output: int, multiplier: float) -> PartialSums:
            share = NoiseShare(contribution, output, multiplier, self.trust.counted)
            return self._asked(like, Question(asked, self.dtype, share, _changes(users)), users)

        return promised(self._over_nobody(users, asked), asked, draw, self.caveats)


def _changes(users: UserParts) -> tuple[Change, ...]:
    """Return what clients must do to their own users; nothing where the users are here."""
    return users.changes if isinstance(users, UsersElsewhere) else ()

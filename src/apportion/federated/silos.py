"""Silos whose sums the server sees and checks one by one: for a server that is trusted with them anyway.

Under masks nobody sees whether a client's numbers are ones that its users could add up to. Where the server draws the
noise and silos trust it, masks can be left out, and it can check. A silo is left out if its sums are larger than what
the most users that a silo may have can add. The sums of an honest silo never are, whatever its rows, and the check of
one silo does not look at others. So who is left out tells nothing about the users of honest silos.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from apportion.data.users import UserParts
from apportion.errors import InputError
from apportion.federated.engine import FederatedEngine, Lie, Question, Trust, divided
from apportion.federated.messages import RefusedError, Terms, Total
from apportion.privacy.noise import SystemNoise


class PlainSilos:
    """Silos in this process that send their sums without masks, each with an equal run of the users.

    Args:
        most_users: users that a silo has at most; public.
        lies: what silos do to their numbers before they send them.

    Attributes:
        left_out: the silos of the last pass whose sums were too large.
    """

    def __init__(self, most_users: int, lies: Mapping[int, Lie] | None = None) -> None:
        if most_users < 1:
            raise InputError(f"Expected silos of at least 1 user, got {most_users}.", argument="most_users")
        self.most_users = most_users
        self.lies = dict(lies or {})
        self.left_out: tuple[int, ...] = ()

    def add_up(self, terms: Terms, question: Question, users: UserParts) -> Total:
        """Add up the sums that are possible; refuse the pass if too few are."""
        if question.noise is not None:
            raise InputError("Expected noise of the server, which checks sums without noise.", argument="engine")
        none, source = np.zeros(terms.length, np.uint64), SystemNoise(exact=True)
        taken = {}
        for each, run in enumerate(divided(users, terms.n_clients)):
            answer = question.answered(run, source, threads=1)
            numbers = answer.masked(none, terms.n_clients).view(np.int64)
            numbers = self.lies[each](numbers) if each in self.lies else numbers
            if answer.unmasked(numbers.view(np.uint64), none).possible(question.contributions, self.most_users):
                taken[each] = numbers.view(np.uint64)
        self.left_out = tuple(each for each in range(terms.n_clients) if each not in taken)
        if len(taken) < terms.least:
            raise RefusedError(f"Only {len(taken)} silos are left, and {terms.least} must be.")
        return Total(np.sum(list(taken.values()), axis=0, dtype=np.uint64), none, tuple(taken))


class SilosEngine(FederatedEngine):
    """Adds up over silos that a trusted server checks one by one.

    Args:
        n_silos: how many there are; public.
        dropping: how many may be left out of a pass.
        silos: the way to them.

    Example:
        >>> from apportion.allocation import SplitEqually
        >>> from apportion.data import Interactions
        >>> from apportion.privacy.contributions import TaskCounts
        >>> data = Interactions.from_arrays(["ann", "ann", "bob", "cem"], [10, 20, 10, 10])
        >>> engine = SilosEngine(4, dropping=1, silos=PlainSilos(most_users=1))
        >>> engine.add_up(data.as_users, [TaskCounts(SplitEqually())])
        [BoundedSum(shape=(2,), l2_sensitivity=1, value hidden)]
    """

    def __init__(self, n_silos: int, *, dropping: int, silos: PlainSilos) -> None:
        super().__init__(Trust(n_silos, 0, dropping), silos, np.float64)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the statement says is not protected."""
        return (
            f"anything against the server, which draws the noise: it sees the exact sums of each of "
            f"{self.trust.n_clients} silos, to check them",
        )

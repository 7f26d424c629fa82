"""The state of an account, as `Account.status` reports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReservedPart:
    """What is still set aside for one run.

    Attributes:
        number: the number of the entry that set it aside.
        run: for whom: a text that identifies one handle on the account.
        at: since when, in UTC.
        epsilon: what is left of it, as the ε at the account's δ.
        left: each amount of it, exactly.
    """

    number: int
    run: str
    at: str
    epsilon: float
    left: tuple[str, ...]


@dataclass(frozen=True)
class Status:
    """The state of an account.

    Attributes:
        name: the name of the account.
        kind: "gaussian", "pure" or "renyi".
        epsilon: the whole ε.
        delta: the whole δ.
        unit: whose data is protected.
        neighbours: which two data sets are indistinguishable.
        window: the time span of the data.
        owner: a note on who answers for the account.
        created: when it was opened, in UTC.
        entries: how many entries there are: charges, and notes on what was set aside and given back.
        head: hash of the last entry, and so of all entries; store a copy elsewhere.
        spent_epsilon: the ε at `delta` of what was charged, as if it had all been fixed in advance.
        spent_mu: its Gaussian-DP parameter, if the account adds up μ².
        left_epsilon: the ε at `delta` of one more session that takes all that is neither spent nor set aside.
        left_mu: the μ of the largest Gaussian release still allowed; None if the account never allows any.
        measures: what each amount is.
        spent: each amount, exactly.
        total: what each amount may reach, exactly.
        reserved: what is set aside for runs that have not ended, or that died.
    """

    name: str
    kind: str
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    window: str
    owner: str
    created: str
    entries: int
    head: str
    spent_epsilon: float
    spent_mu: float | None
    left_epsilon: float
    left_mu: float | None
    measures: tuple[str, ...]
    spent: tuple[str, ...]
    total: tuple[str, ...]
    reserved: tuple[ReservedPart, ...] = ()

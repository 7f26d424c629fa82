"""Votes on settings: a few rows of each user are held out, and every user measures how well each setting predicts them.

A hash of (user, task) under a public seed decides which rows are held out, so this does not depend on other users.
`WithoutHeldOut` keeps those rows out of any other contribution. `Votes` uses them: each user scores a short public list
of settings on its own held-out rows and adds the differences from the first setting, the default, clipped as one vector
(docs/proofs/votes.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.linalg.backend import active_backend
from apportion.linalg.held_out import held_out_rows
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions.base import Contribution, Floats, Kernels, Sums, UserRun
from apportion.privacy.contributions.clipped import Output, sealed_output, whole_parts
from apportion.privacy.neighbours import ADD_REMOVE, Neighbours

_ROWS_AT_ONCE = 1 << 20  # rows in a batch, small enough to need no memory worth mentioning
_ROWS_LOOKED_THROUGH = 1 << 22  # rows that are searched for voters at a time
_ROWS_OF_VOTERS, _VOTERS = 1 << 17, 1 << 11  # rows of voters, and voters, that are processed at a time
_TIMES_ON_DEVICE = 16  # as many on a device, which ranks them together


@dataclass(frozen=True)
class HeldOut:
    """The rule that holds out rows of a user: those whose hash of (user, task, seed) is small, up to a limit.

    The row with the largest hash is never held out. So every user keeps a row, and users with one row hold out none.

    Attributes:
        fraction: the approximate fraction of rows held out, for users with few rows.
        seed: a public seed.
        most: the most rows held out of one user.
        voters: the approximate fraction of users who hold out rows at all, by a hash of the user.
    """

    fraction: float
    seed: int = 0
    most: int = 1 << 30
    voters: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a fraction that leaves no rows on one side."""
        if not 0 < self.fraction < 1 or self.most < 1:
            raise InputError(
                f"Expected a fraction of rows between 0 and 1 and at least 1 row, got {self.fraction} and {self.most}.",
                argument="fraction",
            )
        if not 0 < self.voters <= 1:
            raise InputError(
                f"Expected a fraction of users above 0 and at most 1, got {self.voters}.", argument="voters"
            )

    def of(self, users: UserRun) -> NDArray[np.bool_]:
        """Return, for each row, whether it is held out. This depends on its own user's rows alone."""
        if active_backend() == "compiled":
            return self._of_run(users)
        return np.concatenate([np.zeros(0, bool), *map(self._of_run, users.runs(_ROWS_AT_ONCE))])

    def of_runs(self, users: UserRun) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
        """Yield some of the users at a time, and which of their rows are held out, as remembered if it is."""
        known: _Divided | None = users.recalled(self)
        held = None if known is None else known.held(users)
        first = 0
        for run in users.runs(_ROWS_LOOKED_THROUGH):
            yield run, self.of(run) if held is None else held[first : first + run.n_rows]
            first += run.n_rows

    def _of_run(self, users: UserRun) -> NDArray[np.bool_]:
        key = (self.seed % 2**256).to_bytes(32, "little")
        own = users.keys, users.indptr, users.column("tasks")
        return held_out_rows(key, *own, fraction=self.fraction, voters=self.voters, most=self.most)

    def kept(self, users: Any) -> Any:
        """Return the users without their held-out rows. The result is kept while the users stay in memory."""
        return self._parts(users).kept(users)

    def shown(self, users: Any) -> Any:
        """Return the users with only their held-out rows. The result is kept while the users stay in memory."""
        return self._parts(users).shown(users)

    def _parts(self, users: Any) -> _Divided:
        parts: _Divided = users.remembered(self, lambda run: _Divided(run.noted(self, self._positions)))
        return parts

    def _positions(self, users: UserRun) -> NDArray[np.int64]:
        """Return where held-out rows are; users that are read again in every pass work it out once."""
        return np.flatnonzero(self.of(users))


class _Divided:
    """Some users without their held-out rows and with only these; each is made when it is first needed.

    The users remember this, so it does not hold them: they leave memory as soon as nobody holds them.
    """

    def __init__(self, positions: NDArray[np.int64]) -> None:
        self._positions = positions
        self._kept: Any = None
        self._shown: Any = None

    def held(self, users: Any) -> NDArray[np.bool_]:
        held = np.zeros(users.n_rows, bool)
        held[self._positions] = True
        return held

    def kept(self, users: Any) -> Any:
        if self._kept is None:
            self._kept = users.without_rows(self._positions)
        return self._kept

    def shown(self, users: Any) -> Any:
        if self._shown is None:
            self._shown = users.with_rows(self.held(users))
        return self._shown


def _with_rows(users: Any, rows: NDArray[np.bool_], times: int) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
    """Yield some users at a time, each with its entries of an array with one entry per row."""
    first = 0
    for some in users.runs(times * _ROWS_OF_VOTERS, times * _VOTERS):
        yield some, rows[first : first + some.n_rows]
        first += some.n_rows


@dataclass(frozen=True, eq=False)
class WithoutHeldOut(Contribution):
    """Another contribution, evaluated on users without their held-out rows."""

    of: Contribution
    rows: HeldOut

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sums over the remaining rows."""
        return self.of.partial(self.rows.kept(users), kernels)

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sums. The bounds hold for any rows of a user, so they hold for these rows."""
        return self.of.sealed(sums)


def without_held_out(contribution: Contribution, rows: HeldOut | None) -> Contribution:
    """Return the contribution of users without their held-out rows, if any are held out."""
    return contribution if rows is None else WithoutHeldOut(contribution, rows)


class Losses(Protocol):
    """Computes how badly each setting predicts each user's held-out rows, from that user's rows and released values."""

    @property
    def n_settings(self) -> int:
        """Number of settings, the default first."""

    def __call__(self, kept: Any, shown: Any, kernels: Kernels) -> Floats:
        """Return losses [n_users, n_settings] on users' held-out rows in `shown`, given their other rows in `kept`."""


@dataclass(frozen=True, eq=False)
class Votes(Contribution):
    """Each user's losses under all other settings minus its loss under the first; clipped as one vector.

    Users without a held-out row, or whose losses or squares of differences are not finite, add zero.

    Attributes:
        losses: computes the losses. For each user it must return what it would return for that user alone.
        rows: which rows are held out.
        clip_norm: the norm to which all differences of a user together are clipped.
        what: the settings in words, for the statement.
        neighbours: the relation that the sensitivity is for.
    """

    losses: Losses
    rows: HeldOut
    clip_norm: float
    what: str
    neighbours: Neighbours = ADD_REMOVE

    @property
    def output(self) -> Output:
        """The output: one number for each setting except the default."""
        return Output(self.losses.n_settings - 1, self.clip_norm, False, self.what)

    def partial(self, users: UserRun, kernels: Kernels) -> Sums:
        """Return the sum of these users' differences, clipped and in whole steps."""
        total = self.output.zeros(users.n_tasks)
        parts = (lambda pair: self._of_voters(pair[0], pair[1], kernels)), self._voters(users, kernels.rows_travel)
        for own in map(*parts) if kernels.rows_travel else kernels.side_by_side(*parts):  # threads would share a device
            total += own
        return (total,)

    def _voters(self, users: UserRun, on_device: bool) -> Iterator[tuple[Any, Any]]:
        """Yield batches of users who hold out rows: with the rows that they kept, and with the held-out ones.

        Nothing is kept in memory, because each batch is used only once.
        """
        for run, held in self.rows.of_runs(users):
            voting = np.zeros(run.n_users, bool)
            voting[np.searchsorted(run.indptr, np.flatnonzero(held), side="right") - 1] = True
            voters, held = run.with_users(voting), held[np.repeat(voting, run.sizes)]
            for some, of_some in _with_rows(voters, held, _TIMES_ON_DEVICE if on_device else 1):
                yield some.with_rows(~of_some), some.with_rows(of_some)

    def _of_voters(self, kept: Any, shown: Any, kernels: Kernels) -> NDArray[np.int64]:
        losses = np.asarray(self.losses(kept, shown, kernels), np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            differences = losses[:, 1:] - losses[:, :1]
            squares = 2 * np.square(differences).sum(axis=1)  # doubled: the norm is finite however it is added up
        good = np.isfinite(squares)
        return np.asarray(whole_parts(np.where(good[:, None], differences, 0.0), self.output).sum(axis=0))

    def sealed(self, sums: Sums) -> tuple[BoundedSum, ...]:
        """Seal the sum. One user's part is its clipped vector of differences."""
        return (sealed_output(self.output, sums[0], self.neighbours),)

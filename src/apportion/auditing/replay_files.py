"""Replay of a file: written again without a user, read again by the same reader, fitted again with the same releases.

Replay in memory starts from rows that were read. It cannot see that one user's cells changed how the rows of others
were read, which breaks the guarantee before any sum is formed. So here the neighbour is a file. Two things must hold:
all other users have the same rows, to the last bit; and no release moves by more than its sensitivity.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from apportion.auditing.neighbour_files import UserFile, readable
from apportion.auditing.replay import AuditError, Fit, replays
from apportion.auditing.statements import Check
from apportion.data import Interactions
from apportion.data.time_texts import UNREADABLE
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise

Load = Callable[[Path], Interactions]
"""Reads a file as the audited command does."""

SECONDS = 300.0
"""After this time no further user is left out."""

_ROWS, _RELEASES = "rows of others, read from a file without a user", "replay of a file without a user"
_TOLERANCE = 1e-6


def replay_file(
    file: UserFile, load: Load, fit: Fit, budget: Budget, *, users: int, seed: int, seconds: float = SECONDS
) -> tuple[list[Check], list[str]]:
    """Leave out the users with the most rows and a few others, one at a time, and read and fit again.

    Args:
        file: the file.
        load: reads it, or a neighbour.
        fit: runs the estimator and returns what it would publish.
        budget: the claimed budget.
        users: how many users to leave out: the first half have the most rows, the others are random.
        seed: of the noise and of the choice.
        seconds: how long new neighbours are begun.

    Returns:
        The checks, and what was done in words.
    """
    chosen, end = _left_out(readable(file), users, seed), time.monotonic() + seconds
    if not chosen:
        return [], []
    data, found = load(file.path), _Findings()
    replay = replays(fit, data, {"budget": budget, "noise": SeededNoise(seed)})
    for user in chosen:
        if found.failed or (found.tried and time.monotonic() > end):
            break
        with TemporaryDirectory() as folder:
            found.add(file, user, Path(folder), load, data, replay, keep_list=not budget.keys_delta)
    return found.checks(), [found.words(file, len(chosen))]


class _Findings:
    """What was found so far."""

    def __init__(self) -> None:
        self.tried = self.refused = 0
        self._unlike = self._broken = ""
        self._worst, self._where = 0.0, ""

    @property
    def failed(self) -> bool:
        """Whether something was found."""
        return bool(self._unlike or self._broken or self._worst > 1 + _TOLERANCE)

    def add(
        self,
        file: UserFile,
        user: str,
        folder: Path,
        load: Load,
        data: Interactions,
        replay: Callable[[Interactions], dict[str, float]],
        *,
        keep_list: bool,
    ) -> None:
        """Write, read and fit without one user."""
        self.tried += 1
        try:
            neighbour = load(file.write_without(user, folder))
        except InputError:  # a refusal is for whoever holds the data
            self.refused += 1
            return
        self._unlike = unlike_rows(data, neighbour, user)
        try:
            moved = replay(_on_list(neighbour, data) if keep_list else neighbour)
        except (AuditError, InputError) as error:
            self._broken = str(error)
            return
        for name, ratio in moved.items():
            if ratio > self._worst:
                self._worst, self._where = ratio, name

    def checks(self) -> list[Check]:
        """Return both checks; none if every neighbour was refused."""
        if self.tried == self.refused:
            return []
        same = "all other users have the same rows, to the last bit"
        moved = f"no release moved by more than its sensitivity; the largest move was {self._worst:.4g} of it"
        if self._worst > 1 + _TOLERANCE:
            moved = f"{self._where!r} moved by {self._worst:.4g} times its sensitivity"
        return [
            Check(_ROWS, not self._unlike, self._unlike or same),
            Check(_RELEASES, not self._broken and self._worst <= 1 + _TOLERANCE, self._broken or moved),
        ]

    def words(self, file: UserFile, wanted: int) -> str:
        """Return what was done."""
        did = (
            f"{file.path.name} was written without {self.tried} of {wanted} chosen users, one at a time, and read again"
        )
        return did + (f"; {self.refused} of these files were refused, and tell nothing" if self.refused else "")


def unlike_rows(data: Interactions, neighbour: Interactions, user: str) -> str:
    """Return how the rows of other users differ between a file and the file without a user; empty if they do not."""
    code = data.user_ids.match(neighbour.user_ids)
    owners = code[neighbour.users] if len(code) else neighbour.users
    texts = [str(each) for each in data.user_ids]
    left = texts.index(user) if user in texts else -1
    mine = _in_order(data, data.users, data.tasks, data.users != left)
    items = data.task_ids.match(neighbour.task_ids)
    others = _in_order(neighbour, owners, items[neighbour.tasks], np.ones(len(owners), bool))
    if len(mine) != len(others):
        return f"other users have {len(mine)} rows with, and {len(others)} without a user whom we left out"
    unlike = (mine != others).any(1)
    if not unlike.any():
        return ""
    owner = int(mine[int(np.argmax(unlike)), 0])
    return f"{int(unlike.sum())} rows of others are read in another way, the first of user {texts[owner]!r}"


def _in_order(
    data: Interactions, owners: NDArray[np.int32], items: NDArray[np.int32], kept: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return rows as whole numbers, [rows, 4], in an order that does not depend on how they were stored.

    To have no column of times is the same as to have no time in any row.
    """
    values = (data.values + np.float32(0)).view(np.int32)
    times = np.full(len(values), UNREADABLE) if data.timestamps is None else data.timestamps
    rows = np.stack([owners, items, values, times], axis=1).astype(np.int64)[kept]
    return rows[np.lexsort(rows.T[::-1])]


def _left_out(sizes: Counter[str], users: int, seed: int) -> list[str]:
    """Return the users with the most rows, for half of the number, then random others."""
    by_size = sorted(sizes, key=lambda user: (-sizes[user], user))
    heavy, rest = by_size[: (users + 1) // 2], by_size[(users + 1) // 2 :]
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(rest))[: max(users - len(heavy), 0)]
    return heavy + [rest[place] for place in drawn.tolist()]


def _on_list(neighbour: Interactions, data: Interactions) -> Interactions:
    """Return rows on the list of items of the whole file, which is public."""
    codes = data.task_ids.match(neighbour.task_ids)[neighbour.tasks]
    if (codes < 0).any():
        raise AuditError("Without a user there are items that the whole file lacks.")
    return Interactions.from_codes(
        neighbour.users, codes, neighbour.values, user_ids=neighbour.user_ids, task_ids=data.task_ids
    )

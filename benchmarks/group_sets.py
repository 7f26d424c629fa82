"""Rows of users in several groups: real sets, and generated ones whose groups and users have long tails.

The real sets are those of the folder in APPORTION_DATA: students who rate lecturers (InstEval), by department and by
lecturer, and children over years (egsingle), by school and by year.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.claim import data_folder, need

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

_REAL = (
    ("InstEval by department", "insteval/InstEval.csv", "y", "s", "dept", (1.0, 5.0), False),
    ("InstEval by lecturer", "insteval/InstEval.csv", "y", "s", "d", (1.0, 5.0), False),
    ("egsingle by school", "mlmrev/egsingle.csv", "math", "childid", "schoolid", (-6.0, 6.0), True),
    ("egsingle by year", "mlmrev/egsingle.csv", "math", "childid", "year", (-6.0, 6.0), True),
)


@dataclass(frozen=True, eq=False)
class GroupRows:
    """One set.

    Attributes:
        name: of the set.
        values: one for each row, within the range.
        users: whose row it is.
        groups: the group of each row.
        n_groups: how many groups there are; their list is public.
        ends: the public range.
        few: whether it is public knowledge that a user is in few groups, at most eight: a child is in one school, and
            there are six years.
    """

    name: str
    values: Floats
    users: Codes
    groups: Codes
    n_groups: int
    ends: tuple[float, float]
    few: bool = False

    def truth(self, statistic: str) -> Floats:
        """Counts, sums or means by group."""
        counts = np.bincount(self.groups, minlength=self.n_groups)
        sums = np.bincount(self.groups, self.values, minlength=self.n_groups)
        return {"count": counts, "sum": sums, "mean": sums / np.maximum(counts, 1)}[statistic].astype(np.float64)


def real_sets() -> Iterator[GroupRows]:
    """All real sets; a claim that needs them cannot be measured without."""
    for name, path, value, user, group, ends, few in _REAL:
        with need(data_folder() / path, name).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
        values, users, groups = ([row[column] for row in rows] for column in (value, user, group))
        yield replace(_made(name, values, users, groups, ends), few=few)


def long_tails(n_users: int = 20_000, n_groups: int = 500, seed: int = 1) -> GroupRows:
    """Log-normal numbers of rows of users, groups by rank to the power -1, means of groups that differ."""
    rng = np.random.default_rng(seed)
    sizes = np.rint(np.exp(1.2 + 1.1 * rng.standard_normal(n_users))).clip(1, 500).astype(int)
    users = np.repeat(np.arange(n_users), sizes)
    weights = 1 / np.arange(1, n_groups + 1)
    groups = rng.choice(n_groups, len(users), p=weights / weights.sum())
    means = rng.normal(5, 1, n_groups)[groups] + 0.5 * rng.standard_normal(n_users)[users]
    values = np.clip(means + 1.5 * rng.standard_normal(len(users)), 0, 10)
    return _made("generated, long tails", values, users, groups, (0.0, 10.0))


def _made(name: str, values: Any, users: Any, groups: Any, ends: tuple[float, float]) -> GroupRows:
    owners, places = (np.unique(np.asarray(each), return_inverse=True)[1] for each in (users, groups))
    inside = np.clip(np.asarray(values, np.float64), *ends)
    return GroupRows(name, inside, owners.astype(np.int64), places.astype(np.int64), int(places.max()) + 1, ends)

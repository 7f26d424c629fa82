"""Rows of users with many rows, on which values may go with sizes: real sets, and generated ones with a dial for that.

The real sets are those of the folder in APPORTION_DATA: pupils of schools (Exam, ScotsSec), children over years
(egsingle), reviews of drugs, and lecture evaluations (InstEval), by student and by lecturer.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.claim import data_folder, need

Floats = NDArray[np.float64]
EPSILONS = (0.5, 1.0, 3.0)
DIALS = (0.0, 0.25, 0.5, 1.0)
_REAL = (
    ("Exam by school", "mlmrev/Exam.csv", "normexam", "school", (-4.0, 4.0)),
    ("ScotsSec by primary school", "mlmrev/ScotsSec.csv", "attain", "primary", (1.0, 10.0)),
    ("egsingle by child", "mlmrev/egsingle.csv", "math", "childid", (-6.0, 6.0)),
    ("egsingle by school", "mlmrev/egsingle.csv", "math", "schoolid", (-6.0, 6.0)),
    ("drugs by drug", "drugs/drugLibTrain_raw.tsv", "rating", "urlDrugName", (1.0, 10.0)),
    ("InstEval by student", "insteval/InstEval.csv", "y", "s", (1.0, 5.0)),
    ("InstEval by lecturer", "insteval/InstEval.csv", "y", "d", (1.0, 5.0)),
)


@dataclass(frozen=True, eq=False)
class RealRows:
    """One set.

    Attributes:
        name: of the set.
        values: one for each row.
        users: whose row it is, in ascending order.
        ends: the public range.
    """

    name: str
    values: Floats
    users: NDArray[np.int64]
    ends: tuple[float, float]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each user."""
        return np.bincount(self.users)


def real_sets() -> Iterator[RealRows]:
    """All real sets; a claim that needs them cannot be measured without."""
    for name, path, value, user, ends in _REAL:
        with need(data_folder() / path, name).open(encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter="\t" if path.endswith(".tsv") else ","))
        yield _made(name, [float(row[value]) for row in rows], [row[user] for row in rows], ends)


def generated(dial: float, n_users: int = 1500, seed: int = 1) -> RealRows:
    """Log-normal sizes; users' means go with the logarithm of their size by so much, from 0 to 1."""
    rng = np.random.default_rng(seed)
    sizes = np.rint(np.exp(1.6 + 1.1 * rng.standard_normal(n_users))).clip(1, 1000).astype(int)
    octaves = np.log(sizes)
    octaves = (octaves - octaves.mean()) / octaves.std()
    means = 5 + dial * octaves + np.sqrt(1 - dial**2) * rng.standard_normal(n_users)
    users = np.repeat(np.arange(n_users), sizes)
    values = np.clip(means[users] + 1.5 * rng.standard_normal(len(users)), 0, 10)
    return _made(f"generated, dial {dial:g}", values, users, (0.0, 10.0))


def _made(name: str, values: Any, users: Any, ends: tuple[float, float]) -> RealRows:
    codes = np.unique(np.asarray(users), return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    return RealRows(name, np.asarray(values, np.float64)[order], codes[order], ends)

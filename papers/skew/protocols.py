"""The paper's three benchmarks from the user's own download: MovieLens 10M and 20M, and the Million Song data.

None of them can be shipped. Each protocol reads the file as it is distributed, filters it as the benchmark says, and
gives data and a study with the splits and metrics of the paper:

- ml10m: ratings.dat (`::`), values 0.5 to 5, all rows, 80/10/10 by rating;
- ml20m: ratings.csv, ratings of 4 and more, users with 5 movies or more, 10,000 + 10,000 held-out users;
- msd: train_triplets.txt (tabs), any play, songs of 200 users or more, then users of 20 songs or more, 50,000 + 50,000
  held-out users.

Held-out users show 80 % of their items and the rest is to be found. The paper cites Lee et al. (2013) and Liang et al.
(2018) for its splits; the fractions by rating are ours, since neither states a validation part.

Filters look at exact counts, so which songs are on the list, and that every user has at least so many, is revealed: the
statement of every fit says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.evaluation import Study


@dataclass(frozen=True)
class Protocol:
    """One benchmark: where its rows are, what of them counts, and how quality is measured.

    Attributes:
        file: name of the file in the download's folder.
        read: reads and filters it.
        kind: "ratings" or "clicks".
        value_range: the public scale of ratings.
        delta: δ of the paper: a constant, or one over the number of users that the benchmark states.
        held_out: users (or fraction of rows) for validation, and as many for test.
        public: what the filters reveal.
    """

    file: str
    read: Callable[[Path], Interactions]
    kind: str
    value_range: tuple[float, float]
    delta: float
    held_out: float
    public: tuple[str, ...] = ()

    def load(self, folder: Path) -> Interactions:
        """Read the download, or say what is missing."""
        path = folder / self.file
        if not path.exists():
            raise InputError(f"Expected {self.file} in {folder}; it is part of the benchmark's own download.")
        return self.read(path)

    def study(
        self,
        methods: Sequence[dict[str, Any]],
        epsilons: Sequence[float],
        seeds: Sequence[int],
        *,
        held_out: float | None = None,
    ) -> Study:
        """A study of these methods with the benchmark's split and metrics; fewer held-out users for small stand-ins."""
        rows = [
            method if method["method"] == "non-private" else {**method, "public": self.public} for method in methods
        ]
        part = self.held_out if held_out is None else held_out
        table: dict[str, Any] = {
            "data": {"kind": self.kind, "split_seed": 0, "validation": part, "test": part},
            "budgets": {"epsilon": list(epsilons), "delta": self.delta, "seeds": list(seeds)},
            "methods": rows,
            "evaluation": {"slices": 5},
        }
        if self.kind == "clicks":
            table["evaluation"] |= {"recall_at": [20], "ndcg_at": [100], "recall_at_by_slice": [100, 80, 60, 40, 20]}
        else:
            table["data"]["value_range"] = list(self.value_range)
        return Study.from_table(table)


def _ml10m(path: Path) -> Interactions:
    return Interactions.read(path, columns=["userId", "movieId", "rating", "timestamp"])


def _ml20m(path: Path) -> Interactions:
    rated = Interactions.read(path)
    return with_at_least(rated.where(rated.values >= 4), users=5)


def _msd(path: Path) -> Interactions:
    played = Interactions.read(path, columns=["user", "song", "plays"], task="song", value="plays")
    return with_at_least(with_at_least(played, tasks=200), users=20)


def with_at_least(data: Interactions, *, users: int = 0, tasks: int = 0) -> Interactions:
    """Keep the rows of users who have at least `users` tasks and of tasks that have at least `tasks` users.

    Tasks that lose all their rows leave the list, and so do users.
    """
    kept = (data.by_user.counts >= users)[data.users] & (data.by_task.counts >= tasks)[data.tasks]
    if not kept.any():
        raise InputError(f"No row is left of users with {users} tasks or more and tasks with {tasks} users or more.")
    return Interactions.from_arrays(
        data.user_ids.ids_of(data.users[kept]),
        data.task_ids.ids_of(data.tasks[kept]),
        np.ascontiguousarray(data.values[kept]),
    )


PROTOCOLS = {
    "ml10m": Protocol("ratings.dat", _ml10m, "ratings", (0.5, 5.0), 1e-5, 0.1),
    "ml20m": Protocol(
        "ratings.csv", _ml20m, "clicks", (0.5, 5.0), 1 / 136_677, 10_000,
        ("only users with 5 or more liked movies are kept, so that everybody has as many is revealed",),
    ),
    "msd": Protocol(
        "train_triplets.txt", _msd, "clicks", (0.5, 5.0), 1 / 571_355, 50_000,
        (
            "only songs that 200 or more users played are on the list, by exact counts, so that each has as many is "
            "revealed",
            "only users with 20 or more of those songs are kept, so that everybody has as many is revealed",
        ),
    ),
}  # fmt: skip

"""Users with thousands of rows among very many others: data beyond every block, chunk and buffer of the code.

A pass is evaluated with a user, without that user and on that user alone (tests/engine_passes.py). Sums over users are
whole numbers, so the first must equal the other two together, exactly; and nobody may add more than the sensitivity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apportion.auditing.boundaries import Sizes
from apportion.auditing.hidden_values import raw_steps, raw_value
from apportion.data import Interactions
from apportion.data.users import Users
from engine_passes import forgetful, without

_TOLERANCE = 1e-9


class LargeWorld:
    """Many users with one to three rows, and a few with very many.

    Args:
        n_users: number of users.
        heaviest: rows of the user with the most; others have a half, a quarter, ... of it.
    """

    def __init__(self, n_users, heaviest):
        self.n_users, self.heaviest = n_users, heaviest
        self.n_tasks = heaviest + heaviest // 5

    @property
    def heavy(self):
        """Rows of the heavy users, the heaviest first."""
        return [max(self.heaviest >> k, 4) for k in range(6)]

    def sizes(self, rng):
        sizes = 1 + rng.integers(0, 3, self.n_users)
        sizes[self.heavy_users] = self.heavy
        return sizes

    @property
    def measures(self):
        """How large its data are."""
        rows = 2 * self.n_users + 2 * self.heaviest
        return Sizes(self.n_users, rows, self.n_tasks, self.heaviest, self.n_users // 3)

    @property
    def heavy_users(self):
        """Where they stand: at the beginning, at the end, and between."""
        return np.linspace(0, self.n_users - 1, len(self.heavy)).astype(np.int64)

    def interactions(self):
        rng = np.random.default_rng(11)
        sizes = self.sizes(rng)
        users = np.repeat(np.arange(self.n_users), sizes)
        place = np.arange(len(users)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        start = (self.n_tasks * rng.random(self.n_users) ** 3).astype(np.int64)
        start[rng.random(self.n_users) < 0.4] = 0  # one item that very many users have
        tasks = (start[users] + place) % self.n_tasks
        values = rng.integers(1, 6, len(users)).astype(np.float32)
        return Interactions.from_arrays(users, tasks, values, task_ids=np.arange(self.n_tasks))


SUITE = LargeWorld(20_000, 3_001)
FULL = LargeWorld(1_000_000, 50_001)


@dataclass(frozen=True)
class Moved:
    """How one sum moved with one user.

    Attributes:
        what: the contribution and the user's number of rows.
        ratio: to the declared sensitivity.
        gap: by how much the sums without the user and of the user alone miss the whole, relative to it.
    """

    what: str
    ratio: float
    gap: float

    @property
    def wrong(self):
        return self.ratio > 1 + _TOLERANCE or self.gap > _TOLERANCE


def moved_by(one, user, engine):
    """How each sum of a pass moves when a user leaves, or changes what the relation lets change."""
    users = forgetful(at_once(one.users))
    alone = only(users, user)
    replaced = {each.neighbours.key for each in one.sums} - {"add-remove", "add-remove-task"}
    if not replaced:
        rest, own = engine.add_up(without(users, user), one.contributions), engine.add_up(alone, one.contributions)
        return [_moved(*sums, users.sizes[user]) for sums in zip(one.sums, rest, own, strict=True)]
    other = with_other_values(users, user, *replaced)
    return [
        _replaced(*sums, users.sizes[user])
        for sums in zip(
            one.sums,
            engine.add_up(other, one.contributions),
            engine.add_up(alone, one.contributions),
            engine.add_up(only(other, user), one.contributions),
            strict=True,
        )
    ]


def at_once(users):
    """Users in memory; those of a pass that leaves rows out as it goes, without these rows."""
    return users if isinstance(users, Users) else _joined(users)


def _joined(users):
    whole = users._users.with_rows(users._kept)
    for change in users._changes:
        whole = change(whole)
    return whole


def only(users, user):
    """One user alone."""
    return forgetful(users.run(user, user + 1))


def with_other_values(users, user, relation):
    """The same users, one of them with what the relation lets change turned round."""
    rows = slice(*users.indptr[user : user + 2])
    changing = {"replace-labels": {"labels"}}.get(relation, {"values", "labels", "features"})
    columns = {}
    for name in changing & set(users._columns):
        columns[name] = column = users.column(name).copy()
        column[rows] = column.min() + column.max() - column[rows] if name == "labels" else -10 * column[rows]
    return forgetful(users).with_columns(**columns)


def _moved(whole, rest, own, size):
    gap = np.abs(_numbers(whole) - _numbers(rest) - _numbers(own)).max(initial=0)
    return Moved(f"{whole.derivation[:60]}, {size} rows", _norm(own, raw_value(own)), gap / _largest(whole))


def _replaced(whole, other, own, changed, size):
    difference = _numbers(whole) - _numbers(other) - _numbers(own) + _numbers(changed)
    ratio = _norm(whole, raw_value(own) - raw_value(changed))
    return Moved(f"{whole.derivation[:60]}, {size} rows", ratio, np.abs(difference).max(initial=0) / _largest(whole))


def _numbers(held):
    """In whole steps; in float64 where a sum is not on a lattice."""
    return raw_steps(held) if held.step is not None else raw_value(held)


def _largest(held):
    return max(1, np.abs(_numbers(held)).max(initial=0)) if held.step is None else 1


def _norm(held, moved):
    scaled = moved if held.scales is None else moved / held.scales
    return float(np.sqrt(np.square(scaled).sum()) / held.l2_sensitivity)


# -- the boundaries of the compiled kernel --


def kernel_constants(folder: Path):
    """The same of the compiled kernel: {file.name: number}."""
    found = {}
    for path in sorted(folder.glob("*.[ch]pp")):
        for name, written in re.findall(
            r"\b(k[A-Z]\w*|at_once) = (?:Index\()?(\d+(?:\)? << \d+)?)[,;]", path.read_text()
        ):
            number, _, shift = written.replace(")", "").partition(" << ")
            found[f"{path.name}.{name}"] = int(number) << int(shift or 0)
    return found

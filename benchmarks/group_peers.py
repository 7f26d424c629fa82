"""Counts, sums and means by group as PipelineDP, Tumult Analytics and OpenDP take them, by their published rule.

Every user keeps at most L groups, and at most H rows in each, at random; L is at most the public number of groups. A
count gets Gaussian noise for √L H or Laplace noise for L H, a sum for that times the largest absolute value. A mean is
the middle of the range plus a noisy sum of centred values over a noisy count, with half of μ² or of ε for each. Here it
is also brought within the range, and Gaussian noise is calibrated exactly. The law of the noise, too, is the better of
both in hindsight.

Packages themselves (`package_error`) are run at the limits and the law that are best by the rule, if
APPORTION_PIPELINEDP_PYTHON and APPORTION_TUMULT_PYTHON name interpreters that have them (pipeline-dp 0.3.1 and
tmlt.analytics 0.21 on a Java machine were used; Tumult on sets of less than 10,000 rows, because its queries take
minutes). The smallest error is the peer's. PipelineDP draws what the rule says; only its mean with Gaussian noise is
worse than the rule, because it divides ε and δ instead of μ².
Means have heavy tails where a group is small: a noisy size near 0 makes one run in many count for most of the squared
error. So both sides need many runs where groups are few, and five copies of the package's run say nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.privacy import Budget
from benchmarks.group_sets import GroupRows
from benchmarks.interpreters import interpreter_of, printed_by

Floats = NDArray[np.float64]
GROUPS = (1, 2, 3, 5, 8, 14, 25, 40)
ROWS = (1, 2, 4, 8, 16, 32)
MOST_ROWS = {"pipelinedp": 600_000, "tumult": 80_000}  # of all copies that a package gets in one query
MOST_COPIES = 80
SLOW = {"tumult": 10_000}  # rows of a set from which on a package is not run
RULE_ROWS = 500_000  # of all runs of the rule together, with each of the limits


@dataclass(frozen=True, order=True)
class Peer:
    """What the best peer does.

    Attributes:
        error: root mean squared error over groups.
        groups: of one user that are kept.
        rows: of one user in a group that are kept.
        law: of the noise.
        package: the error of PipelineDP with these limits; None where it was not run.
        tumult: the same of Tumult Analytics.
    """

    error: float
    groups: int
    rows: int
    law: str
    package: float | None = None
    tumult: float | None = None

    @property
    def best(self) -> float:
        """The smallest error."""
        return min(each for each in (self.error, self.package, self.tumult) if each is not None)


def kept(rows: GroupRows, n_groups: int, n_rows: int, seed: int) -> NDArray[np.bool_]:
    """Which rows a user keeps: of at most so many groups, at most so many rows in each."""
    rng = np.random.default_rng(seed)
    cells = rows.users * rows.n_groups + rows.groups
    of_cell = np.unique(cells, return_inverse=True)[1].ravel()
    drawn = rng.random(int(of_cell.max()) + 1)[of_cell]
    row_rank = _ranks(cells, rng.random(len(cells)))
    cell_rank = _ranks(rows.users[row_rank == 0], drawn[row_rank == 0])
    taken = np.zeros(int(of_cell.max()) + 1, bool)
    taken[of_cell[row_rank == 0][cell_rank < n_groups]] = True
    return np.asarray(taken[of_cell] & (row_rank < n_rows))


def _ranks(keys: NDArray[np.int64], drawn: Floats) -> NDArray[np.int64]:
    """The place of each row among those of the same key, in the order of what was drawn."""
    order = np.lexsort((drawn, keys))
    ordered = keys[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(first, len(keys)))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.repeat(first, sizes)
    return ranks


def estimate(rows: GroupRows, statistic: str, chosen: NDArray[np.bool_], noise: Floats, half_of: float) -> Floats:
    """One run of the rule on the rows that were kept.

    Args:
        rows: of all users.
        statistic: which.
        chosen: the rows that were kept.
        noise: of two counts, each with the whole budget.
        half_of: by how much the noise of a number with half of the budget is larger.
    """
    groups, values = rows.groups[chosen], rows.values[chosen]
    counts, low, high = np.bincount(groups, minlength=rows.n_groups), *rows.ends
    if statistic == "count":
        return np.asarray(np.maximum(counts + noise[0], 0.0))
    if statistic == "sum":
        return np.asarray(np.bincount(groups, values, rows.n_groups) + max(abs(low), abs(high)) * noise[0])
    middle, half = (low + high) / 2, (high - low) / 2
    top = np.bincount(groups, values - middle, rows.n_groups) + half * half_of * noise[0]
    return np.asarray(np.clip(middle + top / np.maximum(counts + half_of * noise[1], 1.0), low, high))


def runs_for(rows: GroupRows, most: int) -> int:
    """How often the rule is run on these rows: at most so often, and at least five times."""
    return min(most, max(RULE_ROWS // len(rows.users), 5))


def best_errors(
    rows: GroupRows, statistics: Sequence[str], budgets: Sequence[Budget], runs: int
) -> dict[tuple[str, float], Peer]:
    """For each statistic and ε the least root mean squared error over groups of any limits and law, and which."""
    asked = [(name, budget) for name in statistics for budget in budgets]
    found: dict[tuple[str, float], list[Peer]] = {(name, budget.epsilon): [] for name, budget in asked}
    most_groups = sorted({min(groups, rows.n_groups) for groups in GROUPS})
    for limits in ((groups, most) for groups in most_groups for most in ROWS):
        kept_rows = [kept(rows, *limits, run) for run in range(runs)]
        for name, budget in asked:
            for law in ("Gaussian", "Laplace"):
                error = _error(rows, name, kept_rows, limits, budget, law)
                found[name, budget.epsilon].append(Peer(error, *limits, law))
    return {key: min(errors) for key, errors in found.items()}


def _error(
    rows: GroupRows, name: str, kept_rows: list[NDArray[np.bool_]], limits: tuple[int, int], budget: Budget, law: str
) -> float:
    """Root mean squared error over groups and runs."""
    truth, squares, (groups, most) = rows.truth(name), [], limits
    for run, chosen in enumerate(kept_rows):
        rng = np.random.default_rng([run, 1])
        if law == "Gaussian":
            noise, half_of = groups**0.5 * most / budget.mu * rng.standard_normal((2, rows.n_groups)), 2**0.5
        else:
            noise, half_of = groups * most / budget.epsilon * rng.laplace(size=(2, rows.n_groups)), 2.0
        squares.append(np.square(estimate(rows, name, chosen, noise, half_of) - truth).mean())
    return float(np.sqrt(np.mean(squares)))


def package_error(package: str, rows: GroupRows, statistic: str, epsilon: float, peer: Peer) -> float | None:
    """The error of a package itself with these limits, over as many runs as are cheap; None if it is not run."""
    interpreter, n_rows = interpreter_of(package), len(rows.users)
    if interpreter is None or n_rows >= SLOW.get(package, n_rows + 1):
        return None
    copies = min(max(MOST_ROWS[package] // n_rows, 1), MOST_COPIES)
    with tempfile.TemporaryDirectory() as folder:
        path = saved(rows, Path(folder))
        asked = (statistic, peer.groups, peer.rows, epsilon, peer.law, copies)
        printed = printed_by(interpreter, "group_peers_run.py", package, path, *asked)
    found = np.array(printed["estimates"]).reshape(copies, rows.n_groups)
    inside = np.clip(found, *rows.ends) if statistic == "mean" else found
    return float(np.sqrt(np.square(inside - rows.truth(statistic)).mean()))


def saved(rows: GroupRows, folder: Path) -> Path:
    """The rows in a file that `group_peers_run` reads."""
    path = folder / "rows.npz"
    held = {"users": rows.users, "groups": rows.groups, "values": rows.values, "ends": np.array(rows.ends)}
    np.savez(path, **held, n_groups=rows.n_groups)  # type: ignore[arg-type]
    return path

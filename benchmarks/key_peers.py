"""Peers of a private list of keys: the usual rule, MAD2R, and PipelineDP and OpenDP as they are.

*The usual rule* is that of the packages with Gaussian noise: every user keeps at most L keys at random, each counts 1,
noise is for √L, and the threshold is for δ/2 over L keys. It gets the best L of a grid, which takes the data to know.

*MAD2R* (Chen, Cohen-Addad, Epasto, Zadimoghaddam, ICML 2025) has two rounds, with a tenth and with the rest of the
budget. The first is MAD: of users of at most 50 keys, what a key has beyond the threshold and two deviations goes back
to its users, and half of a fiftieth of that to each of their keys. The second leaves out keys that were found and keys
whose count is more than three deviations below the threshold. Keys whose count is a deviation above it get less weight,
down to half, and other keys of the same user more, up to twice as much. The paper's text and code could not be had
here. This is how its abstract and its authors' articles describe it, with constants as remembered, our accounting, and
the better of caps of 100 and 300 keys.

*Packages* are run with interpreters of environments of their own, named by APPORTION_PIPELINEDP_PYTHON and
APPORTION_OPENDP_PYTHON (pipeline-dp 0.3.1 and opendp 0.16 were used).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.privacy import Budget
from apportion.privacy.keys import threshold_for
from benchmarks.interpreters import interpreter_of, printed_by

Floats = NDArray[np.float64]
Chosen = NDArray[np.bool_]

LIMITS = (1, 4, 9, 36, 100)
FEW_LIMITS = {"pipelinedp": (1, 9, 100), "opendp": (9, 100)}
CAPS = (100, 300)
FIRST, MOST_ADAPTIVE, BEYOND = 0.1, 50, 2.0


@dataclass(frozen=True, eq=False)
class Pairs:
    """Which user holds which key, once each."""

    users: NDArray[np.int64]
    keys: NDArray[np.int64]
    n_users: int
    n_keys: int

    @classmethod
    def of(cls, data: Interactions) -> Pairs:
        """Return all pairs of the data."""
        return cls(np.asarray(data.users, np.int64), np.asarray(data.tasks, np.int64), data.n_users, data.n_tasks)

    def kept(self, most: int, seed: int, allowed: Chosen | None = None) -> Pairs:
        """Return at most this many random keys of each user, among the allowed keys."""
        rows = np.arange(len(self.users)) if allowed is None else np.flatnonzero(allowed[self.keys])
        order = rows[np.lexsort((np.random.default_rng(seed).random(len(rows)), self.users[rows]))]
        owners = self.users[order]
        rank = np.arange(len(order)) - np.searchsorted(owners, owners)
        return Pairs(owners[rank < most], self.keys[order[rank < most]], self.n_users, self.n_keys)

    @property
    def sizes(self) -> Floats:
        """Return how many keys each user has."""
        return np.bincount(self.users, minlength=self.n_users).astype(np.float64)

    def added(self, amounts: Any) -> Floats:
        """Return the sum over the users of each key."""
        each = np.broadcast_to(np.asarray(amounts, np.float64), self.keys.shape)
        return np.asarray(np.bincount(self.keys, each, minlength=self.n_keys), np.float64)

    def roots(self) -> Floats:
        """Return 1/√n for each pair."""
        return np.asarray(1 / np.sqrt(self.sizes[self.users]))


def usual(pairs: Pairs, limit: int, budget: Budget, seed: int) -> Chosen:
    """What the usual rule lists: counts with Gaussian noise for √L above 1 + σ Φ⁻¹((1 − δ/2)^(1/L))."""
    stddev = limit**0.5 / budget.mu
    threshold = 1 + stddev * -NormalDist().inv_cdf(budget.keys_delta / limit)
    counts = pairs.added(1.0)
    noisy = counts + stddev * np.random.default_rng(seed).standard_normal(pairs.n_keys)
    return np.asarray((counts > 0) & (noisy >= threshold))


def mad2r(pairs: Pairs, most: int, budget: Budget, seed: int) -> Chosen:
    """What MAD2R lists."""
    rng, deltas = np.random.default_rng(seed), (FIRST * budget.keys_delta, (1 - FIRST) * budget.keys_delta)
    noise = [1 / budget.mu / share**0.5 for share in (FIRST, 1 - FIRST)]
    levels = [threshold_for(delta, stddev, most, "gaussian") for delta, stddev in zip(deltas, noise, strict=True)]
    counts = _mad(pairs.kept(most, seed), levels[0] + BEYOND * noise[0])
    noisy = counts + noise[0] * rng.standard_normal(pairs.n_keys)
    found = (counts > 0) & (noisy >= levels[0])
    left = pairs.kept(most, seed, ~found & (noisy + 3 * noise[0] >= levels[1]))
    bias = np.clip(levels[1] / np.maximum(noisy - noise[0], 1e-9), 0.5, 1.0)
    counts = left.added(_biased(left, bias[left.keys]))
    again = counts + noise[1] * rng.standard_normal(pairs.n_keys)
    return np.asarray(found | ((counts > 0) & (again >= levels[1])))


def _mad(pairs: Pairs, full: float) -> Floats:
    """Counts of the first round: 1/√n, of which 1/n goes elsewhere where a key has enough."""
    sizes = pairs.sizes[pairs.users]
    adaptive = sizes <= MOST_ADAPTIVE
    given = np.where(adaptive, 1 / sizes, 0.0)
    first = pairs.added(given)
    beyond = np.maximum(first - full, 0.0) / np.maximum(first, 1e-12)
    back = np.bincount(pairs.users, given * beyond[pairs.keys], minlength=pairs.n_users)
    again = pairs.added(np.where(adaptive, back[pairs.users], 0.0)) / 2 / MOST_ADAPTIVE
    return np.asarray(np.minimum(first, full) + again + pairs.added(pairs.roots() - given))


def _biased(pairs: Pairs, bias: Floats) -> Floats:
    """Weights of pairs; what biased keys leave goes to the others of the user, up to twice their weight."""
    roots, low = pairs.roots(), bias < 1
    used = np.bincount(pairs.users, np.where(low, np.square(bias * roots), 0.0), minlength=pairs.n_users)
    others = np.bincount(pairs.users, ~low, minlength=pairs.n_users)
    rest = np.sqrt(np.maximum(1 - used, 0.0) / np.maximum(others, 1))[pairs.users]
    return np.where(low, bias * roots, np.minimum(rest, 2 * roots))


def package_lists(
    package: str, pairs: Pairs, epsilons: Sequence[float], delta: float
) -> list[tuple[str, Chosen]] | None:
    """For each ε what the best strategy and limit of a package lists, and which; None if it is not here."""
    interpreter = interpreter_of(package)
    if interpreter is None:
        return None
    held = {limit: pairs.kept(limit, limit) for limit in FEW_LIMITS[package]}
    counts = {f"counts {limit}": kept.added(1.0).astype(np.int64) for limit, kept in held.items()}
    weights = {f"weights {limit}": kept.added(kept.roots()) for limit, kept in held.items()}
    jobs = {"epsilons": list(epsilons), "limits": FEW_LIMITS, "delta": delta, "runs": 1}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "counts.npz", **counts, **weights)  # type: ignore[arg-type]
        (Path(folder) / "jobs.json").write_text(json.dumps(jobs))
        found = printed_by(interpreter, "key_peers_run.py", package, folder, folder=folder)
    return [(name, np.isin(np.arange(pairs.n_keys), listed[0])) for name, listed in found]

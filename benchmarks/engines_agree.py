"""Claim: engines return the same whole numbers for every pass of every estimator, however users are cut into runs.

A pass is the users and the contributions that an estimator hands to its engine. Every estimator is fitted on the
reference, the engine of memory with one run of users, and its passes are recorded. Each engine is then given every pass
anew, with users cut into 1, 2 and 7 runs, and what it returns is compared: every whole number, the step, sensitivities,
the neighbours and the derivation. The engine of Spark adds up on a real server, Sail; `make test-spark` compares the
same on Apache Spark. An engine that forgets one user, and one that rounds where the lattice cuts off, must be found
out, so that the comparison is one that can fail.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.data.users import Users
from apportion.engines import Engine, LocalEngine, Processors
from apportion.engines.processors import Summed
from apportion.privacy.contributions.base import Floats, TaskOrder
from benchmarks.claim import Outcome, UnavailableError, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

CUTS = (1, 2, 7)
USERS, QUICK_USERS = 1000, 41
EVERY = 3  # of the estimators, one in so many is fitted in the quick form


def measure(quick: bool) -> Outcome:
    """Give every pass of every estimator to every engine."""
    if find_spec("torch") is None:
        raise UnavailableError("torch is not installed; install apportion[torch].")
    import engine_passes as recorded  # type: ignore[import-not-found]

    names = list(recorded.FITS)
    names = [names[0], *names[1::EVERY]] if quick else names
    dtypes: list[Any] = [np.float32] if quick else [np.float32, np.float64]
    engines = {**recorded.ENGINES, **recorded.FURTHER_ENGINES}
    n_users, total, rows = QUICK_USERS if quick else USERS, Counter[str](), []
    for name in names:
        found: Counter[str] = Counter()
        for dtype in dtypes:
            passes = recorded.reference_passes(name, dtype, n_users)
            for engine, make in engines.items():
                few = quick and engine == "Spark"  # a job of a server takes longer than a pass in memory
                for cut in CUTS[1:2] if few else CUTS:
                    found += _compared(make(cut, dtype), passes[:1] if few else passes, recorded)
        rows.append([name, found["passes"], found["numbers"], found["unequal"], found["other facts"]])
        total += found
    print_table(["estimator", "passes compared", "whole numbers", "unequal", "other facts unequal"], rows)
    seen = _wrong_engines_seen(recorded)
    print_table(["engine that is wrong", "numbers in which it was found out"], list(seen.items()))
    return _outcome(names, total, seen, list(engines), n_users)


def _outcome(names: Sequence[str], total: Counter[str], seen: dict[str, int], engines: list[str], n: int) -> Outcome:
    value = {
        "unequal": total["unequal"] + total["other facts"],
        "numbers": total["numbers"],
        "passes": total["passes"],
        "wrong engines seen": sum(count > 0 for count in seen.values()),
    }
    return Outcome(
        value=value,
        target={"unequal": 0, "wrong engines seen": len(seen)},
        holds=value["unequal"] == 0 and value["passes"] > 0 and value["wrong engines seen"] == len(seen),
        headline=f"{len(names)} estimators: {value['numbers']:,} whole numbers of {value['passes']:,} passes over "
        f"engines {' and '.join(engines)}, users cut into {', '.join(map(str, CUTS))} runs: {value['unequal']} unequal",
        settings={"users": n, "cuts": CUTS, "engines": engines, "estimators": list(names)},
    )


def _compared(engine: Engine, passes: Sequence[Any], recorded: Any) -> Counter[str]:
    """Return how many numbers an engine returns, and how many of them differ from the reference."""
    found: Counter[str] = Counter()
    for one in passes:
        sums = engine.add_up(recorded.forgetful(one.users), one.contributions)
        found["passes"] += 1
        for wanted, got in zip(one.sums, sums, strict=True):
            found["numbers"] += wanted.size
            found["unequal"] += recorded.unequal_numbers(wanted, got)
            found["other facts"] += len(recorded.unequal_facts(wanted, got))
    return found


class _ForgetsAUser(LocalEngine):
    """Adds up all users but the first."""

    def _runs(self, part: Users) -> list[Users]:
        return [part.run(1, part.n_users)]


class _Rounding(Processors):
    """Rounds to the nearest step where the lattice cuts off."""

    def moments(
        self, order: TaskOrder, indices: NDArray[np.int32], rows: Any, coefficients: Floats, bound: float
    ) -> Summed:
        step = linalg.step_below(bound)
        sums = np.zeros((len(order.indptr) - 1, rows.shape[1]), np.int64)
        tasks = np.repeat(np.arange(len(sums)), np.diff(order.indptr))
        products = np.asarray(rows, np.float64)[indices] * coefficients[:, None]
        np.add.at(sums, tasks, np.rint(products / step).astype(np.int64))
        return sums, step


class _Rounds(LocalEngine):
    """An engine with those kernels."""

    def _make_kernels(self) -> _Rounding:
        return _Rounding(self.dtype, self.threads, self.chunk, exact=self.exact)


def _wrong_engines_seen(recorded: Any) -> dict[str, int]:
    """Return in how many numbers each wrong engine differs from the reference."""
    passes = recorded.reference_passes("every kind of contribution", np.float32, QUICK_USERS)
    wrong: dict[str, Callable[[], Engine]] = {
        "forgets a user": lambda: _ForgetsAUser(exact=True),
        "rounds to the nearest step": lambda: _Rounds(exact=True),
    }
    return {name: _compared(make(), passes, recorded)["unequal"] for name, make in wrong.items()}

"""Quality over time, figure 3: the test error after every round of AM-SSP and of AM-DPSGD, in one process.

What is timed is fitting alone: models are judged afterwards, from the items that each round left. Times are those of
the processor, on one thread, so that what else runs on the machine hardly counts; the data are indexed by user and by
task beforehand, for everybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion import linalg
from apportion.data.sparse_rows import SparseRows
from apportion.engines import Engine
from apportion.evaluation import rmse
from apportion.privacy import Session
from apportion.published.public_features.minimisation import EncoderMinimisation
from apportion.published.skew.updates import Round, Shares
from papers.public_features.movielens import Bench

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """Processor seconds of fitting so far, and the test error then."""

    seconds: float
    error: float


@dataclass(eq=False)
class Watched:
    """An update that notes when each round ended and what the items were then."""

    update: Any
    ended: list[float] = field(default_factory=list)
    items: list[Floats] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.update, name)

    def for_items(self, rows: SparseRows) -> Self:
        """The same for these items; the notes stay with the caller."""
        self.update = self.update.for_items(rows)
        return self

    def __call__(self, this_round: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Update, and note it."""
        found: Floats = self.update(this_round, session, engine, shares)
        self.ended.append(time.process_time())
        self.items.append(found.copy())
        return found


def evolution(bench: Bench, chosen: EncoderMinimisation) -> list[Point]:
    """Error on the test part after each round, with the seconds of fitting until then."""
    indexed(bench)
    watched = Watched(chosen.update)
    chosen.update = watched
    start = time.process_time()
    model = chosen.fit(bench.train).model_
    points = []
    for ended, items in zip(watched.ended, watched.items, strict=True):
        points.append(Point(ended - start, _error(bench, chosen, items, model)))
    return points


def indexed(bench: Bench) -> None:
    """Have the training part indexed both ways."""
    for index in (bench.train.by_user, bench.train.by_task):
        assert len(index.indptr)


def _error(bench: Bench, chosen: EncoderMinimisation, items: Floats, model: Any) -> float:
    """The error of the model that these items would have made: users' regressions differ in their features alone."""
    biases = chosen.bias_scale * items[:, :1]
    features = np.concatenate([np.ones_like(biases), biases, items[:, 1:]], axis=1).astype(np.float32)
    model.fold_in = replace(model.fold_in, features=features)
    return float(rmse(model.predict(bench.history, bench.target), bench.target).overall)


def averaged(runs: Sequence[Sequence[Point]]) -> list[Point]:
    """Median seconds and mean error after each round, over runs of the same row with other noise."""
    by_round = zip(*runs, strict=True)
    return [Point(float(np.median([p.seconds for p in r])), float(np.mean([p.error for p in r]))) for r in by_round]


def best(points: Sequence[Point]) -> Point:
    """The point of the least error."""
    return min(points, key=lambda point: point.error)


def time_to(points: Sequence[Point], error: float) -> float | None:
    """Seconds until the error was at most this; None if it never was."""
    return next((point.seconds for point in points if point.error <= error), None)


def times_less(ours: Sequence[Point], theirs: Sequence[Point]) -> float | None:
    """How many times longer theirs took to their least error than ours took to that error."""
    reached = time_to(ours, best(theirs).error)
    return None if reached is None else round(best(theirs).seconds / reached, 2)


def per_round(points: Sequence[Point]) -> tuple[float, float]:
    """Seconds of a round, and of what comes before the first one."""
    if len(points) < 2:
        raise ValueError("A round's time takes two rounds to tell.")
    each = (points[-1].seconds - points[0].seconds) / (len(points) - 1)
    return each, points[0].seconds - each


def floors(bench: Bench, width: int, repeats: int = 5) -> dict[str, float]:
    """Seconds of the least that any method does with the ratings, once: a plain sum by task, and one kernel's pass.

    Args:
        bench: what is timed.
        width: length of user vectors.
        repeats: the least of so many is returned.
    """
    indexed(bench)
    data, by_task = bench.train, bench.train.by_task
    vectors = np.random.default_rng(0).standard_normal((data.n_users, width))
    weights = np.ones(data.n_observations)
    passes: dict[str, Callable[[], Any]] = {
        "values added up by movie": lambda: np.bincount(data.tasks, data.values, minlength=data.n_tasks),
        "one pass of the kernel: a vector per movie": lambda: linalg.segment_moment(
            by_task.indptr, by_task.indices, vectors, coefficients=weights, dtype=np.float64, threads=1
        ),
        "one pass of the kernel: a matrix per movie": lambda: linalg.segment_gram(
            by_task.indptr, by_task.indices, vectors, weights=weights, dtype=np.float64, threads=1
        ),
    }
    return {name: min(_seconds(made) for _ in range(repeats)) for name, made in passes.items()}


def _seconds(made: Callable[[], Any]) -> float:
    start = time.process_time()
    made()
    return time.process_time() - start

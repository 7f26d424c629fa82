"""Quality over time, figure 3: the test error after every round of AM-SSP and of AM-DPSGD, in one process.

What is timed is fitting alone: models are judged afterwards, from the items that each round left. Times are those of
the processor, on one thread, so that what else runs on the machine does not count.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.data.sparse_rows import SparseRows
from apportion.engines import Engine
from apportion.evaluation import rmse
from apportion.privacy import Session
from apportion.recommend.features.minimisation import EncoderMinimisation
from apportion.recommend.updates import Round, Shares
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

    def __call__(self, about: Round, session: Session, engine: Engine, shares: Shares) -> Floats:
        """Update, and note it."""
        found: Floats = self.update(about, session, engine, shares)
        self.ended.append(time.process_time())
        self.items.append(found.copy())
        return found


def evolution(bench: Bench, chosen: EncoderMinimisation) -> list[Point]:
    """Error on the test part after each round, with the seconds of fitting until then."""
    watched = Watched(chosen.update)
    chosen.update = watched
    start = time.process_time()
    model = chosen.fit(bench.train).model_
    points = []
    for ended, items in zip(watched.ended, watched.items, strict=True):
        points.append(Point(ended - start, _error(bench, chosen, items, model)))
    return points


def _error(bench: Bench, chosen: EncoderMinimisation, items: Floats, model: Any) -> float:
    """The error of the model that these items would have made: users' regressions differ in their features alone."""
    biases = chosen.bias_scale * items[:, :1]
    features = np.concatenate([np.ones_like(biases), biases, items[:, 1:]], axis=1).astype(np.float32)
    model.fold_in = replace(model.fold_in, features=features)
    return float(rmse(model.predict(bench.history, bench.target), bench.target).overall)


def time_to(points: list[Point], error: float) -> float | None:
    """Seconds until the error was at most this; None if it never was."""
    return next((point.seconds for point in points if point.error <= error), None)

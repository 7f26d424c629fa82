"""Pairs of draws that must be independent, whatever lies between them: shapes, copies, threads, processes.

A scene makes two streams of standard normal numbers, or one stream that is compared with itself.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np

from apportion import linalg
from apportion.auditing.replay import RecordingSession
from apportion.auditing.streams import as_normal, dependence, noise_of, repeated_runs
from apportion.engines import LocalEngine
from apportion.privacy import Budget

from strategies import random_interactions

ALPHA = 1e-9
"""Probability with which one scene accuses a source whose draws are independent, at most."""

LARGE = (1 << 20) + (1 << 18)
SMALL = 1 << 13
_SCALE = 2.0**30  # of exact noise, so that rounding to whole numbers does not show


@dataclass(frozen=True)
class Seen:
    """What a scene showed.

    Attributes:
        scene: its name.
        excess: the largest correlation over what chance allows.
        runs: how many runs of numbers occurred twice.
    """

    scene: str
    excess: float
    runs: int

    @property
    def dependent(self):
        return self.excess > 1 or self.runs > 0


def one_large_draw(make, size):
    return make().normal((max(size, LARGE),), np.float64), None


def one_shape_twice(make, size):
    source = make()
    return source.normal((size,), np.float64), source.normal((size,), np.float64)


def two_shapes(make, size):
    source = make()
    return source.normal((size,), np.float64), source.normal((size // 16, 8), np.float64)


def two_precisions(make, size):
    source = make()
    return source.normal((size,), np.float64), source.normal((size,), np.float32)


def exact_noise_twice(make, size):
    source = make()
    return _exact(source, size), _exact(source, size)


def exact_noise_and_normals(make, size):
    source = make()
    return _exact(source, size), source.normal((size,), np.float64)


def uniform_numbers_twice(make, size):
    source = make()
    return as_normal(source.uniform(size)), as_normal(source.uniform(size))


def many_small_draws(make, size):
    source = make()
    return np.concatenate([source.normal((4, 4), np.float64).ravel() for _ in range(size // 16)]), None


def many_keys(make, _size):
    source = make()
    return np.concatenate([source.normal((4,), np.float64) for _ in range(1 << 14)]), None


def two_sources(make, size):
    return make().normal((size,), np.float64), make().normal((size,), np.float64)


def a_deep_copy(make, size):
    source = make()
    source.normal((3,), np.float64)
    other = copy.deepcopy(source)
    return source.normal((size,), np.float64), other.normal((size,), np.float64)


def a_pickled_copy(make, size):
    source = make()
    source.normal((3,), np.float64)
    other = pickle.loads(pickle.dumps(source))
    return source.normal((size,), np.float64), other.normal((size,), np.float64)


def two_threads(make, size):
    source, together = make(), Barrier(2)

    def draw(_):
        together.wait()
        return source.normal((size,), np.float64)

    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(draw, range(2)))


def a_forked_process(make, size):
    source = make()
    source.normal((3,), np.float64)
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(sending, "wb") as out:
            out.write(source.normal((size,), np.float64).tobytes())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as back:
        theirs = np.frombuffer(back.read(), np.float64)
    os.waitpid(child, 0)
    return source.normal((size,), np.float64), theirs


def a_started_process(make, size):
    source = make()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        theirs = pool.apply(_draw, (source, size))
    return source.normal((size,), np.float64), theirs


WITHIN = (
    one_large_draw, one_shape_twice, two_shapes, two_precisions, exact_noise_twice, exact_noise_and_normals,
    uniform_numbers_twice, many_small_draws, many_keys, two_threads,
)  # fmt: skip
"""Scenes of one source."""

COPIES = (two_sources, a_deep_copy, a_pickled_copy, a_forked_process, a_started_process)
"""Scenes of a source and another that was made like it; a seed gives the same numbers to both."""


def look(scene: Callable, make: Callable, size: int = SMALL) -> Seen:
    """Play one scene and compare its streams."""
    one, two = scene(make, size)
    found = dependence(one, two, ALPHA)
    runs = repeated_runs([one] if two is None else [one, two])
    return Seen(scene.__name__.replace("_", " "), found.excess, runs)


def noise_of_a_fit(make, noise):
    """The noise of every release of a small fit, in standard deviations, one after another."""
    session = RecordingSession(Budget(5.0, 1e-5), noise=noise)
    engine = LocalEngine(np.float64, chunk=17, exact=noise.exact)
    make(engine=engine).fit(random_interactions(5, n_users=40, n_tasks=60), session=session)
    return np.concatenate(noise_of(session.records))


def _exact(source, size):
    zeros = np.zeros(size, np.int64)
    return linalg.add_rounded_normals(zeros, 0, np.array([_SCALE]), source.key()) / _SCALE


def _draw(source, size):
    return source.normal((size,), np.float64)

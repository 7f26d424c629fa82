"""Noise that is not fresh: streams that repeat, keys that are used again. The noise scenes and whole fits look."""

from __future__ import annotations

import os
from functools import cache

import numpy as np

from apportion import linalg
from apportion.auditing.streams import dependence
from apportion.privacy import SystemNoise
from noise_scenes import ALPHA, COPIES, WITHIN, look, noise_of_a_fit
from planted.cases import Case, Verdict

from private_estimators import clicks, ratings


class RepeatsItself(SystemNoise):
    """Draws 2^20 numbers, and the same again."""

    def normal(self, shape, dtype):
        drawn = super().normal((min(int(np.prod(shape)), 1 << 20),), dtype)
        return np.resize(drawn, shape)


class OneKeyForEachShape(SystemNoise):
    """Keeps the key of every shape that it has drawn."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self._keys = {}

    def normal(self, shape, dtype):
        out = np.empty(shape, dtype)
        linalg.fill_normals(out, self._keys.setdefault(shape, self.key()))
        return out


class OneKeyForAll(SystemNoise):
    """Takes a key once and goes on in its stream; copies and children go on from the same place."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self._key, self._counter = os.urandom(32), 0

    def normal(self, shape, dtype):
        out = np.empty(shape, dtype)
        self._counter = linalg.fill_normals(out, self._key, self._counter)
        return out


class StartsAgain(OneKeyForAll):
    """Takes a key once and starts its stream at the same place for every draw."""

    def normal(self, shape, dtype):
        self._counter = 0
        return super().normal(shape, dtype)


class OneKeyForExactNoise(SystemNoise):
    """Gives the same key to every exact draw."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self._key = os.urandom(32)

    def key(self):
        return self._key


class OneKeyForSums(SystemNoise):
    """Adds the same stream to every sum, where noise and sum are one pass."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self._key = os.urandom(32)

    def added_to(self, values, stddev, step, dtype=np.float64, out=None):
        return linalg.add_normals(values, stddev, step, self._key, dtype, out=out)


def judged(make):
    """Look at the noise of two whole fits, one of them exact, then at a source in every scene."""
    rate, worst = ALPHA * (2 + len(WITHIN) + len(COPIES)), 0.0
    for estimator, exact in ((ratings, False), (clicks, True)):
        found = dependence(noise_of_a_fit(estimator, make(exact=exact)), alpha=ALPHA)
        worst = max(worst, found.excess)
        if found.found:
            return Verdict(True, f"the noise of a fit depends on itself at a lag of {found.lag}", rate)
    for scene in (*WITHIN, *COPIES):
        seen = look(scene, make)
        worst = max(worst, seen.excess)
        if seen.dependent:
            return Verdict(True, f"{seen.scene}: {seen.runs} runs drawn twice", rate)
    return Verdict(False, f"the largest correlation is {worst:.2g} of what chance allows", rate)


@cache
def judged_as_it_is():
    """The source that the library has."""
    return judged(SystemNoise)


def cases():
    """Every bug with the source that the library has."""
    wrong = {
        "noise repeats every 2^20 numbers": RepeatsItself,
        "one key of noise for each shape": OneKeyForEachShape,
        "a copy of a source goes on in the same stream": OneKeyForAll,
        "every draw starts the same stream": StartsAgain,
        "one key for all exact noise": OneKeyForExactNoise,
        "one key for all sums that get their noise in one pass": OneKeyForSums,
    }
    return [
        Case(name, "a hostile reading", "noise", lambda make=make: judged(make), judged_as_it_is)
        for name, make in wrong.items()
    ]

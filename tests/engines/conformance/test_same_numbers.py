"""Every engine returns the reference's whole numbers for every pass of every estimator, bit for bit."""

from __future__ import annotations

from inspect import isabstract

import numpy as np
import pytest

from apportion import linalg
from apportion.engines import LocalEngine, Processors
from apportion.privacy.contributions import Contribution, PartialSums, TaskGrams, TaskMoments
from engine_passes import ENGINES, FITS, differences, forgetful, passes_of, reference_passes

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
every_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
every_fit = pytest.mark.parametrize("name", FITS)


def disagreements(engine, passes):
    """What an engine returns that the reference does not, by pass."""
    found = {}
    for number, one in enumerate(passes):
        sums = engine.add_up(forgetful(one.users), one.contributions)
        for output, (wanted, got) in enumerate(zip(one.sums, sums, strict=True)):
            if differences(wanted, got):
                found[f"pass {number}, {one}, sum {output}"] = differences(wanted, got)
    return found


@every_fit
@every_engine
@pytest.mark.parametrize("runs", [1, 2, 7])
def test_an_engine_returns_the_same_whole_numbers(name, make, runs):
    assert disagreements(make(runs, np.float32), reference_passes(name)) == {}


@every_fit
@every_engine
def test_an_engine_returns_the_same_whole_numbers_where_users_compute_in_double_precision(name, make):
    assert disagreements(make(3, np.float64), reference_passes(name, np.float64)) == {}


@every_fit
@pytest.mark.parametrize(("chunk", "threads"), [(1, 1), (7, 2), (50, 3)])
def test_neither_chunks_nor_threads_change_a_number(name, chunk, threads):
    engine = LocalEngine(np.float32, threads, chunk, exact=True)
    assert disagreements(engine, reference_passes(name)) == {}


@every_fit
@every_engine
def test_a_whole_fit_makes_the_same_passes(name, make):
    """Not only when an engine is given what the reference was given: it is fitted on from the start."""
    here, there = reference_passes(name), passes_of(name, make(2, np.float32))
    assert [str(one) for one in here] == [str(one) for one in there]
    for one, two in zip(here, there, strict=True):
        assert [differences(*both) for both in zip(one.sums, two.sums, strict=True)] == [[]] * len(one.sums)


def test_every_kind_of_contribution_is_among_them():
    seen = {type(each) for name in FITS for one in reference_passes(name) for each in one.contributions}
    kinds, left = set(), [Contribution]
    while left:
        subclasses = left.pop().__subclasses__()
        kinds |= {kind for kind in subclasses if kind.__module__.startswith("apportion")}
        left += subclasses
    assert {kind for kind in kinds - seen if not isabstract(kind)} == set()


# -- and engines that are wrong are found out --


class ForgetsARun(LocalEngine):
    """Adds up all runs but the last."""

    def add_up(self, users, contributions):
        first, *rest = (PartialSums.over(run, contributions, self.kernels) for run in users.cut(3)[:-1])
        return sum(rest, first).sealed(contributions)


class AddsARunTwice(LocalEngine):
    """Counts the result of a worker that was restarted twice."""

    def add_up(self, users, contributions):
        first, *rest = (PartialSums.over(run, contributions, self.kernels) for run in [*users.cut(3), users.cut(3)[1]])
        return sum(rest, first).sealed(contributions)


class RoundsToNearest(Processors):
    """Rounds where the lattice cuts off."""

    def moments(self, order, indices, rows, coefficients, bound):
        step = linalg.step_below(bound)
        sums = np.zeros((len(order.indptr) - 1, rows.shape[1]), np.int64)
        tasks = np.repeat(np.arange(len(sums)), np.diff(order.indptr))
        products = np.asarray(rows, np.float64)[indices] * coefficients[:, None]
        np.add.at(sums, tasks, np.rint(products / step).astype(np.int64))
        return sums, step


class LessPrecise(Processors):
    """Weighs rows in single precision."""

    def grams(self, order, indices, rows, weights, norm):
        return super().grams(order, indices, rows, np.asarray(weights, np.float16).astype(np.float64), norm)


def with_kernels(kernels):
    engine = LocalEngine(np.float32, exact=True)
    engine.kernels = kernels(np.float32, exact=True)
    return engine


@pytest.mark.parametrize("wrong", [ForgetsARun, AddsARunTwice])
def test_an_engine_that_loses_or_repeats_users_is_seen_in_every_fit(wrong):
    for name in ("every kind of contribution", "ratings", "mean, private sizes", "private labels"):
        found = disagreements(wrong(np.float32, exact=True), reference_passes(name))
        assert len(found) == sum(len(one.sums) for one in reference_passes(name))


@pytest.mark.parametrize(("kernels", "kind"), [(RoundsToNearest, TaskMoments), (LessPrecise, TaskGrams)])
def test_kernels_that_round_otherwise_are_seen(kernels, kind):
    found = disagreements(with_kernels(kernels), reference_passes("ridge, adaptive"))
    affected = [one for one in reference_passes("ridge, adaptive") if kind in map(type, one.contributions)]
    assert 0 < len(affected) <= len(found)

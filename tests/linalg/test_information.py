"""What statistics say of tasks: the textbook's numbers, the same bits on every path, and zero where there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg import NoisyDesign, information

needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built")


def design_of(rng, n_tasks, dim, scale=1.0):
    design, root, other = (rng.standard_normal((dim, dim)) for _ in range(3))
    per_task = (rng.gamma(1.0, scale, n_tasks) for _ in range(3))
    return NoisyDesign(design, other @ other.T, rng.uniform(0.5, 2, dim), *per_task), root @ root.T


def bits(found):
    return [array.tobytes() for array in (found.scores, found.total, found.each)]


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("dim", [1, 4, 9])
def test_scores_and_precisions_are_those_of_the_textbook(backend, dim):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    rng = np.random.default_rng(dim)
    (about, spread), statistics = design_of(rng, 50, dim), rng.standard_normal((50, dim))
    with linalg.use_backend(backend):
        found = information(about, spread, statistics, each=True)
    for i in range(50):
        covariance = about.signal[i] * spread + about.sampling[i] * about.shape + np.diag(about.noise_variance)
        seen = about.exposure[i] * about.design
        np.testing.assert_allclose(found.scores[i], seen.T @ np.linalg.solve(covariance, statistics[i]), rtol=1e-8)
        np.testing.assert_allclose(linalg.unpack(found.each[i]), seen.T @ np.linalg.solve(covariance, seen), rtol=1e-8)
    np.testing.assert_allclose(found.total, linalg.unpack(found.each).sum(axis=0), rtol=1e-12)


@needs_kernel
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_tasks=st.sampled_from([0, 1, 7, 8, 9, 1024, 2600]),
    dim=st.sampled_from([1, 2, 5, 9, 14]),
    scale=st.sampled_from([1e-200, 1.0, 1e12, 1e160, 1e300]),
)
def test_every_path_gives_the_same_bits(seed, n_tasks, dim, scale):
    rng = np.random.default_rng(seed)
    (about, spread), statistics = design_of(rng, n_tasks, dim, scale), scale * rng.standard_normal((n_tasks, dim))
    with linalg.use_backend("numpy"):
        wanted = bits(information(about, spread, statistics, each=True))
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            for threads in (1, 3):
                assert bits(information(about, spread, statistics, each=True, threads=threads)) == wanted
    assert bits(information(about, spread, statistics, each=False))[:2] == wanted[:2]


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e9])
def test_a_task_without_a_solution_says_nothing_and_leaves_the_others_alone(backend, bad):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    rng = np.random.default_rng(2)
    (about, spread), statistics = design_of(rng, 20, 3), rng.standard_normal((20, 3))
    broken = replace(about, sampling=np.where(np.arange(20) == 5, bad, about.sampling))
    with linalg.use_backend(backend):
        honest, found = (information(each, spread, statistics, each=True) for each in (about, broken))
    assert honest.each[5].any()
    assert not found.scores[5].any()
    assert not found.each[5].any()
    others = np.arange(20) != 5
    np.testing.assert_array_equal(found.each[others], honest.each[others])
    np.testing.assert_allclose(found.total, linalg.unpack(honest.each[others]).sum(axis=0), rtol=1e-12)


def test_arrays_that_do_not_fit_together_are_refused():
    about, spread = design_of(np.random.default_rng(0), 4, 2)
    with pytest.raises(InputError, match="shape"):
        information(about, spread, np.zeros((4, 3)), each=False)
    with pytest.raises(InputError, match="shape"):
        replace(about, signal=np.zeros(3))

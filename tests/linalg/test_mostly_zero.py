"""Vectors that are 0 but for a few runs: the same noise and the same sums as whole vectors, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg import MostlyZero

KEY, STEP = bytes(range(32)), 2.0**-20


def runs(seed, n_rows=700, width=5):
    """A matrix with a few rows, a vector without zeros, and a matrix with its first and last rows."""
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, n_rows, 40))
    return MostlyZero.joined([
        MostlyZero.of_rows(rows, rng.standard_normal((len(rows), width)), n_rows),
        MostlyZero.whole(rng.standard_normal(301)),
        MostlyZero.of_rows(np.array([0, 1, n_rows - 1]), rng.standard_normal((3, width)), n_rows),
    ])  # fmt: skip


def test_it_is_the_whole_vector_to_numpy():
    held = np.zeros((6, 2))
    held[[1, 4]] = [[1.0, 2.0], [3.0, 4.0]]
    few = MostlyZero.of_rows(np.array([1, 4]), held[[1, 4]], 6)
    assert np.array_equal(np.asarray(few), held.reshape(-1))
    assert np.array_equal(np.ones(12) + few, held.reshape(-1) + 1)
    both = MostlyZero.joined([few, MostlyZero.whole(np.arange(3.0)), few])
    assert np.array_equal(np.asarray(both), np.concatenate([held.reshape(-1), np.arange(3.0), held.reshape(-1)]))
    assert both.shape == (27,)
    none = MostlyZero.of_rows(np.zeros(0, np.int64), np.zeros((0, 2)), 2)
    first = MostlyZero.joined([none, MostlyZero.whole(np.ones(2)), none])
    assert np.array_equal(np.asarray(first), [0, 0, 0, 0, 1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_beside_runs_is_noise_beside_the_whole_vector_bit_for_bit(seed, dtype):
    few = runs(seed)
    expected = linalg.add_normals(np.asarray(few), 0.7, STEP, KEY, threads=1).astype(dtype)
    for name in linalg.instruction_sets():
        for threads in (1, 3):
            with linalg.use_instruction_set(name):
                found = linalg.add_normals(few, 0.7, STEP, KEY, dtype, threads=threads)
            assert found.dtype == dtype
            assert np.array_equal(found, expected), (name, threads)


def test_noise_beside_runs_is_the_same_without_the_kernel():
    few = runs(5)
    with linalg.use_backend("numpy"):
        wanted = linalg.add_normals(few, 0.7, STEP, KEY, np.float32)
    assert wanted.dtype == np.float32
    assert np.abs(linalg.add_normals(few, 0.7, STEP, KEY) - wanted).max() <= 2 * STEP


def test_a_vector_of_zeros_gets_noise_everywhere():
    none = MostlyZero.of_rows(np.zeros(0, np.int64), np.zeros((0, 3)), 100)
    assert np.array_equal(linalg.add_normals(none, 1.0, STEP, KEY), linalg.add_normals(np.zeros(300), 1.0, STEP, KEY))


@pytest.mark.parametrize(
    ("ends", "offsets", "count"),
    [
        ([3, 2], [0, 1, 2], 2),  # in the wrong order
        ([3, 4], [0, 2, 4], 4),  # overlap
        ([1], [0, 2], 2),  # before the start
        ([11], [0, 2], 2),  # beyond the end
        ([3], [0, 2], 3),  # numbers of no run
        ([3], [1, 2], 2),  # starts in the middle
        ([3, 5], [0, 2], 2),  # a run without numbers
        ([5, 5], [0, 4, 3], 3),  # a run of less than none
    ],
)
def test_runs_that_do_not_fit_are_refused_before_the_kernel_reads_them(ends, offsets, count):
    wrong = MostlyZero(10, np.array(ends), np.array(offsets), np.zeros(count))
    with pytest.raises(InputError, match="Expected"):
        linalg.add_normals(wrong, 1.0, STEP, KEY)


def test_numbers_and_results_of_another_kind_are_refused():
    wrong = MostlyZero(10, np.array([3]), np.array([0, 2]), np.zeros(2, np.float32))
    with pytest.raises(InputError, match="float64 numbers"):
        linalg.add_normals(wrong, 1.0, STEP, KEY)
    with pytest.raises(InputError, match="float16"):
        linalg.add_normals(np.zeros(3), 1.0, STEP, KEY, np.float16)

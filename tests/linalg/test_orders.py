"""Orders of codes: the same on every path, whatever the number of threads, and that of Python's own stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.errors import InputError
from apportion.linalg.orders import chosen, copied, stable_order, take, without

BACKENDS = ["numpy", *(["compiled"] if linalg.compiled_available() else [])]


def pairs(seed, n, n_codes, n_seconds):
    rng = np.random.default_rng(seed)
    heavy = np.where(rng.random(n) < 0.3, n_codes - 1, rng.integers(0, n_codes, n))  # one code has a third of the rows
    return heavy.astype(np.int32), rng.integers(0, n_seconds, n).astype(np.int32)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 300), st.integers(1, 40), st.integers(1, 9), st.integers(1, 7))
def test_the_order_is_that_of_pythons_stable_sort(seed, n, n_codes, n_seconds, threads):
    codes, seconds = pairs(seed, n, n_codes, n_seconds)
    wanted = sorted(range(n), key=lambda k: (codes[k], seconds[k]))
    alone = sorted(range(n), key=lambda k: codes[k])
    for backend in BACKENDS:
        with linalg.use_backend(backend):
            assert stable_order(codes, n_codes, seconds, n_seconds, threads=threads).tolist() == wanted
            assert stable_order(codes, n_codes, threads=threads).tolist() == alone


def test_many_rows_and_codes_of_more_than_16_bits_are_in_one_order_on_every_path():
    codes, seconds = pairs(3, 200_000, 70_000, 66_000)
    wanted = np.lexsort((seconds, codes))
    for backend in BACKENDS:
        with linalg.use_backend(backend):
            assert np.array_equal(stable_order(codes, 70_000, seconds, 66_000), wanted)


@pytest.mark.skipif("compiled" not in BACKENDS, reason="the compiled kernel was not built on this machine")
@pytest.mark.parametrize("code", [-1, 3, 2**31 - 1])
def test_the_kernel_refuses_a_code_out_of_range_instead_of_writing_elsewhere(code):
    with linalg.use_backend("compiled"), pytest.raises(InputError, match="from 0 to 2"):
        stable_order(np.array([0, code, 1], np.int32), 3, np.zeros(3, np.int32))


def test_second_codes_of_another_length_are_refused():
    with pytest.raises(InputError, match="Expected 2 second codes, got 3"):
        stable_order(np.zeros(2, np.int32), 1, np.zeros(3, np.int32))


@pytest.mark.parametrize("n", [0, 5, (1 << 20) + 3])
def test_rows_in_an_order_are_those_of_numpy(n):
    rng = np.random.default_rng(n)
    values, order = rng.random(max(n, 1)), rng.integers(0, max(n, 1), n)
    assert np.array_equal(take(values, order, threads=3), values[order])
    assert np.array_equal(take(values, order, dtype=np.float32, threads=3), values[order].astype(np.float32))
    assert np.array_equal(copied(values), values)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.999, 1.0])
def test_chosen_values_are_those_of_numpy(kept, backend):
    rng = np.random.default_rng(1)
    for n in (0, 7, 70_003):
        mask = rng.random(n) < kept
        for values in (rng.random(n), np.arange(n, dtype=np.int32), rng.random((n, 2)), np.arange(2 * n)[::2]):
            with linalg.use_backend(backend):
                assert np.array_equal(chosen(values, mask, threads=3), values[mask])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("left_out", [0.0, 0.001, 0.3, 1.0])
def test_values_without_some_are_those_of_numpy(left_out, backend):
    rng = np.random.default_rng(3)
    for length in (0, 1, 7, 20_000):
        mask = rng.random(length) >= left_out
        for dtype in (np.int32, np.float64, np.int16):
            values = rng.integers(0, 99, length).astype(dtype)
            with linalg.use_backend(backend):
                assert np.array_equal(without(values, np.flatnonzero(~mask), threads=3), values[mask])


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_a_matrix_and_strided_values_are_left_out_too(backend):
    values, positions = np.arange(24.0).reshape(8, 3), np.array([0, 3, 7])
    with linalg.use_backend(backend):
        assert np.array_equal(without(values, positions), values[[1, 2, 4, 5, 6]])
        assert np.array_equal(without(values[:, 0], positions), values[[1, 2, 4, 5, 6], 0])

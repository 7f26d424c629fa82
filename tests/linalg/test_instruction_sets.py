"""The compiled kernel on every instruction set of this processor against the NumPy reference.

Skipped where the kernel was not built. Where it was built and is wrong, these fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.linalg import kernel, segments

needs_kernel = pytest.mark.skipif(
    not linalg.compiled_available(), reason="the compiled kernel was not built (no C++ compiler)"
)
every_instruction_set = pytest.mark.parametrize("instructions", linalg.instruction_sets() or ["none"])


def structure(rng, width, dtype, *, n_segments=25, longest=None, n_rows=30):
    lengths = rng.integers(0, (longest or 2 * width) + 1, n_segments)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = rng.integers(0, n_rows, indptr[-1]).astype(np.int32)
    return indptr, indices, rng.standard_normal((n_rows, width)).astype(dtype)


def positive_definite(rng, width, dtype):
    root = rng.standard_normal((width, width)) / np.sqrt(width)
    return (root @ root.T + np.eye(width)).astype(dtype)


def on_both(instructions, function, *arguments, **keywords):
    with linalg.use_backend("numpy"):
        wanted = function(*arguments, **keywords)
    with linalg.use_backend("compiled"), linalg.use_instruction_set(instructions):
        return function(*arguments, **keywords), wanted


def test_a_kernel_that_lies_beside_its_source_can_be_loaded():
    here = Path(kernel.__file__)
    built = any(here.with_name(f"_kernel{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    assert built == linalg.compiled_available()


def in_an_environment(limit):
    program = "from apportion.linalg import kernel; print(*kernel.instruction_sets(), kernel._level.get())"
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"APPORTION_INSTRUCTIONS": limit},
    )


@needs_kernel
def test_a_variable_limits_the_instructions_and_is_refused_if_it_names_none():
    for level, name in enumerate(linalg.instruction_sets()):
        allowed = linalg.instruction_sets()[: level + 1]
        assert in_an_environment(name).stdout.split() == [*allowed, str(level)]
    refused = in_an_environment("mmx")
    assert refused.returncode != 0
    assert "Expected APPORTION_INSTRUCTIONS to be one of" in refused.stderr
    assert "got 'mmx'" in refused.stderr


@needs_kernel
@every_instruction_set
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    sign=st.sampled_from(["ones", "positive", "signed"]),
)
def test_grams_and_moments_agree_with_the_reference(instructions, seed, width, dtype, sign):
    rng = np.random.default_rng(seed)
    where = structure(rng, width, dtype)
    n = where[1].size
    weights = {"ones": None, "positive": rng.uniform(0, 3, n), "signed": rng.standard_normal(n)}[sign]
    tolerance = {"rtol": 0, "atol": 1e-4 if dtype == np.float32 else 1e-11}
    got, wanted = on_both(instructions, linalg.segment_gram, *where, weights=weights)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, wanted, **tolerance)
    got, wanted = on_both(instructions, linalg.segment_moment, *where, coefficients=rng.standard_normal(n))
    np.testing.assert_allclose(got, wanted, **tolerance)


@needs_kernel
@every_instruction_set
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    plain=st.booleans(),
    centred=st.booleans(),
)
def test_solutions_agree_with_the_reference(instructions, seed, width, dtype, plain, centred):
    rng = np.random.default_rng(seed)
    where = structure(rng, width, dtype)
    n = where[1].size
    got, wanted = on_both(
        instructions,
        linalg.segment_solve,
        *where,
        weights=rng.uniform(0, 3, n),
        labels=rng.standard_normal(n),
        base=1.5 * np.eye(width) if plain else positive_definite(rng, width, dtype),
        base_rhs=None if centred else rng.standard_normal(width),
    )
    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-4 if dtype == np.float32 else 1e-10)


def results(where, rng, dtype):
    """What users compute for themselves, in all the forms that the kernel has, and noise."""
    n, width = where[1].size, where[2].shape[1]
    weights, signed, labels = rng.uniform(0, 3, n), rng.standard_normal(n), rng.standard_normal(n)
    base, base_rhs = positive_definite(rng, width, dtype), rng.standard_normal(width)
    yield linalg.segment_gram(*where, weights=weights)
    yield linalg.segment_gram(*where, weights=signed, dtype=np.float64)
    yield linalg.segment_moment(*where, coefficients=labels)
    yield linalg.segment_moment(*where, coefficients=labels, dtype=np.float64)
    yield linalg.segment_solve(*where, labels=labels, weights=weights, base=1.5 * np.eye(width))  # dual where short
    yield linalg.segment_solve(*where, labels=labels, weights=weights, base=base, base_rhs=base_rhs)  # whitened
    yield linalg.segment_solve(*where, labels=labels, weights=1e-3 * signed, base=base, base_rhs=base_rhs)
    grams = linalg.segment_gram(*where, weights=weights)
    yield linalg.solve_packed(grams, rng.standard_normal((len(grams), width)), np.eye(width))[0]
    normals = np.empty(1000, dtype)
    linalg.fill_normals(normals, b"s" * 32)
    yield normals


@needs_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 8, 10, 13, 16, 17, 24, 31, 33, 40, 63, 64, 65, 72, 129])
def test_every_instruction_set_gives_the_same_bits(width, dtype):
    rng = np.random.default_rng(width)
    where = structure(rng, width, dtype)
    found = {}
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            found[instructions] = list(results(where, np.random.default_rng(width), dtype))
    for instructions, arrays in found.items():
        for array, wanted in zip(arrays, found["baseline"], strict=True):
            np.testing.assert_array_equal(array, wanted, err_msg=instructions)


@needs_kernel
def test_every_instruction_set_gives_the_same_bits_for_a_segment_that_is_cut_into_pieces():
    rng = np.random.default_rng(4)
    indptr = np.array([0, 40_000, 40_007])
    where = indptr, rng.integers(0, 300, indptr[-1]).astype(np.int32), rng.standard_normal((300, 7)).astype(np.float32)
    found = {}
    for instructions in linalg.instruction_sets():
        with linalg.use_instruction_set(instructions):
            found[instructions] = list(results(where, np.random.default_rng(4), np.float32))
    for arrays in found.values():
        for array, wanted in zip(arrays, found["baseline"], strict=True):
            np.testing.assert_array_equal(array, wanted)


@needs_kernel
@every_instruction_set
@pytest.mark.parametrize("width", [129, 257, 512])
def test_wide_features_are_solved(instructions, width):
    rng = np.random.default_rng(width)
    where = structure(rng, width, np.float64, n_segments=4, n_rows=200)
    labels = rng.standard_normal(where[1].size)
    for base in (np.eye(width), positive_definite(rng, width, np.float64)):
        got, wanted = on_both(instructions, linalg.segment_solve, *where, labels=labels, base=base)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9)


@needs_kernel
def test_segments_are_solved_in_whitened_coordinates_where_that_is_safe():
    rng = np.random.default_rng(8)
    where = structure(rng, 32, np.float64, n_segments=300, longest=12)
    base, base_rhs = positive_definite(rng, 32, np.float64), rng.standard_normal(32)
    assert segments._whitening(base) is not None
    nearly_singular = np.diag(np.r_[np.ones(31), 1e-17])
    assert segments._whitening(nearly_singular) is None
    keywords = {"labels": rng.standard_normal(where[1].size), "base": base, "base_rhs": base_rhs}
    got, wanted = on_both(linalg.instruction_sets()[-1], linalg.segment_solve, *where, **keywords)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-10)


@needs_kernel
@every_instruction_set
def test_a_segment_that_is_cut_among_threads_sums_to_the_same_numbers(instructions):
    rng = np.random.default_rng(9)
    indptr = np.array([0, 150_000, 150_003, 150_003, 200_000])
    indices = rng.integers(0, 300, 200_000).astype(np.int32)
    features, labels = rng.standard_normal((300, 5)), rng.standard_normal(200_000)
    with linalg.use_instruction_set(instructions):
        gram = [linalg.segment_gram(indptr, indices, features, weights=labels, threads=t) for t in (1, 2, 7)]
        moment = [linalg.segment_moment(indptr, indices, features, coefficients=labels, threads=t) for t in (1, 7)]
        solved = [
            linalg.segment_solve(indptr, indices, features, labels=labels, base=np.eye(5), threads=t) for t in (1, 7)
        ]
    for results in (gram, moment, solved):
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])
    rows = features[indices[:150_000]]
    np.testing.assert_allclose(gram[0][0], linalg.pack((rows.T * labels[:150_000]) @ rows), rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(moment[0][0], labels[:150_000] @ rows, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("spoiled", ["features", "weights", "coefficients"])
def test_a_number_that_is_not_finite_is_named(backend, spoiled):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built (no C++ compiler)")
    arrays = {"features": np.ones((4, 3)), "weights": np.ones(6), "coefficients": np.ones(6)}
    arrays[spoiled].reshape(-1)[2] = np.inf
    where = (np.array([0, 3, 6]), np.arange(6, dtype=np.int32) % 4, arrays["features"])
    gram = partial(linalg.segment_gram, *where, weights=arrays["weights"])
    moment = partial(linalg.segment_moment, *where, coefficients=arrays["coefficients"])
    spoiled_call = moment if spoiled == "coefficients" else gram
    with linalg.use_backend(backend), pytest.raises(ArithmeticError, match=rf"Segment 0 .*{spoiled}\[.*2\] is inf"):
        spoiled_call()


def test_the_reference_never_holds_all_gathered_rows():
    rng = np.random.default_rng(10)
    n, width = 600_000, 64
    indptr = np.array([0, n // 2, *np.linspace(n // 2, n, 200).astype(np.int64)[1:]])
    indices = rng.integers(0, 1000, n).astype(np.int32)
    features = rng.standard_normal((1000, width)).astype(np.float32)
    with linalg.use_backend("numpy"):
        tracemalloc.start()
        linalg.segment_gram(indptr, indices, features)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 0.5 * n * width * 4


@needs_kernel
@every_instruction_set
@pytest.mark.parametrize("size", [1, 127, 128, 129, 100_001])
def test_compiled_normals_are_the_numbers_of_the_reference(instructions, size):
    key, counter = bytes(range(32)), 2**32 - 20  # the counter passes 32 bits on the way
    for dtype, tolerance in ((np.float64, 1e-13), (np.float32, 1e-6)):
        got, wanted = np.empty(size, dtype), np.empty(size, dtype)
        with linalg.use_backend("numpy"):
            after = linalg.fill_normals(wanted, key, counter)
        with linalg.use_instruction_set(instructions):
            assert linalg.fill_normals(got, key, counter, threads=3) == after
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


@needs_kernel
@every_instruction_set
@pytest.mark.parametrize("size", [1, 127, 129, 257, 10_001])
@pytest.mark.parametrize("step", [2.0**-20, 2.0**-120, 1.0, 2.0**7])
def test_values_with_normals_in_one_pass_are_those_of_several_passes_bit_for_bit(instructions, size, step):
    key, scale = bytes(range(32)), 0.7 * step * 2.0**20
    values = np.random.default_rng(size).standard_normal(size) * scale * 1e6
    values[::7], values[::11] = 0.0, values[::11] * 1e12  # among them numbers far above the grid
    with linalg.use_instruction_set(instructions):
        normals = np.empty(size)
        linalg.fill_normals(normals, key)
        got = linalg.add_normals(values, scale, step, key, threads=3)
    wanted = np.rint((normals * scale + values) / step) * step
    np.testing.assert_array_equal(got.view(np.int64), wanted.view(np.int64))


def test_values_with_normals_are_the_same_without_the_kernel():
    values, key = np.linspace(-3, 3, 300), bytes(range(32))
    with linalg.use_backend("numpy"):
        wanted = linalg.add_normals(values, 1.5, 2.0**-20, key)
    assert np.abs(linalg.add_normals(values, 1.5, 2.0**-20, key) - wanted).max() <= 2.0**-20
    assert 1.2 < np.std(wanted - values) < 1.8


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
def test_a_stream_can_be_continued_where_it_ended(backend):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built (no C++ compiler)")
    whole, first, second = np.empty(2560), np.empty(1280), np.empty(1280)
    with linalg.use_backend(backend):
        linalg.fill_normals(whole, b"s" * 32)
        linalg.fill_normals(second, b"s" * 32, linalg.fill_normals(first, b"s" * 32))
    np.testing.assert_array_equal(np.concatenate([first, second]), whole)


@needs_kernel
@every_instruction_set
@pytest.mark.parametrize("width", [1, 7, 8, 31, 64, 129])
def test_float64_sums_of_float32_features(instructions, width):
    rng = np.random.default_rng(width)
    arrays = structure(rng, width, np.float32)
    numbers = rng.standard_normal(arrays[0][-1])
    got, wanted = on_both(instructions, linalg.segment_moment, *arrays, coefficients=numbers, dtype=np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    got, wanted = on_both(instructions, linalg.segment_gram, *arrays, weights=numbers, dtype=np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)

"""The noise stream: published ChaCha20 vectors, then moments, shape, tails and independence of the normals."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from apportion import linalg
from apportion.linalg import chacha, kernel

from statistics_helpers import assert_distribution, assert_scale

KEY = bytes(range(32))
needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="the compiled kernel was not built")


@needs_kernel
def test_blocks_agree_with_the_published_vector():
    """RFC 8439 section 2.3.2; its 32-bit counter and 96-bit nonce are our 64-bit counter and 64-bit nonce."""
    key = bytes(range(32))
    words = bytes.fromhex("01000000000000090000004a00000000")
    counter, nonce = int.from_bytes(words[:8], "little"), int.from_bytes(words[8:], "little")
    block = kernel.chacha20_words(key, counter, nonce)[0]
    expected = (
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 "
        "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"
    )
    assert " ".join(f"{word:08x}" for word in block) == expected


@needs_kernel
@pytest.mark.parametrize("first", [0, 2**32 - 40, 2**32 - 16, 2**32 - 5, 2**40 - 7])
def test_counters_of_blocks_in_a_row_carry_into_their_upper_half(first):
    expected = chacha.chacha20_blocks(KEY, first, 48)
    for name in kernel.instruction_sets():
        with kernel.use_instruction_set(name):
            found = [kernel.chacha20_words(KEY, first + k) for k in (0, 16, 32)]
            drawn = np.empty(3 * 128)
            linalg.fill_normals(drawn, KEY, first, threads=1)
        assert np.array_equal(np.concatenate(found), expected), name
        assert np.allclose(drawn, chacha.normals(KEY, first, 3).reshape(-1), rtol=1e-12, atol=1e-14), name


@pytest.mark.parametrize("backend", ["numpy", "compiled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_draws_are_standard_normal(backend, dtype):
    if backend == "compiled" and not linalg.compiled_available():
        pytest.skip("the compiled kernel was not built")
    out = np.empty(2_000_001, dtype)
    with linalg.use_backend(backend):
        linalg.fill_normals(out, os.urandom(32))
    draws = out.astype(np.float64)
    assert np.isfinite(draws).all()
    assert abs(draws.mean()) < 6.2 / np.sqrt(len(draws))  # false alarm below 1e-9
    assert_scale(draws, stddev=1.0, detect=1.01)
    assert_distribution(draws[:200_000], norm.cdf)
    for threshold in (3.0, 4.0):
        beyond = int((np.abs(draws) > threshold).sum())
        assert binomtest(beyond, len(draws), 2 * norm.sf(threshold)).pvalue > 1e-9
    lagged = [float(np.mean(draws[lag:] * draws[:-lag])) for lag in (1, 2, 64, 128, 256)]
    assert max(map(abs, lagged)) < 6.5 / np.sqrt(len(draws) - 256)


@needs_kernel
def test_far_tails_are_there():
    out = np.empty(60_000_000, np.float32)
    linalg.fill_normals(out, os.urandom(32))
    beyond = int((np.abs(out) > 5.0).sum())
    assert binomtest(beyond, len(out), 2 * norm.sf(5.0)).pvalue > 1e-9
    assert beyond > 0


@needs_kernel
def test_a_key_fixes_the_stream_and_another_key_gives_another():
    one, same, other, threaded = (np.empty(10_000) for _ in range(4))
    kernel.fill_normals(one, b"k" * 32)
    kernel.fill_normals(same, b"k" * 32)
    kernel.fill_normals(other, b"K" * 32)
    kernel.fill_normals(threaded, b"k" * 32, threads=5)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one, threaded)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.07


def test_two_draws_of_the_system_never_repeat():
    one, two = np.empty(1000), np.empty(1000)
    linalg.fill_normals(one, os.urandom(32))
    linalg.fill_normals(two, os.urandom(32))
    assert not np.isin(one, two).any()


def test_bad_keys_and_arrays_are_refused():
    with pytest.raises(ValueError, match="32 bytes, got 3"):
        linalg.fill_normals(np.empty(3), b"abc")
    with pytest.raises(ValueError, match="int64"):
        linalg.fill_normals(np.empty(3, np.int64), b"k" * 32)

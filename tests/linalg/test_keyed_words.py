"""The pseudo-random function behind samples of users: ChaCha20 at the points given, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.linalg import chacha, compiled_available, instruction_sets, keyed_words, use_backend, use_instruction_set

KEY = bytes(range(32))
BACKENDS = ["numpy", "compiled"] if compiled_available() else ["numpy"]


def some_points(count):
    rng = np.random.default_rng(0)
    points = rng.integers(0, 2**64, (count, 2), dtype=np.uint64)
    points[:5] = [[0, 0], [2**64 - 1, 0], [0, 2**64 - 1], [2**32, 2**32], [1, 0x4A000000]]
    return points


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_published_vector_of_the_cipher(backend):
    nonce, counter = 0x4A000000, 1 | 0x09000000 << 32  # RFC 8439, section 2.3.2
    with use_backend(backend):
        found = keyed_words(KEY, np.array([[counter, nonce]], np.uint64))
    assert found.tolist() == [0x15593BD1_E4E7F110]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 4097, 2**14 + 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_number_is_the_beginning_of_the_block_at_its_own_point(backend, count):
    points = some_points(max(count, 5))[:count]
    with use_backend(backend):
        found = keyed_words(KEY, points)
    checked = range(count) if count < 20 else [0, 1, 2, 3, 4, 15, 16, count // 2, count - 1]
    for k in checked:
        block = chacha.chacha20_blocks(KEY, int(points[k, 0]), 1, int(points[k, 1]))[0]
        assert int(found[k]) == int(block[1]) << 32 | int(block[0])


@pytest.mark.skipif(not compiled_available(), reason="the kernel was not built")
def test_backends_instruction_sets_and_threads_give_the_same_bits():
    points = some_points(40_000)
    with use_backend("numpy"):
        expected = keyed_words(KEY, points)
    for name in instruction_sets():
        for threads in (1, 3):
            with use_backend("compiled"), use_instruction_set(name):
                np.testing.assert_array_equal(keyed_words(KEY, points, threads=threads), expected)


def test_the_number_of_a_point_does_not_depend_on_the_others():
    points = some_points(1000)
    everybody = keyed_words(KEY, points)
    chosen = np.random.default_rng(1).permutation(1000)[:300]
    np.testing.assert_array_equal(keyed_words(KEY, points[chosen]), everybody[chosen])


def test_another_key_gives_other_numbers():
    points = some_points(1000)
    assert not (keyed_words(KEY, points) == keyed_words(bytes(32), points)).any()


def test_what_is_no_key_or_no_point_is_refused():
    with pytest.raises(InputError, match="32 bytes, got 16"):
        keyed_words(bytes(16), some_points(5))
    with pytest.raises(InputError, match="uint64 of shape"):
        keyed_words(KEY, np.zeros((3, 2), np.int64))

"""Sums of products of units' rows: the same as NumPy's, and the same bits with every instruction set."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.linalg import kernel
from apportion.linalg.unit_products import UnitProducts, available, squares_of_look_ups

pytestmark = pytest.mark.skipif(not available(), reason="the kernel was not built")

SIZES = np.array([1, 0, 4, 3, 9, 1, 17, 2])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])


def rows(width, seed):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((OFFSETS[-1], width)) * 10 ** rng.uniform(-3, 3, (OFFSETS[-1], 1))).astype(np.float32)


def gradients(b, a):
    """Every unit's Σ_t b_t a_tᵀ in float64."""
    wide = [each.astype(np.float64) for each in (b, a)]
    return np.array([wide[0][i:j].T @ wide[1][i:j] for i, j in itertools.pairwise(OFFSETS)])


def sizes_of(b, a):
    long = np.linalg.norm(b.astype(float), axis=1) * np.linalg.norm(a.astype(float), axis=1)
    return np.array([long[i:j].sum() for i, j in itertools.pairwise(OFFSETS)])


@pytest.mark.parametrize(("wide", "narrow"), [(1, 1), (8, 5), (16, 11), (33, 6), (100, 23)])
def test_lengths_and_sums_are_those_of_the_gradients(wide, narrow):
    a, b = rows(wide, 0), rows(narrow, 1)
    expected, sizes = gradients(b, a), sizes_of(b, a)
    factors = np.linspace(0, 1, len(SIZES))
    found = UnitProducts(OFFSETS, b, a)
    for rounding in (0.0, 0.5):
        squares = (expected**2).sum((1, 2)) + (rounding * sizes) ** 2
        assert np.allclose(found.squares(rounding), squares, rtol=1e-9, atol=1e-9 * sizes.max() ** 2)
    total = np.ones((narrow, wide))
    found.add_to(total, factors)
    assert np.allclose(total - 1, np.einsum("u,umk->mk", factors, expected), rtol=1e-9)


def test_without_incoming_rows_they_are_ones():
    b, ones = rows(7, 2), np.ones((OFFSETS[-1], 1), np.float32)
    one, other = UnitProducts(OFFSETS, b, None), UnitProducts(OFFSETS, b, ones)
    assert np.array_equal(one.squares(1e-4), other.squares(1e-4))
    totals = np.zeros((2, 7, 1))
    one.add_to(totals[0], np.ones(len(SIZES)))
    other.add_to(totals[1], np.ones(len(SIZES)))
    assert np.allclose(totals[0], totals[1], rtol=1e-12)


def test_a_column_of_ones_beside_the_others_gives_what_it_gives_alone():
    a, b = rows(19, 3), rows(7, 2)
    products, alone = UnitProducts(OFFSETS, b, a), UnitProducts(OFFSETS, b, None)
    both = products.squares_of_both(1e-4)
    assert np.array_equal(both[0], products.squares(1e-4))
    assert np.array_equal(both[1], alone.squares(1e-4))
    factors = np.linspace(0.1, 1, len(SIZES))
    total, ones, expected = np.zeros((7, 19)), np.zeros(7), np.zeros((7, 1))
    products.add_to(total, factors, ones)
    alone.add_to(expected, factors)
    assert np.array_equal(ones, expected[:, 0])


@pytest.mark.parametrize(("wide", "narrow"), [(45, 13), (7, 3), (32, 25)])
def test_every_instruction_set_gives_the_same_bits(wide, narrow):
    a, b = rows(wide, 3), rows(narrow, 4)
    results = []
    for name in kernel.instruction_sets():
        with kernel.use_instruction_set(name):
            products, total, ones = UnitProducts(OFFSETS, b, a), np.zeros((narrow, wide)), np.zeros(narrow)
            products.add_to(total, np.linspace(0.1, 1, len(SIZES)), ones)
            results.append(np.concatenate([*products.squares_of_both(1e-4), total.ravel(), ones]))
    assert all(np.array_equal(each, results[0]) for each in results)


def test_a_unit_alone_gives_the_same_bits_as_among_others():
    """Nothing about a unit's length depends on who else is there."""
    a, b = rows(45, 5), rows(13, 6)
    among = UnitProducts(OFFSETS, b, a).squares(1e-4)
    for unit, (first, last) in enumerate(itertools.pairwise(OFFSETS)):
        own = slice(first, last)
        assert UnitProducts(np.array([0, last - first]), b[own], a[own]).squares(1e-4)[0] == among[unit]


def test_squares_stay_within_float64_for_the_largest_and_smallest_numbers():
    for size in (3e38, 1e-38):
        held = np.full((2, 3), size, np.float32)
        found = UnitProducts(np.array([0, 2]), held, held).squares(0.0)[0]
        assert np.isclose(found, 36 * np.float64(np.float32(size)) ** 4, rtol=1e-12)


def test_arrays_that_the_kernel_cannot_read_are_refused():
    good = np.ones((3, 2), np.float32)
    for bad in (good.astype(np.float64), good[:, ::2], good[:2], good[0]):
        with pytest.raises(InputError, match="float32 rows"):
            UnitProducts(np.array([0, 3]), good, bad)
    for offsets in (np.array([1, 3]), np.array([0, 3], np.int32)):
        with pytest.raises(InputError, match="offsets"):
            UnitProducts(offsets, good, good)
    products = UnitProducts(np.array([0, 3]), good, good)
    for total in (np.zeros((3, 2)), np.zeros((2, 2), np.float32)):
        with pytest.raises(InputError, match="total"):
            products.add_to(total, np.ones(1))
    with pytest.raises(InputError, match="factor"):
        products.add_to(np.zeros((2, 2)), np.ones(2))
    with pytest.raises(InputError, match="total"):
        products.add_to(np.zeros((2, 2)), np.ones(1), np.zeros(3))


@pytest.mark.parametrize("bias", [True, False])
def test_clipped_sums_are_sums_with_the_factors_that_clip(bias):
    a, b = rows(19, 3), rows(7, 2)
    products, inner = UnitProducts(OFFSETS, b, a), 5.0
    both = products.squares_of_both(1e-4)
    factors = 1 / np.maximum(np.sqrt(both[0] + both[1] if bias else both[0]), inner) * inner
    expected, found = (np.ones((7, 19)), np.ones(7)), (np.ones((7, 19)), np.ones(7))
    products.add_to(expected[0], factors, expected[1])
    assert products.add_clipped(found[0], inner, 1e-4, found[1] if bias else None)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1] if bias else np.ones(7))
    assert (factors < 0.99).any()
    assert (factors == 1).any()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_nothing_is_added_if_one_length_is_not_finite(bad):
    a, b = rows(19, 3), rows(7, 2)
    a[5, 4] = bad
    total, ones = np.ones((7, 19)), np.ones(7)
    assert not UnitProducts(OFFSETS, b, a).add_clipped(total, 5.0, 1e-4, ones)
    assert np.array_equal(total, np.ones((7, 19)))
    assert np.array_equal(ones, np.ones(7))


@pytest.mark.parametrize("width", [1, 8, 13, 40])
def test_lengths_of_look_ups_are_those_of_the_gradients(width):
    rng = np.random.default_rng(width)
    outgoing = rng.standard_normal((6, 9, width)).astype(np.float32)
    looked_up = rng.integers(-1, 5, (6, 9))
    formed = np.zeros((6, 5, width))
    for unit, position in itertools.product(range(6), range(9)):
        if looked_up[unit, position] >= 0:
            formed[unit, looked_up[unit, position]] += outgoing[unit, position]
    sizes = (np.linalg.norm(outgoing.astype(float), axis=2) * (looked_up >= 0)).sum(1)
    results = []
    for name in kernel.instruction_sets():
        with kernel.use_instruction_set(name):
            results.append(squares_of_look_ups(outgoing, looked_up, 0.5))
    assert np.allclose(results[0], (formed**2).sum((1, 2)) + (0.5 * sizes) ** 2, rtol=1e-12)
    assert all(np.array_equal(results[0], other) for other in results)
    alone = [squares_of_look_ups(outgoing[k : k + 1], looked_up[k : k + 1], 0.5)[0] for k in range(6)]
    assert np.array_equal(alone, results[0])


def test_look_ups_that_cancel_have_the_length_of_their_rounding_alone():
    one = np.full((1, 2, 3), 3.0, np.float32)
    one[0, 1] = -3.0
    assert squares_of_look_ups(one, np.array([[4, 4]]), 1e-4)[0] == pytest.approx(1e-8 * 4 * 27)
    assert squares_of_look_ups(one, np.array([[4, 5]]), 0.0)[0] == pytest.approx(54)


def test_look_ups_that_the_kernel_cannot_read_are_refused():
    good = np.ones((2, 3, 4), np.float32)
    for outgoing, rows_ in (
        (good, np.zeros((2, 2), np.int64)),
        (good, np.zeros((2, 3), np.int32)),
        (good[:, :, ::2], np.zeros((2, 3), np.int64)),
    ):
        with pytest.raises(InputError, match="one for each position"):
            squares_of_look_ups(outgoing, rows_, 0.0)


def test_sums_have_one_order_with_any_number_of_threads_and_beside_any_columns():
    """Whole runs of columns are loaded at once, the rest number by number; both start from what is there."""
    a, b = rows(83, 0), rows(27, 1)
    start = np.random.default_rng(2).standard_normal((27, 83))
    kept = []
    for threads in (1, 2, 5):
        products, total, ones = UnitProducts(OFFSETS, b, a), start.copy(), np.zeros(27)
        products._threads = threads
        assert products.add_clipped(total, 3.0, 1e-4, ones)
        kept.append((total.tobytes(), ones.tobytes(), products.squares(1e-4).tobytes()))
    assert len(set(kept)) == 1
    both = [square.astype(float) for square in UnitProducts(OFFSETS, b, a).squares_of_both(1e-4)]
    factors = 1 / np.maximum(np.sqrt(both[0] + both[1]), 3.0) * 3.0
    scaled = np.repeat(factors, SIZES)[:, None] * b.astype(float)
    expected = start.copy()
    for one, other in zip(scaled, a.astype(float), strict=True):
        expected += one[:, None] * other
    assert expected.tobytes() == kept[0][0]

"""Ranks of columns: those of a plain loop, for any part of the rows, and the same through torch."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.engines import Processors
from apportion.linalg.ranks import Ranked


def drawn(seed, *, n_rows=40, n_columns=30, dim=5):
    """Rows and columns in few steps, so that there are ties, and pairs in the order of their rows."""
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(-3, 4, (n, dim)).astype(np.float32) / 3 for n in (n_rows, n_columns))
    out = rng.random((n_rows, n_columns)) < 0.2
    rows = np.sort(rng.integers(0, n_rows, 60)).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(out.sum(axis=1))])
    return Ranked(left, right, indptr, np.nonzero(out)[1], rows, rng.integers(0, n_columns, 60)), out


def by_loops(asked, out):
    found = []
    for row, column in zip(asked.rows, asked.columns, strict=True):
        scores = np.zeros(len(asked.right), np.float32)
        for own, others in zip(asked.left[row], asked.right.T, strict=True):
            scores += own * others
        scores[out[row]] = -np.inf
        found.append(int((scores > scores[column]).sum()))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_those_of_a_loop_over_pairs(seed):
    asked, out = drawn(seed)
    assert asked.ranks().tolist() == by_loops(asked, out)


def test_any_part_of_the_rows_has_the_same_ranks(monkeypatch):
    asked, _ = drawn(5)
    parts = [asked.part(0, 7), asked.part(7, 7), asked.part(7, 40)]
    assert np.array_equal(np.concatenate([part.ranks() for part in parts]), asked.ranks())
    monkeypatch.setattr("apportion.engines.processors._RANKED_AT_ONCE", 9)
    assert np.array_equal(Processors().ranks(asked), asked.ranks())


def test_nobody_asks_for_nothing():
    asked, _ = drawn(1)
    assert len(Processors().ranks(asked.part(0, 0))) == 0


@pytest.fixture
def on_torch():
    return pytest.importorskip("apportion.linalg.ranks_on_torch", reason="torch is not installed", exc_type=ImportError)


def with_factors(asked, left, right):
    return Ranked(left, right, asked.indptr, asked.excluded, asked.rows, asked.columns)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 7, 65])
def test_ranks_through_torch_are_the_same(dim, dtype, on_torch, monkeypatch):
    asked, _ = drawn(2, dim=dim)
    rng = np.random.default_rng(0)
    fine = [rng.standard_normal((n, dim)).astype(dtype) for n in (40, 30)]
    monkeypatch.setattr(on_torch, "_SCORES_AT_A_TIME", 200)
    monkeypatch.setattr(on_torch, "_ADDED_AT_A_TIME", 3)
    for each in (asked, with_factors(asked, *fine), with_factors(asked, fine[0], np.tile(fine[1][:1], (30, 1)))):
        assert np.array_equal(on_torch.ranks(each, "cpu"), each.ranks())


def test_columns_that_differ_only_by_rounding_are_ranked_as_on_processors(on_torch):
    asked, _ = drawn(3)
    rng = np.random.default_rng(1)
    left, one = rng.standard_normal((40, 65)).astype(np.float32), rng.standard_normal(65)
    right = (one * (1 + 1e-7 * rng.standard_normal((30, 65)))).astype(np.float32)
    found = with_factors(asked, left, right)
    by_device = left.astype(np.float64) @ right.T.astype(np.float64)
    by_device[found.owner, found.excluded] = -np.inf
    naive = (by_device[asked.rows] > by_device[asked.rows, asked.columns][:, None]).sum(axis=1)
    ranks = on_torch.ranks(found, "cpu")
    assert np.array_equal(ranks, found.ranks())
    assert not np.array_equal(ranks, naive)


@pytest.mark.parametrize("extreme", [0.0, 1e-30, 1e30, np.inf, np.nan])
def test_extreme_rows_are_ranked_as_on_processors(extreme, on_torch):
    asked, _ = drawn(4)
    rng = np.random.default_rng(2)
    left, right = (rng.standard_normal((n, 5)).astype(np.float32) for n in (40, 30))
    left[::3] *= np.float32(extreme)
    right[::2] *= np.float32(min(abs(extreme), 1e30) if np.isfinite(extreme) else 1)
    with np.errstate(all="ignore"):
        found = with_factors(asked, left, right)
        assert np.array_equal(on_torch.ranks(found, "cpu"), found.ranks())

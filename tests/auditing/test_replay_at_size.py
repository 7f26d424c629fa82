"""Sums over users at a size that crosses every block, chunk and buffer: one user still adds at most the sensitivity.

`python -m benchmarks replay` does the same for every estimator, with a million users and 50,001 rows of one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apportion.auditing.boundaries import NOT_SIZES, block_sizes, is_shrunk, small_blocks
from apportion.data.users import Users
from apportion.engines import LocalEngine
from at_size import FULL, SUITE, LargeWorld, kernel_constants, moved_by
from engine_passes import FITS, passes_of

LOOKED_AT = [
    "every kind of contribution", "ratings", "clicks", "ratings, statistics, adaptive", "ridge, adaptive",
    "logistic loss, tail sample", "mean", "mean, private sizes", "logistic loss, private sizes",
]  # fmt: skip
KERNEL = Path(__file__).parents[2] / "src" / "apportion" / "linalg"


def _engine(kind=LocalEngine):
    return kind(np.float64, exact=True)


@pytest.mark.parametrize("name", LOOKED_AT)
def test_nobody_adds_more_than_the_sensitivity_and_sums_add_up(name):
    assert name in FITS
    with small_blocks(SUITE.measures, all_numbers=True):
        for one in passes_of(name, _engine(), world=SUITE):
            for user in SUITE.heavy_users[[0, 3]]:
                for moved in moved_by(one, int(user), _engine()):
                    assert not moved.wrong, moved


def test_every_constant_is_crossed_in_full_or_made_smaller_or_explained():
    for name, number in block_sizes().items():
        assert FULL.measures.beyond(number) or is_shrunk(name, SUITE.measures) or name in NOT_SIZES, name
    assert set(NOT_SIZES) <= set(block_sizes())
    assert sum(name not in NOT_SIZES for name in block_sizes()) > 30


@pytest.mark.skipif(not (KERNEL / "_kernel.cpp").exists(), reason="the sources of the kernel are not in this tree")
def test_every_constant_of_the_kernel_is_crossed_in_full():
    found = kernel_constants(KERNEL)
    assert found["_kernel.cpp.kPieceLength"] == 16384
    assert found["_kernel.cpp.kWholeRows"] == 1 << 18
    in_bytes = {"_kernel.cpp.kRangeBytes", "_kernel.cpp.kPanelBytes", "_rating_round.hpp.kBlockBytes"}  # of rows of 8
    for name, number in found.items():
        assert FULL.measures.beyond(number // 8 if name in in_bytes else number), name


# -- bugs that only show at size --


class ClipsByPieces(LocalEngine):
    """Treats every 1,000 rows of a user as a user."""

    def add_up(self, users, contributions):
        sizes = [np.append(np.full(n // 1000, 1000), n % 1000) for n in users.sizes]
        keys = np.repeat(users.keys, [len(each) for each in sizes], axis=0)
        ends = np.append(0, np.cumsum(np.concatenate(sizes)))
        pieces = Users(ends, users._columns, n_tasks=users.n_tasks, keys=keys)
        return super().add_up(pieces, contributions)


class ScalesByTheMedian(LocalEngine):
    """Scales values by the median number of rows, where there are more than 256 users."""

    def add_up(self, users, contributions):
        if users.n_users > 256:
            users = users.with_columns(values=users.column("values") * (1 + np.median(users.sizes) / 8))
        return super().add_up(users, contributions)


@pytest.mark.parametrize(("wrong", "name"), [(ClipsByPieces, "ratings"), (ScalesByTheMedian, "mean, private sizes")])
def test_a_bug_that_only_shows_at_size_is_found(wrong, name):
    world = LargeWorld(3_000, 4_001)
    moved = [
        each
        for one in passes_of(name, _engine(wrong), world=world)
        for each in moved_by(one, int(world.heavy_users[0]), _engine(wrong))
    ]
    assert any(each.wrong for each in moved)


def test_a_small_world_does_not_show_them():
    """Why the size matters: users with 3 rows at most, 200 of them."""
    world = LargeWorld(200, 4)
    for wrong in (ClipsByPieces, ScalesByTheMedian):
        for one in passes_of("ratings", _engine(wrong), world=world):
            assert not any(each.wrong for each in moved_by(one, 0, _engine(wrong)))

"""Shares of values between cuts: one user counts once, and quantiles follow from the sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.users import Users
from apportion.engines import LocalEngine, Processors
from apportion.errors import InputError
from apportion.privacy import Budget, Purpose, SeededNoise, Session
from apportion.statistics.value_shares import SharesBetween

VALUES = st.lists(st.floats(-10, 10), min_size=1, max_size=8)


def users_of(values):
    return Users(np.cumsum([0, *map(len, values)]), {"values": np.concatenate([np.zeros(0), *map(np.asarray, values)])})


@given(st.lists(VALUES, min_size=1, max_size=4), st.sets(st.floats(-9, 9), min_size=1, max_size=6))
def test_a_user_moves_the_shares_by_at_most_one(values, cuts):
    part = SharesBetween(tuple(sorted(cuts)))
    rows = part(users_of(values), None)[0]
    assert np.allclose(rows.sum(axis=1), 1)
    assert (rows >= 0).all()
    contribution, kernels = part.contribution(), Processors(np.float64, exact=True)
    (full,), (rest,) = (contribution.partial(users_of(held), kernels) for held in (values, values[1:]))
    total = contribution.sealed((full,))[0]
    moved = np.linalg.norm((full - rest).astype(float)) * total.step
    assert moved <= total.l2_sensitivity * (1 + 1e-9)


def test_quantiles_of_users_are_found_at_the_cuts():
    rng = np.random.default_rng(0)
    part = SharesBetween(tuple(np.arange(0.5, 10, 0.5)))
    session = Session(Budget(2.0, 1e-6), noise=SeededNoise(1))
    total = LocalEngine().add_up(users_of(rng.uniform(0, 10, (3000, 4)).tolist()), [part.contribution()])[0]
    released = session.release(Purpose.QUANTILES, total, session.plan(all=1.0).one("all"))
    assert part.quantiles(released, np.array([0.1, 0.5, 0.9])) == pytest.approx([1.0, 5.0, 9.0], abs=0.5)


@pytest.mark.parametrize("cuts", [(), (2.0, 1.0), (1.0, 1.0), (1.0, np.inf)])
def test_cuts_that_do_not_ascend_are_refused(cuts):
    with pytest.raises(InputError, match="ascending"):
        SharesBetween(cuts)

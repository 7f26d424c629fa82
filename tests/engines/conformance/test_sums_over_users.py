"""What engines return is a sum over users: nobody adds nothing, and one user and the rest add up to all."""

from __future__ import annotations

import numpy as np
import pytest

from apportion import linalg
from apportion.auditing.hidden_values import raw_steps
from engine_passes import ENGINES, FITS, N_USERS, forgetful, reference_passes, without

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
every_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
every_fit = pytest.mark.parametrize("name", FITS)


@every_fit
@every_engine
@pytest.mark.parametrize("runs", [1, 3])
def test_a_sum_over_nobody_is_zeros(name, make, runs):
    engine = make(runs, np.float32)
    for one in reference_passes(name):
        for wanted, found in zip(one.sums, engine.add_up(one.users.run(0, 0), one.contributions), strict=True):
            assert not raw_steps(found).any()
            assert (found.shape, found.step, found.l2_sensitivity) == (wanted.shape, wanted.step, wanted.l2_sensitivity)


@every_fit
@every_engine
@pytest.mark.parametrize("user", [0, 17, N_USERS - 1])
def test_a_user_alone_and_the_rest_add_up_to_the_whole(name, make, user):
    engine, moved = make(1, np.float32), False
    for one in reference_passes(name):
        alone = engine.add_up(forgetful(one.users.run(user, user + 1)), one.contributions)
        rest = engine.add_up(without(one.users, user), one.contributions)
        for whole, mine, others in zip(one.sums, alone, rest, strict=True):
            np.testing.assert_array_equal(raw_steps(mine) + raw_steps(others), raw_steps(whole))
            moved |= bool(raw_steps(mine).any())
    assert moved

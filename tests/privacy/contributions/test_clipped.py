"""Parts that a function makes of users' rows: clipped whole, one row for each user, nobody outside a sample."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.allocation import SplitEqually
from apportion.allocation.weightings import OnSample
from apportion.auditing.hidden_values import raw_value
from apportion.data import Interactions
from apportion.data.users import Users
from apportion.engines import LocalEngine, TorchEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy.contributions import ClippedParts, Output
from apportion.privacy.sampling import Sample
from contribution_cases import CONTRIBUTIONS, users_of

from strategies import random_interactions


def torch_engine():
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchEngine("cpu", np.float64)


ENGINES = {"local": lambda: LocalEngine(np.float64, chunk=10), "torch": torch_engine}
OUTPUTS = (Output(1, 1.0, True, "test"), Output(1, 1.0, False, "test"))


@pytest.mark.parametrize("name", ["parts", "parts of users"])
def test_chunking_does_not_change_a_sum(name):
    users, contribution = users_of(random_interactions(2, n_users=60)), CONTRIBUTIONS[name]()
    whole = LocalEngine(np.float64).add_up(users, [contribution])
    cut = LocalEngine(np.float64, chunk=7).add_up(users, [contribution])
    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(raw_value(one), raw_value(other))


def test_a_users_rows_are_clipped_together():
    users = Users([0, 2, 2, 4], {"tasks": np.array([1, 2, 0, 2], np.int32)}, n_tasks=3)
    ones = ClippedParts(lambda users, weights: (np.ones((users.n_rows, 1)),), OUTPUTS[:1])
    found = raw_value(add_up_one(LocalEngine(), users, ones)).ravel()
    assert found == pytest.approx([0.7071, 0.7071, 1.4142], abs=1e-3)


def nothing(users):
    return np.zeros((users.n_rows, 1))


def by_observation(users, weights):
    return nothing(users), np.ones((users.n_rows, 1))


def of_everybody(users, weights):
    return nothing(users), np.ones((users.n_users, 1))


def of_those_taking_part(users, weights):
    taking_part = np.bincount(users.owner, weights != 0, minlength=users.n_users) > 0
    return nothing(users), np.ones((int(taking_part.sum()), 1))


def of_every_row(users, weights):
    return np.ones((users.n_rows, 1)), np.ones((users.n_users, 1))


def two_users():
    return Interactions.from_arrays([0] * 50 + [1], [*range(50), 0], np.ones(51), task_ids=np.arange(50)).as_users


def sample_of(users, wanted):
    """A sample of exactly these users."""
    samples = (Sample(bytes([seed]) * 32, 0.5) for seed in range(100))
    return next(each for each in samples if each.members(users.keys).tolist() == wanted)


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
def test_a_part_has_one_row_for_each_user_and_nobody_outside_a_sample_is_added(make_engine):
    users = two_users()
    with pytest.raises(InputError, match="Expected one row for each user"):
        make_engine().add_up(users, [ClippedParts(by_observation, OUTPUTS, SplitEqually())])
    sample = OnSample(SplitEqually(), sample_of(users, [True, False]))
    for part in (of_everybody, of_those_taking_part):
        found = make_engine().add_up(users, [ClippedParts(part, OUTPUTS, sample)])[1]
        assert raw_value(found) == pytest.approx([1.0], abs=1e-5)


@pytest.mark.parametrize("make_engine", ENGINES.values(), ids=ENGINES)
def test_nobody_outside_a_sample_is_added_to_any_task_either(make_engine):
    """Also where a function looks at no weights: sampled releases are accounted by who is in the sample."""
    users = two_users()
    for wanted, expected in (([True, False], 50), ([False, True], 1), ([False, False], 0)):
        sample = OnSample(SplitEqually(), sample_of(users, wanted))
        by_task, of_users = make_engine().add_up(users, [ClippedParts(of_every_row, OUTPUTS, sample)])
        assert np.count_nonzero(raw_value(by_task)) == expected
        assert raw_value(of_users) == pytest.approx([float(sum(wanted))], abs=1e-5)


def test_rows_of_another_width_are_refused():
    users = two_users()
    wide = (Output(2, 1.0, True, "test"), Output(1, 1.0, False, "test"))
    with pytest.raises(InputError, match=r"rows of 2 numbers for 'test'"):
        LocalEngine().add_up(users, [ClippedParts(of_everybody, wide, SplitEqually())])

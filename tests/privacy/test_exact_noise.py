"""Sessions with exact noise: what they take and refuse, what they release, and that a user adds the same to any sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import laplace, norm

from apportion import linalg
from apportion.allocation import SplitEqually
from apportion.auditing import RecordingSession
from apportion.auditing.replay import ReplayingSession
from apportion.data import Interactions
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError, InputError
from apportion.privacy import ADD_REMOVE, Budget, Rows, SeededNoise, Session
from apportion.privacy.bounded_sum import BoundedSum
from apportion.privacy.contributions import TaskCounts, TaskGrams
from apportion.regression import LabelPrivateRegression, UserERM
from apportion.statistics import UserMean, UserQuantile
from contribution_cases import OwnRows

from statistics_helpers import assert_distribution, assert_scale

STEP = linalg.step_below(1.0)
needs_kernel = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")


def numbers(value, size):
    """A sum on a lattice with this value in every coordinate, of sensitivity 1."""
    return BoundedSum.user_total(np.full(size, round(value / STEP)), Rows(np.ones((1, 1)), 1.0), STEP)


@pytest.mark.parametrize("value", [0.0, 1 / 3, -1e6 - 0.1])
def test_a_release_is_the_sum_with_normal_noise_of_the_stated_size(value):
    """False alarm 2e-9; a scale that is 1 % off would be seen."""
    session = Session(Budget(3.0, 1e-5), noise="exact")
    released = session.release("it", numbers(value, 200_000), session.plan(all=1.0).one("all"))
    stddev = session.statement().releases[0].stddev
    assert_scale(released - value, stddev=stddev, detect=1.02)
    assert_distribution(released - value, norm(0, stddev).cdf)


def test_a_laplace_release_likewise():
    session = Session(Budget(2.0, 0.0), noise="exact")
    released = session.release_laplace("it", numbers(5.0, 1000), session.plan(all=1.0).one("all"))
    scale = session.statement().releases[0].stddev / math.sqrt(2)
    assert_distribution(released - 5.0, laplace(0, scale).cdf)


def test_what_is_released_lies_on_a_grid_that_no_data_moves():
    for value in (0.0, math.pi, 1e5 + 1e-7):
        session = Session(Budget(3.0, 1e-5), noise="exact")
        released = session.release("it", numbers(value, 1000), session.plan(all=1.0).one("all"))
        stddev = session.statement().releases[0].stddev
        grid = 2.0 ** (math.floor(math.log2(stddev)) - 20)
        whole = released / grid
        np.testing.assert_array_equal(whole, np.rint(whole))
        assert len(set((whole % 2).tolist())) == 2  # and uses all of it


def test_sums_in_floating_point_are_refused_before_they_are_charged():
    users = Interactions.from_arrays([0, 1], [0, 0], [1.0, 2.0]).as_users.with_user_columns(rows=np.ones((2, 2)) / 2)
    session = Session(Budget(3.0, 1e-5), noise="exact")
    share = session.plan(all=1.0).one("all")
    grams = add_up_one(LocalEngine(), users, TaskGrams(SplitEqually(), OwnRows(1.0)))
    with pytest.raises(BudgetError, match="not a sum on a lattice"):
        session.release("grams", grams, share)
    with pytest.raises(BudgetError, match="no form in exact arithmetic"):
        session.choose("it", numbers(1.0, 3), share)
    assert session.statement().releases == ()
    session.release("counts", add_up_one(LocalEngine(), users, TaskCounts(SplitEqually())), share)


def test_exact_engines_want_the_compiled_kernel():
    with linalg.use_backend("numpy"), pytest.raises(ValueError, match="Exact sums need the compiled kernel"):
        LocalEngine(exact=True)


def many_rows():
    """Rows of 60 users of all sizes, some of them beyond every bound."""
    rng = np.random.default_rng(4)
    sizes = (1 + 30 * rng.random(60) ** 4).astype(int)
    groups = np.repeat(np.arange(60), sizes)
    x = rng.standard_normal((len(groups), 9))
    return x, np.where(x[:, 0] + rng.standard_normal(len(groups)) > 0, 1.0, 0.0), groups


PRIVATE_SIZES = {
    "mean": lambda: UserMean(2.0, 1e-5, value_range=(-2.0, 2.0), sizes="private"),
    "logistic regression": lambda: UserERM("logistic", 2.0, 1e-5, sizes="private", steps=5),
}


@pytest.mark.parametrize("make", PRIVATE_SIZES.values(), ids=PRIVATE_SIZES)
@pytest.mark.parametrize("user", [0, 7, 31])
def test_a_user_of_many_rows_adds_the_same_whole_numbers_whoever_else_is_there(make, user):
    x, y, groups = many_rows()
    arguments = {"budget": Budget(2.0, 1e-5), "noise": SeededNoise(1, exact=True), "neighbours": ADD_REMOVE}
    first = RecordingSession(**arguments)
    make().fit(x, y, users=groups, session=first)

    def hidden(chosen):
        session = ReplayingSession(first, **arguments)
        make().fit(x[chosen], y[chosen], users=groups[chosen], session=session)
        return session.hidden

    without, alone = hidden(groups != user), hidden(groups == user)
    assert len(first.records) >= 2
    for record, one, two in zip(first.records, without, alone, strict=True):
        np.testing.assert_array_equal(record.hidden, one + two)


def test_estimators_of_users_with_many_rows_take_exact_noise():
    x, y, groups = many_rows()
    fits = [
        UserMean(2.0, value_range=(-2.0, 2.0), noise="exact").fit(x, users=groups),
        UserERM("logistic", 2.0, 1e-5, noise="exact").fit(x, y, users=groups),
        LabelPrivateRegression(2.0, label_range=(0.0, 1.0), noise="exact").fit(x, y, users=groups),
    ]
    for fitted in fits:
        assert "without rounding" in fitted.statement_.arithmetic
    with pytest.raises(InputError, match="no form in exact arithmetic; those by group have one"):
        UserQuantile(0.5, 2.0, value_range=(-2.0, 2.0), noise="exact").fit(x[:, 0], users=groups)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_layout_of_what_was_given_does_not_matter_when_one_row_is_out_of_place(order):
    """Rows that come sorted are not copied, others are: both must end in the same layout, which decides rounding."""
    x, y, groups = many_rows()
    moved = np.r_[np.arange(1, len(groups)), 0]  # the first user's first row comes last
    hidden = []
    for rows in (np.arange(len(groups)), moved):
        session = RecordingSession(Budget(2.0, 1e-5), noise=SeededNoise(1, exact=True), neighbours=ADD_REMOVE)
        given = np.asarray(x[rows], order=order)
        PRIVATE_SIZES["logistic regression"]().fit(given, y[rows], users=groups[rows], session=session)
        hidden.append([record.hidden for record in session.records])
    for one, two in zip(*hidden, strict=True):
        np.testing.assert_array_equal(one, two)


def test_bounds_whose_squares_vanish_are_refused():
    with pytest.raises(ValueError, match="Expected a norm from 1e-100"):
        Rows(np.array([[1e-170]]), 1e-175)

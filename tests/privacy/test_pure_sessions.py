"""Budgets with a delta of 0, and sessions that promise another neighbour relation than adding or removing a user."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError, InputError
from apportion.privacy import (
    REPLACE_VALUES,
    BoundedSum,
    BoxedValues,
    Budget,
    PublicRowWeights,
    RankedRows,
    Rows,
    SeededNoise,
    Session,
    Statement,
    UniformBase,
)
from apportion.privacy.contributions import RowTotal

from statistics_helpers import assert_distribution

PURE = Budget(2.0, 0.0)
INDPTR = np.array([0, 3, 4])
ROWS = np.array([0.2, 0.2, 0.2, 0.4])


def a_total(columns=1, value=0.0, rows=ROWS):
    """The weighted total of rows that all hold this value."""
    users = Users(INDPTR, {"weights": rows})
    weights = PublicRowWeights.from_rows(rows, INDPTR, "fixed")
    return add_up_one(
        LocalEngine(), users, RowTotal(lambda run: BoxedValues(np.full((run.n_rows, columns), value)), columns, weights)
    )


def ranked(values, base, rows=ROWS, indptr=INDPTR):
    """The ranks of some values."""
    weights = PublicRowWeights.from_rows(rows, indptr, "fixed")
    return RankedRows(Users(indptr, {"values": np.asarray(values), "weights": rows}), weights, base)


def a_session(budget=PURE, seed=0, **arguments):
    return Session(budget, noise=SeededNoise(seed), neighbours=REPLACE_VALUES, **arguments)


def test_epsilon_adds_up_to_the_whole_and_no_further():
    session = a_session()
    plan = session.plan(first=0.25, rest=[0.25, 0.5])
    session.release_laplace("a", a_total(), plan.one("first"))
    session.release_laplace("b", a_total(), plan.several("rest")[0])
    assert session.spent == pytest.approx(0.5)
    session.release_laplace("c", a_total(), plan.several("rest")[1])
    statement = session.statement()
    assert statement.spent_epsilon == pytest.approx(2.0)
    assert statement.spent_epsilon <= 2.0
    assert statement.spent_mu is None
    assert [r.epsilon for r in statement.releases] == pytest.approx([0.5, 0.5, 1.0])
    with pytest.raises(BudgetError, match="is left"):
        session.release_laplace("d", a_total(), plan.one("first"))


def test_the_statement_of_a_pure_session_says_so_and_survives_json():
    session = a_session()
    session.release_laplace("a", a_total(), session.plan(a=1.0).one("a"))
    statement = session.statement()
    assert Statement.from_json(statement.to_json()) == statement
    for phrase in (
        "2.0-differential privacy (pure",
        "replace the contents",
        "how many rows each has, is public",
        "1 release.",
    ):
        assert phrase in statement.to_text()
    assert "add or remove" not in statement.to_text()


@pytest.mark.parametrize("columns", [1, 3])
def test_laplace_noise_of_a_pure_session_has_the_scale_of_the_l1_sensitivity_over_epsilon(columns):
    draws = []
    for seed in range(2000):
        session = a_session(seed=seed)
        draws.append(session.release_laplace("x", a_total(columns), session.plan(a=0.5).one("a")))
    scale = 0.6 * columns / 1.0  # the heaviest user has 0.6, each number a range of 1, and half of epsilon 2 is spent
    cdf = lambda x: np.where(x < 0, np.exp(np.minimum(x, 0) / scale) / 2, 1 - np.exp(-np.maximum(x, 0) / scale) / 2)  # noqa: E731
    assert_distribution(np.array(draws), cdf)  # false alarms: 1e-9


def test_a_pure_session_draws_no_gaussian_noise_and_plans_no_samples():
    session = a_session()
    with pytest.raises(InputError, match="delta above 0"):
        session.release("x", a_total(), session.plan(a=0.5).one("a"))
    with pytest.raises(BudgetError, match="delta above 0"):
        session.plan_sampled(3, 0.5)
    assert session.spent == 0


def test_a_sum_bounded_for_one_relation_is_not_released_under_another():
    rows = BoundedSum.user_total(np.zeros(2), Rows.clipped(np.zeros((1, 2)), 1.0))
    replacing, adding = a_session(), Session(PURE, noise=SeededNoise(0))
    with pytest.raises(BudgetError, match=r"'add or remove one user'; this session has the neighbours .replace"):
        replacing.release_laplace("x", rows, replacing.plan(a=0.5).one("a"))
    with pytest.raises(BudgetError, match=r"replace.*this session has the neighbours 'add or remove"):
        adding.release_laplace("x", a_total(), adding.plan(a=0.5).one("a"))
    ranks = ranked(np.zeros(4), UniformBase(-1.0, 1.0)).scores([], [0.5])
    with pytest.raises(BudgetError, match=r"replace.*this session has the neighbours 'add or remove"):
        adding.choose_points("x", ranks, UniformBase(-1.0, 1.0), adding.plan(a=0.5).one("a"))
    with pytest.raises(BudgetError, match=r"'add or remove one user'; this session has the neighbours .replace"):
        a_session(Budget(1.0, 1e-6)).plan_sampled(3, 0.5)
    assert replacing.spent == adding.spent == 0


def test_a_share_of_another_kind_of_budget_is_refused():
    gaussian = a_session(Budget(2.0, 1e-6))
    with pytest.raises((BudgetError, InputError), match="Expected"):
        gaussian.release_laplace("x", a_total(), a_session().plan(a=0.5).one("a"))
    with pytest.raises((BudgetError, InputError), match="Expected"):
        a_session().release_laplace("x", a_total(), gaussian.plan(a=0.5).one("a"))


class Exponential:
    """A base distribution on the positive half line, by its formulas."""

    def cdf(self, points):
        return -np.expm1(-np.maximum(points, 0))

    def ppf(self, probabilities):
        return -np.log1p(-probabilities)

    def support(self):
        return 0.0, np.inf


@pytest.mark.parametrize("base", [UniformBase(0.0, 2.0), Exponential()], ids=["uniform", "exponential"])
def test_a_point_is_drawn_with_the_density_of_the_exponential_mechanism(base):
    values = np.array([0.3, 0.5, 0.5, 1.1])
    rows = ranked(values, base)
    points = []
    for seed in range(4000):
        session = a_session(seed=seed)
        points += session.choose_points("x", rows.scores([], [0.5]), base, session.plan(a=1.0).one("a"))
    grid = np.linspace(0, 2 if isinstance(base, UniformBase) else 40, 400_001)
    order = np.argsort(values)
    rank = np.concatenate([[0], np.cumsum(ROWS[order])])[np.searchsorted(values[order], grid, side="right")]
    mass = np.diff(base.cdf(grid)) * np.exp(-2.0 / (2 * 0.6) * np.abs(rank - 0.5))[:-1]
    cumulative = np.concatenate([[0], np.cumsum(mass)]) / mass.sum()
    assert_distribution(np.array(points), lambda x: np.interp(x, grid, cumulative))  # false alarms: 1e-9
    plain = base.cdf(grid) / base.cdf(grid)[-1]
    with pytest.raises(AssertionError, match="rejected"):  # and it does see the data
        assert_distribution(np.array(points), lambda x: np.interp(x, grid, plain))


def test_a_cell_without_mass_gives_its_end():
    base = UniformBase(0.0, 1.0)
    rows = ranked(np.full(4, 0.5), base)
    session = a_session()
    found = session.choose_points("x", rows.scores([1.0], [0.5, 0.5]), base, session.plan(a=1.0).one("a"))
    assert found[1] == 1.0


@pytest.mark.parametrize(
    ("base", "centre", "spread"),
    [(UniformBase(-1e12, 1e12), 40.0, 10.0), (UniformBase(-1e9, 1e9), 0.0, 1e-3), (norm(0, 1), 8.2, 0.05)],
    ids=["wide range", "tiny values", "far out"],
)
def test_a_point_is_never_one_of_the_values_however_close_they_lie(base, centre, spread):
    rng = np.random.default_rng(0)
    values = rng.normal(centre, spread, 5000)
    rows = ranked(values, base, np.full(5000, 1 / 5000), np.arange(5001))
    for seed in range(40):
        session = a_session(Budget(50.0, 0.0), seed=seed)
        (point,) = session.choose_points("x", rows.scores([], [0.5]), base, session.plan(a=1.0).one("a"))
        assert point not in values


def test_the_bits_of_a_point_do_not_depend_on_where_the_values_are():
    base = UniformBase(0.0, 1.0)
    for value in (0.3, 0.5, 0.75):
        rows = ranked([value], base, np.ones(1), np.array([0, 1]))
        for seed in range(200):
            session = a_session(Budget(20.0, 0.0), seed=seed)
            (point,) = session.choose_points("x", rows.scores([], [0.01]), base, session.plan(a=1.0).one("a"))
            assert (point * 2.0**51) % 2 == 1  # the middle of one of 2^50 parts


def test_a_sum_without_sensitivity_is_not_released_without_noise():
    nothing = a_total(rows=np.zeros(4))
    session = a_session(Budget(1.0, 1e-6))
    with pytest.raises(BudgetError, match="finite noise"):
        session.release("x", nothing, session.plan(a=1.0).one("a"))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_is_released_lies_on_a_grid_that_the_data_do_not_move(delta):
    """Without it the last bits of a sum with noise tell what was added to what."""
    for value in (0.0, 0.3, 0.5):
        statistic = a_total(50, value)
        session = a_session(Budget(1.0, delta))
        share = session.plan(a=1.0).one("a")
        released = (session.release if delta else session.release_laplace)("x", statistic, share)
        stated = session.statement().releases[0].stddev
        scale = stated if delta else stated / np.sqrt(2)
        steps = released / 2.0 ** (np.floor(np.log2(scale)) - 20)
        np.testing.assert_array_equal(steps, np.rint(steps))

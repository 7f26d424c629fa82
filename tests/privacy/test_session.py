"""Sessions: what is hidden stays hidden, charges come first, noise has the scale that was paid for."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest

from apportion.auditing.hidden_values import raw_value
from apportion.errors import BudgetError, InputError
from apportion.privacy import (
    ADD_REMOVE,
    BoundedSum,
    Budget,
    Labels,
    Rows,
    SeededNoise,
    Session,
    Statement,
    SystemNoise,
    Weights,
)
from apportion.privacy.clipped_gradients import number_of_units

from statistics_helpers import assert_distribution, assert_scale

BUDGET = Budget(2.0, 1e-6)


def a_sum(size=40_000, norm=3.0):
    rows = Rows.clipped(np.zeros((1, size)), norm)
    return BoundedSum.user_total(np.arange(size, dtype=np.float64), rows)


def weights_of(n=4):
    return Weights.normalised(np.ones(n), np.array([0, n]), "equal")


@pytest.mark.parametrize(
    "hidden", [a_sum(3), weights_of(), Rows.clipped(np.ones((2, 2)), 1.0), Labels.clipped(np.ones(2), 1.0)]
)
def test_private_values_cannot_be_printed_pickled_copied_or_converted(hidden):
    assert "hidden" in repr(hidden)
    assert "hidden" in f"{hidden}"
    for read in (pickle.dumps, copy.copy, copy.deepcopy, np.asarray, list, float, lambda h: h.__getstate__()):
        with pytest.raises(TypeError, match=r"private values|must be"):
            read(hidden)
    assert not hasattr(hidden, "__dict__")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_session_refuses_to_spend_in_a_process_that_was_forked_off():
    """Both processes had a whole budget each, and each statement claimed one."""
    session = Session(BUDGET, noise=SeededNoise(0))
    share = session.plan(all=1.0).one("all")
    child = os.fork()
    if child == 0:
        try:
            session.release("total", a_sum(3), share)
        except BudgetError as refused:
            os._exit(7 if "forked" in str(refused) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    session.release("total", a_sum(3), share)


def test_a_sum_opens_for_the_session_and_the_auditor_only():
    with pytest.raises(TypeError, match="private values"):
        a_sum(3)._reveal(object())
    with pytest.raises(TypeError, match="bounded parts"):
        BoundedSum(object(), np.ones(3), 1.0, "forged")
    assert raw_value(a_sum(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("noise", [SystemNoise(), SeededNoise(3)], ids=["system", "seeded"])
def test_gaussian_noise_has_the_scale_that_was_paid_for(noise):
    session = Session(BUDGET, noise=noise)
    share = session.plan(all=0.25).one("all")
    released = session.release("total", a_sum(), share)
    expected = 3.0 / (BUDGET.mu * 0.5)
    assert_scale(released - np.arange(40_000), stddev=expected)
    assert session.statement().releases[0].stddev == pytest.approx(expected)


def test_noise_on_a_symmetric_matrix_is_isotropic_in_frobenius_norm():
    width, copies = 4, 40_000
    rows = Rows.clipped(np.zeros((1, width)), 2.0)
    packed = np.zeros((copies, width * (width + 1) // 2))
    session = Session(BUDGET, noise=SeededNoise(1))
    released = session.release("grams", BoundedSum.grams(packed, weights_of(), rows), session.plan(a=1.0).one("a"))
    stddev = 4.0 / BUDGET.mu
    diagonal = np.array([0, 2, 5, 9])
    assert_scale(released[:, diagonal], stddev=stddev)
    assert_scale(np.delete(released, diagonal, axis=1), stddev=stddev / np.sqrt(2))


def test_laplace_noise_follows_its_distribution():
    session = Session(BUDGET, noise=SeededNoise(2))
    rows = Rows.clipped(np.zeros((1, 1)), 1.0)
    many = BoundedSum.user_total(np.zeros(40_000), rows)
    released = session.release_laplace("x", many, session.plan(a=0.5).one("a"))
    scale = session.statement().releases[0].stddev / np.sqrt(2)
    assert_distribution(released, lambda x: np.where(x < 0, np.exp(x / scale) / 2, 1 - np.exp(-x / scale) / 2))


def test_the_exponential_mechanism_chooses_with_the_stated_odds():
    draws, gap = 4000, 1.5
    scores = BoundedSum.counts(np.array([gap, 0.0, 0.0]), weights_of())
    chosen = []
    for seed in range(draws):
        session = Session(BUDGET, noise=SeededNoise(seed))
        chosen.append(session.choose("best", scores, session.plan(a=1.0).one("a")))
    from apportion.privacy.gaussian import pure_of_mu

    rate = pure_of_mu(BUDGET.mu * (1 - 1e-12) ** 0.5) / 2
    probability = np.exp(rate * gap) / (np.exp(rate * gap) + 2)
    from scipy.stats import binomtest

    assert binomtest(chosen.count(0), draws, probability).pvalue > 1e-9
    assert binomtest(chosen.count(0), draws, 1 / 3).pvalue < 1e-9  # and it does see the scores


class Refusing:
    def charge(self, name, mu):
        raise OSError("disk full")


class Untouchable(SeededNoise):
    def normal(self, shape, dtype):
        raise AssertionError("noise was drawn")


def test_nothing_is_drawn_when_the_ledger_refuses_or_the_budget_is_spent():
    session = Session(BUDGET, noise=Untouchable(0), ledger=Refusing())
    with pytest.raises(OSError, match="disk full"):
        session.release("x", a_sum(2), session.plan(a=0.5).one("a"))
    empty = Session(BUDGET, noise=SeededNoise(0))
    whole = empty.plan(a=1.0).one("a")
    empty.release("x", a_sum(2), whole)
    empty._noise = Untouchable(0)
    with pytest.raises(BudgetError, match="is left"):
        empty.release("y", a_sum(2), whole)
    with pytest.raises(BudgetError, match=r"is left"):
        empty.plan(b=0.01)
    assert len(empty.statement().releases) == 1


def test_a_charge_stands_even_if_the_draw_crashes():
    session = Session(BUDGET, noise=Untouchable(0))
    with pytest.raises(AssertionError, match="drawn"):
        session.release("x", a_sum(2), session.plan(a=0.5).one("a"))
    assert session.spent == pytest.approx(0.5)


def test_the_same_name_is_not_released_twice():
    session = Session(BUDGET, noise=SeededNoise(0))
    plan = session.plan(a=0.1, b=0.1)
    session.release("x", a_sum(2), plan.one("a"))
    with pytest.raises(BudgetError, match="'x' was already made"):
        session.release("x", a_sum(2), plan.one("b"))


def test_the_statement_survives_json_and_says_what_matters():
    session = Session(BUDGET, noise=SeededNoise(0), public=["the item list"], window="2025")
    session.release("counts", a_sum(2), session.plan(a=0.5).one("a"))
    statement = session.statement()
    assert Statement.from_json(statement.to_json()) == statement
    assert statement.spent_epsilon < statement.epsilon
    text = statement.to_text()
    for phrase in (
        "NOT FOR RELEASE",
        "add or remove one user",
        "the item list",
        "2025",
        "counts: Gaussian",
        "1e-06",
    ):
        assert phrase in text
    assert Session(BUDGET).statement().releasable


def test_a_spent_session_reports_at_most_its_budget():
    session = Session(BUDGET, noise=SeededNoise(0))
    for k, share in enumerate(session.plan(rounds=[0.1] * 10).several("rounds")):
        session.release(f"r{k}", a_sum(2), share)
    assert session.statement().spent_epsilon <= BUDGET.epsilon
    assert session.statement().spent_epsilon >= BUDGET.epsilon * (1 - 1e-6)


def test_threads_that_race_for_the_whole_budget_get_it_once():
    import threading
    import time

    class Slow:
        def charge(self, name, mu):
            time.sleep(0.02)

    session = Session(BUDGET, noise=SeededNoise(0), ledger=Slow())
    whole = session.plan(a=1.0).one("a")
    refused = []

    def ask(name):
        try:
            session.release(name, a_sum(2), whole)
        except BudgetError:
            refused.append(name)

    threads = [threading.Thread(target=ask, args=(f"r{k}",)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 5
    assert session.spent <= 1.0


def test_a_bound_cannot_be_broken_after_it_was_checked():
    values = np.full((2, 3), 0.5)
    rows = Rows(values, 1.0)
    values *= 1000
    assert np.abs(rows._values).max() == 0.5
    total = BoundedSum.grams(np.zeros((1, 6)), weights_of(), rows)
    total.scales[:] = 1e-12
    assert total.scales.min() > 0.7
    for name in ("l2_sensitivity", "scales", "shape", "derivation"):
        with pytest.raises(AttributeError):
            setattr(total, name, 0.0)
    with pytest.raises(AttributeError):
        rows.norm = 1e-9


def test_low_precision_numbers_do_not_carry_their_rounding_into_the_noise():
    exact = Budget(float(np.float16(0.01)), 1e-8)
    assert Budget(np.float16(0.01), np.float64(1e-8)).mu == exact.mu
    assert Budget(np.float32(0.5), 1e-8).mu == Budget(0.5, 1e-8).mu


def test_long_float32_rows_stay_within_their_bound_in_any_memory_order():
    rng = np.random.default_rng(0)
    for order in ("C", "F"):
        raw = np.asarray(rng.standard_normal((50, 4096)), np.float32, order=order)
        for rows in (Rows.clipped(raw, 1.0), Rows.scaled(raw, 1.0)):
            assert np.linalg.norm(rows._values.astype(np.float64), axis=1).max() <= 1.0


def test_rows_without_a_direction_become_zero_instead_of_an_error():
    tiny = np.array([[1e-30, 0.0], [0.0, 0.0], [1e-20, 1e-20], [3.0, 4.0]], np.float32)
    lengths = np.linalg.norm(Rows.scaled(tiny, 1.0)._values, axis=1)
    np.testing.assert_allclose(lengths, [0, 0, 0, 1], atol=1e-5)


def test_bounds_are_checked_not_believed():
    with pytest.raises(InputError, match="norm to be at most 1"):
        Rows(np.array([[3.0, 4.0]]), 1.0)
    with pytest.raises(InputError, match="at most 1"):
        Rows(np.array([[np.nan]]), 1.0)
    with pytest.raises(InputError, match="label"):
        Labels(np.array([2.0]), 1.0)
    with pytest.raises(InputError, match="sum to at most 1"):
        Weights(np.array([1.0, 1.0]), np.array([0, 2]), "forged")
    with pytest.raises(InputError, match="finite"):
        Weights.normalised(np.array([np.inf]), np.array([0, 1]), "x")


def test_what_a_release_costs_to_check_does_not_grow_with_the_releases_before_it(monkeypatch):
    """A training makes thousands. Costs are worked out a few times for each release, not once for each pair."""
    asked = []
    cost_of = Session._cost_of
    monkeypatch.setattr(Session, "_cost_of", lambda self, record: asked.append(record) or cost_of(self, record))
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    shares = session.plan(steps=[1 / 200] * 200).several("steps")
    for number, share in enumerate(shares):
        session.release(f"step {number}", number_of_units(3, ADD_REMOVE), share)
    assert len(asked) <= 4 * 200
    assert session.spent == pytest.approx(1.0)

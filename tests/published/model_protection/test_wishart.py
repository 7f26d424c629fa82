"""Additive Wishart noise: its cost is exact in both directions, and sessions release only what was planned."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from apportion.auditing import audit_neighbour
from apportion.auditing.hidden_values import raw_value
from apportion.errors import BudgetError, InputError
from apportion.linalg.packed import unpack
from apportion.privacy import BoundedSum, Budget, Gaussian, Ledger, Rows, SeededNoise, Session, accounting
from apportion.privacy.mechanisms import mechanism_class
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK
from apportion.privacy.task_sums import TaskModels, outer_sum
from apportion.published.model_protection import Wishart, wishart
from apportion.published.model_protection.wishart import WishartPart

from statistics_helpers import assert_distribution


def random_models(n_tasks, width, seed=0):
    return 2.0 * np.random.default_rng(seed).standard_normal((n_tasks, width))


def planned(epsilon=2.0, steps=2, spare=12, seed=0, **fractions):
    session = Session(Budget(epsilon, 1e-4), noise=SeededNoise(seed), neighbours=ADD_REMOVE_TASK)
    plan, share = session.plan_with(Wishart(spare), steps, **fractions)
    return session, plan, share


def sum_of(models, norm):
    return outer_sum(TaskModels.clipped(models, norm), ADD_REMOVE_TASK)


def release(session, name, statistic, share):
    return session.release_with(share.mechanism, name, statistic, share)


def integrated(one, two, epsilon, kinks):
    """∫ max(one − e^ε two, 0) on pieces between the kinks."""
    pieces = [*kinks, 600.0]
    return sum(
        integrate.quad(lambda x: max(one(x) - math.exp(epsilon) * two(x), 0.0), a, b, limit=200, epsabs=1e-13)[0]
        for a, b in itertools.pairwise(pieces)
    )


@pytest.mark.parametrize("spare", [3, 4, 11, 60])
@pytest.mark.parametrize("multiplier", [0.08, 0.5, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_the_profile_is_that_of_a_shifted_chi_square_by_integration(spare, multiplier, epsilon):
    shift, law = 1 / multiplier, stats.chi2(spare)
    ratio = np.exp((epsilon + shift / 2) / (spare / 2 - 1))
    kinks = [0.0, shift, shift * ratio / (ratio - 1)]
    absent = integrated(law.pdf, lambda x: law.pdf(x - shift), epsilon, kinks)
    assert wishart.absent_delta(epsilon, multiplier, spare) == pytest.approx(absent, rel=1e-6, abs=1e-10)
    inner = math.exp((epsilon - shift / 2) / (spare / 2 - 1))
    kinks = [0.0, shift] if inner >= 1 else [0.0, shift, min(shift / (1 - inner), 500.0)]
    present = integrated(lambda x: law.pdf(x - shift), law.pdf, epsilon, kinks)
    assert wishart.present_delta(epsilon, multiplier, spare) == pytest.approx(present, rel=1e-6, abs=1e-10)


@pytest.mark.parametrize(("width", "spare"), [(1, 3), (3, 4), (6, 10)])
def test_the_likelihood_ratio_of_wishart_matrices_depends_on_one_chi_square(width, spare):
    """Densities by SciPy; the false-alarm rate of the distribution test is 1e-9."""
    rng = np.random.default_rng(width)
    degrees, scale, model = width + spare - 1, 0.7, rng.standard_normal(width)
    shift = float(model @ model) / scale
    law = stats.wishart(degrees, scale * np.eye(width))
    noise = np.asarray(law.rvs(3000, random_state=rng)).reshape(3000, width, width)
    ordered = float(model @ model) / scale / np.einsum("i,nij,j->n", model, np.linalg.inv(noise), model)
    assert_distribution(ordered, stats.chi2(spare).cdf)
    for matrix, x in zip(noise[:200], ordered, strict=False):
        if x <= shift:
            assert np.linalg.eigvalsh(matrix - np.outer(model, model)).min() <= 1e-9
            continue
        ratio = law.logpdf(matrix - np.outer(model, model)) - law.logpdf(matrix)
        expected = stats.chi2(spare).logpdf(x - shift) - stats.chi2(spare).logpdf(x)
        assert ratio == pytest.approx(expected, rel=1e-6, abs=1e-8)


@given(st.integers(3, 80), st.floats(-3, 3), st.floats(0.01, 0.99), st.floats(-2, 4))
@settings(max_examples=300, deadline=None)
def test_shorter_models_cost_less_at_every_epsilon_and_in_both_directions(spare, exponent, part, epsilon):
    multiplier = math.exp(exponent)
    for cost in (wishart.absent_delta, wishart.present_delta):
        assert cost(epsilon, multiplier / part, spare) <= cost(epsilon, multiplier, spare) * (1 + 1e-9) + 1e-12


@given(st.integers(3, 80), st.floats(-3, 2), st.floats(0.0, 5.0))
@settings(max_examples=200, deadline=None)
def test_absence_is_the_direction_that_costs_more(spare, exponent, epsilon):
    multiplier = math.exp(exponent)
    absent = wishart.absent_delta(epsilon, multiplier, spare)
    assert absent >= wishart.present_delta(epsilon, multiplier, spare) - 1e-12


def test_with_two_spare_degrees_the_published_mechanism_fails_with_one_minus_e_to_minus_epsilon():
    """K² / (2ε) is its scale; what is infinite is the chance of χ²_2 below 2ε."""
    for epsilon in (0.1, 1.0, 3.0):
        assert stats.chi2(2).cdf(2 * epsilon) == pytest.approx(1 - math.exp(-epsilon))
    with pytest.raises(InputError, match="at least 3 spare degrees"):
        wishart.delta_of(1.0, 0.5, 2)
    with pytest.raises(InputError, match="at least 3 spare degrees"):
        WishartPart(0.5, 2)


@pytest.mark.parametrize(("multiplier", "spare"), [(0.3, 3), (0.5, 20), (0.2, 100)])
def test_a_single_release_is_composed_to_its_exact_cost_and_never_below(multiplier, spare):
    for epsilon in (0.05, 0.5, 2.0):
        exact = wishart.delta_of(epsilon, multiplier, spare)
        composed = accounting.delta_of([WishartPart(multiplier, spare)], epsilon)
        assert exact * (1 - 1e-12) <= composed <= exact * 1.003 + 1e-12


@pytest.mark.parametrize(("multiplier", "spare"), [(0.8, 5), (0.5, 30)])
def test_two_releases_cost_what_integration_over_the_first_says(multiplier, spare):
    shift, law, power = 1 / multiplier, stats.chi2(spare), spare / 2 - 1

    def twice(epsilon):
        """∫ over the first output of the second's profile at what is left of ε; beyond c all is lost."""

        def density(x):
            loss = -power * math.log1p(-shift / x) - shift / 2
            return law.pdf(x) * wishart.absent_delta(epsilon - loss, multiplier, spare)

        near = shift + np.array([1e-12, 1e-3, 0.1, 1.0, 10.0, 50.0, 400.0])
        parts = [integrate.quad(density, a, b, limit=200)[0] for a, b in itertools.pairwise(near)]
        return float(law.cdf(shift)) + math.fsum(parts)

    for epsilon in (0.2, 1.5):
        composed = accounting.delta_of([WishartPart(multiplier, spare, 2)], epsilon)
        assert twice(epsilon) * (1 - 1e-5) <= composed <= twice(epsilon) * 1.005 + 1e-9


@pytest.mark.parametrize(("epsilon", "steps", "spare"), [(0.3, 1, 30), (4.0, 3, 300)])
def test_a_planned_session_stays_within_its_budget_and_uses_it(epsilon, steps, spare):
    session, plan, share = planned(epsilon, steps, spare, size=0.1)
    models = sum_of(random_models(9, 3), 1.0)
    session.release("size", models, plan.one("size"))
    for step in range(steps):
        release(session, f"sum {step}", models, share)
    statement = session.statement()
    assert 0.98 * epsilon <= statement.spent_epsilon <= epsilon
    assert statement.spent_mu is None
    assert "additive Wishart" in statement.to_text()
    parts = [accounting.Gaussian(1 / plan.one("size").mu), WishartPart(share.noise_multiplier * 0.97, spare, steps)]
    assert accounting.epsilon_of(parts, 1e-4) > epsilon  # less noise would not do


def test_more_degrees_of_freedom_bring_the_noise_close_to_gaussian_noise():
    few, many = (planned(1.0, 1, spare)[2].mu / math.sqrt(2 * spare) for spare in (100, 5000))
    assert few < many < Budget(1.0, 1e-4).mu < 1.1 * many


def test_draws_have_the_planned_degrees_of_freedom():
    """Quadratic forms of the noise and of its inverse; each false alarm has probability 1e-9."""
    statistic = sum_of(random_models(5, 4), 2.0)
    released = []
    for seed in range(700):
        session, _, share = planned(seed=seed)
        released += [release(session, name, statistic, share) for name in ("one", "two")]
    noise, direction = unpack(np.stack(released) - raw_value(statistic)), np.array([1.0, -2.0, 0.5, 1.0])
    scale = share.noise_multiplier * 4.0
    squared = float(direction @ direction)
    forms = np.einsum("i,nij,j->n", direction, noise, direction) / scale / squared
    assert_distribution(forms, stats.chi2(share.mechanism.degrees(4)).cdf)
    inverse = squared / scale / np.einsum("i,nij,j->n", direction, np.linalg.inv(noise), direction)
    assert_distribution(inverse, stats.chi2(12).cdf)
    assert stats.kstest(inverse, stats.chi2(14).cdf).pvalue < 1e-9  # the test sees two degrees


@given(st.integers(0, 10_000), st.floats(0.1, 5.0), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_removing_any_model_moves_the_sum_by_at_most_its_sensitivity_and_by_rank_one(seed, norm, width):
    models = random_models(6, width, seed)
    full, rest = (sum_of(some, norm) for some in (models, models[1:]))
    moved = unpack(raw_value(full) - raw_value(rest))
    assert np.linalg.norm(moved) <= full.l2_sensitivity * (1 + 1e-9)
    values = np.linalg.eigvalsh(moved)
    assert values.min() >= -1e-9 * norm**2
    assert (values > 1e-9 * norm**2).sum() <= 1


def test_a_neighbouring_run_asks_for_the_same_releases_and_moves_by_at_most_what_it_declares():
    models = random_models(8, 3)
    models[0] *= 100

    def fit(some, session):
        _, share = session.plan_with(Wishart(12), 2)
        first = release(session, "one", sum_of(some, 1.0), share)
        second = release(session, "two", sum_of(some * first[0], 1.0), share)
        return {"one": first, "two": second}

    arguments = {"budget": Budget(2.0, 1e-4), "noise": SeededNoise(1), "neighbours": ADD_REMOVE_TASK}
    ratios = audit_neighbour(fit, models, models[1:], arguments)
    assert 0.99 < max(ratios.values()) <= 1 + 1e-9


def test_only_what_was_planned_can_be_released():
    session, _, share = planned()
    models = sum_of(random_models(5, 2), 1.0)
    with pytest.raises(BudgetError, match="nothing else can be planned"):
        session.plan(more=0.1)
    with pytest.raises(BudgetError, match="not part of this session's plan"):
        session.release("gaussian", models, Session(Budget(2.0, 1e-4)).plan(a=0.1).one("a"))
    with pytest.raises(BudgetError, match="needs class OuterSum, got BoundedSum"):
        release(session, "total", BoundedSum.user_total(np.zeros(3), Rows(np.zeros((1, 3)), 1.0)), share)
    release(session, "one", models, share)
    release(session, "two", models, share)
    with pytest.raises(BudgetError, match="All 2 planned releases"):
        release(session, "three", models, share)
    with pytest.raises(BudgetError, match="a plan of this session made"):
        release(Session(Budget(2.0, 1e-4), neighbours=ADD_REMOVE_TASK), "foreign", models, share)
    with pytest.raises(BudgetError, match="has a sensitivity for the neighbours"):
        release(Session(Budget(2.0, 1e-4)), "of users", models, share)
    with pytest.raises(BudgetError, match="planned before anything else"):
        session.plan_with(Wishart(5), 1)


def test_a_share_that_was_planned_buys_no_release_by_another_mechanism():
    session, _, share = planned()
    models = sum_of(random_models(5, 2), 1.0)
    for other in (Gaussian(), Wishart(13)):
        with pytest.raises(BudgetError, match="planned for"):
            session.release_with(other, "one", models, share)
    with pytest.raises(BudgetError, match="planned for additive Wishart"):
        session.release_with(Wishart(12), "one", models, Session(Budget(2.0, 1e-4)).plan(a=0.1).one("a"))
    assert not session.statement().releases


def test_a_stored_statement_finds_the_mechanism_by_its_key():
    assert mechanism_class("wishart") is Wishart


def test_budgets_ledgers_and_neighbours_that_do_not_fit_are_refused(tmp_path):
    budget, whole = Budget(1.0, 1e-5), {"neighbours": ADD_REMOVE_TASK}
    with pytest.raises(BudgetError, match="delta above 0"):
        Session(Budget(1.0, 0.0), **whole).plan_with(Wishart(5), 1)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        account = ledger.create_account("tasks", budget, **whole)
        with pytest.raises(BudgetError, match="A ledger cannot record releases"):
            Session(budget, ledger=account, **whole).plan_with(Wishart(5), 1)
        assert account.status().entries == 0
    with pytest.raises(BudgetError, match="at least 1 step"):
        Session(budget, **whole).plan_with(Wishart(5), 0)
    with pytest.raises(BudgetError, match="add or remove one task"):
        Session(budget, neighbours=REPLACE_TASK).plan_with(Wishart(5), 1)

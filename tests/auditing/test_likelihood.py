"""Likelihood-ratio audits: their bounds hold with the confidence they state, and they see what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, norm

from apportion.auditing import AuditError, audit_likelihood
from apportion.auditing.likelihood import (
    epsilon_from_statistics,
    lower_proportion,
    mu_from_statistics,
    upper_proportion,
)
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.privacy import (
    REPLACE_VALUES,
    Budget,
    RankedRows,
    SeededNoise,
    UniformBase,
)
from apportion.privacy.contributions import BoxedColumns, PublicRowWeights, RowTotal

INDPTR = np.array([0, 2, 3])
WEIGHTS = np.array([0.25, 0.25, 0.5])
FIXED = PublicRowWeights.from_rows(WEIGHTS, INDPTR, "fixed")


def test_bounds_on_proportions_are_those_of_clopper_and_pearson():
    for hits, n in ((0, 10), (3, 10), (10, 10), (512, 1000)):
        low, high = lower_proportion(hits, n, 0.01), upper_proportion(hits, n, 0.01)
        assert (hits == 0 and low == 0) or binom.sf(hits - 1, n, low) == pytest.approx(0.01)
        assert (hits == n and high == 1) or binom.cdf(hits, n, high) == pytest.approx(0.01)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_a_bound_exceeds_the_truth_no_more_often_than_it_says(epsilon):
    rng = np.random.default_rng(0)
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))  # randomised response
    audits, alpha = 400, 0.1
    beyond = sum(
        epsilon_from_statistics((rng.random(200) < truth) * 1.0, (rng.random(200) > truth) * 1.0, alpha) > epsilon
        for _ in range(audits)
    )
    assert beyond <= binom.ppf(1 - 1e-6, audits, alpha)  # false alarms: 1e-6


def test_a_bound_on_mu_exceeds_the_truth_no_more_often_than_it_says_and_comes_close():
    rng = np.random.default_rng(1)
    audits, alpha, mu = 300, 0.1, 1.0
    bounds = [mu_from_statistics(rng.normal(mu, 1, 2000), rng.normal(0, 1, 2000), alpha) for _ in range(audits)]
    assert sum(bound > mu for bound in bounds) <= binom.ppf(1 - 1e-6, audits, alpha)
    assert np.median(bounds) > 0.8 * mu


def users_of(values):
    return Users(INDPTR, {"values": values, "weights": WEIGHTS})


def total(values):
    return add_up_one(LocalEngine(), users_of(values), RowTotal(BoxedColumns(0.0, 1.0), 1, FIXED))


ENDS = np.array([0.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.5])


def audited(fit, budget, draws=600, ends=ENDS):
    arguments = {"budget": budget, "neighbours": REPLACE_VALUES}
    return audit_likelihood(fit, *ends, arguments, noise=SeededNoise, draws=draws)


def test_noise_that_is_too_small_is_seen():
    def honest(values, session):
        session.release_laplace("x", total(values), session.plan(a=1.0).one("a"))
        return {}

    def planted(values, session):
        """Twice the difference for the same noise."""
        statistic = total(values)
        statistic._l1_bound = statistic.l1_sensitivity / 2
        session.release_laplace("x", statistic, session.plan(a=1.0).one("a"))
        return {}

    assert 0.5 < audited(honest, Budget(1.0, 0.0)).lower_bound <= 1.0
    assert audited(planted, Budget(1.0, 0.0)).lower_bound > 1.0


def test_a_pure_release_in_a_gaussian_session_is_not_taken_for_a_gaussian_one():
    base = UniformBase(0.0, 1.0)
    spent = []

    def fit(values, session):
        rows = RankedRows(users_of(values), FIXED, base)
        session.choose_points("x", rows.scores([], [0.5]), base, session.plan(a=1.0).one("a"))
        spent.append(session.statement().releases[0].epsilon)
        return {}

    found = audited(fit, Budget(8.0, 1e-6))
    assert found.lower_bound <= spent[0] < 2  # the release is purely so; above it only with probability 1e-3


def test_a_run_about_which_nothing_can_be_said_is_an_error():
    def fit(values, session):
        released = session.release_laplace("x", total(values), session.plan(a=1.0).one("a"))
        if hasattr(session, "records"):
            session.records[-1].released[:] = np.nan
        return {"x": released}

    with pytest.raises(AuditError, match="not a number"):
        audited(fit, Budget(1.0, 0.0), draws=2)


def test_many_equal_values_do_not_make_the_density_vanish():
    base = norm(0, 1)

    def fit(values, session):
        indptr, held = np.arange(3001), np.full(3000, 1 / 3000)
        users = Users(indptr, {"values": np.concatenate([values[:1], np.zeros(2999)]), "weights": held})
        rows = RankedRows(users, PublicRowWeights.from_rows(held, indptr, "equal"), base)
        session.choose_points("x", rows.scores([], [0.5]), base, session.plan(a=1.0).one("a"))
        return {}

    assert audited(fit, Budget(1.0, 0.0), draws=40).lower_bound >= 0

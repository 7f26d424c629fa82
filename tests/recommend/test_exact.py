"""Exact noise in whole estimators: a user's part is whole steps, the same whoever else is there, and in bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.data import Interactions
from apportion.engines import LocalEngine
from apportion.privacy import SeededNoise
from apportion.recommend import PrivateClickRecommender, PrivateRatingRecommender

from private_estimators import PRIVATE_ESTIMATORS, PRIVATE_REGRESSIONS, audit_estimator, audit_regression
from strategies import interactions, random_interactions

pytestmark = pytest.mark.skipif(not linalg.compiled_available(), reason="exact sums need the compiled kernel")
ESTIMATORS = pytest.mark.parametrize("make", PRIVATE_ESTIMATORS.values(), ids=PRIVATE_ESTIMATORS)
REGRESSIONS = pytest.mark.parametrize("make", PRIVATE_REGRESSIONS.values(), ids=PRIVATE_REGRESSIONS)


@ESTIMATORS
@settings(max_examples=10)
@given(data=interactions(), user=st.integers(0, 11))
def test_a_user_adds_the_same_whole_numbers_whoever_else_is_there(make, data, user):
    for finding in audit_estimator(make, data, user, epsilon=2.0, seed=user, exact=True):
        assert finding.ratio <= 1, finding  # no tolerance
        assert finding.gap == 0, finding


@REGRESSIONS
@settings(max_examples=10)
@given(data=interactions(), user=st.integers(0, 11))
def test_a_user_of_a_regression_adds_the_same_whole_numbers_whoever_else_is_there(make, data, user):
    for finding in audit_regression(make(data.n_tasks), data, user, epsilon=2.0, seed=user, exact=True):
        assert finding.ratio <= 1, finding
        assert finding.gap == 0, finding


@pytest.mark.parametrize("make", [PrivateRatingRecommender, PrivateClickRecommender])
def test_exact_noise_is_a_word_and_the_statement_says_so(make):
    data = random_interactions(3)
    model = make(2.0, 1e-5, dimension=2, rounds=2, noise="exact").fit(data).model_
    assert model.statement.releasable
    assert "without rounding" in model.statement.arithmetic
    plain = make(2.0, 1e-5, dimension=2, rounds=2, noise="secure").fit(data).model_
    assert "does not cover attacks on floating-point rounding" in plain.statement.arithmetic


@pytest.mark.parametrize("make", [PrivateRatingRecommender, PrivateClickRecommender])
def test_exact_fits_are_as_good(make):
    data = random_interactions(3)
    fits = [make(5.0, 1e-5, noise=SeededNoise(1, exact=exact)).fit(data).model_ for exact in (False, True)]
    assert [r.name for r in fits[0].statement.releases] == [r.name for r in fits[1].statement.releases]
    for one, two in zip(fits[0].statement.releases, fits[1].statement.releases, strict=True):
        assert two.stddev / two.sensitivity == pytest.approx(one.stddev / one.sensitivity, rel=1e-8)


def test_noise_has_two_names():
    with pytest.raises(ValueError, match="'secure', 'exact' or a noise source, got 'loud'"):
        PrivateRatingRecommender(noise="loud").fit(random_interactions(3))


def test_engines_that_are_not_exact_are_refused():
    with pytest.raises(ValueError, match="Exact noise needs an engine for exact sums"):
        PrivateRatingRecommender(noise="exact", engine=LocalEngine()).fit(random_interactions(3))
    exact = LocalEngine(exact=True)
    with linalg.use_backend("numpy"), pytest.raises(ValueError, match="Exact sums need the compiled kernel"):
        PrivateClickRecommender(noise="exact", engine=exact, n_users=1e5).fit(random_interactions(3))


def test_ratings_need_no_compiled_kernel_since_numpy_adds_the_same_whole_numbers():
    data, found = random_interactions(3), []
    for backend in ("compiled", "numpy"):
        made = PrivateRatingRecommender(noise=SeededNoise(0, exact=True), engine=LocalEngine(np.float64, exact=True))
        with linalg.use_backend(backend):
            found.append(made.fit(data).model_.vectors)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)


def test_a_user_of_very_many_tasks_is_summed_alike_with_and_without_a_light_one():
    """Rows beyond the cache are summed a range at a time; which way it goes must follow from a user's own length."""
    rng = np.random.default_rng(0)
    n_tasks, dim, heavy = 300_000, 16, 33_000
    lengths = [heavy] * 8 + [1]
    tasks = np.concatenate([np.sort(rng.choice(n_tasks, n, replace=False)) for n in lengths])
    users = np.repeat(np.arange(9), lengths)
    data = Interactions.from_arrays(users, tasks, task_ids=np.arange(n_tasks))
    features = rng.standard_normal((n_tasks, dim)).astype(np.float32)
    engine = LocalEngine(exact=True)
    whole = engine.kernels.total_of_users(data.as_users, features)
    without = engine.kernels.total_of_users(data.where(data.users != 8).as_users, features)
    np.testing.assert_array_equal(whole[:8], without[:8])

"""Collective factorisation of ratings and features: the guarantee, its minimum, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.published.public_features.cmf import CollectiveFactorisation, factorise
from apportion.published.public_features.statistics import Surrogate

from encoder_cases import assert_audited, best_ratios, estimator, features_of
from private_estimators import at_the_bound
from strategies import interactions, random_interactions


def make(kind):
    def made(**given):
        return estimator(CollectiveFactorisation(), kind=kind, **given)

    return made


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
@settings(max_examples=8)
@given(data=interactions(), user=st.integers(0, 11), epsilon=st.sampled_from([0.5, 50.0]))
def test_no_release_moves_by_more_than_its_sensitivity_when_any_user_leaves(kind, data, user, epsilon):
    assert_audited(make(kind), data, user, epsilon=epsilon, seed=user, least=6)


def test_a_user_at_the_bound_moves_every_release_by_most_of_it():
    data, extreme = at_the_bound()
    best = best_ratios(make("ratings"), data, extreme, [0])
    assert max(best.values()) <= 1 + 1e-9
    assert min(best.values()) > 0.5, best


def some_statistics(n_items=30, width=3):
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((n_items, width, width))
    return Surrogate(roots @ roots.transpose(0, 2, 1) + np.eye(width), rng.standard_normal((n_items, width)))


def test_sweeps_only_lower_the_joint_objective():
    surrogate, rows = some_statistics(), features_of(30)
    shown = rows.to_scipy().toarray()

    def objective(items):
        gram = items.T @ items + np.eye(3)
        features = np.linalg.solve(gram, items.T @ shown).T
        gaps = shown - items @ features.T
        return surrogate.value(items) + 0.5 * (np.square(gaps).sum() + np.square(features).sum())

    values = [
        objective(factorise(surrogate, rows, 1.0, CollectiveFactorisation(sweeps=sweeps))[0])
        for sweeps in (0, 1, 2, 5, 20)
    ]
    assert np.all(np.diff(values) <= 1e-9)
    assert values[-1] < values[0] - 1.0


def test_features_of_no_weight_leave_the_items_own_solutions():
    surrogate = some_statistics()
    own = np.linalg.solve(surrogate.curvature, surrogate.slope[:, :, None])[:, :, 0]
    found, _ = factorise(surrogate, features_of(30), 0.0, CollectiveFactorisation())
    np.testing.assert_allclose(found, own)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gram_share": 1.0}, "gram_share strictly between 0 and 1, got 1"),
        ({"feature_weight": -1.0}, "feature_weight >= 0 and feature_ridge > 0, got -1"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        estimator(CollectiveFactorisation(**arguments), features=features_of(9)).fit(random_interactions(0))

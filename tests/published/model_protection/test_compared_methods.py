"""What model protection is compared with does what it says: against independent code, closed forms and conditions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from apportion.auditing import audit_neighbour
from apportion.errors import InputError
from apportion.privacy import Budget, Rows, SeededNoise
from apportion.privacy.model_totals import model_total
from apportion.privacy.neighbours import ADD_REMOVE_TASK
from apportion.published.model_protection import (
    NO_GUARANTEE,
    STRUCTURES,
    TaskLists,
    aggregated,
    aggregated_by_group,
    alone_common,
    alone_l1,
    alone_l2,
    chosen_penalty,
    joint,
    related_by_group,
    relations_of,
)
from apportion.published.model_protection import private as private_methods
from apportion.published.model_protection.proximal import shrink_features, shrink_singular_values, shrink_squared_trace
from apportion.published.model_protection.rows import JointObjective

from statistics_helpers import assert_distribution


def tasks(seed=0, n_tasks=12, n_rows=25, width=6, rank=2, noise=0.5):
    rng = np.random.default_rng(seed)
    models = 3 * rng.standard_normal((n_tasks, rank)) @ rng.standard_normal((rank, width))
    features = rng.standard_normal((n_tasks, n_rows, width))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    targets = np.einsum("mnd,md->mn", features, models) + noise * rng.standard_normal((n_tasks, n_rows))
    return TaskLists(list(features), list(targets)), models


def labelled(seed=0):
    rows, _ = tasks(seed)
    return TaskLists(rows.features, [(y > np.median(y)).astype(float) for y in rows.targets])


def test_ridge_alone_is_scikit_learns_for_one_penalty():
    rows, _ = tasks()
    ours = alone_l2(rows, penalties=[0.3])
    for model, x, y in zip(ours, rows.features, rows.targets, strict=True):
        np.testing.assert_allclose(model, Ridge(0.3, fit_intercept=False).fit(x, y).coef_, rtol=1e-8)


def test_a_task_that_learns_alone_does_not_depend_on_the_others():
    rows, _ = tasks()
    for learn in (alone_l2, alone_l1):
        np.testing.assert_allclose(learn(rows.first(3)), learn(rows)[:3], rtol=1e-3, atol=1e-3)


def test_the_evidence_prefers_large_penalties_where_there_is_no_signal():
    rng = np.random.default_rng(3)
    features = [rng.standard_normal((40, 5)) for _ in range(6)]
    nothing = TaskLists(features, [rng.standard_normal(40) for _ in features])
    clear = TaskLists(features, [x @ np.ones(5) + 0.1 * rng.standard_normal(40) for x in features])
    assert np.abs(alone_l2(nothing)).mean() < 0.15
    np.testing.assert_allclose(alone_l2(clear), 1.0, atol=0.1)
    np.testing.assert_allclose(alone_common(clear), 1.0, atol=0.1)


def test_lasso_alone_is_scikit_learns_at_one_of_its_penalties():
    rows, _ = tasks()
    ours = alone_l1(rows, n_penalties=3)
    for model, x, y in zip(ours, rows.features, rows.targets, strict=True):
        largest = np.abs(x.T @ y).max()
        theirs = [
            Lasso(part * largest / len(y), fit_intercept=False, tol=1e-10, max_iter=100_000).fit(x, y).coef_
            for part in np.geomspace(0.5, 0.005, 3)
        ]
        assert min(np.abs(model - each).max() for each in theirs) < 2e-2


def test_logistic_regression_alone_is_scikit_learns():
    rows = labelled()
    ours = alone_l2(rows, "logistic", [0.5])
    for model, x, y in zip(ours, rows.features, rows.targets, strict=True):
        theirs = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(x, y).coef_[0]
        np.testing.assert_allclose(model, theirs, atol=2e-3)


def minimum_distance(prox, value, penalty):
    """Random points near what a proximal step returns are no better."""
    rng, point = np.random.default_rng(0), np.random.default_rng(1).standard_normal((7, 4))
    found = prox(point, penalty)

    def cost(models):
        return 0.5 * np.square(models - point).sum() + penalty * value(models)

    nearby = [cost(found + 10.0**-k * rng.standard_normal(point.shape)) for k in range(6) for _ in range(30)]
    return min(nearby) - cost(found)


@pytest.mark.parametrize("penalty", [0.1, 0.7, 3.0])
def test_every_proximal_step_minimises_its_penalty_plus_half_the_squared_distance(penalty):
    def trace(models):
        return np.linalg.norm(models, "nuc")

    assert minimum_distance(shrink_singular_values, trace, penalty) >= -1e-12
    assert minimum_distance(shrink_squared_trace, lambda w: trace(w) ** 2 / 2, penalty) >= -1e-12
    assert minimum_distance(shrink_features, lambda w: np.linalg.norm(w, axis=0).sum(), penalty) >= -1e-12


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_joint_learning_satisfies_the_conditions_of_the_trace_norm(loss):
    """At the minimum the gradient has spectral norm λ and opposes the singular vectors of the models."""
    rows = tasks()[0] if loss == "squared" else labelled()
    penalty = 0.2 * np.linalg.norm(JointObjective(rows, loss).gradient(np.zeros((12, 6))), 2)
    models = joint(rows, "trace norm", penalty, loss)
    slope = JointObjective(rows, loss).gradient(models)
    assert np.linalg.norm(slope, 2) == pytest.approx(penalty, rel=1e-3)
    assert -(slope * models).sum() == pytest.approx(penalty * np.linalg.norm(models, "nuc"), rel=1e-3)


def test_relations_are_the_best_for_their_models_and_make_the_squared_trace_norm():
    rng = np.random.default_rng(5)
    models = rng.standard_normal((4, 6))
    best = relations_of(models)
    assert np.trace(best) == pytest.approx(1.0)

    def cost(relations):
        return np.trace(models.T @ np.linalg.solve(relations, models))

    assert cost(best) == pytest.approx(np.linalg.norm(models, "nuc") ** 2, rel=1e-6)
    for _ in range(50):
        other = best + 0.02 * np.cov(rng.standard_normal((4, 20)))
        assert cost(other / np.trace(other)) >= cost(best) * (1 - 1e-9)


def test_joint_learning_with_a_chosen_penalty_is_better_than_alone_where_tasks_share_a_subspace():
    rows, models = tasks(n_tasks=60, n_rows=8)
    alone = np.square(alone_l2(rows) - models).mean()
    for structure in STRUCTURES[::2]:
        together = np.square(joint(rows, structure, chosen_penalty(rows, structure, n_penalties=8)) - models).mean()
        assert together < 0.7 * alone


def test_the_mean_of_models_is_released_by_a_session_with_sensitivity_k():
    models = np.random.default_rng(2).standard_normal((50, 4)) + 1
    found = aggregated(models, Budget(5.0, 1e-5), 10.0, SeededNoise(3))
    (release,) = found.statement.releases
    assert release.sensitivity == 10.0
    assert found.statement.spent_epsilon <= 5.0
    assert "number of tasks, declared as 50" in found.statement.to_text()
    assert (found.models == found.models[0]).all()
    np.testing.assert_allclose(found.models[0], models.mean(axis=0), atol=6 * release.stddev / 50)


def test_a_neighbouring_set_of_tasks_moves_the_sum_of_models_by_at_most_its_sensitivity():
    models = np.random.default_rng(4).standard_normal((9, 3))
    models[0] *= 50

    def fit(some, session):
        released = session.release("sum", model_total(Rows.clipped(some, 2.0)), session.plan(sum=1.0).one("sum"))
        return {"sum": released}

    arguments = {"budget": Budget(1.0, 1e-5), "noise": SeededNoise(0), "neighbours": ADD_REMOVE_TASK}
    assert 0.99 < audit_neighbour(fit, models, models[1:], arguments)["sum"] <= 1 + 1e-9


def test_group_forms_say_that_they_have_no_guarantee_and_need_more_noise_for_larger_tasks():
    small, large = tasks(n_rows=10)[0], tasks(n_rows=40)[0]
    for make in (
        lambda rows: aggregated_by_group(rows, Budget(1.0, 1e-5), 1.0, SeededNoise(1)),
        lambda rows: related_by_group(rows, Budget(1.0, 1e-5), 1.0, 0.1, 1, SeededNoise(1)),
    ):
        assert make(small).guarantee == NO_GUARANTEE
        assert make(small).statement is None
        assert np.isfinite(make(large).models).all()
    noiseless = [aggregated_by_group(small, Budget(1e9, 1e-5), 1.0, SeededNoise(k)).models for k in range(2)]
    np.testing.assert_allclose(noiseless[0], noiseless[1], atol=1e-6)
    np.testing.assert_allclose(
        noiseless[0][0], np.mean([Ridge(10.0, fit_intercept=False).fit(x, y).coef_ for x, y in zip(
            small.features, small.targets, strict=True)], axis=0), atol=1e-6
    )  # fmt: skip


def test_relations_without_noise_help_related_tasks_more_than_any_penalty_alone_does():
    rows, models = tasks(n_tasks=30, n_rows=6, rank=1)

    def error(penalty, relation, rounds):
        found = related_by_group(rows, Budget(1e9, 1e-5), penalty, relation, rounds, SeededNoise(0))
        return np.square(found.models - models).mean()

    alone = min(error(penalty, 1e-6, 1) for penalty in (0.001, 0.01, 0.03, 0.1))
    assert error(0.01, 0.1, 20) < 0.85 * alone


def test_noise_vectors_have_a_length_that_is_a_gamma_variable():
    """False-alarm rate 1e-9."""
    vectors = private_methods._long_vectors(4000, 5, SeededNoise(6))
    assert_distribution(np.linalg.norm(vectors, axis=1), stats.gamma(5).cdf)
    assert np.abs(vectors.mean(axis=0)).max() < 6.2 * np.sqrt(30 / 5 / 4000)


def test_rounds_of_pure_releases_compose_to_what_is_asked():
    assert private_methods._pure_per_round(0.5, np.log(1e-6), 1) == pytest.approx(0.5)
    assert private_methods._pure_per_round(0.01, np.log(1e-6), 4) == pytest.approx(0.0025)
    many = private_methods._pure_per_round(1.0, np.log(1e-3), 1000)
    assert 1 / 1000 < many < 1.0
    spent = 1000 * np.expm1(many) * many / (np.exp(many) + 1) + many * np.sqrt(2000 * np.log(1e3))
    assert spent == pytest.approx(1.0, rel=1e-6)


def test_input_that_makes_no_sense_is_refused_in_one_sentence():
    with pytest.raises(InputError, match="as many arrays of features"):
        TaskLists([np.zeros((2, 3))], [])
    with pytest.raises(InputError, match="same features in every task"):
        TaskLists([np.zeros((2, 3)), np.zeros((2, 4))], [np.zeros(2)] * 2)
    rows, _ = tasks(n_tasks=2)
    with pytest.raises(InputError, match="Expected a structure of"):
        joint(rows, "other", 1.0)
    with pytest.raises(InputError, match="Expected a loss of"):
        JointObjective(rows, "hinge")

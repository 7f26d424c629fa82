"""A party's own model in which a few features may stand out: against sums over all sets of features, and in use."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from apportion.parties import few_features as module
from apportion.parties.choice import averaged, learned_alone
from apportion.parties.few_features import few_features
from apportion.parties.posterior import SquaredLocal
from apportion.parties.tasks import rows_of_lists


def exactly(x, y):
    """Posterior mean and log evidence by a sum over all sets of features that stand out, for every pair of r and g."""
    n, dimension = x.shape
    share = min(module._SHARE, module._COUNT / dimension)
    unit = np.square(x).sum() / n
    sets = [np.array(bits, float) for bits in itertools.product((0, 1), repeat=dimension)]
    means, logs = [], []
    for dense, sparse in itertools.product(module._DENSE / unit, module._SPARSE / (share * unit)):
        covariances = [dense * np.eye(dimension) + sparse * np.diag(bits) for bits in sets]
        chances = np.array([bits.sum() * np.log(share) + (1 - bits).sum() * np.log(1 - share) for bits in sets])

        def of_sets(log_variance, covariances=covariances, chances=chances):
            densities = [
                multivariate_normal(cov=np.exp(log_variance) * (np.eye(n) + x @ c @ x.T)).logpdf(y) for c in covariances
            ]
            return chances + np.array(densities)

        found = minimize_scalar(lambda v: -np.logaddexp.reduce(of_sets(v)), bounds=(-25, 5), method="bounded")
        at = of_sets(found.x)
        logs.append(np.logaddexp.reduce(at))
        by_set = [c @ x.T @ np.linalg.solve(np.eye(n) + x @ c @ x.T, y) for c in covariances]
        means.append(np.exp(at - logs[-1]) @ np.array(by_set))
    weights = np.exp(logs - max(logs))
    constant = n / 2 * (np.log(2 * np.pi) - np.log(n) + 1)
    return (weights / weights.sum()) @ np.array(means), max(logs) + np.log(weights.mean()) + constant


def computed(x, y):
    local = SquaredLocal(rows_of_lists([x], [y]))
    (block,) = local.blocks
    mean, evidence, early = few_features(block, block.rows @ block.rows.transpose(0, 2, 1))
    return mean[0] * block.units[0], evidence[0], early[0]


def task(seed, n_rows=12, dimension=4, noise=0.3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, dimension))
    x /= np.abs(x).max()
    y = x @ np.where(np.arange(dimension) < 1, 3.0, 0.1) + noise * rng.standard_normal(n_rows)
    return x, y / np.abs(y).max()


def test_with_features_at_right_angles_it_is_the_sum_over_all_sets():
    x, _ = task(1)
    x = np.linalg.qr(x)[0]
    x /= np.abs(x).max()
    y = x @ [2.0, 0.5, -0.3, 0.0] + 0.5 * np.random.default_rng(2).standard_normal(12)
    y /= np.abs(y).max()
    mean, evidence, _ = computed(x, y)
    exact_mean, exact_evidence = exactly(x, y)
    assert evidence == pytest.approx(exact_evidence, abs=1e-3)
    assert mean == pytest.approx(exact_mean, abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_rows", [3, 12])
def test_its_evidence_is_a_bound_from_below_and_close(seed, n_rows):
    """The mean is close too where there are more rows than features; with fewer, entries are far from independent."""
    x, y = task(seed, n_rows)
    mean, evidence, _ = computed(x, y)
    exact_mean, exact_evidence = exactly(x, y)
    assert exact_evidence - 1.5 < evidence <= exact_evidence + 1e-6
    if n_rows > x.shape[1]:
        assert np.linalg.norm(mean - exact_mean) < 0.1 * np.linalg.norm(exact_mean)


def many(seed, n_tasks, n_rows, dimension, count):
    """Tasks of which each has so many features of its own that matter, and their true models."""
    rng = np.random.default_rng(seed)
    models = np.zeros((n_tasks, dimension))
    for model in models:
        model[rng.choice(dimension, count, replace=False)] = 3 * rng.choice([-1.0, 1.0], count)
    features = [rng.standard_normal((n_rows, dimension)) for _ in models]
    return features, [x @ w + rng.standard_normal(n_rows) for x, w in zip(features, models, strict=True)], models


@pytest.mark.parametrize("dimension", [20, 100])
def test_it_finds_few_features_and_learning_alone_takes_them_up(dimension):
    features, labels, models = many(3, 40, 30, dimension, 3)
    local = SquaredLocal(rows_of_lists(features, labels))
    isotropic = np.square(local.learn(None).mean - models).sum()
    assert np.square(learned_alone(local).mean - models).sum() < 0.3 * isotropic


def test_where_all_features_matter_little_is_lost():
    rng = np.random.default_rng(4)
    models = rng.standard_normal((100, 15))
    features = [rng.standard_normal((20, 15)) for _ in models]
    labels = [x @ w + rng.standard_normal(20) for x, w in zip(features, models, strict=True)]
    local = SquaredLocal(rows_of_lists(features, labels))
    own = local.learn(None)
    errors = [np.square(one.mean - models).sum() for one in (own, averaged([own, local.few()]))]
    assert errors[1] < 1.05 * errors[0]


@pytest.mark.parametrize("dimension", [6, 50])
def test_no_party_depends_on_who_else_takes_part_to_the_last_bit(dimension):
    features, labels, _ = many(5, 25, 14, dimension, 2)
    together = learned_alone(SquaredLocal(rows_of_lists(features, labels)))
    for task_number in (0, 11, 24):
        alone = learned_alone(SquaredLocal(rows_of_lists([features[task_number]], [labels[task_number]])))
        for name in ("mean", "evidence", "early"):
            assert np.array_equal(getattr(together, name)[task_number], getattr(alone, name)[0])


def test_the_part_is_the_same_model_of_a_power_of_the_likelihood():
    """Twice the rows, each half as likely, say the same as the rows by themselves."""
    x, y = task(7)
    _, evidence, early = computed(x, y)
    _, _, of_twice = computed(np.concatenate([x, x]), np.concatenate([y, y]))
    assert module.EARLY == 0.5
    assert of_twice == pytest.approx(evidence, abs=1e-6)
    assert early != pytest.approx(evidence, abs=0.1)

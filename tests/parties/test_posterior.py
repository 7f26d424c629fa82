"""What one party learns from its own rows: against other code, and without looking at anybody else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression

from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError
from apportion.parties import Answer, Common
from apportion.parties.choice import averaged, chance_for_each, lead_of_joint, learned_alone, weight_of_own
from apportion.parties.few_features import EARLY
from apportion.parties.grids import NEAR, RATIOS, Centre
from apportion.parties.parties import BayesParties, ProximalParties, Sending, _centre, _deviations, _learned_jointly
from apportion.parties.posterior import LogisticLocal, Prior, SquaredLocal, _laplace
from apportion.parties.tasks import TaskRows, rows_of_lists

from party_cases import low_rank_tasks


def _tasks(features, labels):
    return rows_of_lists(features, labels)


def _prior(dimension, level=0.3):
    return Prior(np.random.default_rng(0).standard_normal((dimension, 3)), level)


def _covariance(prior):
    return prior.directions @ prior.directions.T + prior.level * np.eye(len(prior.directions))


def _by_hand(x, y, covariance):
    """Posterior mean and log evidence over the grid of ratios, by dense Gaussian densities."""
    x = x / np.abs(x).max()
    scale = np.abs(y).max()
    y = y / scale
    kernel = x @ covariance @ x.T
    ratios = RATIOS / (np.trace(kernel) / len(y))
    means, logs = [], []
    for ratio, explained in zip(ratios, RATIOS / (1 + RATIOS), strict=True):
        whole = np.eye(len(y)) + ratio * kernel
        variance = float(y @ np.linalg.solve(whole, y)) / len(y)
        chance = np.log(explained) + 0.5 * np.log(1 - explained)  # Beta(1, ½), on a grid even in log r
        logs.append(multivariate_normal(cov=variance * whole).logpdf(y) + chance)
        means.append(ratio * covariance @ x.T @ np.linalg.solve(whole, y))
    weights = np.exp(np.array(logs) - max(logs))
    return (weights / weights.sum()) @ np.array(means) * scale, np.log(weights.sum()) + max(logs), weights


@pytest.mark.parametrize("n_rows", [3, 8, 30])
def test_posterior_mean_and_evidence_are_those_of_dense_gaussian_densities(n_rows):
    rng = np.random.default_rng(n_rows)
    x, y = rng.standard_normal((n_rows, 8)) * 5, rng.standard_normal(n_rows) * 100
    prior = _prior(8)
    local = SquaredLocal(_tasks([x], [y]))
    learned, alone = local.learn(prior), local.learn(None)
    mean, evidence, _ = _by_hand(x, y, _covariance(prior))
    own_mean, own_evidence, _ = _by_hand(x, y, np.eye(8))
    assert learned.mean[0] * np.abs(x).max() == pytest.approx(mean, rel=1e-6)
    assert alone.mean[0] * np.abs(x).max() == pytest.approx(own_mean, rel=1e-6)
    assert learned.evidence[0] - alone.evidence[0] == pytest.approx(evidence - own_evidence, abs=1e-6)


def _about_by_hand(x, y, covariance, centre, spread, deviation):
    """Posterior mean under N(f c, r v Ω) over the grids of f and r, by dense Gaussian densities."""
    kernel = x @ covariance @ x.T
    ratios = NEAR / (np.trace(kernel) / len(y))
    means, logs = [], []
    for step in (-1.5, -0.75, 0.0, 0.75, 1.5):
        factor, chance = np.exp(0.3 * step), np.exp(-(step**2) / 2)
        left = y - factor * x @ centre
        for ratio, relative in zip(ratios, NEAR, strict=True):
            whole = np.eye(len(y)) + ratio * kernel
            variance = float(left @ np.linalg.solve(whole, left)) / len(y)
            before = np.log(chance) - 0.5 * (np.log(relative / spread) / deviation) ** 2
            logs.append(multivariate_normal(cov=variance * whole).logpdf(left) + before)
            means.append(factor * centre + ratio * covariance @ x.T @ np.linalg.solve(whole, left))
    weights = np.exp(np.array(logs) - max(logs))
    return (weights / weights.sum()) @ np.array(means)


@pytest.mark.parametrize("n_rows", [4, 30])
def test_the_posterior_mean_about_a_centre_is_that_of_dense_gaussian_densities(n_rows):
    rng = np.random.default_rng(n_rows)
    x, prior = rng.standard_normal((n_rows, 8)), _prior(8)
    centre = rng.standard_normal(8)
    y = x @ (1.2 * centre + 0.3 * rng.standard_normal(8)) + rng.standard_normal(n_rows)
    for given, covariance in ((prior, _covariance(prior)), (None, np.eye(8))):
        learned = SquaredLocal(_tasks([x], [y])).learn(given, Centre(centre[None], 0.2, 1.1, 0.3))
        assert learned.mean[0] == pytest.approx(_about_by_hand(x, y, covariance, centre, 0.2, 1.1), rel=1e-6)


def test_labels_of_two_classes_pull_a_model_away_from_the_centre_only_as_far_as_they_say():
    rng = np.random.default_rng(4)
    centre, x = np.array([2.0, -1.0, 0.5]), rng.standard_normal((3, 200, 3))
    y = np.stack([(rows @ centre + rng.logistic(size=200) > 0) for rows in x]).astype(float)
    y[2] = 1 - y[2]  # the opposite of what all others say
    sizes = (4, 4, 200)
    local = LogisticLocal(_tasks([rows[:n] for rows, n in zip(x, sizes, strict=True)],
                                 [column[:n] for column, n in zip(y, sizes, strict=True)]))  # fmt: skip
    models = local.learn(None, Centre(np.tile(centre, (3, 1)), 0.05, 1.2, 0.3)).mean
    near = [np.linalg.norm(w - centre) / np.linalg.norm(centre) for w in models]
    assert max(near[:2]) < 0.5 < 1.0 < near[2]


def test_parties_that_learn_with_few_features_compare_on_rows_that_they_leave_out():
    """Their evidence is a bound. Here it favours the joint model, and rows left out favour learning alone."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((40, 30, 12))
    y = 5 * x[:, :, 0] + 0.3 * rng.standard_normal((40, 30))
    local = SquaredLocal(_tasks(list(x), list(y)))
    alone = learned_alone(local)
    assert (alone.few > 0.5).all()
    lead = lead_of_joint(local, alone, local.learn(None), lambda other: other.learn(None))
    assert (lead < 0).mean() > 0.9
    better = lead_of_joint(local, alone, alone, learned_alone)
    assert better == pytest.approx(np.zeros(40))


def test_where_few_features_stand_out_a_party_begins_with_even_odds():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6, 30, 12))
    models = np.concatenate([5 * np.eye(12)[:3], rng.standard_normal((3, 12))])
    y = np.einsum("mnd,md->mn", x, models) + 0.3 * rng.standard_normal((6, 30))
    alone = learned_alone(SquaredLocal(_tasks(list(x), list(y))))
    assert chance_for_each(alone, 0.1).tolist() == [0.5, 0.5, 0.5, 0.1, 0.1, 0.1]
    assert chance_for_each(alone, 0.7).tolist() == [0.7] * 6


def test_rows_without_their_means_are_one_fewer_even_if_their_party_took_them_away():
    """Two such rows are one: to fit them exactly shows nothing."""
    rng = np.random.default_rng(3)
    given = _tasks([rng.standard_normal((n, 3)) for n in (2, 5, 9)], [rng.standard_normal(n) for n in (2, 5, 9)])
    known, _, _ = given.centred()
    found = SquaredLocal(TaskRows(known.ids, known.features, known.labels, known.indptr))
    for learn in (lambda local: local.learn(_prior(3)), learned_alone):
        assert np.array_equal(learn(found).mean, learn(SquaredLocal(known)).mean)
        assert not np.array_equal(learn(found).mean, learn(SquaredLocal(given)).mean)
    assert [block.sizes.tolist() for block in found.blocks] == [[1.0, 4.0, 8.0]]
    assert [block.sizes.tolist() for block in SquaredLocal(given).blocks] == [[2.0, 5.0, 9.0]]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_length_of_the_common_model_is_measured_along_its_direction(loss):
    """Features of other variances, or none, must not change how long a model is that explains half of the labels."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((200, 40, 4)) * [2.0, 0.5, 0.0, 0.0]
    direction = np.array([1.0, 0.0, 0.0, 0.0])
    y = x @ direction + 2.0 * rng.standard_normal((200, 40))  # variances 4 and 4
    local = SquaredLocal(_tasks(list(x), list(y)))
    if loss == "logistic":
        local = LogisticLocal(_tasks(list(x), list(np.sign(y))))
    found = np.median(np.linalg.norm(_centre(local, Common(direction, 1.0, np.sqrt(0.5), 0.0, 0.0)).models, axis=1))
    expected = 1.0 if loss == "squared" else 0.5  # of labels' variance 8, and of scores of variance 1
    assert found == pytest.approx(expected, rel=0.1)
    assert np.median(local.lengths(np.sqrt(0.5))) > 1.3 * expected


def test_a_mean_in_doubt_weighs_less():
    features, labels = low_rank_tasks(8, n_tasks=10)
    local = SquaredLocal(_tasks(features, labels))
    shared = _covariance(_prior(6))

    def learned(common):
        return _learned_jointly(local, Answer(shared, common)).mean

    without = learned(None)
    apart = [np.abs(learned(Common(np.full(6, 0.3), 0.4, 0.6, 0.02, doubt)) - without).max() for doubt in (0, 2, 300)]
    assert apart[0] > apart[1] > apart[2]
    assert apart[2] == pytest.approx(0.0, abs=1e-9)


def _early_by_hand(x, y, covariance):
    """Log evidence of the likelihood to the power EARLY, at its best variance found by search."""
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    kernel, n = x @ covariance @ x.T, len(y)
    logs = []
    for ratio, explained in zip(RATIOS / (np.trace(kernel) / n), RATIOS / (1 + RATIOS), strict=True):

        def lost(log_variance, ratio=ratio):
            v = np.exp(log_variance)
            power = 0.5 * n * np.log(2 * np.pi * v / EARLY) - 0.5 * EARLY * n * np.log(2 * np.pi * v)
            return -power - multivariate_normal(cov=v / EARLY * np.eye(n) + v * ratio * kernel).logpdf(y)

        best = minimize_scalar(lost, bounds=(-25, 5), method="bounded", options={"xatol": 1e-9})
        logs.append(-best.fun + np.log(explained) + 0.5 * np.log(1 - explained))
    return np.logaddexp.reduce(logs)


def test_the_evidence_of_a_part_is_that_of_a_power_of_the_likelihood():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((9, 5)) * 5, rng.standard_normal(9) * 100
    prior, local = _prior(5), SquaredLocal(_tasks([x], [y]))
    lead = local.learn(prior).early[0] - local.learn(None).early[0]
    assert lead == pytest.approx(_early_by_hand(x, y, _covariance(prior)) - _early_by_hand(x, y, np.eye(5)), abs=1e-5)


def test_a_model_in_the_units_of_the_data_follows_them():
    features, labels = low_rank_tasks(0)
    plain = SquaredLocal(_tasks(features, labels)).learn(None).mean
    scaled = SquaredLocal(_tasks([8 * x for x in features], [64 * y for y in labels])).learn(None).mean
    assert scaled == pytest.approx(8 * plain, rel=1e-9)


def test_the_mode_of_a_logistic_posterior_is_that_of_scikit_learn():
    features, labels = low_rank_tasks(2, n_tasks=6, n_rows=30, logistic=True)
    local = LogisticLocal(_tasks(features, labels))
    for block in local.blocks:
        start = None
        for ratio in (0.2, 2.0):
            start = _laplace(block.rows, block, np.full(len(block.tasks), ratio), start)[0]
        found = start * block.units[:, None]
        for at, task in enumerate(block.tasks):
            if len(set(labels[task])) < 2:
                continue
            scale = np.abs(features[task]).max()
            theirs = LogisticRegression(C=2.0 / scale**2, fit_intercept=False, tol=1e-10, max_iter=1000)
            assert found[at] == pytest.approx(theirs.fit(features[task], labels[task]).coef_[0], rel=1e-4, abs=1e-6)


def test_slopes_are_those_of_the_loss():
    features, labels = low_rank_tasks(3, n_tasks=4)
    for local in (
        SquaredLocal(_tasks(features, labels)),
        LogisticLocal(_tasks(features, [np.sign(y) for y in labels])),
    ):
        for block in local.blocks:
            models = np.random.default_rng(0).standard_normal((len(block.tasks), 6))
            scores = np.einsum("mkd,md->mk", block.rows, models)
            if isinstance(local, SquaredLocal):
                direct = np.einsum("mkd,mk->md", block.rows, scores - block.labels)
            else:
                pull = -block.labels / (1 + np.exp(block.labels * scores)) * block.present
                direct = np.einsum("mkd,mk->md", block.rows, pull)
            assert np.allclose(local.gradient(block, models), direct)


def test_the_factor_of_a_posterior_covariance_is_right():
    rng = np.random.default_rng(4)
    local = SquaredLocal(_tasks([rng.standard_normal((5, 7))], [rng.standard_normal(5)]))
    (block,) = local.blocks
    ratio = np.array([0.8])
    factor = _deviations(block, ratio)[0]
    rows, y = block.rows[0], block.labels[0]
    whole = np.eye(len(rows)) + 0.8 * rows @ rows.T
    variance = float(y @ np.linalg.solve(whole, y)) / 5
    direct = variance * np.linalg.inv(np.eye(7) / 0.8 + rows.T @ rows)
    assert np.allclose(factor.T @ factor, direct)


@pytest.mark.parametrize("kind", ["squared", "logistic", "proximal"])
def test_no_party_depends_on_who_else_takes_part_to_the_last_bit(kind):
    features, labels = low_rank_tasks(5, n_tasks=5, n_rows=20, logistic=kind == "logistic")
    answer = Answer(_covariance(_prior(6)), Common(np.linspace(-0.3, 0.4, 6), 0.4, 0.6, 0.02, 0.9))

    def learned(chosen):
        data = _tasks([features[i] for i in chosen], [labels[i] for i in chosen])
        local = LogisticLocal(data) if kind == "logistic" else SquaredLocal(data)
        parties = BayesParties(local, Sending(None))
        if kind == "proximal":
            parties = ProximalParties(local, Sending(None), accelerated=True, condition=None, sparse_penalty=0.3)
        for _ in range(3):
            parties.receive(answer)
        return parties.models(), parties.alone(), parties.own_weight()

    together = learned(range(5))
    for task in (0, 3, 4):
        by_itself = learned([task])
        for whole, one in zip(together, by_itself, strict=True):
            assert np.array_equal(whole[task], one[0])


def test_extreme_and_empty_tasks_harm_nobody():
    features, labels = low_rank_tasks(6, n_tasks=4)
    features += [np.full((3, 6), 1e300), np.zeros((4, 6)), np.zeros((0, 6)), 1e-300 * np.ones((2, 6))]
    labels += [np.array([1e300, -1e300, 0.0]), np.ones(4), np.zeros(0), np.zeros(2)]
    indptr = np.concatenate([[0], np.cumsum([len(y) for y in labels])])
    data = TaskRows(Vocabulary.of_range(8), np.concatenate(features), np.concatenate(labels), indptr)
    for learn in (lambda local: local.learn(_prior(6)), learned_alone):
        learned = learn(SquaredLocal(data))
        for numbers in (learned.mean, learned.evidence, learned.early):
            assert np.isfinite(numbers).all()
        assert not learned.mean[5:].any()
        usual = learn(SquaredLocal(_tasks(features[:4], labels[:4]))).mean
        assert np.array_equal(learned.mean[:4], usual)


def test_the_average_over_priors_goes_to_the_one_that_the_rows_bear_out():
    rng = np.random.default_rng(7)
    direction = np.eye(6)[0]
    x = rng.standard_normal((25, 6))
    y = 5 * x[:, 0] + 0.3 * rng.standard_normal(25)
    local = SquaredLocal(_tasks([x], [y]))
    right = local.learn(Prior(direction[:, None], 0.01))
    wrong = local.learn(Prior(np.eye(6)[:, 1:], 0.01))
    mixed = averaged([wrong, right])
    assert mixed.mean[0] == pytest.approx(right.mean[0], abs=0.1)
    assert mixed.evidence[0] == pytest.approx(right.evidence[0] - np.log(2), abs=0.01)


def test_a_party_goes_with_the_way_that_foretells_its_rows_by_now():
    """A prior that knows the direction, against one that has it wrong: of little weight once rows are many."""
    rng = np.random.default_rng(8)
    leads = []
    for n_rows in (6, 12, 200):
        x = rng.standard_normal((n_rows, 6))
        local = SquaredLocal(_tasks([x], [5 * x[:, 0] + 0.3 * rng.standard_normal(n_rows)]))
        right = local.learn(Prior(np.eye(6)[:, :1], 0.01))
        wrong = local.learn(Prior(np.eye(6)[:, 1:], 0.01))
        assert weight_of_own(right, right, 0.2)[0] == pytest.approx(0.2)
        assert weight_of_own(right, wrong, 0.5)[0] == pytest.approx(1 - weight_of_own(wrong, right, 0.5)[0])
        leads.append(weight_of_own(right, wrong, 0.5)[0])
    assert leads[0] > 0.9
    assert leads[1] > 0.6
    assert 0.5 <= leads[2] < 0.9


def test_labels_of_three_classes_are_refused():
    with pytest.raises(InputError, match="got 2 in row 3"):
        LogisticLocal(_tasks([np.ones((3, 2))], [np.array([0.0, 1.0, 2.0])]))


def test_the_factor_of_a_prior_is_its_root():
    prior = _prior(7)
    assert np.allclose(prior.factor @ prior.factor.T, _covariance(prior))

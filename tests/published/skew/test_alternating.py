"""Alternating minimisation: its parts compute what they say, learn where privacy is cheap, and refuse nonsense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from apportion.allocation import (
    Adaptive,
    ClosedForm,
    EqualSplit,
    Expected,
    ReleasedCounts,
    SplitEqually,
    TailSample,
    UniformSample,
)
from apportion.allocation.weightings import TimesFactors
from apportion.data.synthetic import long_tailed_clicks, long_tailed_ratings
from apportion.engines import LocalEngine, Processors
from apportion.errors import InputError
from apportion.evaluation import GlobalMean, recall_at_k, rmse
from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.skew import AlternatingMinimisation, GradientDescent, SufficientStatistics
from held_values import plainly, round_of, values_of

from strategies import random_interactions

ALLOCATIONS = [EqualSplit(), UniformSample(30), TailSample(30), Adaptive(0.25), ClosedForm(0.5)]
UPDATES = [SufficientStatistics(label_bound=2.0), GradientDescent(steps=8, step=3.0, clip=2.0)]


@pytest.fixture(scope="module")
def ratings():
    data, _ = long_tailed_ratings(2000, 60, 60_000, rank=2, rng=np.random.default_rng(0))
    return data.split_by_value(np.random.default_rng(0), (0.9, 0.1))


@pytest.fixture(scope="module")
def clicks():
    rng = np.random.default_rng(0)
    data, _ = long_tailed_clicks(2000, 200, 40_000, rank=3, rng=rng, taste_strength=3.0)
    return data.split_by_users(np.random.default_rng(0), n_validation=10, n_test=400)


@pytest.mark.parametrize("policy", ALLOCATIONS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("update", UPDATES, ids=lambda u: type(u).__name__)
def test_ratings_are_predicted_far_better_than_by_the_mean_where_privacy_is_cheap(ratings, update, policy):
    train, test = ratings
    estimator = AlternatingMinimisation(
        300.0, 1e-5, update=update, allocation=policy, dimension=3, rounds=5, user_norm=3.0, noise=SeededNoise(0)
    )
    found = rmse(estimator.fit(train).model_.predict(train, test), test).overall
    plain = rmse(GlobalMean().fit(train).predict(train, test), test).overall
    assert found < 0.9 * plain


@pytest.mark.parametrize("update", [SufficientStatistics(), GradientDescent(steps=6, step=3.0)], ids=["ssp", "gd"])
def test_clicks_are_found_far_better_than_by_chance_where_privacy_is_cheap(clicks, update):
    estimator = AlternatingMinimisation(
        300.0, 1e-5, kind="clicks", update=update, dimension=8, rounds=5, user_norm=1.0, noise=SeededNoise(0)
    )
    model = estimator.fit(clicks.train).model_
    assert recall_at_k(model, clicks.test.history, clicks.test.target, k=20).overall > 0.3  # chance: 0.1


def some_round(seed=0, unobserved=0.0):
    data = random_interactions(seed, n_users=40)
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((data.n_users, 2))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)
    labels = (data.values - 3).astype(float)
    flat = Expected(np.full(data.n_tasks, 5.0), np.full(data.n_tasks, 0.3))
    items = rng.standard_normal((data.n_tasks, 2)) * 0.2
    return round_of(data, vectors, labels, flat, items, unobserved=unobserved)


def almost_noiseless(update, about):
    session = Session(Budget(1e12, 1e-5), noise=SeededNoise(0))
    clicks = about.unobserved > 0
    parts = update.shares(clicks=clicks)
    shares = session.plan(parts=list(parts.values())).several("parts")
    return update(about, session, LocalEngine(np.float64), dict(zip(parts, shares, strict=True)))


@pytest.mark.parametrize("unobserved", [0.0, 0.2])
def test_without_noise_sufficient_statistics_solve_every_items_regression(unobserved):
    about = some_round(unobserved=unobserved)
    found = almost_noiseless(SufficientStatistics(label_bound=2.0, ridge=0.5), about)
    seen = plainly(about)
    weights, users, tasks = seen.weights, seen.users, seen.tasks
    every = seen.vectors[np.unique(users)]
    stddev = 1 / (Budget(1e12, 1e-5).mu * np.sqrt(0.49 if unobserved else 0.5))
    for task in range(seen.n_tasks):
        x, w, y = seen.vectors[users[tasks == task]], weights[tasks == task], seen.labels[tasks == task]
        gram = (x.T * w) @ x + unobserved * 0.3 * every.T @ every + 0.5 * stddev * np.eye(2)
        if len(y) < 3:
            continue
        np.testing.assert_allclose(found[task], np.linalg.solve(gram, x.T @ (w * y)), rtol=2e-2, atol=2e-3)


def test_without_noise_one_gradient_step_descends_the_weighted_loss():
    about = some_round(1, unobserved=0.2)
    update = GradientDescent(steps=1, clip=5.0, step=1e-3, ridge=0.0)
    moved = almost_noiseless(update, about) - about.items
    seen = plainly(about)
    weights, users, tasks = seen.weights, seen.users, seen.tasks
    every = seen.vectors[np.unique(users)]

    def loss(items):
        errors = (seen.vectors[users] * items[tasks]).sum(axis=1) - seen.labels
        return 0.5 * (weights * errors**2).sum() + 0.5 * 0.2 * 0.3 * np.square(every @ items.T).sum()

    numeric = np.zeros_like(about.items)
    for at in np.ndindex(*about.items.shape):
        step = np.zeros_like(about.items)
        step[at] = 1e-6
        numeric[at] = (loss(about.items + step) - loss(about.items - step)) / 2e-6
    sizes = -moved / numeric
    np.testing.assert_allclose(sizes, np.broadcast_to(sizes.mean(), sizes.shape), rtol=1e-3)
    assert sizes.mean() > 0


def test_a_users_gradient_is_clipped_as_a_whole_and_small_ones_are_left_alone():
    about = some_round(2)
    seen, residuals = plainly(about), about.residuals(about.items)
    factors = residuals(about.users)
    by_hand = seen.labels - (seen.vectors[seen.users] * about.items[seen.tasks]).sum(axis=1)
    np.testing.assert_allclose(factors, by_hand, rtol=1e-12)
    kept, cut = (TimesFactors(about.weights, residuals, clip).of(about.users)._values * clip for clip in (100.0, 0.5))
    np.testing.assert_allclose(kept, seen.weights * factors, rtol=1e-5)
    norms = np.sqrt(np.bincount(seen.users, cut**2))
    full = np.sqrt(np.bincount(seen.users, (seen.weights * factors) ** 2))
    np.testing.assert_allclose(norms, np.minimum(full, 0.5), rtol=1e-5)


def test_even_steps_are_those_of_the_root_mean_square_task_and_others_are_each_tasks_own():
    about = some_round(3)
    rising = np.arange(1.0, about.users.n_tasks + 1)
    uneven = replace(about, expected=Expected(rising, about.expected.typical))
    even, own = (almost_noiseless(GradientDescent(steps=1, even=flag), uneven) - about.items for flag in (True, False))
    factors = np.sqrt(np.square(rising).mean()) / rising
    np.testing.assert_allclose(own, even * factors[:, None], rtol=1e-4, atol=1e-6)


def test_a_balanced_objective_weighs_rare_tasks_more_and_needs_counts(ratings):
    train, _ = ratings
    common = {"dimension": 2, "rounds": 1, "noise": SeededNoise(0)}
    model = AlternatingMinimisation(50.0, balanced=True, **common).fit(train).model_
    trust, counts = model.fold_in.observation_weights, train.by_task.counts
    assert np.corrcoef(np.log(trust), np.log(counts + 1.0))[0, 1] < -0.95
    with pytest.raises(InputError, match="balanced objective needs an allocation that releases counts"):
        AlternatingMinimisation(50.0, balanced=True, allocation=EqualSplit(), **common).fit(train)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "songs"}, "'ratings' or 'clicks', got 'songs'"),
        ({"rounds": 0}, "rounds of at least 1, got 0"),
        ({"user_norm": 0.0}, "user_norm > 0, got 0"),
        ({"kind": "clicks", "unobserved": 0.0}, "unobserved > 0 for clicks, got 0"),
        ({"value_range": (5.0, 1.0)}, "low < high"),
        ({"value_range": (0.0, 1e-46)}, "at least 1e-12 wide"),
        ({"counts_share": 1.2}, "leave something for the rounds"),
        ({"update": GradientDescent(steps=0)}, "at least 1 gradient step per round, got 0"),
        ({"update": SufficientStatistics(gram_share=1.0)}, "gram_share strictly between 0 and 1, got 1"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(InputError, match=message):
        AlternatingMinimisation(**arguments).fit(random_interactions(0))


def test_expected_weights_are_near_the_true_ones_on_long_tailed_data(ratings):
    train, _ = ratings
    exact = np.bincount(train.tasks, values_of(SplitEqually(), train), minlength=train.n_tasks).astype(float)
    counts = ReleasedCounts(exact, 0.0, float(train.n_users))
    for policy in (Adaptive(0.25), Adaptive(0.5), ClosedForm(0.5)):
        weights = values_of(policy.weights(train.n_tasks, lambda _: counts), train).astype(float)
        expected = policy.expected([counts], train.n_users, train.n_tasks)
        total = np.bincount(train.tasks, weights, minlength=train.n_tasks)
        typical = total / train.by_task.counts
        assert np.median(np.abs(np.log(expected.total / total))) < 0.25, policy
        assert np.median(np.abs(np.log(expected.typical / typical))) < 0.3, policy


class CountingKernels(Processors):
    """Counts whose regressions are solved."""

    def solve_users(self, users, *given, **settings):
        self.solved = getattr(self, "solved", 0) + users.n_users
        return super().solve_users(users, *given, **settings)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_users_solve_their_regressions_once_a_round_however_many_steps_it_has(runs, sampling):
    data = random_interactions(4, n_users=30)
    engine = LocalEngine(np.float64, chunk=17, runs=runs)
    engine.kernels = CountingKernels(np.float64, rows_at_once=17, exact=engine.exact)
    update = GradientDescent(clip=0.3, steps=9, sampling=sampling)
    AlternatingMinimisation(3.0, 1e-5, update=update, rounds=2, engine=engine, noise=SeededNoise(0)).fit(data)
    assert engine.kernels.solved == 2 * data.n_users

"""The head of the items, by released popularity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rounds import some_round

from apportion.allocation import Expected, SplitEqually
from apportion.allocation.weightings import OnTasks, TimesFactors
from apportion.engines import LocalEngine
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.published.public_features.head import head_by_popularity, on_head
from apportion.published.public_features.ssp import EncoderStatistics
from apportion.published.public_features.training import Training
from held_values import plainly, values_of

from encoder_cases import estimator, feature_driven_ratings, two_layers
from strategies import random_interactions

FEW = Training(epochs=2, batch_size=None)


def half_of_it():
    """Weights whose squares add up to a quarter."""
    return TimesFactors(SplitEqually(), lambda users: np.full(users.n_rows, 0.5), 1.0)


def test_the_head_holds_the_most_popular_items_and_at_least_one():
    popularity = np.array([3.0, 9.5, -0.2, 4.1, 4.1])
    assert head_by_popularity(popularity, 0.4).tolist() == [False, True, False, True, False]
    assert head_by_popularity(popularity, 0.01).tolist() == [False, True, False, False, False]
    assert head_by_popularity(popularity, 1.0).all()


@pytest.mark.parametrize("fraction", [0.0, 1.5, float("nan")])
def test_a_fraction_that_makes_no_sense_is_refused(fraction):
    with pytest.raises(InputError, match="fraction of items"):
        head_by_popularity(np.ones(3), fraction)


@pytest.mark.parametrize("policy", [SplitEqually, half_of_it], ids=["all of the unit", "half of it"])
def test_users_weight_moves_to_the_head_and_its_squares_add_up_to_what_they_did(policy):
    data = random_interactions(5, n_users=40)
    head = np.arange(9) % 3 == 0
    weights = policy()
    moved = OnTasks(weights, head, "the head")
    before, after = (values_of(made, data).astype(float) for made in (weights, moved))
    assert not after[~head[data.tasks]].any()
    has_some = np.bincount(data.users, head[data.tasks]) > 0
    sums = [np.bincount(data.users, np.square(held)) for held in (before, after)]
    np.testing.assert_allclose(sums[1], np.where(has_some, sums[0], 0), rtol=1e-5)
    of_first = data.users == np.flatnonzero(has_some)[0]
    chosen = of_first & head[data.tasks]
    ratio = after[chosen] / before[chosen]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)  # divided over the head as before
    assert moved.description.endswith(", on the head alone")


def test_a_round_on_the_head_expects_more_of_the_head_and_nothing_of_the_tail():
    about = some_round(n_users=400, seed=1)
    seen = plainly(about)
    counts = np.bincount(seen.tasks, seen.weights, minlength=9)
    about = replace(about, expected=Expected(counts, np.full(9, float(np.mean(seen.weights)))))
    moved, head = on_head(about, 0.4)
    assert head.tolist() == head_by_popularity(counts, 0.4).tolist()
    truly = np.bincount(seen.tasks, plainly(moved).weights, minlength=9)
    np.testing.assert_allclose(moved.expected.total[head], truly[head], rtol=0.25)
    assert (truly[head] > 1.1 * counts[head]).all()
    assert not moved.expected.total[~head].any()
    assert on_head(about, 1.0)[0] is about


def test_statistics_of_the_head_have_more_signal_for_the_same_budget():
    data, rows = feature_driven_ratings(300, 60)
    signal = {}
    for head in (1.0, 0.25):
        update = EncoderStatistics(two_layers(3), FEW, head=head, noise_aware=False, ridge=0.0, memory=0.5)
        session = Session(Budget(1e6, 1e-5), noise=SeededNoise(0))
        made = estimator(update, features=rows, engine=LocalEngine(np.float64), rounds=1)
        fit = made._making(made, data, session, LocalEngine(np.float64), rows)
        fit.run(np.random.default_rng(0), None)
        traces = np.trace(fit._update.past[0].curvature, axis1=1, axis2=2)
        signal[head] = traces
    popular = signal[0.25] > 0
    assert popular.sum() == 15
    assert signal[0.25][popular].sum() > 1.15 * signal[1.0][popular].sum()

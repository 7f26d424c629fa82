"""Quantiles of users' values by the exponential mechanism on weighted ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from apportion.allocation.users import SampleLimit, Smooth, Unbounded
from apportion.auditing import audit_likelihood, audit_neighbour
from apportion.errors import InputError
from apportion.privacy import ADD_REMOVE, REPLACE_VALUES, Budget, SeededNoise
from apportion.statistics import UserQuantile

SIZES = np.array([1, 1, 2, 3, 5, 8, 30])
GROUPS = np.repeat(np.arange(len(SIZES)), SIZES)


def some_values(seed=0):
    return np.random.default_rng(seed).beta(2, 5, len(GROUPS))


def a_quantile(quantiles=0.5, **arguments):
    base = {} if "base" in arguments else {"value_range": (0.0, 1.0)}
    return UserQuantile(quantiles, **{**base, "noise": SeededNoise(0), **arguments})


def weighted_quantile(values, weights, q):
    order = np.argsort(values)
    return values[order][np.searchsorted(np.cumsum(weights[order]), q * weights.sum())]


@pytest.mark.parametrize("sizes", ["public", "private"])
def test_with_a_large_epsilon_it_is_the_weighted_quantile(sizes):
    values = some_values()
    asked = [0.9, 0.1, 0.5, 0.25, 0.75]
    found = a_quantile(asked, epsilon=1e5, bounding=Smooth(threshold=4.0), sizes=sizes).fit(values, users=GROUPS)
    weights = np.repeat(np.minimum(SIZES, 4) / SIZES, SIZES)
    order = np.sort(values)
    for q, point in zip(asked, found.quantiles_, strict=True):
        exact = int(np.searchsorted(order, weighted_quantile(values, weights, q)))
        assert order[max(exact - 1, 0)] <= point <= order[min(exact + 2, len(order) - 1)]
    assert len(found.statement_.releases) == 3  # five quantiles by three halvings


def test_several_quantiles_come_in_order():
    for seed in range(50):
        estimator = a_quantile(np.linspace(0.1, 0.9, 9), epsilon=0.3, noise=SeededNoise(seed))
        assert (np.diff(estimator.fit(some_values(), users=GROUPS).quantiles_) >= 0).all()


@pytest.mark.parametrize("bounding", [Smooth(), SampleLimit(2), Unbounded()], ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("quantiles", [0.5, [0.2, 0.5, 0.95]], ids=str)
def test_replay_on_neighbours_stays_within_every_sensitivity(bounding, quantiles):
    def fit(values, session):
        found = a_quantile(quantiles, bounding=bounding).fit(values, users=GROUPS, session=session)
        return {name: getattr(found, name) for name in ("quantiles_", "rank_error_", "threshold_", "statement_")}

    arguments = {"budget": Budget(1.0, 0.0), "noise": SeededNoise(1), "neighbours": REPLACE_VALUES}
    rng, values = np.random.default_rng(3), some_values()
    for user in range(7):
        for by in (0.0, 1.0, rng.random(SIZES[user])):
            other = values.copy()
            other[user == GROUPS] = by
            assert max(audit_neighbour(fit, values, other, arguments).values()) <= 1 + 1e-9


@pytest.mark.parametrize("threshold", [None, 3.0], ids=["threshold paid for", "threshold given"])
@pytest.mark.parametrize("user", range(7))
def test_with_private_sizes_a_whole_user_may_come_or_go(threshold, user):
    def fit(rows, session):
        values, groups = rows
        estimator = a_quantile([0.2, 0.7], sizes="private", bounding=Smooth(threshold))
        found = estimator.fit(values, users=groups, session=session)
        return {name: getattr(found, name) for name in ("quantiles_", "rank_error_", "threshold_", "statement_")}

    arguments = {"budget": Budget(1.0, 0.0), "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    values, kept = some_values(), user != GROUPS
    ratios = audit_neighbour(fit, (values, GROUPS), (values[kept], GROUPS[kept]), arguments)
    assert max(ratios.values()) <= 1 + 1e-9


@pytest.mark.slow
def test_the_best_attacker_learns_about_epsilon_and_no_more():
    groups = np.arange(11)

    def fit(values, session):
        return {"median": a_quantile(epsilon=4.0).fit(values, users=groups, session=session).quantiles_}

    others = [0.0] * 4 + [0.05] * 3 + [1.0] * 3  # most of the range has a rank above 1/2, a little of it one below
    one, two = (np.array([end, *others]) for end in (0.0, 1.0))
    found = audit_likelihood(
        fit,
        one,
        two,
        {"budget": Budget(4.0, 0.0), "neighbours": REPLACE_VALUES},
        noise=SeededNoise,
        draws=2400,
    )
    assert 0.5 * 4.0 <= found.lower_bound <= 4.0  # above 4 only with probability 1e-3


def test_ranks_are_off_by_no_more_than_is_said():
    rng = np.random.default_rng(7)
    groups = np.repeat(np.arange(300), rng.zipf(1.7, 300).clip(max=50))
    missed = 0
    for seed in range(200):
        found = a_quantile(0.8, epsilon=1.0, noise=SeededNoise(seed)).fit(rng.random(len(groups)), users=groups)
        missed += abs(found.quantiles_ - 0.8) > found.rank_error_
    assert missed <= stats.binom.ppf(1 - 1e-6, 200, 0.05)  # false alarms: 1e-6
    assert found.rank_error_ < 0.5


def test_a_base_distribution_may_live_on_the_whole_line():
    values = np.random.default_rng(0).normal(10, 2, 2000)
    groups = np.arange(2000)
    found = a_quantile([0.1, 0.5, 0.9], epsilon=5.0, base=stats.norm(0, 20)).fit(values, users=groups)
    np.testing.assert_allclose(found.quantiles_, stats.norm(10, 2).ppf([0.1, 0.5, 0.9]), atol=0.5)
    assert "norm(0, 20)" in found.statement_.to_text()


def test_manners():
    copy = clone(a_quantile([0.1, 0.9], bounding=SampleLimit(3)))
    assert copy.get_params()["quantiles"] == [0.1, 0.9]
    found = copy.fit(some_values(), users=GROUPS)
    assert found.quantiles_.shape == (2,)
    assert "pure" in found.statement_.to_text()
    assert "how many rows each user has" in found.statement_.to_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"quantiles": 0.0}, "strictly between 0 and 1"),
        ({"quantiles": []}, "strictly between 0 and 1"),
        ({"value_range": None}, "either a value_range or a base"),
        ({"value_range": (2.0, 1.0)}, "low < high"),
        ({"sizes_share": 1.0, "sizes": "private"}, "sizes_share below 1"),
        ({"base_mass": 0.0}, "base_mass"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        a_quantile(**arguments).fit(some_values(), users=GROUPS)

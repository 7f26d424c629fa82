"""The mean over rows or over users: right for its target, bounded, and honest about its error."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.base import clone

from apportion.allocation.users import SampleLimit
from apportion.auditing import audit_neighbour
from apportion.data.grouping import group_rows
from apportion.errors import InputError
from apportion.postprocessing.size_strata import SizeStrata
from apportion.privacy import ADD_REMOVE, Budget, SeededNoise
from apportion.statistics import UserMean
from apportion.statistics.user_parts import (
    ClassSums,
    ClippedDistances,
    DeviationClasses,
    HighAndLow,
    SquaredDeviations,
    StratumWeights,
    UserMeans,
)

BUDGETS = {"pure": Budget(1.0, 0.0), "gaussian": Budget(2.0, 1e-6)}
LEARNED = ("mean_", "interval_", "noise_stddev_", "threshold_", "statement_")


def some_rows(n_users=60, slope=0.5, seed=0, columns=None):
    """Rows of users whose values rise with how many there are."""
    rng = np.random.default_rng(seed)
    sizes = rng.geometric(0.15, n_users)
    groups = np.repeat(np.arange(n_users), sizes)
    middle = 2.0 + slope * np.log2(sizes)[groups]
    noise = rng.normal(size=len(groups) if columns is None else (len(groups), columns))
    return (middle if columns is None else middle[:, None]) + noise, groups


def a_mean(**arguments):
    return UserMean(**{"value_range": (0.0, 6.0), "noise": SeededNoise(0), **arguments})


@pytest.mark.parametrize("budget", [{"epsilon": 1e4}, {"epsilon": 1e6, "delta": 1e-6}], ids=["pure", "gaussian"])
def test_with_a_large_budget_it_is_the_mean_that_was_named(budget):
    values, groups = some_rows(400)
    inside = np.clip(values, 0, 6)
    per_user = np.bincount(groups, inside) / np.bincount(groups)
    assert abs(inside.mean() - per_user.mean()) > 0.3  # the two targets differ
    assert a_mean(**budget).fit(values, users=groups).mean_ == pytest.approx(inside.mean(), abs=2e-3)
    of_users = a_mean(of="users", **budget).fit(values, users=groups)
    assert of_users.mean_ == pytest.approx(per_user.mean(), abs=2e-3)


@pytest.mark.parametrize("n_users", [60, 300, 2000], ids=["few users", "some users", "many users"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("settings", [{}, {"of": "users"}, {"interval_for": "population"}], ids=str)
def test_replay_on_neighbours_stays_within_every_sensitivity(n_users, budget, settings):
    def fit(rows, session):
        found = a_mean(**settings).fit(rows[0], users=rows[1], session=session)
        return {name: getattr(found, name) for name in LEARNED}

    arguments = {"budget": budget, "noise": SeededNoise(1), "neighbours": ADD_REMOVE}
    values, groups = some_rows(n_users, columns=2 if n_users == 300 else None)
    values[groups == 0] = 99.0
    largest = int(np.argmax(np.bincount(groups)))
    for user in (0, largest):
        kept = groups != user
        ratios = audit_neighbour(fit, (values, groups), (values[kept], groups[kept]), arguments)
        assert max(ratios.values()) <= 1 + 1e-9
        assert any(name.startswith("mean over ") for name in ratios)


def test_distances_are_paid_for_only_where_there_are_enough_users():
    names = [
        [release.name for release in a_mean(**settings).fit(values, users=groups).statement_.releases]
        for values, groups in map(some_rows, (60, 2000))
        for settings in ({}, {"of": "users"})
    ]
    few, few_users, many, many_users = names
    assert few == ["sums by size", "mean over rows"]
    assert few_users == ["sums by size", "mean over users"]
    assert many == ["sums by size", "distances", "mean over rows"]
    assert many_users == ["sums by size", "distances", "mean over users"]  # all sizes are 1


def strata_of_some_rows():
    """Users of 40 with values far out, their sizes, and strata with a cap of 15."""
    values, groups = some_rows(40, columns=2)
    values[groups == 0], values[groups == 1] = [99.0, -99.0], [-99.0, 99.0]
    means = UserMeans(np.zeros(2), np.full(2, 6.0), "rows", 1024.0)
    edges = 2.0 ** np.arange(7)
    strata = SizeStrata.below(2 * edges - 1, 3)
    owners = group_rows(groups, len(values)).users(values=values)
    return owners, StratumWeights(means, edges, strata), np.bincount(groups)


def test_one_user_moves_sums_by_stratum_by_at_most_one_a_column_whatever_its_rows_hold():
    owners, weights, sizes = strata_of_some_rows()
    assert weights.strata.bounds.tolist() == [15.0, 1.0]
    rows = HighAndLow(weights)(owners, None)[0].reshape(40, 2, 2, 2)
    assert (rows >= 0).all()
    assert (rows.sum(axis=(1, 2, 3)) <= 2 + 1e-12).all()
    assert rows.sum(axis=1)[:, 0] * [15.0, 1.0] == pytest.approx(
        np.stack([np.where(sizes > 1, np.minimum(sizes, 15), 0), sizes == 1], axis=1)
    )


def test_one_user_moves_clipped_distances_by_their_bound_whatever_its_rows_hold():
    owners, weights, sizes = strata_of_some_rows()
    centres, clips = np.array([0.5, 0.7]), np.array([[3.0, 0.2], [2.0, 0.2]])
    rows = ClippedDistances(weights, centres, clips, 0.25)(owners, None)[0].reshape(40, 3, 2)
    assert (np.abs(rows).sum(axis=(1, 2)) <= 2.25 + 1e-12).all()
    assert ((rows != 0).any(axis=1).sum(axis=1) == 1).all()  # each user is in one stratum
    own = np.where(sizes > 1, 0, 1)
    means = weights.means(owners)[1]
    expected = np.clip(np.minimum(sizes, 15)[:, None] * (means - centres) / clips.T[own], -1, 1)
    assert rows[np.arange(40), :2, own] == pytest.approx(expected)
    assert rows[np.arange(40), 2, own] == pytest.approx(0.25 * np.minimum(sizes, 15) / weights.strata.bounds[own])


def test_one_user_is_in_one_octave_of_distance_a_column_whatever_its_rows_hold():
    owners, weights, sizes = strata_of_some_rows()
    rows = DeviationClasses(weights, np.array([0.5, 0.7]), 7)(owners, None)[0].reshape(40, 2, 2, 2, 7)
    assert set(np.unique(rows)) == {0.0, 1.0}
    assert (rows.sum(axis=(2, 3, 4)) == 1).all()
    assert (rows.sum(axis=(1, 3, 4))[:, 0] / 2 == (sizes > 1)).all()


def test_one_user_moves_squared_distances_by_at_most_one_a_column_whatever_its_rows_hold():
    owners, weights, sizes = strata_of_some_rows()
    centres, reach = np.array([0.5, 0.7]), np.array([0.4, 9.0])
    rows = SquaredDeviations(weights.means, 15.0, centres, reach)(owners, None)[0]
    assert rows.shape == (40, 2)
    assert (rows >= 0).all()
    assert (rows <= 1).all()
    assert (rows[:, 0] == 1).any()
    distances = np.minimum(sizes, 15)[:, None] * (weights.means(owners)[1] - centres)
    assert rows == pytest.approx(np.minimum(np.square(distances / reach), 1))


def test_one_user_adds_one_to_the_sums_by_size_whatever_its_rows_hold():
    values, groups = some_rows(40, columns=3)
    values[groups == 0] = [99.0, -99.0, 3.0]
    means = UserMeans(np.zeros(3), np.full(3, 6.0), "rows", 1024.0)
    rows = ClassSums(means, np.array([1.0, 2, 4, 8, 16]))(group_rows(groups, len(values)).users(values=values), None)[0]
    assert (rows >= 0).all()
    assert rows.sum(axis=1) == pytest.approx(np.full(40, 3.0))  # the taxicab norm of three columns
    assert (np.square(rows).sum(axis=1) <= 3.0 + 1e-12).all()
    sizes = np.bincount(groups)
    assert rows.reshape(40, 3, 2, 5).sum(axis=(0, 1, 2)) / 3 == pytest.approx(
        np.histogram(sizes, [1, 2, 4, 8, 16, 1e9])[0]
    )


def test_several_columns_hold_together_unless_each_is_to_hold_alone():
    values, groups = some_rows(columns=4)
    together, alone = (
        a_mean(epsilon=5.0, simultaneous=simultaneous).fit(values, users=groups) for simultaneous in (True, False)
    )
    assert (together.mean_ == alone.mean_).all()
    assert (np.ptp(together.interval_, axis=1) > np.ptp(alone.interval_, axis=1)).all()


def test_a_population_is_less_certain_than_its_users():
    values, groups = some_rows(300)
    data, population = (
        a_mean(epsilon=20.0, interval_for=interval).fit(values, users=groups) for interval in ("rows", "population")
    )
    assert np.ptp(population.interval_) > 1.5 * np.ptp(data.interval_)


def test_an_interval_for_a_population_follows_what_users_differ_by_and_not_how_wide_the_range_is():
    rng = np.random.default_rng(5)
    users = np.arange(3000)
    values = rng.normal(20.0, 5.0, len(users))
    widths = [
        np.ptp(
            UserMean(1.0, value_range=(0, high), of="users", interval_for="population", noise=SeededNoise(1))
            .fit(values, users=users)
            .interval_
        )
        for high in (60, 500)
    ]
    assert widths[1] < 4 * widths[0]


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_intervals_hold_where_many_users_lie_at_the_end_of_the_range(share):
    users = np.arange(900)
    values = (users < share * len(users)) * 1.0
    held = 0
    for seed in range(40):
        found = UserMean(0.5, value_range=(0, 1), of="users", noise=SeededNoise(seed)).fit(values, users=users)
        held += found.interval_[0] <= values.mean() <= found.interval_[1]
    assert held >= 30


def test_the_statement_names_the_target_and_protects_sizes():
    values, groups = some_rows()
    text = a_mean().fit(values, users=groups).statement_.to_text()
    for phrase in ("mean over rows", "add or remove one user", "the range of values, 0 to 6", "more than 1024 rows"):
        assert phrase in text
    assert "mean over users" in a_mean(of="users").fit(values, users=groups).statement_.to_text()
    paper = a_mean(weights="paper").fit(values, users=groups)
    assert "mean by the paper's weights" in paper.statement_.to_text()


def with_one_at(values, number, rng):
    """The same with one of them replaced."""
    moved = values.copy()
    moved.flat[rng.integers(values.size)] = number
    return moved


SIZES_OF_ABSURD = (1e4, 1e12, 1e300)
ABSURD = {
    "one far above": with_one_at,
    "one far below": lambda values, size, rng: with_one_at(values, -size, rng),
    "all far above": lambda values, size, rng: np.full(values.shape, size),
    "all far below": lambda values, size, rng: np.full(values.shape, -size),
    "all over the place": lambda values, size, rng: size * rng.standard_normal(values.shape),
    "half of them": lambda values, size, rng: np.where(rng.random(values.shape) < 0.5, size, values),
}


@pytest.mark.parametrize("budget", [{"epsilon": 0.5}, {"epsilon": 20.0}, {"epsilon": 1.0, "delta": 1e-6}], ids=str)
@pytest.mark.parametrize("n_users", [2, 60, 2000], ids=["two users", "few users", "many users"])
@pytest.mark.parametrize("kind", ABSURD)
def test_no_released_number_however_absurd_stops_a_mean_that_was_paid_for(monkeypatch, budget, n_users, kind):
    values, groups = some_rows(n_users)
    released = UserMean._release

    def fit(which, size):
        calls = []

        def absurd(self, *arguments):
            noisy, rng = released(self, *arguments), np.random.default_rng(len(calls))
            calls.append(noisy)
            moved = ABSURD[kind](np.array(noisy.values), size, rng)
            return replace(noisy, values=moved) if len(calls) == which else noisy

        monkeypatch.setattr(UserMean, "_release", absurd)
        settings = {"interval_for": "population"} if size == SIZES_OF_ABSURD[0] else {}
        return a_mean(**budget, **settings).fit(values, users=groups)

    for which, size in product((1, 2, 3), SIZES_OF_ABSURD):
        found = fit(which, size)
        low, high = found.interval_
        assert 0 <= low <= found.mean_ <= high <= 6
        assert np.isfinite(found.noise_stddev_)


def test_manners():
    copy = clone(UserMean(epsilon=0.5, value_range=(0, 1), of="users"))
    assert copy.get_params()["of"] == "users"
    assert copy.get_params()["value_range"] == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"value_range": (1, 1)}, "low < high"),
        ({"value_range": (0, 1e-46)}, "at least 1e-12 wide"),
        ({"value_range": (1e6, 1e6 + 1e-7)}, "at least 1e-12 wide"),
        ({"value_range": 3}, "value range"),
        ({"epsilon": 0}, "epsilon > 0"),
        ({"level": 1.0}, "level between 0 and 1"),
        ({"of": "items"}, "of to be 'rows' or 'users', got 'items'"),
        ({"weights": "equal"}, "weights to be 'target' or 'paper'"),
        ({"interval_for": "all"}, "interval_for to be 'rows' or 'population'"),
        ({"sizes": "public"}, "private sizes, or weights='paper'"),
        ({"bounding": SampleLimit(2)}, "bounding with weights='paper' only"),
        ({"max_size": 0}, "largest size of at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(arguments, sentence):
    values, groups = some_rows()
    with pytest.raises(InputError, match=sentence):
        a_mean(**arguments).fit(values, users=groups)


def test_a_hidden_user_is_said_to_move_the_mean_by_what_it_moves():
    rng = np.random.default_rng(3)
    owners = rng.integers(0, 4000, 40_000)
    values = rng.uniform(0, 4, len(owners))
    fitted = UserMean(5.0, value_range=(0, 10), max_size=1000, noise=SeededNoise(1)).fit(values, users=owners)
    more = np.append(values, np.full(1000, 10.0))
    assert fitted.hidden_user_ == pytest.approx(more.mean() - values.mean(), rel=0.1)

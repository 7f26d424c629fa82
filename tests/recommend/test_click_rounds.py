"""Rounds of the click recommender: which tasks they are about, how many there are, and what is made of several."""

from __future__ import annotations

import re

import numpy as np
import pytest

from apportion.auditing import RecordingSession
from apportion.data.synthetic import long_tailed_clicks
from apportion.privacy import ADD_REMOVE, Budget, Purpose, SeededNoise
from apportion.recommend import ClickSettings, PrivateClickRecommender, clicks
from apportion.recommend.click_rounds import (
    FEW,
    Focus,
    ReleasedVectors,
    Rounds,
    RowPrior,
    clear_of_noise,
    default_rounds,
    denoised_for_all,
    denoised_together,
    many_rounds,
    worth_learning,
)
from apportion.recommend.clicks_fold_in import Trust

from private_estimators import audit_estimator, clicks_of_default_size
from strategies import random_interactions


def test_more_tasks_are_learned_at_a_larger_budget_and_never_less_than_a_few():
    popularity = np.geomspace(1000, 0.01, 2000)
    numbers = [int(worth_learning(popularity, mu, 9).sum()) for mu in (0.01, 0.1, 1.0, 10.0)]
    assert numbers == sorted(numbers)
    assert numbers[1] < numbers[-1] < 2000
    assert worth_learning(popularity, 1e-6, 9).sum() == 60
    assert worth_learning(popularity, 1e-6, 50).sum() == 100
    assert worth_learning(popularity[:20], 1e-6, 9).all()


def test_the_tasks_worth_learning_hold_a_given_part_of_popularity():
    popularity = np.geomspace(1000, 0.01, 2000)
    held = [popularity[worth_learning(popularity, 1e-6, 9, least_held=part)].sum() for part in (0.0, 0.6, 0.9, 1.0)]
    parts = np.array(held) / popularity.sum()
    assert 0.2 < parts[0] < 0.6 <= parts[1] < 0.61
    assert 0.9 <= parts[2] < 0.91
    assert worth_learning(popularity, 1e9, 9, clear=2.0, least_held=0.6).all()


def test_a_last_round_about_all_tasks_knows_those_of_the_round_before_better():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((800, 3))
    turned = truth[:400] @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    before, last = (ReleasedVectors(each + rng.standard_normal(each.shape), 1.0) for each in (turned, truth))
    among = np.arange(800) < 400
    found = denoised_for_all(last, before, among, RowPrior(np.ones(800), 0.03, 20))
    errors = np.square(found.mean - truth).mean(axis=1)
    assert errors[among].mean() == pytest.approx(1 / 3, abs=0.05)  # what theory says of two looks, and of one
    assert errors[~among].mean() == pytest.approx(1 / 2, abs=0.05)
    assert found.resolved[among].mean() > found.resolved[~among].mean()


def test_releases_of_two_rounds_tell_more_than_the_last_one():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((400, 3))
    turned = truth @ np.linalg.qr(rng.standard_normal((3, 3)))[0]  # what another round calls the same directions
    before, last = (ReleasedVectors(each + rng.standard_normal(each.shape), 1.0) for each in (turned, truth))
    among = np.arange(450) < 400
    alone, both = (
        denoised_together(some, among, RowPrior(np.ones(450), 0.03, 20)) for some in ([last], [before, last])
    )
    errors = [float(np.square(found.mean[among] - truth).mean()) for found in (alone, both)]
    assert errors[0] == pytest.approx(1 / 2, abs=0.05)  # what theory says of one look, and of two
    assert errors[1] == pytest.approx(1 / 3, abs=0.05)
    assert not both.mean[~among].any()
    assert not both.resolved[~among].any()


def test_many_rounds_are_for_many_users_at_the_budget_but_not_for_so_many_that_they_take_long():
    assert many_rounds(1.0, 40_000, 50_000)
    assert not many_rounds(1.0, 6000, 4000)
    assert not many_rounds(1.0, 1e6, 50_000)


def _tasks_of(derivation):
    """How many tasks a round is about, according to the statement."""
    return int(re.search(r"(\d+) tasks that can stand out", derivation).group(1))


def _first_release(relative, n_tasks=300, stddev=2.0):
    """A release of vectors this long relative to popularity, and popularity."""
    rng = np.random.default_rng(1)
    popularity = np.geomspace(300, 1, n_tasks)
    directions = rng.standard_normal((n_tasks, 5))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    noise = stddev * rng.standard_normal(directions.shape)
    return ReleasedVectors(relative * popularity[:, None] * directions + noise, stddev), popularity


@pytest.mark.parametrize(("relative", "clear"), [(2.0, 0.7), (0.4, 1.0), (0.1, 1.4), (0.0, 1.4)])
def test_popularity_has_to_be_further_above_the_noise_where_vectors_are_shorter(relative, clear):
    assert clear_of_noise(*_first_release(relative)) == pytest.approx(clear, rel=0.03)


@pytest.mark.parametrize("relative", [0.1, 2.0])
def test_the_first_release_narrows_what_later_rounds_are_about(relative):
    release, popularity = _first_release(relative)
    mu, dimension = 0.1, 5
    before = Focus(np.ones(300, np.bool_)).narrowed(popularity, popularity, mu, dimension)
    np.testing.assert_array_equal(before.among, worth_learning(popularity, mu, dimension))
    once = before.with_release(release.values, release.stddev, popularity, together=2)
    after = once.narrowed(popularity, popularity, mu, dimension)
    wanted = worth_learning(popularity, mu, dimension, clear=1.4 if relative < 1 else 0.7)
    np.testing.assert_array_equal(after.among, wanted)
    assert (wanted.sum() < before.among.sum()) == (relative < 1)
    np.testing.assert_array_equal(after.releases[0].values, once.releases[0].values[wanted[before.among]])
    assert f" {int(wanted.sum())} tasks" in after.weights(ADD_REMOVE).description


def test_there_are_more_rounds_where_there_are_more_users_for_the_budget_and_the_list():
    few = Rounds(FEW, 2.0)
    numbers = [default_rounds(mu, 6000, 3600, few).number for mu in (0.1, 0.59, 0.61, 1.49, 1.51, 10.0)]
    assert numbers == [4, 4, 6, 6, 8, 8]
    assert default_rounds(10.0, 1e6, 3600, few) is few  # so many take too long


@pytest.mark.parametrize(("epsilon", "number"), [(1.0, 4), (5.0, 6), (20.0, 8)])
def test_a_fit_says_how_many_rounds_it_made_and_what_they_were_about(epsilon, number):
    data, _ = long_tailed_clicks(2000, 400, 40_000, rank=3, taste_strength=2.5, rng=np.random.default_rng(0))
    model = PrivateClickRecommender(epsilon, 1e-5, noise=SeededNoise(0)).fit(data).model_
    rounds = [each for each in model.statement.releases if each.purpose == Purpose.ITEM_VECTORS]
    assert model.settings["rounds"] == len(rounds) == number
    assert sum(release.share for release in model.statement.releases) == pytest.approx(1.0)
    learned = int((model.vectors != 0).any(axis=1).sum())
    assert 60 <= learned < 400
    first, *others = (_tasks_of(each.derivation) for each in rounds)
    assert set(others) == {learned}
    assert learned <= first
    if number != 6:  # four rounds narrow after the first, here at least; eight stay about the same tasks
        assert (learned < first) == (number == 4)


def test_vectors_of_the_last_round_are_shrunk_by_less(monkeypatch):
    made = []

    def recorded(releases, among, prior, **chosen):
        made.append((prior.steps, chosen))
        return denoised_together(releases, among, prior, **chosen)

    monkeypatch.setattr(clicks, "denoised_together", recorded)
    settings = ClickSettings(rounds=3, choices=(Trust(1, 5),))
    PrivateClickRecommender(5.0, 1e-5, settings=settings).fit(random_interactions(8, n_users=30, n_tasks=150))
    assert made == [(5, {"gently": False}), (5, {"gently": False}), (20, {"gently": True})]


@pytest.mark.parametrize("user", range(4))
def test_rounds_about_some_tasks_move_by_at_most_their_sensitivity(user):
    data = random_interactions(8, n_users=30, n_tasks=150)
    session = RecordingSession(Budget(5.0, 1e-5), noise=SeededNoise(user))
    clicks_of_default_size().fit(data, session=session)
    assert any("60 tasks that can stand out" in each.derivation for each in session.statement().releases)
    for finding in audit_estimator(clicks_of_default_size, data, user, epsilon=5.0, seed=user):
        assert finding.ratio <= 1 + 1e-9, finding
        assert finding.gap <= 1e-7, finding

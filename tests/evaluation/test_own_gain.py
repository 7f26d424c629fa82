"""A party's own gain: rows that are left out are left out of everything but the release."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.data.standardisation import Standardisation
from apportion.evaluation.own_gain import learned_again, own_gains
from apportion.parties import ProtectedMultiTask
from apportion.privacy import SeededNoise

from party_cases import low_rank_tasks

SETTINGS = [
    {},
    {"rounds": 2, "clip_norm": 2.0},
    {"fit_intercept": True},
    {"loss": "logistic"},
    {"structure": "low-rank", "rounds": 3},
    {"structure": "low-rank", "rounds": 3, "accelerated": False, "condition": 10.0},
    {"structure": "group-sparse", "rounds": 2},
    {"structure": "low-rank+sparse", "rounds": 3},
    {"structure": "relations", "rounds": 2},
]


def fitted(features, labels, **settings):
    model = ProtectedMultiTask(20.0, 1e-5, noise=SeededNoise(2), **settings)
    units = Standardisation.of(features, labels, deviations=True, classes=model.loss == "logistic")
    return model.fit(*units.standardised(features, labels)), units


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_parties_that_learn_again_from_all_rows_find_the_models_of_the_fit(settings):
    features, labels = low_rank_tasks(1, logistic=settings.get("loss") == "logistic")
    model, units = fitted(features, labels, **settings)
    parties = learned_again(model, *units.standardised(features, labels), has=None)
    assert np.array_equal(parties.models(), model.coef_)
    assert np.array_equal(parties.alone(), model.single_task_)
    assert model.released_[-1].kept > 0


@pytest.mark.parametrize(
    "settings",
    [{}, {"fit_intercept": True}, {"structure": "low-rank", "rounds": 2}],
    ids=["em", "intercept", "low-rank"],
)
def test_the_gain_of_a_small_party_is_that_of_leaving_out_one_row_at_a_time(settings):
    features, labels = low_rank_tasks(1)
    features[4], labels[4] = features[4][:4], labels[4][:4]
    model, _ = fitted(features, labels, **settings)
    found = own_gains(model, features, labels, deviations=True)[4]
    together, alone = [], []
    for row in range(4):
        x, y = np.delete(features[4], row, axis=0), np.delete(labels[4], row)
        scaled = (x - x.mean(0)) / x.std(0)
        party = learned_again(model, [scaled], [y - y.mean()], has=None)
        for losses, w in ((together, party.models()[0]), (alone, party.alone()[0])):
            guess = y.mean() + (features[4][row] - x.mean(0)) / x.std(0) @ w
            losses.append((guess - labels[4][row]) ** 2)
    assert (found.n_rows, found.folds) == (4, 4)
    assert found.together == pytest.approx(np.mean(together), rel=1e-9)
    assert found.alone == pytest.approx(np.mean(alone), rel=1e-9)


def test_tasks_near_two_directions_gain_and_unrelated_ones_hardly_lose():
    features, labels = low_rank_tasks(5, n_tasks=150)
    model, _ = fitted(features, labels)
    found = [one for one in own_gains(model, features, labels, deviations=False) if one.gain is not None]
    alone, gain = sum(one.alone * one.n_rows for one in found), sum(one.gain * one.n_rows for one in found)
    assert gain > 0.1 * alone
    rng = np.random.default_rng(0)
    unrelated = [x @ rng.standard_normal(6) * 3 + rng.standard_normal(len(x)) for x in features]
    model, _ = fitted(features, unrelated)
    found = [one for one in own_gains(model, features, unrelated, deviations=False) if one.gain is not None]
    alone, gain = sum(one.alone * one.n_rows for one in found), sum(one.gain * one.n_rows for one in found)
    assert abs(gain) < 0.1 * alone


def test_a_party_with_fewer_than_two_rows_has_nothing_to_compare():
    features, labels = low_rank_tasks(1)
    features[0], labels[0] = features[0][:1], labels[0][:1]
    features[1], labels[1] = features[1][:0], labels[1][:0]
    model, _ = fitted(features, labels)
    found = own_gains(model, features, labels, deviations=True)
    assert [one.gain for one in found[:2]] == [None, None]
    assert all(np.isfinite(one.gain) for one in found[2:])


def test_one_partys_rows_do_not_move_the_gain_of_another():
    features, labels = low_rank_tasks(1)
    model, _ = fitted(features, labels)
    first = own_gains(model, features, labels, deviations=True)
    features[3], labels[3] = 5 * features[3][:2], labels[3][:2] + 100
    second = own_gains(model, features, labels, deviations=True)
    assert [k for k in range(40) if first[k] != second[k]] == [3]


def test_features_that_a_party_lacks_have_no_say():
    features, labels = low_rank_tasks(1)
    has = np.ones((40, 6), bool)
    has[2, 1] = False
    model = ProtectedMultiTask(20.0, 1e-5, noise=SeededNoise(2), feature_mask=has).fit(features, labels)
    first = own_gains(model, features, labels, deviations=False, has=has)
    features[2] = features[2].copy()
    features[2][:, 1] = 0.0
    assert own_gains(model, features, labels, deviations=False, has=has)[2].alone == pytest.approx(first[2].alone)

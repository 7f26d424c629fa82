"""The estimator: manners, accuracy, degradation, statements and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from apportion.allocation.rounds import Uniform
from apportion.errors import InputError
from apportion.parties import ProtectedMultiTask
from apportion.parties.common import moment_weights
from apportion.privacy import ADD_REMOVE, Budget, SeededNoise
from apportion.privacy.neighbours import ADD_REMOVE_TASK, REPLACE_TASK

from party_cases import FITS, error, low_rank_tasks, stacked, tasks_with_test_rows

STRUCTURES = ("em", "low-rank", "group-sparse", "low-rank+sparse", "relations")
EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)


def fitted(train, **arguments):
    arguments = {"noise": SeededNoise(0), **arguments}
    return ProtectedMultiTask(**arguments).fit(list(train[0]), list(train[1]))


@EVERY_STRUCTURE
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_with_hardly_any_budget_everybody_learns_alone_exactly(structure, loss):
    train, _ = tasks_with_test_rows(0, n_tasks=60)
    train = (train[0], (train[1] > 0).astype(float)) if loss == "logistic" else train
    for seed in range(5):
        model = fitted(train, epsilon=1e-6, structure=structure, loss=loss, noise=SeededNoise(seed))
        assert np.array_equal(model.coef_, model.single_task_)
        assert all(np.array_equal(one.shared, np.eye(10)) for one in model.released_)


@EVERY_STRUCTURE
def test_with_much_budget_everybody_gains(structure):
    train, test = tasks_with_test_rows(1, sparse=structure == "group-sparse")
    model = fitted(train, epsilon=30.0, structure=structure)
    assert error(model.coef_, test) < 0.97 * error(model.single_task_, test)


def test_private_em_comes_close_to_knowing_the_directions_and_is_never_worse_than_alone():
    train, test = tasks_with_test_rows(2)
    alone = error(fitted(train).single_task_, test)
    errors = [error(fitted(train, epsilon=epsilon).coef_, test) for epsilon in (0.1, 1.0, 10.0)]
    assert errors[0] <= alone * (1 + 1e-12)
    assert errors[1] < 0.9 * alone
    assert errors[2] < 0.75 * alone


def test_tasks_that_share_nothing_lose_little():
    rng = np.random.default_rng(3)
    features = rng.standard_normal((150, 60, 10))
    labels = np.einsum("mkd,md->mk", features, rng.standard_normal((150, 10))) + rng.standard_normal((150, 60))
    train, test = (features[:, :12], labels[:, :12]), (features[:, 12:], labels[:, 12:])
    for epsilon in (1.0, 10.0, 1000.0):
        model = fitted(train, epsilon=epsilon)
        assert error(model.coef_, test) <= 1.03 * error(model.single_task_, test)


def test_lists_and_groups_in_any_order_give_the_same():
    features, labels = low_rank_tasks(4)
    lists = FITS["em"](noise=SeededNoise(1)).fit(features, labels)
    groups = FITS["em"](noise=SeededNoise(1)).fit(*stacked(features, labels))
    assert np.array_equal(lists.coef_, groups.coef_)
    rows, column, who = stacked(features, labels, order=3)
    shuffled = FITS["em"](noise=SeededNoise(1)).fit(rows, column, who)
    assert shuffled.coef_ == pytest.approx(lists.coef_, rel=1e-6, abs=1e-9)
    text = FITS["em"](noise=SeededNoise(1)).fit(rows, column, np.char.add("school ", who.astype(str)))
    assert text.predict(rows[:3], ["school 5", "school 11", "school 5"]).shape == (3,)


def test_predictions_are_by_the_model_of_the_task():
    features, labels = low_rank_tasks(5)
    model = FITS["em"](noise=SeededNoise(1)).fit(features, labels)
    rows, _, groups = stacked(features, labels, order=1)
    assert model.predict(rows, groups) == pytest.approx(np.einsum("nd,nd->n", rows, model.coef_[groups]))
    assert model.predict(features)[7] == pytest.approx(features[7] @ model.coef_[7])
    classes = FITS["em, logistic"](noise=SeededNoise(1)).fit(*low_rank_tasks(5, logistic=True))
    assert set(np.concatenate(classes.predict(features))) <= {0.0, 1.0}
    with pytest.raises(InputError, match="no task 99 among the 40 known ones"):
        model.predict(rows[:2], [0, 99])
    with pytest.raises(InputError, match="Expected 6 features, got 2"):
        model.predict(rows[:2, :2], [0, 1])
    with pytest.raises(InputError, match="one matrix for each of 40 tasks, got 1"):
        model.predict(features[:1])


def test_a_party_has_its_own_models_and_gain():
    train, test = tasks_with_test_rows(6)
    model = fitted(train, epsilon=10.0)
    party = model.party(17)
    assert np.array_equal(party.model, model.coef_[17])
    assert 0 <= party.own_weight <= 1
    gains = [model.party(i).gain(test[0][i], test[1][i]) for i in range(200)]
    assert np.mean(gains) > 0
    apart, together = error(model.single_task_, test), error(model.coef_, test)
    assert np.mean(gains) == pytest.approx((apart - together) * test[1].var())
    with pytest.raises(InputError, match="no task 500 among the 200 known ones"):
        model.party(500)


def test_scikit_learn_clones_it_and_the_same_seed_gives_the_same():
    model = ProtectedMultiTask(3.0, structure="relations", schedule=Uniform(), noise=SeededNoise(2))
    assert clone(model, safe=False).get_params()["structure"] == "relations"
    features, labels = low_rank_tasks(7)
    before = [x.copy() for x in features]
    one = ProtectedMultiTask(3.0, noise=SeededNoise(2)).fit(features, labels)
    other = ProtectedMultiTask(3.0, noise=SeededNoise(2)).fit(features, labels)
    assert np.array_equal(one.coef_, other.coef_)
    assert all(np.array_equal(x, y) for x, y in zip(features, before, strict=True))


def test_a_model_is_never_clipped_only_what_is_sent():
    """With K far below all models the models keep their length; the release knows them by directions alone."""
    train, _ = tasks_with_test_rows(8)
    long, short = (fitted(train, epsilon=5.0, clip_norm=norm) for norm in (None, 1e-3))
    assert np.linalg.norm(short.coef_, axis=1).mean() > 1.0
    assert short.coef_ == pytest.approx(long.coef_, rel=1e-3, abs=1e-3)


def test_features_that_a_task_lacks_have_no_weight_and_the_statement_says_that_they_are_public():
    features, labels = low_rank_tasks(9)
    mask = np.random.default_rng(0).random((40, 6)) < 0.7
    model = ProtectedMultiTask(20.0, feature_mask=mask, noise=SeededNoise(1)).fit(features, labels)
    assert not model.coef_[~mask].any()
    assert model.coef_[mask].any()
    assert "which features each task has" in model.statement_.public
    without = [np.where(row, x, 0.0) for x, row in zip(features, mask, strict=True)]
    same = ProtectedMultiTask(20.0, noise=SeededNoise(1)).fit(without, labels)
    assert np.array_equal(same.released_[0].matrix, model.released_[0].matrix)


def test_the_statement_names_the_unit_the_relation_and_what_is_public():
    features, labels = low_rank_tasks(10)
    replaced = ProtectedMultiTask(1.0, noise=SeededNoise(0)).fit(features, labels).statement_
    assert replaced.delta == 1 / 40**2
    assert replaced.unit.startswith("task: all rows and the model of one party")
    assert replaced.neighbours is REPLACE_TASK
    assert "the number of tasks, 40" in replaced.public
    removed = ProtectedMultiTask(1.0, 1e-6, neighbours=ADD_REMOVE_TASK, noise=SeededNoise(0)).fit(features, labels)
    assert removed.statement_.neighbours is ADD_REMOVE_TASK
    assert not any("number of tasks" in sentence for sentence in removed.statement_.public)
    assert removed.statement_.releases[0].sensitivity == pytest.approx(1.0)
    weights = moment_weights(6, 1 / Budget(1.0, 1 / 40**2).mu, 40)
    moved = 2 + 2 * weights.mean + weights.mean**2 / 2 + weights.size
    assert replaced.releases[0].sensitivity == pytest.approx(np.sqrt(moved))
    bare = ProtectedMultiTask(1.0, share_mean=False, noise=SeededNoise(0)).fit(features, labels).statement_
    assert bare.releases[0].sensitivity == pytest.approx(np.sqrt(2))


def test_a_party_takes_off_its_own_means_and_adds_them_back():
    """Shifted features and labels change nothing but the intercept, and what is released not at all."""
    features, labels = low_rank_tasks(12)
    shifts = np.random.default_rng(1).standard_normal((40, 6))
    plain = ProtectedMultiTask(20.0, fit_intercept=True, noise=SeededNoise(1)).fit(features, labels)
    moved = ProtectedMultiTask(20.0, fit_intercept=True, noise=SeededNoise(1)).fit(
        [x + 10 * shift for x, shift in zip(features, shifts, strict=True)], [y + 500 for y in labels]
    )
    assert moved.coef_ == pytest.approx(plain.coef_, rel=1e-6, abs=1e-6)
    assert moved.released_[0].matrix == pytest.approx(plain.released_[0].matrix, rel=1e-6)
    shifted = [x + 10 * shift for x, shift in zip(features, shifts, strict=True)]
    assert np.concatenate(moved.predict(shifted)) == pytest.approx(np.concatenate(plain.predict(features)) + 500)
    for task in (0, 11):
        assert plain.predict(features)[task].mean() == pytest.approx(labels[task].mean())


REFUSED = [
    ({"fit_intercept": True, "loss": "logistic"}, "fit_intercept=False for the loss 'logistic'"),
    ({"rounds": 0}, "at least 1 round, got 0"),
    ({"neighbours": ADD_REMOVE}, "differ in one task, got: add or remove one user"),
    ({"neighbours": ADD_REMOVE_TASK}, "a delta, or n_tasks"),
    ({"clip_norm": -1.0}, "finite clip_norm above 0, got -1"),
    ({"contribution": "all"}, "'mean' or 'posterior', got 'all'"),
    ({"contribution": "posterior", "structure": "low-rank"}, "only with structure='em' and loss='squared'"),
    ({"contribution": "posterior", "instance_epsilon": 1.0}, "contribution='mean' if parties"),
    ({"penalty": -0.5}, "penalty of at least 0, got -0.5"),
    ({"condition": 0.5}, "condition number above 1, got 0.5"),
    ({"n_tasks": 0}, "at least 1, got 0"),
    ({"structure": "clusters"}, "got 'clusters'"),
    ({"loss": "hinge"}, "'squared' or 'logistic', got 'hinge'"),
    ({"release": "laplace"}, "a MatrixRelease, got 'laplace'"),
    ({"instance_epsilon": 0.0}, "instance_epsilon > 0, got 0"),
    ({"feature_mask": np.ones((2, 2))}, "40 tasks x 6 features, got shape"),
    ({"epsilon": -1.0}, "epsilon > 0, got -1"),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[str(sorted(a)) for a, _ in REFUSED])
def test_what_cannot_be_is_refused_in_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence) as refusal:
        ProtectedMultiTask(**arguments).fit(*low_rank_tasks(0))
    assert "\n" not in str(refusal.value)


def test_a_declared_number_of_tasks_is_that_of_the_data_where_neighbours_replace_one():
    train = low_rank_tasks(0, n_tasks=6)
    with pytest.raises(InputError, match=r"the number of tasks of the data, 6, .* got 5") as refusal:
        fitted(train, n_tasks=5)
    assert refusal.value.argument == "n_tasks"
    assert "the number of tasks, 6" in fitted(train, n_tasks=6).statement_.to_text()
    assert "the number of tasks, 5" in fitted(train, n_tasks=5, neighbours=ADD_REMOVE_TASK).statement_.to_text()


def test_data_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="got 1 and 2"):
        ProtectedMultiTask().fit([np.ones((2, 2))] * 2, [np.ones(2)])
    with pytest.raises(InputError, match=r"got \[2, 3\]"):
        ProtectedMultiTask().fit([np.ones((2, 2)), np.ones((2, 3))], [np.ones(2)] * 2)
    with pytest.raises(InputError, match="nan in row 1, column 2"):
        ProtectedMultiTask().fit([np.array([[1, np.nan]])], [np.ones(1)])
    with pytest.raises(InputError, match="2 rows, one per row of data"):
        ProtectedMultiTask().fit(np.ones((2, 2)), np.ones(2), np.ones(3))

"""What every private estimator promises, whatever it learns."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from apportion.errors import BudgetError, InputError
from apportion.privacy import Budget, SeededNoise, Session
from apportion.recommend import load, save

from private_estimators import PRIVATE_ESTIMATORS
from strategies import random_interactions

ESTIMATORS = pytest.mark.parametrize("make", PRIVATE_ESTIMATORS.values(), ids=PRIVATE_ESTIMATORS)


@ESTIMATORS
def test_the_constructor_stores_and_clone_copies(make):
    estimator = make(epsilon=3.0, window="2025")
    copy = clone(estimator)
    assert copy.get_params()["epsilon"] == 3.0
    assert copy.set_params(epsilon=4.0).epsilon == 4.0
    assert estimator.epsilon == 3.0
    with pytest.raises(ValueError, match="'nonsense'"):
        copy.set_params(nonsense=1)


@ESTIMATORS
def test_the_same_seed_gives_the_same_model_and_another_seed_another(make):
    data = random_interactions(1)
    one, same, other = (make(noise=SeededNoise(s)).fit(data).model_ for s in (1, 1, 2))
    np.testing.assert_array_equal(one.fold_in.features, same.fold_in.features)
    assert not np.array_equal(one.fold_in.features, other.fold_in.features)


@ESTIMATORS
def test_the_statement_lists_every_release_and_what_was_public(make):
    statement = make(n_users=12, window="May 2025").fit(random_interactions(2)).statement_
    assert sum(r.share for r in statement.releases) == pytest.approx(1.0)
    assert statement.epsilon == 2.0
    assert statement.spent_epsilon <= 2.0
    assert statement.releasable
    assert statement.window == "May 2025"
    assert any("declared as 12" in line for line in statement.public)
    assert any("9 items, as given" in line for line in statement.public)
    assert "by hand" in make(dimension=2).fit(random_interactions(2)).statement_.tuning


@ESTIMATORS
def test_defaults_say_that_nothing_was_tuned(make):
    statement = type(make())(epsilon=2.0).fit(random_interactions(2)).statement_
    assert "library defaults" in statement.tuning


@ESTIMATORS
def test_data_is_left_untouched_and_the_model_is_finite(make):
    data = random_interactions(3)
    before = data.values.copy()
    model = make(epsilon=0.01).fit(data).model_
    np.testing.assert_array_equal(data.values, before)
    for array in (model.fold_in.features, model.fold_in.base, model.popularity, model.reliability, model.vectors):
        assert np.isfinite(array).all()
    assert (model.reliability >= 0).all()
    assert (model.reliability <= 1).all()
    scores = model.score(data, np.arange(data.n_users))
    assert scores.shape == (data.n_users, data.n_tasks)
    assert np.isfinite(scores).all()


@ESTIMATORS
def test_a_saved_model_answers_as_before_and_keeps_its_statement(make, tmp_path):
    data = random_interactions(4)
    model = make().fit(data).model_
    save(model, tmp_path / "model")
    back = load(tmp_path / "model")
    users = np.arange(data.n_users)
    np.testing.assert_array_equal(back.score(data, users), model.score(data, users))
    assert back.statement == model.statement
    ours, theirs = model.similar(3, 2), back.similar(3, 2)
    assert [n.similarity for n in theirs] == pytest.approx([n.similarity for n in ours], abs=1e-5)
    assert back.settings.keys() == model.settings.keys()


@ESTIMATORS
def test_a_session_that_cannot_pay_refuses_before_anything_is_learned(make):
    session = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    estimator = make()
    estimator.fit(random_interactions(5), session=session)
    again = make()
    with pytest.raises(BudgetError, match=r"is left|planned before"):
        again.fit(random_interactions(5), session=session)
    assert not hasattr(again, "model_")


@ESTIMATORS
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": -1.0}, "epsilon > 0, got -1"),
        ({"delta": 2.0}, "delta of 0, or above .* got 2"),
        ({"dimension": 0}, "dimension of at least 1, got 0"),
        ({"n_users": 0}, "at least 1, got 0"),
    ],
)
def test_bad_arguments_get_one_sentence(make, arguments, message):
    with pytest.raises(InputError, match=message):
        make(**arguments).fit(random_interactions(6))


@ESTIMATORS
def test_progress_is_reported_to_the_end(make):
    steps = []
    make().fit(random_interactions(7), progress=lambda *step: steps.append(step))
    assert steps[-1][1] == steps[-1][2]
    assert len(steps) >= 3


@ESTIMATORS
def test_folding_in_depends_on_the_users_own_history_only(make):
    data = random_interactions(8)
    model = make().fit(data).model_
    alone = data.select_users([3])
    np.testing.assert_allclose(model.user_vectors(data)[3], model.user_vectors(alone)[3], rtol=1e-5, atol=1e-6)

"""Private selection of settings: who is where, what each part pays, and what leaves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from apportion.data import Interactions
from apportion.data.synthetic import long_tailed_clicks, long_tailed_ratings
from apportion.errors import BudgetError, InputError
from apportion.evaluation import validation_scores
from apportion.evaluation.tuning import divide, tune
from apportion.evaluation.validation_scores import DEPTH, SCORES, error_cap, keep_back
from apportion.privacy import REPLACE_VALUES, Budget, Ledger, Purpose, SeededNoise, SystemNoise
from apportion.privacy.ledger import SelectionRun
from apportion.privacy.selection import Tries
from apportion.recommend import ClickRecommender, PrivateClickRecommender, PrivateRatingRecommender, RatingRecommender
from apportion.recommend.rating_settings import RatingSettings

BUDGET = Budget(6.0, 1e-5)


@pytest.fixture(scope="module")
def ratings():
    data, _ = long_tailed_ratings(400, 40, 6000, rank=2, rng=np.random.default_rng(2), stars="whole")
    return data


@pytest.fixture(scope="module")
def models(ratings):
    """A model of each kind; scores are computed from any model."""
    return {
        "ratings": RatingRecommender(dimension=3).fit(ratings).model_,
        "clicks": ClickRecommender(dimension=3).fit(ratings.with_values(1.0)).model_,
    }


def make_ratings(settings, budget):
    return PrivateRatingRecommender(budget.epsilon, budget.delta, **settings)


def forgetting(data, user):
    """The same data from a file that never held one user: other codes, same ids."""
    kept = data.users != user
    return Interactions.from_arrays(
        np.asarray(data.user_ids.ids)[data.users[kept]],
        np.asarray(data.task_ids.ids)[data.tasks[kept]],
        data.values[kept],
        task_ids=data.task_ids,
    )


def ids_in(data):
    return set(np.asarray(data.user_ids.ids)[np.unique(data.users)].tolist())


def test_every_user_is_in_one_part_and_stays_there_whoever_else_is_there(ratings):
    parts = divide(ratings, 0.3)
    training, validation = ids_in(parts.training), ids_in(parts.validation)
    assert not training & validation
    assert training | validation == ids_in(ratings)
    assert 0.15 < len(validation) / 400 < 0.45  # 6.5 standard deviations around 0.3
    for user in (0, 17, 399):
        fewer = divide(forgetting(ratings, user), 0.3)
        gone = {ratings.user_ids.id_of(user)}
        assert ids_in(fewer.training) == training - gone
        assert ids_in(fewer.validation) == validation - gone


def test_what_is_kept_back_is_a_fifth_of_each_user_and_does_not_depend_on_others(ratings):
    history, targets = keep_back(ratings)
    counts = ratings.by_user.counts
    expected = np.where(counts > 1, np.maximum(1, counts // 5), 0)
    assert (targets.by_user.counts == expected).all()
    assert (history.by_user.counts + targets.by_user.counts == counts).all()
    _, fewer = keep_back(forgetting(ratings, 5))
    rows = {
        (ratings.user_ids.id_of(int(u)), int(t)) for u, t in zip(targets.users, targets.tasks, strict=True) if u != 5
    }
    smaller = forgetting(ratings, 5).user_ids
    assert {(smaller.id_of(int(u)), int(t)) for u, t in zip(fewer.users, fewer.tasks, strict=True)} == rows


@pytest.mark.parametrize("kind", ["ratings", "clicks"])
def test_a_users_score_is_bounded_and_the_same_whoever_else_is_there(ratings, models, kind):
    model, score = models[kind], SCORES[kind]
    all_scores = score.of_users(model, ratings)
    assert np.nanmax(np.abs(all_scores)) <= 1
    assert np.isfinite(all_scores).sum() > 300
    for user in (3, 250):
        rest = score.of_users(model, forgetting(ratings, user))
        present = np.isfinite(np.delete(all_scores, user))
        np.testing.assert_array_equal(rest[np.isfinite(rest)], np.delete(all_scores, user)[present])


def test_the_score_of_ratings_is_one_minus_twice_the_capped_error(ratings, models):
    model = models["ratings"]
    history, targets = keep_back(ratings)
    user = int(targets.users[0])
    errors = (model.predict(history, targets) - targets.values)[targets.users == user].astype(float)
    expected = 1 - 2 * min(1.0, float((errors**2).mean()) / error_cap(model))
    assert error_cap(model) == 2.0
    assert SCORES["ratings"].of_users(model, ratings)[user] == pytest.approx(expected, abs=1e-6)
    assert SCORES["ratings"].shown(expected, model) == pytest.approx((1 - expected), abs=1e-9)


def test_the_score_of_clicks_is_the_recall_of_the_models_own_recommendations(ratings, models, monkeypatch):
    monkeypatch.setattr(validation_scores, "DEPTH", 5)
    model = models["clicks"]
    history, targets = keep_back(ratings)
    top = model.recommend(history, 5)
    rank_of = dict(zip(top.users.tolist(), top.tasks.tolist(), strict=True))
    found = SCORES["clicks"].of_users(model, ratings)
    for user in (0, 9, 100):
        sought = targets.tasks[targets.users == user]
        recall = len(set(sought.tolist()) & set(rank_of[user])) / min(len(sought), 5)
        assert found[user] == pytest.approx(2 * recall - 1)
    assert DEPTH == 20


def test_users_with_a_single_row_have_no_score(models):
    data = Interactions.from_arrays([1, 2, 2, 3], [0, 0, 1, 1], [3, 4, 5, 1], task_ids=models["ratings"].task_ids)
    for kind in ("ratings", "clicks"):
        assert np.isnan(SCORES[kind].of_users(models[kind], data)).tolist() == [True, False, True]


def test_the_winners_statement_is_that_of_the_whole_search(ratings):
    found = tune(
        ratings, make_ratings, {"dimension": [2, 3]}, BUDGET, tries=Tries(3), window="May", noise=SeededNoise(1)
    )
    statement = found.model.statement
    assert (statement.epsilon, statement.delta) == (6.0, 1e-5)
    assert found.cost.one_try.epsilon < found.cost.epsilon == statement.spent_epsilon <= 6.0
    assert statement.spent_mu is None
    assert "private selection among dimension in {2, 3}, and paid for" in statement.tuning
    assert (statement.window, statement.releasable) == ("May", False)
    assert any("hash" in sentence for sentence in statement.public)
    assert found.model.settings["dimension"] == found.chosen["dimension"]


def test_each_part_of_the_users_pays_one_try_and_no_more(ratings):
    found = tune(ratings, make_ratings, {"dimension": [2]}, BUDGET, tries=Tries(2), noise=SystemNoise())
    releases, one_try = found.model.statement.releases, found.cost.one_try
    assert [release.purpose for release in releases].count(Purpose.VALIDATION_SCORE) == 1
    assert releases[-1].purpose is Purpose.VALIDATION_SCORE
    assert releases[-1].mu <= one_try.mu
    assert releases[-1].sensitivity == pytest.approx(math.sqrt(1.01))
    training = math.fsum(release.mu**2 for release in releases[:-1])
    assert 0.999 * one_try.mu**2 < training <= one_try.mu**2
    assert sum(release.share for release in releases) <= 1
    assert found.model.statement.releasable


def test_the_search_makes_as_many_tries_as_were_drawn_and_returns_one_of_them(ratings):
    made = []

    def make(settings, budget):
        made.append((dict(settings), budget))
        return make_ratings(settings, budget)

    tries = Tries(4)
    found = tune(ratings, make, {"dimension": [1, 2], "rounds": [1, 2]}, BUDGET, tries=tries, noise=SeededNoise(11))
    assert len(made) == tries.draw(SeededNoise(11))
    assert all(budget == found.cost.one_try for _, budget in made)
    assert found.chosen in [settings for settings, _ in made]
    assert set(found.selection) == {"epsilon", "delta", "order", "tries", "one_try", "grid", "chosen", "score"}


def test_settings_are_drawn_from_the_whole_grid(ratings):
    """100 tries on average, of four places: with this seed all occur, and with nearly any other."""
    seen = set()

    def make(settings, budget):
        seen.add((settings["dimension"], settings["rounds"]))
        return make_ratings(settings, budget)

    noise = SeededNoise(4)
    for _ in range(10):
        tune(ratings, make, {"dimension": [1, 2], "rounds": [1, 2]}, BUDGET, tries=Tries(10), noise=noise)
    assert seen == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_a_search_with_much_budget_leaves_settings_that_ruin_the_model(ratings):
    """With a clip of 1e-6 nothing is learnt; among ten tries both occur, and the score is far above its noise."""
    clips = {"clip": [0.7, 1e-6]}

    def make(settings, budget):
        return PrivateRatingRecommender(budget.epsilon, budget.delta, settings=RatingSettings(2, 2, **settings))

    seeds = [seed for seed in range(20) if Tries(10).draw(SeededNoise(seed)) >= 8][:2]
    for seed in seeds:
        found = tune(ratings, make, clips, Budget(200.0, 1e-5), tries=Tries(10), noise=SeededNoise(seed))
        assert found.chosen == {"clip": 0.7}
        assert 0.2 < found.score < 2.0


def test_clicks_are_tuned_by_recall():
    data, _ = long_tailed_clicks(400, 60, 6000, rank=2, rng=np.random.default_rng(3))

    def make(settings, budget):
        return PrivateClickRecommender(budget.epsilon, budget.delta, rounds=2, **settings)

    found = tune(data, make, {"dimension": [2, 4]}, Budget(20.0, 1e-5), tries=Tries(2), noise=SeededNoise(0))
    assert found.model.kind == "clicks"
    assert 0.2 < found.score < 1.0
    assert found.score_name.startswith("recall at 20")


@pytest.mark.parametrize(("grid", "validation"), [({}, 0.2), ({"dimension": []}, 0.2), ({"rounds": [1]}, 0.9)])
def test_searches_that_make_no_sense_are_refused(ratings, grid, validation):
    with pytest.raises(InputError, match="Expected a"):
        tune(ratings, make_ratings, grid, BUDGET, validation=validation)


def test_a_search_is_charged_to_an_account_before_its_first_try(ratings, tmp_path):
    ledger = Ledger.open(str(tmp_path / "ledger.db"))
    account = ledger.create_account("ratings", Budget(9.0, 1e-5), kind="renyi")
    grid = {"dimension": [1, 2], "rounds": [1]}
    found = tune(ratings, make_ratings, grid, BUDGET, tries=Tries(2), noise=SeededNoise(1), ledger=account)
    (entry,) = account.history()
    assert entry.event == SelectionRun(found.cost.one_try.mu, 2.0, "geometric")
    assert found.model.statement.ledger.head == account.status().head
    assert found.cost.epsilon * 0.99 <= account.status().spent_epsilon
    with pytest.raises(BudgetError, match="a selection among tries"):
        tune(ratings, make_ratings, grid, BUDGET, tries=Tries(2), noise=SeededNoise(1), ledger=account)
    assert account.status().entries == 1
    account.verify()


def test_a_search_is_refused_by_accounts_without_a_theorem_for_it(ratings, tmp_path):
    ledger = Ledger.open(str(tmp_path / "ledger.db"))
    gaussian = ledger.create_account("gaussian", Budget(50.0, 1e-5))
    with pytest.raises(BudgetError, match="Open an account of kind 'renyi'"):
        tune(ratings, make_ratings, {"dimension": [1]}, BUDGET, ledger=gaussian)
    other = ledger.create_account("other", Budget(50.0, 1e-5), kind="renyi", neighbours=REPLACE_VALUES)
    with pytest.raises(InputError, match=r"add or remove one user., got one for .replace"):
        tune(ratings, make_ratings, {"dimension": [1]}, BUDGET, ledger=other)


def test_a_search_has_no_exact_form(ratings):
    with pytest.raises(InputError, match="without exact arithmetic"):
        tune(ratings, make_ratings, {"dimension": [1]}, BUDGET, noise=SeededNoise(1, exact=True))

"""Private keys: the threshold, what one user moves, and that nothing written tells of a key that is not listed."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import distance, raw_copy
from apportion.data import Interactions, Vocabulary
from apportion.data.item_lists import in_text_order, on_list, texts_of, with_priorities
from apportion.data.vocabulary import ids_of_texts
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError, InputError
from apportion.privacy import ADD_REMOVE_TASK, REPLACE_VALUES, Budget, Ledger, SeededNoise, Session, Statement
from apportion.privacy.contributions import KeyCounts, KeyShares
from apportion.privacy.keys import KeyedSum, chance_of_own_keys, threshold_for
from apportion.privacy.ledger.events import GaussianRelease, ListedRelease
from apportion.privacy.mechanisms import ThresholdedGaussian, ThresholdedLaplace

BUDGET = Budget(2.0, 1e-3, 5e-4)


def counted(data, form=None, known=()):
    keyed = in_text_order(data)
    counts = add_up_one(LocalEngine(np.float64, exact=True), with_priorities(keyed), form or KeyCounts(8))
    return KeyedSum(counts, texts_of(keyed.task_ids), known)


def pairs(*rows):
    users, items = zip(*rows, strict=True)
    return Interactions.from_arrays(list(users), list(items), single_user=True)


def released(data, *, budget=BUDGET, seed=0, exact=False, form=None, known=()):
    session = Session(budget, noise=SeededNoise(seed, exact=exact))
    share = session.plan(keys=1.0).one("keys")
    return session.release_keys("keys", counted(data, form, known), share, budget.keys_delta), session


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("most", [1, 7, 300])
@pytest.mark.parametrize("scale", [0.3, 4.0])
@pytest.mark.parametrize("least", [1, 3])
def test_the_threshold_is_the_least_whose_chance_is_within_delta(law, most, scale, least):
    tau = threshold_for(1e-5, scale, most, law, least)
    assert chance_of_own_keys(tau, scale, most, law, least) <= 1e-5
    assert chance_of_own_keys(tau - 1e-6 * scale, scale, most, law, least) > 1e-5
    assert tau <= threshold_for(1e-5, scale, most, law)


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize(("form", "law"), [(KeyCounts, "gaussian"), (KeyShares, "laplace")])
def test_the_worst_user_of_own_keys_is_listed_as_often_as_the_formula_says(form, law, least):
    """4000 draws for each number of keys: a false alarm has a probability below 1e-6, twice the chance is seen."""
    rng, scale, most, delta = np.random.default_rng(0), 0.5, 20, 0.05
    tau = threshold_for(delta, scale, most, law, least)
    seen = []
    for n in (1, 3, 5, most):
        weight = form(most, least=least).steps[n] * 2.0**-32
        noise = rng.normal(size=(4000, n)) if law == "gaussian" else rng.laplace(size=(4000, n))
        seen.append(float((weight + scale * noise >= tau).any(axis=1).mean()))
    five_deviations = 5 * math.sqrt(delta / 4000)
    assert max(seen) <= delta + five_deviations < 2 * delta - five_deviations
    assert max(seen) >= delta - five_deviations, "the maximum over numbers of keys is attained"


def test_a_user_of_more_keys_than_the_cap_moves_the_counts_by_at_most_one_and_gives_to_that_many():
    heavy = pairs(*[("a", f"item {k}") for k in range(50)])
    values = raw_copy(counted(heavy, KeyCounts(8)))
    assert len(values.texts) == 8
    assert 1 - 1e-6 < float(np.square(values.counts).sum()) <= 1
    shares = raw_copy(counted(heavy, KeyShares(8)))
    assert 1 - 1e-6 < float(shares.counts.sum()) <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30)), min_size=1, unique=True),
    st.integers(0, 6),
    st.sampled_from([KeyCounts, KeyShares]),
)
def test_removing_or_replacing_any_user_moves_the_counts_by_at_most_their_sensitivity(rows, user, form):
    mechanism = (ThresholdedGaussian if form is KeyCounts else ThresholdedLaplace)(1e-4)
    here = counted(pairs(*rows), form(4))
    rest = [row for row in rows if row[0] != user]
    if rest:
        moved = distance(here, raw_copy(counted(pairs(*rest), form(4))), mechanism)
        assert moved <= mechanism.sensitivity(here) * (1 + 1e-9)
    other = [*rest, *((user, 40 + k) for k in range(3))]
    replaced = counted(pairs(*other), form(4, REPLACE_VALUES))
    moved = distance(replaced, raw_copy(here), mechanism)
    assert moved <= mechanism.sensitivity(replaced) * (1 + 1e-9)
    assert mechanism.sensitivity(replaced) == pytest.approx(math.sqrt(2) if form is KeyCounts else 2.0)


def crowd(items=("1", "2", "3", "10"), users=400, ids=int):
    return [(f"u{k}", ids(item)) for k in range(users) for item in items]


def written(data, seed=3, exact=False):
    """Everything that leaves: ids, their type and order, counts, the statement."""
    listed, session = released(data, seed=seed, exact=exact)
    kept = on_list(in_text_order(data), listed.texts)
    return listed, kept, session.statement()


@pytest.mark.parametrize("exact", [False, True])
def test_a_user_with_keys_of_its_own_changes_nothing_that_is_written_but_noisy_counts(exact):
    """The own keys come before, between and after the others; one is text where all others are integers."""
    without = pairs(*crowd())
    own = pairs(
        *[(user, str(item)) for user, item in crowd()], ("loner", "0"), ("loner", "15 of mine"), ("loner", "99")
    )
    (first, kept, stated), (second, other, again) = written(without, exact=exact), written(own, exact=exact)
    assert first.texts == second.texts == ("1", "10", "2", "3")
    assert kept.task_ids == other.task_ids
    assert kept.task_ids.ids.dtype == other.task_ids.ids.dtype == np.int64
    assert list(kept.task_ids) == [1, 10, 2, 3], "in text order, whatever the ids were"
    assert len(stated.to_json()) == len(again.to_json())
    assert stated == again
    assert stated.releases[0].shape == (4,)


def test_keys_that_nobody_holds_get_no_noise_and_are_never_listed():
    """A vocabulary remembers keys after `without`; with so low a threshold noise alone would list half of them."""
    loose = Budget(2.0, 0.9, 0.8)
    listed, _ = released(pairs(*crowd(users=3), *[("x", 100 + k) for k in range(40)]).without(3), budget=loose)
    assert set(listed.texts) <= {"1", "2", "3", "10"}


def test_public_keys_are_listed_whatever_their_count_and_private_ones_above_the_threshold():
    listed, _ = released(pairs(*crowd()), known=("7", "2"))
    assert listed.texts == ("1", "10", "2", "3", "7")
    assert listed.known.tolist() == [False, False, True, False, True]
    assert (listed.counts[~listed.known] >= listed.threshold).all()
    assert listed.counts[listed.texts.index("7")] < listed.threshold


def test_which_keys_a_heavy_user_takes_does_not_depend_on_the_keys_of_others():
    rows = [("heavy", k) for k in range(100, 160)]
    alone = raw_copy(counted(pairs(*rows)))
    beside = raw_copy(counted(pairs(*[(u, str(i)) for u, i in rows], ("x", "1"), ("x", "114 b"), ("x", "999"))))
    assert set(alone.texts) <= set(beside.texts)


def test_the_threshold_in_exact_arithmetic_is_on_the_grid_that_is_released():
    listed, session = released(pairs(*crowd(users=60)), exact=True)
    assert (listed.counts >= listed.threshold).all()
    assert session.statement().releases[0].threshold == listed.threshold


def test_delta_is_divided_beforehand_and_a_list_beyond_its_part_is_refused():
    assert BUDGET.mu == Budget(2.0, BUDGET.noise_delta).mu < Budget(2.0, 1e-3).mu
    session = Session(BUDGET, noise=SeededNoise(0))
    plan = session.plan(keys=[0.5, 0.4])
    session.release_keys("one", counted(pairs(*crowd())), plan.several("keys")[0], 4e-4)
    with pytest.raises(BudgetError, match=r"asks for 0\.0004 of delta for a list"):
        session.release_keys("two", counted(pairs(*crowd())), plan.several("keys")[1], 4e-4)
    none = Session(Budget(1.0, 1e-5), noise=SeededNoise(0))
    with pytest.raises(BudgetError, match="the budget reserves 0 for such lists"):
        none.release_keys("keys", counted(pairs(*crowd())), none.plan(keys=1.0).one("keys"), 1e-6)


def test_a_delta_that_is_all_for_keys_leaves_laplace_noise():
    pure = Budget(1.0, 1e-6, 1e-6)
    listed, session = released(pairs(*crowd()), budget=pure, form=KeyShares(8))
    statement = session.statement()
    assert pure.pure
    assert statement.releases[0].mechanism == "laplace-with-threshold"
    assert statement.spent_epsilon == pytest.approx(1.0)
    assert listed.texts == ("1", "10", "2", "3")


def test_the_statement_says_how_delta_is_divided_and_survives_json():
    _, session = released(pairs(*crowd()))
    statement = session.statement()
    assert "0.0005 for noise, 0.0005 for lists of private keys, of which 0.0005 was used" in statement.to_text()
    assert Statement.from_json(statement.to_json()) == statement
    assert json.loads(statement.to_json())["keys_delta"] == 5e-4


def test_an_account_bears_lists_only_from_the_part_of_delta_that_it_was_opened_with(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        account = ledger.create_account("shop", Budget(4.0, 1e-5, 4e-6))
        session = account.session(Budget(1.0, 5e-6, 3e-6), noise=SeededNoise(0))
        session.release_keys("keys", counted(pairs(*crowd())), session.plan(k=0.5).one("k"), 3e-6)
        assert account.status().spent[-1] != "0"
        with pytest.raises(BudgetError, match="does not fit"):
            account.session(Budget(1.0, 5e-6, 3e-6))
        assert account.session(1.0).budget.keys_delta == pytest.approx(1e-6)
        assert ledger.account("shop").verify().entries == 1
        plain = ledger.create_account("other", Budget(4.0, 1e-5))
        with pytest.raises(BudgetError, match="keeps no part of its delta"):
            plain.session(Budget(1.0, 5e-6, 3e-6))
        with pytest.raises(BudgetError, match="keeps no part of its delta"):
            plain.charge("keys", ListedRelease(GaussianRelease(0.1), 1e-6))


def test_keys_and_counts_cannot_be_read_and_other_neighbours_are_refused():
    hidden = counted(pairs(*crowd()))
    assert hidden.shape == ()
    assert "hidden" in repr(hidden)
    with pytest.raises(TypeError):
        list(hidden)
    with pytest.raises(InputError, match="one user's keys"):
        KeyCounts(8, ADD_REMOVE_TASK)
    with pytest.raises(InputError, match="from 1 to"):
        KeyCounts(0)


def test_ids_of_a_list_are_integers_only_if_every_listed_text_is_one():
    assert ids_of_texts(["1", "10"]).dtype == np.int64
    assert ids_of_texts(["007", "1"]) == ["007", "1"]
    assert Vocabulary(ids_of_texts([]), name="item", declared=True).ids.dtype == np.int64

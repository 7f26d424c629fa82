"""Lists of keys in two rounds: what one user moves, what its own keys may do, and that nothing else leaves."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing import audit_neighbour
from apportion.auditing.hidden_values import distance, raw_copy
from apportion.data.groups import rows_by_group
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError, InputError
from apportion.privacy import REPLACE_VALUES, Budget, Ledger, SeededNoise, Session
from apportion.privacy.contributions import SecondKeyCounts
from apportion.privacy.keys import KeyedSum, OwnWeights
from apportion.privacy.mechanisms import SecondLook
from apportion.privacy.seen_keys import NoisyCounts, Seen
from apportion.statistics import UserKeys
from apportion.statistics.groups import key_rounds
from apportion.statistics.groups.keys import release_list

ENGINE = LocalEngine(np.float64, exact=True)
BUDGET = Budget(2.0, 1e-3, 5e-4)


def seen(scale=1.0, most=300, texts=(), counts=()):
    hidden = NoisyCounts(np.array(texts, object), np.array(counts, float))
    return Seen((), np.zeros(0), np.zeros(0, bool), 9.0, scale, OwnWeights(most, 3), hidden)


def second(rows, form):
    """Hidden counts of the second round; a key stands by its text alone: a third each at the least, at 0.6 and at 1."""
    users, keys = zip(*rows, strict=True)
    data = rows_by_group(list(users), [[str(key) for key in keys]], len(rows))
    noisy = seen(texts=[str(key) for key in range(60)], counts=[float(key % 3) for key in range(60)])
    standing = noisy.standing(data.held(), data.texts, 0.5, 1.5)
    return KeyedSum(add_up_one(ENGINE, standing, form), data.texts)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 50)), min_size=2, unique=True),
    st.integers(0, 6),
    st.sampled_from([SecondKeyCounts(4), SecondKeyCounts(40, 3.0), SecondKeyCounts(9, 1.0, 2)]),
)
def test_removing_any_user_moves_the_second_counts_by_at_most_one_and_no_key_by_more_than_the_bound(rows, user, form):
    rest = [row for row in rows if row[0] != user]
    alone = [row for row in rows if row[0] == user]
    if not rest or not alone:
        return
    look = SecondLook(1e-4, seen(), 0.2)
    moved = distance(second(rows, form), raw_copy(second(rest, form)), look)
    assert moved <= look.sensitivity(second(rows, form)) * (1 + 1e-9)
    given_to = raw_copy(second(alone, form)).counts
    if len(given_to):
        assert given_to.max() <= form.own.each("gaussian")[len(given_to) - 1]


def weights_of(standing, reach):
    """What one user of these standings gives to its keys."""
    keys = [f"key {place:02}" for place in range(len(standing))]
    users = rows_by_group(["u"] * len(keys), [keys], len(keys)).held().with_columns(standing=np.array(standing, float))
    return raw_copy(KeyedSum(add_up_one(ENGINE, users, SecondKeyCounts(300, reach)), keys)).counts


def test_what_keys_at_the_reach_leave_goes_to_keys_that_stand_lower():
    """Two keys are at 1.2/2 each, so 0.28 of the unit is left for two others; it was lost before."""
    given_to = weights_of([1, 1, 0, 0], 1.2)
    assert given_to == pytest.approx([0.6, 0.6, 0.14**0.5, 0.14**0.5], rel=1e-6)
    in_proportion = weights_of([1, 1, 0.4, 0.2], 1.2)
    assert in_proportion[2] == pytest.approx(2 * in_proportion[3])
    assert np.square(in_proportion).sum() == pytest.approx(1, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.floats(1, 4))
def test_every_key_that_a_user_takes_has_weight_and_squares_add_up_to_at_most_one(standing, reach):
    given_to = weights_of(standing, reach)
    assert len(given_to) == len(standing)
    assert given_to.min() > 0
    assert math.fsum(np.square(given_to)) <= 1
    assert given_to.max() <= reach / math.sqrt(len(standing))


def test_keys_need_less_weight_the_further_they_are_above_the_level_and_none_of_their_own_far_below():
    noisy = seen(0.5, texts=["a", "b", "c", "d", "e"], counts=[0.9, 1.1, 2.0, 3.75, 40.0])
    data = rows_by_group(["u"] * 5, [["a", "b", "c", "d", "e"]], 5)
    column = noisy.standing(data.held(), data.texts, 1.0, 2.0).column("standing")
    assert np.asarray(column) == pytest.approx([0.0, 1.0, 2 / 2.25, 0.5, 0.3])


@pytest.mark.parametrize("exponent", [0.6, 1.0, 1.5])
def test_the_tail_of_a_list_is_the_exponent_of_its_ranks(exponent):
    counts = 9.0 * (1000 / np.arange(1, 1001)) ** exponent
    listed = Seen(("k",) * 1000, counts, np.zeros(1000, bool), 9.0, 1.0, OwnWeights(300, 2), seen().hidden)
    assert listed.tail == pytest.approx(exponent, abs=0.02)
    assert seen().tail == 1.0
    assert key_rounds.hope_for(0.6, 1.0) < key_rounds.hope_for(1.5, 1.0)


@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_the_worst_user_of_own_keys_is_listed_as_often_as_the_formula_of_both_rounds_says(scale):
    """4000 draws for each number of keys: a false alarm has a probability below 1e-6, twice the chance is seen."""
    rng, weight, delta, form = np.random.default_rng(0), 0.2, 0.05, SecondKeyCounts(20, 2.0)
    look = SecondLook(delta, seen(2 * scale, 20), weight)
    threshold, listed = look.level(form.own, scale) * (1 + weight), []
    for n in (1, 3, 4, 10, 20):
        x = seen(most=20).own.each("gaussian")[n - 1] + 2 * scale * rng.normal(size=(4000, n))
        y = form.own.each("gaussian")[n - 1] + scale * rng.normal(size=(4000, n))
        listed.append(float((y + weight * x >= threshold).any(axis=1).mean()))
    five_deviations = 5 * math.sqrt(delta / 4000)
    assert max(listed) <= delta + five_deviations < 2 * delta - five_deviations
    assert max(listed) >= delta - five_deviations, "the maximum over numbers of keys is attained"


def test_noisy_counts_of_keys_that_are_not_listed_cannot_be_read():
    hidden = NoisyCounts(np.array(["a secret"], object), np.ones(1))
    assert "secret" not in repr(hidden)
    for leak in (pickle.dumps, copy.copy, list, float, np.asarray):
        with pytest.raises(TypeError, match="private values"):
            leak(hidden)
    with pytest.raises(TypeError, match="cannot be read"):
        hidden._found(object(), ["a secret"])


def crowd(*own, users=200):
    """Everybody holds 20 of 60 keys; one more user may hold some of its own."""
    rng = np.random.default_rng(3)
    rows = [(f"u{k}", f"key {item:02}") for k in range(users) for item in rng.choice(60, 20, replace=False)]
    return [*rows, *(("loner", each) for each in own)]


def fit(rows, session):
    users, keys = zip(*rows, strict=True)
    found = UserKeys().fit(users=users, by=keys, session=session)
    return {"keys": found.keys_, "first": found.first_, "statement": found.statement_.to_json()}


@pytest.mark.parametrize("exact", [False, True])
def test_a_user_with_keys_of_its_own_moves_each_round_by_at_most_its_sensitivity_and_nothing_else(exact):
    arguments = {"budget": BUDGET, "noise": SeededNoise(1, exact=exact)}
    ratios = audit_neighbour(fit, crowd("a of mine", "key 07", "z of mine"), crowd(), arguments)
    assert list(ratios) == ["keys, first round", "keys, second round"]
    assert 0.1 < max(ratios.values()) <= 1 + 1e-9
    listed = fit(crowd("a of mine", "z of mine"), Session(**arguments))
    assert listed["keys"]
    assert not set(listed["keys"]) & {"a of mine", "z of mine"}


@pytest.mark.parametrize("delta", [1e-4, 1.4e-6, 9e-7, 3e-4, 1e-6])
def test_both_rounds_fit_an_account_that_keeps_just_their_part_of_delta(delta, tmp_path):
    """0.05 δ and 0.95 δ, each rounded, were together more than δ for one δ in six: the second round was refused."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        account = ledger.create_account("words", Budget(2.0, delta, delta / 2))
        fit(crowd(), account.session(1.0))
        assert sum(Fraction(entry.event.delta) for entry in account.history()) <= Fraction(delta / 2)
        assert len(account.history()) == 2


def test_two_rounds_list_more_keys_than_one_with_the_same_budget():
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(3000), 12)
    words = (rng.pareto(0.9, len(users)) * 3).astype(int).clip(0, 20_000)
    data = rows_by_group(users, [words], len(users))
    two, one = (
        np.mean([release(data, Session(BUDGET, noise=SeededNoise(seed))) for seed in range(3)])
        for release in (
            lambda held, session: len(key_rounds.release_most_keys(held, session, ENGINE).texts),
            lambda held, session: len(release_list(held, session, ENGINE, 1.0).data.texts),
        )
    )
    assert two > 1.2 * one


def test_a_list_of_keys_needs_a_column_and_a_part_of_delta():
    with pytest.raises(InputError, match="a column of keys"):
        UserKeys().fit(users=["a"])
    with pytest.raises(InputError, match="above 0"):
        UserKeys(delta=0.0).fit(users=["a"], by=["k"])
    with pytest.raises(InputError, match="keys_delta"):
        UserKeys().fit(users=["a"], by=["k"], session=Session(Budget(1.0, 1e-6)))
    with pytest.raises(BudgetError, match="as many keys"):
        SecondLook(1e-6, seen(most=10), 0.2).level(OwnWeights(11), 1.0)


def test_the_second_round_refuses_noise_below_the_grid_as_the_first_does():
    nothing = NoisyCounts(np.array([], object), np.zeros(0))
    first = Seen((), np.zeros(0), np.zeros(0, bool), 9.0, 1.0, OwnWeights(300, 3), nothing)
    look = SecondLook(1e-6, first, 0.2)
    assert look.level(OwnWeights(300), 2.0**-12) > 0
    with pytest.raises(BudgetError, match="noise of at least"):
        look.level(OwnWeights(300), 2.0**-13)


def test_frames_of_a_cluster_and_other_neighbours_are_refused_before_anything_is_spent():
    class Frame:
        mapInArrow = None

    with pytest.raises(InputError, match="takes columns in memory, not a frame of a cluster"):
        UserKeys().fit(Frame(), users="who", by="word")
    session = Session(BUDGET, noise=SeededNoise(0), neighbours=REPLACE_VALUES)
    with pytest.raises((BudgetError, InputError)) as refused:
        UserKeys().fit(users=[1, 2], by=["a", "b"], session=session)
    assert str(refused.value).count("\n") == 0
    assert session.spent == 0.0

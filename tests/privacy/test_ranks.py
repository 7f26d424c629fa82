"""Weighted ranks: one user moves their scores by at most what they state, and at worst by nearly as much."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import distance, raw_copy
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import PublicRowWeights, RankedRows, UniformBase
from apportion.privacy.contributions import CellWeights
from apportion.privacy.mechanisms import PointsOnLine
from apportion.privacy.ranks import Candidates, RankedCells
from weighted_rows import layout, private, public, replaced, without

SEEDS = st.integers(0, 2**32 - 1)
BASE = UniformBase(0.0, 1.0)
ON_THE_LINE = PointsOnLine(BASE)


def ranked(indptr, values, weights):
    """The ranks of values between 0 and 1; weights are public with their numbers, or private."""
    rows, of_rows = weights if isinstance(weights, tuple) else (np.zeros(len(values)), weights)
    users = Users(indptr, {"values": values, "weights": rows})
    return RankedRows(users, of_rows, BASE)


def fixed(rows, indptr):
    """Public weights as given."""
    return np.asarray(rows), PublicRowWeights.from_rows(rows, indptr, "fixed")


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_replacing_a_users_values_moves_the_scores_of_all_cells_together_by_at_most_their_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    weights, user = public(rng, indptr), rng.integers(6)
    values = rng.random(indptr[-1])
    other = replaced(user, indptr, values, rng.random(np.diff(indptr)[user]))
    cuts = sorted(rng.random(rng.integers(0, 3)))
    quantiles = rng.uniform(0.05, 0.95, len(cuts) + 1)
    one, two = (ranked(indptr, v, weights).scores(cuts, quantiles) for v in (values, other))
    assert distance(one, raw_copy(two), ON_THE_LINE) <= one.total_sensitivity * (1 + 1e-9)


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_taking_a_user_out_moves_the_scores_by_at_most_their_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    values = rng.random(indptr[-1])
    rest, kept = without(rng.integers(6), indptr, values)
    cuts = sorted(rng.random(rng.integers(0, 3)))
    quantiles = rng.uniform(0.05, 0.95, len(cuts) + 1)
    one, two = (ranked(at, v, private()).scores(cuts, quantiles) for v, at in ((values, indptr), (kept, rest)))
    assert distance(one, raw_copy(two), ON_THE_LINE) <= one.total_sensitivity * (1 + 1e-9)


@pytest.mark.parametrize(("cuts", "quantiles"), [([], [0.3]), ([0.5], [0.5, 0.5]), ([0.5], [0.8, 0.1])])
def test_moving_the_heaviest_user_across_moves_the_scores_by_all_of_it(cuts, quantiles):
    indptr = np.array([0, 4, *range(5, 13)])  # one user with 0.2, and eight with 0.1
    weights = fixed(np.repeat([0.05, 0.1], [4, 8]), indptr)
    others = np.repeat([0.005, 0.9], 4)
    both = (np.array([end] * 4 + others.tolist()) for end in (0.49, 0.51))
    one, two = (ranked(indptr, values, weights).scores(cuts, quantiles) for values in both)
    moved = distance(one, raw_copy(two), ON_THE_LINE)
    assert moved >= 0.85 * one.total_sensitivity
    assert moved <= one.total_sensitivity


def test_scores_are_the_deviation_of_the_weighted_rank():
    indptr = np.array([0, 2, 3])
    weights = fixed([0.25, 0.25, 0.5], indptr)
    (cell,) = raw_copy(ranked(indptr, np.array([0.6, 0.2, 0.4]), weights).scores([], [0.5]))
    np.testing.assert_allclose(cell.edges, [0, 0.2, 0.4, 0.6, 1])
    np.testing.assert_allclose(cell.deviations, [0.5, 0.25, 0.25, 0.5])


def test_values_beyond_the_range_count_as_its_ends():
    indptr = np.array([0, 1, 2])
    weights = fixed([0.5, 0.5], indptr)
    (cell,) = raw_copy(ranked(indptr, np.array([-7.0, 9.0]), weights).scores([], [0.5]))
    np.testing.assert_allclose(cell.edges, [0, 0, 1, 1])
    np.testing.assert_allclose(cell.deviations, [0.5, 0.0, 0.5])


@pytest.mark.parametrize("scored", [False, True], ids=["RankedRows", "RankScores"])
def test_private_values_cannot_be_printed_pickled_copied_or_converted(scored):
    hidden = ranked(np.array([0, 1, 2]), np.array([0.5, 0.6]), private())
    hidden = hidden.scores([], [0.5]) if scored else hidden
    assert "hidden" in repr(hidden)
    for read in (pickle.dumps, copy.copy, copy.deepcopy, np.asarray, list, float):
        with pytest.raises(TypeError, match=r"private values|must be"):
            read(hidden)


def test_questions_that_make_no_sense_are_refused():
    one = ranked(np.array([0, 1]), np.array([0.5]), private())
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        one.scores([], [1.0])
    with pytest.raises(InputError, match="ascending"):
        one.scores([0.5, 0.2], [0.5] * 3)
    with pytest.raises(InputError, match="one finite value per row"):
        ranked(np.array([0, 1]), np.array([np.nan]), private())


LISTED = Candidates.listed(np.linspace(0, 1, 6))


def on_list(indptr, values, quantile):
    form = CellWeights(LISTED.points, private())
    total = add_up_one(LocalEngine(np.float64), Users(indptr, {"values": values}), form)
    return RankedCells(total, form, LISTED).scores(LISTED.between(0.2, 1.0), quantile)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_taking_a_user_out_moves_the_scores_of_a_list_by_at_most_their_sensitivity(seed):
    rng = np.random.default_rng(seed)
    indptr, quantile = layout(rng), rng.uniform(0.05, 0.95)
    values = np.round(rng.uniform(-0.1, 1.1, indptr[-1]), 1)
    rest, kept = without(rng.integers(6), indptr, values)
    one, two = (on_list(at, v, quantile) for v, at in ((values, indptr), (kept, rest)))
    moved = np.abs(raw_copy(one)[0].deviations - raw_copy(two)[0].deviations).max()
    assert moved <= one.total_sensitivity * (1 + 1e-9)


def test_a_point_of_a_list_has_all_the_ranks_of_its_rows():
    scores = on_list(np.arange(7), np.array([0.0, 0.2, 0.2, 0.3, 0.4, 0.9]), 0.5)
    (cell,) = raw_copy(scores)
    below, up_to = np.array([1, 4, 5, 5, 6]), np.array([3, 5, 5, 5, 6])  # rows below 0.2, 0.4, ... and up to them
    np.testing.assert_allclose(cell.deviations, np.maximum(np.maximum(below - 3, 3 - up_to), 0), atol=1e-6)

"""Weights on the middle of users' rows: what is left of a user is its part of the rank, clipped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import distance, raw_copy
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import InputError
from apportion.privacy import RankedRows, UniformBase
from apportion.privacy.contributions import CellWeights, MiddleRows
from apportion.privacy.mechanisms import PointsOnLine
from apportion.privacy.ranks import Candidates, RankedCells
from weighted_rows import layout, without

SEEDS = st.integers(0, 2**32 - 1)
BASE = UniformBase(0.0, 1.0)
LISTED = Candidates.listed(np.linspace(0, 1, 6))


def drawn(seed):
    rng = np.random.default_rng(seed)
    indptr = layout(rng)
    rule = MiddleRows(float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.3, 3)), float(rng.uniform(3, 6)))
    return rng, indptr, np.round(rng.random(indptr[-1]), 1), rule


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_below_any_point_a_user_has_its_part_of_the_rank_clipped(seed):
    _, indptr, values, rule = drawn(seed)
    weights = rule.of(Users(indptr, {"values": values}))
    for user in range(len(indptr) - 1):
        own, left = values[indptr[user] : indptr[user + 1]], weights[indptr[user] : indptr[user + 1]]
        most = min(len(own), rule.among)
        kept = min(most, rule.kept)
        assert left.sum() == pytest.approx(kept)
        for point in np.unique(own):
            part = most * ((own <= point).mean() - rule.quantile)
            clipped = np.clip(part, -rule.quantile * kept, (1 - rule.quantile) * kept)
            assert left[own <= point].sum() - rule.quantile * kept == pytest.approx(clipped)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_user_s_weights_do_not_depend_on_others(seed):
    rng, indptr, values, rule = drawn(seed)
    user = rng.integers(len(indptr) - 1)
    rest, kept = without(user, indptr, values)
    both = rule.of(Users(indptr, {"values": values}))
    np.testing.assert_array_equal(
        np.delete(both, np.arange(indptr[user], indptr[user + 1])), rule.of(Users(rest, {"values": kept}))
    )


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_taking_a_user_out_moves_scores_on_a_line_and_on_a_list_by_at_most_their_sensitivity(seed):
    rng, indptr, values, rule = drawn(seed)
    rest, kept = without(rng.integers(6), indptr, values)
    sought = float(rng.uniform(0.05, 0.95))  # the rank among weighted rows may be another than the rule's
    on_line, on_list = [], []
    for at, of in ((indptr, values), (rest, kept)):
        users = Users(at, {"values": of})
        on_line.append(RankedRows(users, rule, BASE).scores([], [sought]))
        form = CellWeights(LISTED.points, rule)
        cells = RankedCells(add_up_one(LocalEngine(np.float64), users, form), form, LISTED)
        on_list.append(cells.scores(LISTED, sought))
    assert distance(on_line[0], raw_copy(on_line[1]), PointsOnLine(BASE)) <= on_line[0].total_sensitivity * (1 + 1e-9)
    moved = np.abs(raw_copy(on_list[0])[0].deviations - raw_copy(on_list[1])[0].deviations).max()
    assert moved <= on_list[0].total_sensitivity * (1 + 1e-9)


def test_a_user_of_one_side_moves_the_score_by_all_of_its_sensitivity():
    users = [Users(np.array(at), {"values": np.repeat(0.9, at[-1])}) for at in ([0, 1, 3], [0, 1, 3, 9])]
    rule = MiddleRows(0.5, 2.0, 6.0)
    one, two = (RankedRows(each, rule, BASE).scores([], [0.5]) for each in users)
    assert distance(one, raw_copy(two), PointsOnLine(BASE)) >= one.total_sensitivity * (1 - 1e-6)


@pytest.mark.parametrize("wrong", [(0.0, 1.0, 1.0), (0.5, 0.0, 1.0), (0.5, 2.0, 1.0), (0.5, 1.0, np.inf)])
def test_bounds_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError, match="0 < kept <= among"):
        MiddleRows(*wrong)

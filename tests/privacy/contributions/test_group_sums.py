"""Sums by group: one vector over all groups and statistics of a user, with one bound."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.auditing.hidden_values import raw_value
from apportion.data.users import Users
from apportion.engines import LocalEngine, add_up_one
from apportion.errors import BudgetError, InputError
from apportion.privacy.contributions import Cells, ClippedParts, GroupBoxes, GroupMoments, GroupSums, NormClasses
from apportion.privacy.mechanisms import Box
from contribution_cases import NORMS, STATISTICS, moments_of_cells, ones_of_cells

ENGINE = LocalEngine(np.float64, chunk=7)


def users_of(rows, n_groups=6):
    """Users from (user, group, value) rows, in order."""
    rows = sorted(rows, key=lambda row: row[:2])
    n_users = max(user for user, _, _ in rows) + 1
    sizes = np.bincount([user for user, _, _ in rows], minlength=n_users)
    columns = {
        "tasks": np.array([group for _, group, _ in rows], np.int32),
        "values": np.array([value for _, _, value in rows], float),
    }
    return Users(np.append(0, np.cumsum(sizes)), columns, n_tasks=n_groups)


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(-1e6, 1e6)), min_size=2, max_size=60)


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(0, 5), st.floats(1e-3, 1e3), st.none() | st.floats(1e-3, 1e3))
def test_removing_any_user_moves_sums_and_norms_by_at_most_their_sensitivity(rows, user, cap, size_cap):
    rows = [*rows, (6, 0, 1.0)]
    rest = [row for row in rows if row[0] != user]
    statistics = GroupMoments(moments_of_cells, 2, cap, size_cap), GroupMoments(ones_of_cells, 1, cap)
    classes = NormClasses(statistics, (0.5, 1.0, 2.0, 4.0), (1.0, 2.0), 8.0)
    for form in (GroupSums(statistics), ClippedParts(classes, (classes.output,))):
        full, without = (add_up_one(ENGINE, users_of(some), form) for some in (rows, rest))
        assert np.linalg.norm(raw_value(full) - raw_value(without)) <= full.l2_sensitivity


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(0, 5), st.floats(1e-3, 1e3), st.none() | st.floats(1e-3, 1e3))
def test_removing_any_user_moves_sums_and_norms_by_at_most_their_l1_sensitivity(rows, user, cap, size_cap):
    rows = [*rows, (6, 0, 1.0)]
    rest = [row for row in rows if row[0] != user]
    statistics = GroupMoments(moments_of_cells, 2, cap, size_cap), GroupMoments(ones_of_cells, 1, cap)
    classes = NormClasses(statistics, (0.5, 1.0, 2.0, 4.0), (1.0, 2.0), 8.0, taxicab=True)
    for form, moved in ((GroupSums(statistics, taxicab=True), 2), (ClippedParts(classes, (classes.output,)), None)):
        full, without = (add_up_one(ENGINE, users_of(some), form) for some in (rows, rest))
        assert np.abs(raw_value(full) - raw_value(without)).sum() <= full.l1_sensitivity
        assert full.l1_sensitivity == pytest.approx(moved or 2 + (size_cap is not None))


def test_a_user_of_all_groups_reaches_the_l1_bound_and_no_further():
    """One user of six groups has the number of statistics as its L1 norm; the Euclidean form has twice that."""
    rows = [(0, group, 1e5) for group in range(6) for _ in range(50)]
    total = add_up_one(ENGINE, users_of(rows), GroupSums(STATISTICS, taxicab=True))
    assert total.l1_sensitivity == pytest.approx(2)
    assert np.abs(raw_value(total)).sum() == pytest.approx(2, rel=1e-5)
    euclidean = add_up_one(ENGINE, users_of(rows), GroupSums(STATISTICS))
    assert np.abs(raw_value(euclidean)).sum() > 4


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(0, 5), st.floats(1e-3, 1e3))
def test_removing_any_user_moves_each_group_by_at_most_the_box_and_none_up(rows, user, cap):
    rows = [*rows, (6, 0, 1.0)]
    form = GroupBoxes(GroupMoments(lambda users, cells: moments_of_cells(users, cells)[:, :1], 1, cap))
    full, without = (
        add_up_one(ENGINE, users_of(some), form) for some in (rows, [row for row in rows if row[0] != user])
    )
    moved = raw_value(full) - raw_value(without)
    assert moved.min() >= 0
    assert Box().distance(raw_value(full), raw_value(without), None) == moved.max() <= full.box_sensitivity
    assert full.box_sensitivity == pytest.approx(1)


def test_a_user_of_all_groups_reaches_the_box_and_a_sum_without_one_has_no_such_noise():
    rows = [(0, group, 1e5) for group in range(6) for _ in range(50 - group)]
    total = add_up_one(ENGINE, users_of(rows), GroupBoxes(GroupMoments(ones_of_cells, 1)))
    assert raw_value(total)[:, 0] == pytest.approx(np.ones(6))
    euclidean = add_up_one(ENGINE, users_of(rows), GroupSums(STATISTICS))
    with pytest.raises(BudgetError, match="no bound on what one user adds to each coordinate"):
        _ = euclidean.box_sensitivity


def test_users_with_a_cell_above_one_have_classes_of_their_own():
    rows = [(0, 0, 0.0), (0, 1, 0.0), (1, 2, 0.0), (1, 2, 0.0)]
    counts = GroupMoments(lambda users, cells: cells.sizes[:, None].astype(float), 1, whole=True)
    classes = NormClasses((counts,), (1.0, 2.0, 4.0), (), 1.0, taxicab=True, boxed=True)
    total = add_up_one(ENGINE, users_of(rows), ClippedParts(classes, (classes.output,)))
    assert raw_value(total) == pytest.approx([0, 1, 0, 0, 1, 0], rel=1e-5)
    assert total.l1_sensitivity == pytest.approx(1)


def test_a_user_of_all_groups_reaches_the_bound_and_no_further():
    """One user of six groups with large values: its whole vector has the norm that one group alone may have."""
    rows = [(0, group, 1e5) for group in range(6) for _ in range(50)]
    total = add_up_one(ENGINE, users_of(rows), GroupSums(STATISTICS))
    assert total.l2_sensitivity == pytest.approx(math.sqrt(2))
    assert np.linalg.norm(raw_value(total)) == pytest.approx(math.sqrt(2), rel=1e-5)


def test_users_within_the_cap_count_in_full_and_others_keep_the_ratio_of_their_cells():
    rows = [(0, 1, 0.0)] + [(1, 2, 0.0)] * 6 + [(1, 3, 0.0)] * 8
    counts = GroupMoments(lambda users, cells: cells.sizes[:, None].astype(float), 1, 5.0)
    found = 5.0 * raw_value(add_up_one(ENGINE, users_of(rows), GroupSums((counts,))))[:, 0]
    assert found == pytest.approx([0, 1, 3, 4, 0, 0], rel=1e-5)


def test_cells_are_what_a_user_has_in_one_group_and_rows_out_of_order_are_refused():
    users = users_of([(0, 2, 1.0), (0, 1, 2.0), (0, 2, 4.0), (2, 2, 8.0)])
    cells = Cells.of(users)
    assert (cells.indptr.tolist(), cells.tasks.tolist(), cells.sizes.tolist()) == ([0, 2, 2, 3], [1, 2, 2], [1, 2, 1])
    assert cells.sums(users.column("values")).tolist() == [2.0, 5.0, 8.0]
    with pytest.raises(InputError, match="in the order of their groups"):
        Cells.of(Users([0, 2], {"tasks": np.array([1, 0], np.int32)}, n_tasks=2))


def test_users_without_rows_add_nothing_and_nobody_is_an_empty_sum():
    nobody = Users([0, 0], {"tasks": np.zeros(0, np.int32), "values": np.zeros(0)}, n_tasks=6)
    for form in (GroupSums(STATISTICS), ClippedParts(NORMS, (NORMS.output,))):
        assert not raw_value(add_up_one(ENGINE, nobody, form)).any()


def test_chunks_and_runs_do_not_change_a_sum():
    rng = np.random.default_rng(0)
    users = users_of([(int(u), int(g), float(v)) for u, g, v in zip(*rng.integers(0, 6, (3, 200)), strict=True)])
    whole = raw_value(add_up_one(LocalEngine(np.float64), users, GroupSums(STATISTICS)))
    for engine in (ENGINE, LocalEngine(np.float64, runs=3)):
        np.testing.assert_array_equal(raw_value(add_up_one(engine, users, GroupSums(STATISTICS))), whole)

"""Who is who does not depend on what anybody else's id looks like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.allocation import uniform_sample
from apportion.data import Interactions, Vocabulary
from apportion.data.grouping import group_rows
from apportion.data.tables import read_table
from apportion.data.user_keys import sampling_keys
from apportion.errors import InputError

WAYS = ["7", "07", "007", " 7", "0x7", "-0", "0", "31", "0x1F", "9223372036854775807", "9223372036854775808", "70"]


def partition(codes):
    """Rows by user, whatever the users are called."""
    return {tuple(np.flatnonzero(codes == code)) for code in np.unique(codes)}


@given(st.lists(st.sampled_from(WAYS), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_user_with_another_kind_of_id_leaves_the_others_as_they_were(tmp_path_factory, ids):
    folder = tmp_path_factory.mktemp("ids")
    found = []
    for extra in ([], ["abc"]):
        file = folder / f"{len(extra)}.csv"
        file.write_text("user,item,v\n" + "".join(f"{user},{k},1\n" for k, user in enumerate([*ids, *extra])))
        table = read_table(file, user="user", columns={"v": "number"}, single_user=True)
        data = Interactions.read(file, user="user", task="item") if len(set(ids)) > 3 else None
        found.append((partition(table.users.codes[: len(ids)]), None if data is None else data.n_users - len(extra)))
    assert found[0] == found[1]


def test_ids_of_a_text_file_are_what_is_written(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("user,item,v\n" + "".join(f"{user},{user},1\n" for user in WAYS))
    data = Interactions.read(file)
    assert list(data.user_ids) == list(data.task_ids) == sorted(WAYS)


def test_a_whole_number_has_the_same_keys_as_text_and_as_a_number():
    numbers = np.array([-(2**63), -5, 0, 7, 2**63 - 1])
    as_text = Vocabulary([*map(str, numbers.tolist()), "abc", "07", str(2**63)])
    np.testing.assert_array_equal(sampling_keys(as_text)[:5], sampling_keys(Vocabulary(numbers)))
    assert len({tuple(pair) for pair in sampling_keys(as_text).tolist()}) == 8


def test_a_users_sample_of_tasks_stays_when_somebody_with_a_text_id_joins(tmp_path):
    rows = [(user, task) for user in range(5) for task in range(9)]
    kept = []
    for extra in ([], [("abc", 3)]):
        file = tmp_path / f"{len(extra)}.csv"
        file.write_text("user,item\n" + "".join(f"{user},{task}\n" for user, task in [*rows, *extra]))
        data = Interactions.read(file)
        weights = uniform_sample(3, seed=0).of(data.as_users)._values
        kept.append(
            {
                (str(data.user_ids.id_of(u)), int(data.task_ids.id_of(t)))
                for u, t, w in zip(data.users.tolist(), data.tasks.tolist(), weights, strict=True)
                if w > 0
            }
        )
    assert kept[0] == {pair for pair in kept[1] if pair[0] != "abc"}


def test_a_list_that_mixes_numbers_and_text_is_refused():
    with pytest.raises(InputError, match="as in the rows before"):
        group_rows([7, 7.5, "abc"], 3)
    with pytest.raises(InputError, match="as in the rows before"):
        group_rows(["7", 7, "abc"], 3)

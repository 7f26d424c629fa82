"""Rules for rows: expressions on a row's own cells, empty cells, and several rows of one user for one task."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.data import Interactions
from apportion.data.repeats import REPEATS
from apportion.data.row_expressions import parse_expression
from apportion.data.row_rules import RowRules
from apportion.errors import InputError

BATCH = pa.record_batch(
    {
        "rating": [1.0, 0.0, None, 5.0],
        "country": ["DE", "fr", None, "x y"],
        "price": ["1", " 2 ", "3", None],
        "new": [True, False, True, None],
    }
)
CHOSEN = {
    "rating > 0": [0, 3],
    "not rating > 0": [1],
    "country IN ('DE', 'fr') or rating = 5": [0, 1, 3],
    "country not in ('DE')": [1, 3],
    "lower(country) = 'de'": [0],
    "country like '%y'": [3],
    "rating between 0 and 1": [0, 1],
    "rating not between 0 and 1": [3],
    "rating is null": [2],
    "country is not null and (rating + 1) / 2 > 1": [3],
    "price * 2 >= 4": [1, 2],
    "length(trim(country)) = 2": [0, 1],
    "-rating < -1": [3],
    "new = true": [0, 2],
    "1 = 1": [0, 1, 2, 3],
    "rating / 0 > 0": [0, 3],
    '"rating" <> 1': [1, 3],
}
REFUSED = {
    "select 1": "got 'select'",
    "rating > (select max(rating) from t)": "got 'select'",
    "count(rating) > 1": "got 'count'",
    "sum(rating) over () > 1": "got 'sum'",
    "rating > 0 over": "got 'over'",
    "read_csv('secret.csv') = 1": "got 'read_csv'",
    "now() > 1": "got 'now'",
    "random() < 0.5": "got 'random'",
    "rating > 0; drop table t": "got '; drop table t'",
    "rating": "such as rating > 0",
    "rating > 'a": 'got "\'a"',
    "rating >": "got the end",
    "": "got the end",
    "country > 1 and country = 'x'": "cannot be both",
    "'a' > 1": "Expected a text, got a number",
    "(" * 99 + "rating > 1" + ")" * 99: "at most 60 nested",
    "rating > " + "1" * 3000: "at most 2000 characters",
}


@pytest.mark.parametrize(("text", "rows"), CHOSEN.items(), ids=CHOSEN)
def test_an_expression_is_true_of_the_rows_that_it_should_choose(text, rows):
    assert np.flatnonzero(parse_expression(text).chosen(BATCH).to_numpy(zero_copy_only=False)).tolist() == rows


@pytest.mark.parametrize(("text", "words"), REFUSED.items(), ids=[text[:30] for text in REFUSED])
def test_what_is_not_an_expression_on_one_row_is_refused(text, words):
    with pytest.raises(InputError, match=r"^Expected|^Column") as caught:
        parse_expression(text)
    assert words in str(caught.value)


def test_a_cell_that_is_no_number_is_named_with_its_row():
    with pytest.raises(InputError, match=r"Column 'country' holds 'DE' in row 11 .* expected a number"):
        parse_expression("country > 1").chosen(BATCH, first_row=11)


TABLE = {
    "user": ["a", "b", "a", "b", "a"],
    "item": [1, 1, 1, 2, 1],
    "rating": [5.0, 4.0, 1.0, 3.0, 3.0],
    "time": [7, 1, 9, 1, 8],
}
JOINED = {"last": 1.0, "first": 5.0, "mean": 3.0, "sum": 9.0, "count": 3.0}


@pytest.mark.parametrize(("rule", "value"), JOINED.items())
def test_several_rows_of_one_user_for_one_task_become_one(rule, value):
    left_out: dict[str, int] = {}
    data = Interactions.from_frame(pl.DataFrame(TABLE), rules=RowRules(repeats=rule), left_out=left_out)
    others = [1.0, 1.0] if rule == "count" else [4.0, 3.0]
    assert data.values.tolist() == [value, *others]
    assert left_out == {"repeats": 2}


def test_times_go_before_the_order_of_rows():
    without = {name: cells for name, cells in TABLE.items() if name != "time"}
    data = Interactions.from_frame(pl.DataFrame(without), rules=RowRules(repeats="last"))
    assert data.values.tolist() == [3.0, 4.0, 3.0]


def test_unknown_rules_are_refused():
    with pytest.raises(InputError, match=r"Expected repeats to be one of .* got 'latest'"):
        RowRules(repeats="latest")  # type: ignore[arg-type]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 2), st.sampled_from([None, 0.1, 0.7, 1.0, 3.3]), st.integers(0, 2)
    ),
    min_size=1,
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 3), st.sampled_from([rule for rule in REPEATS if rule != "refuse"]), st.randoms())
def test_without_one_user_every_other_row_is_the_same(rows, gone, rule, random):
    """Neighbours differ in one user's rows before the rules, so they must differ in nothing else after them."""

    def read(some):
        frame = pl.DataFrame(some, schema=["user", "item", "rating", "time"], orient="row")
        data = Interactions.from_frame(frame, single_user=True, rules=RowRules("rating < 3", "drop", rule))
        users, items = np.array(list(data.user_ids)), np.array(list(data.task_ids))
        return {
            (users[user], items[item]): value
            for user, item, value in zip(data.users, data.tasks, data.values, strict=True)
        }

    rest = [row for row in rows if row[0] != gone]
    if not any(value is not None and value < 3 for _, _, value, _ in rest):
        return
    full = read(rows)
    assert {pair: value for pair, value in full.items() if pair[0] != gone} == read(rest)
    if rule in ("mean", "sum", "count"):
        assert read(random.sample(rows, len(rows))) == full

"""Times that are written as text: each cell is read by itself, to the last digit."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data.time_texts import UNREADABLE, times_of_texts
from apportion.errors import InputError

CELLS = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1).map(str),
    st.decimals(-(10**18), 10**18, places=4).map(str),
    st.sampled_from(["1e9", "2.5E3", ".5", "7.", "+3", "0x1F", "unknown", "yesterday", "1e999", "9" * 30]),
    st.sampled_from(["2026-11-16", "2026-11-16 09:30", "2026-11-16T09:30:01.25", "2026-02-30", "2026-11-16T09:30Z"]),
    st.sampled_from(
        ["2026-11-16T09:30:01.1234567+01:00", "2026-11-16 09:30-0130", " 12 ", "0000-01-02", "2026-11-16 09:30:00+01"]
    ),
)


def read(cells, *, loose=True):
    seconds, rest = times_of_texts(pa.array(cells), "time", 1, loose=loose)
    return list(zip(seconds.tolist(), (np.zeros(len(cells), int) if rest is None else rest).tolist(), strict=True))


@given(st.lists(CELLS, min_size=1, max_size=8))
def test_a_cell_means_the_same_whatever_other_cells_there_are(cells):
    assert read(cells) == [read([cell])[0] for cell in cells]


@given(st.decimals(-(10**18) + 1, 10**18 - 1, places=9))
def test_numbers_are_read_to_the_last_digit(number):
    (seconds, rest) = read([str(number)])[0]
    assert Decimal(seconds) + Decimal(rest) / 10**9 == number


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1600000000000000001", (1600000000000000001, 0)),
        ("7.5", (7, 500_000_000)),
        ("1e9", (10**9, 0)),
        ("1970-01-02", (86400, 0)),
        ("1970-01-01 01:00", (3600, 0)),
        ("1970-01-01T01:00:00.25Z", (3600, 250_000_000)),
        ("1970-01-01T01:00+01:00", (0, 0)),
        ("1970-01-01 01:00:00+00", (3600, 0)),
        ("0000-01-02", (UNREADABLE, 0)),
        ("1970-02-30", (UNREADABLE, 0)),
        ("0x1F", (UNREADABLE, 0)),
        ("unknown", (UNREADABLE, 0)),
    ],
)
def test_what_times_mean(text, time):
    assert read([text]) == [time]


@pytest.mark.parametrize("cells", [["1", "unknown"], ["1", "2026-11-16"], ["2026-11-16", "2026-11-16T09:30Z"]])
def test_a_column_that_was_named_refuses_a_cell_of_another_kind(cells):
    with pytest.raises(InputError, match=f"holds {cells[1]!r} in row 2"):
        read(cells, loose=False)


def test_numbers_of_any_form_are_of_one_kind():
    assert read(["1", "1.5", "1e3"], loose=False) == [(1, 0), (1, 500_000_000), (1000, 0)]

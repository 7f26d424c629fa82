"""Frames of other libraries: what Arrow cannot hold is refused in one sentence, and nothing depends on odd names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from apportion.data import Interactions
from apportion.errors import InputError

ROWS = [(user, item, 1.0 + (user + item) % 5) for user in range(5) for item in range(3)]
FRAME = pd.DataFrame(ROWS, columns=["user", "item", "rating"])


def test_a_pandas_frame_may_call_its_columns_by_numbers():
    read = Interactions.from_frame(FRAME.set_axis([0, 1, 2], axis=1), user="0", task="1", value="2")
    assert read.values.tolist() == [row[2] for row in ROWS]


def test_columns_that_are_not_read_may_have_one_name():
    twice = pd.concat([FRAME, FRAME[["rating", "rating"]].set_axis(["note", "note"], axis=1)], axis=1)
    assert Interactions.from_frame(twice).n_observations == len(ROWS)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (FRAME.assign(rating=FRAME.rating.astype(complex)), "Column 'rating' holds"),
        (FRAME.assign(rating=pd.arrays.SparseArray(FRAME.rating)), "cannot be read as Arrow: Sparse"),
        (pl.from_pandas(FRAME).with_columns(pl.col("user").cast(pl.Int128)), "cannot be read as Arrow"),
        (pl.from_pandas(FRAME).lazy().with_columns(pl.col("nothing")), "lazy frame cannot be computed"),
        (pl.scan_csv("/nowhere/at/all.csv"), "lazy frame cannot be computed"),
        (FRAME.rating, "got pandas"),
        (None, "got builtins.NoneType"),
    ],
)
def test_a_frame_that_cannot_be_read_is_refused_in_one_sentence(frame, said):
    with pytest.raises(InputError, match=said) as refusal:
        Interactions.from_frame(frame)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("place", [None, 3, b"data.csv", np.int64(1)])
def test_what_is_no_path_is_refused(place):
    with pytest.raises(InputError, match="Expected the path of a file"):
        Interactions.read(place)

"""Schemas take exactly what they name."""

from __future__ import annotations

import numpy as np
import pytest

from apportion.errors import InputError
from apportion.transport.schema import Array, ByPosition, Flag, Maybe, Raw, Real, Several, Table, Whole, Word

SIZES = {"items": 2, "clients": 3}


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        (Whole(0, 5), 6),
        (Whole(0, 5), True),
        (Whole(0, 5), 2.0),
        (Whole(0, 5), "2"),
        (Real(0, 1), 1.5),
        (Real(0, 1), float("nan")),
        (Real(0, 1), True),
        (Real(0, 1), None),
        (Flag(), 1),
        (Word(("a", "b")), "__class__"),
        (Word(("a", "b")), ["a"]),
        (Raw(2, 3), b"x"),
        (Raw(2, 3), "xx"),
        (Array(("items",)), np.array([1.0, np.nan]).tobytes()),
        (Array(("items",)), np.array([1.0, np.inf]).tobytes()),
        (Array(("items",)), np.array([1.0, 1e10]).tobytes()),
        (Array(("items",), 0.0), np.array([1.0, -1.0]).tobytes()),
        (Array(("items",)), np.ones(3).tobytes()),
        (Array(("items",)), [1.0, 2.0]),
        (Maybe(Flag()), 0),
        (Several(Flag(), 1, 2), [True, True, True]),
        (Several(Flag(), 1, 2), (True,)),
        (ByPosition(Flag()), [[0, True], [0, True]]),
        (ByPosition(Flag()), [[2, True], [1, True]]),
        (ByPosition(Flag()), [[3, True]]),
        (ByPosition(Flag()), [[0]]),
        (ByPosition(Flag()), [[True, True]]),
        (ByPosition(Flag()), {"0": True}),
        (Table({"a": Flag()}), {}),
        (Table({"a": Flag()}), {"a": True, "b": True}),
        (Table({"a": Flag()}), [True]),
    ],
)
def test_other_data_are_refused_and_not_repeated(schema, plain):
    with pytest.raises(InputError, match="got something else") as refused:
        schema.read(plain, SIZES)
    assert "nan" not in str(refused.value)


def test_shapes_follow_from_numbers_read_before_and_arrays_cannot_be_written_to():
    table = Table({"width": Whole(1, 3), "rows": Array(("items", "width"))})
    rows = np.arange(6.0).reshape(2, 3)
    read = table.read(table.written({"width": 3, "rows": rows}, SIZES), SIZES)
    assert np.array_equal(read["rows"], rows)
    assert not read["rows"].flags.writeable
    with pytest.raises(InputError, match=r"shape \(2, 2\)"):
        table.read({"width": 2, "rows": rows.tobytes()}, SIZES)


def test_an_array_that_would_lose_digits_is_not_written():
    with pytest.raises(InputError, match="kind <f4"):
        Array(("items",), kind="<f4").written(np.ones(2), SIZES)

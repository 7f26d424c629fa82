"""Plain data: what comes back, and that nothing else is read."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.errors import InputError
from apportion.transport.plain import packed, unpacked

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(max_size=4).filter(lambda name: name != "bytes")
PLAIN = st.recursive(
    LEAVES | st.text(max_size=5) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def with_header(header, tail=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(4, "big") + text + tail


@given(PLAIN)
@settings(max_examples=60, deadline=None)
def test_what_is_read_is_what_was_written(value):
    assert unpacked(packed(value)) == value


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_other_bytes_are_refused_with_one_kind_of_error(content):
    try:
        value = unpacked(content)
    except InputError:
        return
    assert packed(value) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        pickle.dumps(np.arange(3)),
        with_header(b'{"a": NaN}'),
        with_header(b'{"a": Infinity}'),
        with_header(b'{"a": 1, "a": 2}'),
        with_header(b"[" * 100_000),
        with_header([[[[[[[[[[[[[[1]]]]]]]]]]]]]]),
        with_header({"a": {"bytes": 5}}, b"four"),
        with_header({"a": {"bytes": -1}}),
        with_header({"a": {"bytes": True}}, b"x"),
        with_header({"a": {"bytes": 1, "b": 2}}, b"x"),
        with_header({"a": 1}, b"left over"),
        (2**31).to_bytes(4, "big") + b"{}",
    ],
    ids=range(13),
)
def test_bytes_that_say_anything_else_are_refused(content):
    with pytest.raises(InputError, match="Expected a message of plain data"):
        unpacked(content)


@pytest.mark.parametrize("value", [np.float64(1.0), np.arange(2), print, object, {1: 2}, {"bytes": 1}, {1, 2}])
def test_nothing_but_plain_data_is_written(value):
    with pytest.raises(InputError, match="plain data"):
        packed([value])


def test_nan_is_not_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        packed([float("nan")])

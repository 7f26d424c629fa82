"""Codes of texts: those of a dictionary of Python's strings, on both paths and in every form that Arrow has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion import linalg
from apportion.data.arrow_texts import ArrowTexts
from apportion.errors import InputError
from apportion.linalg.texts import Texts

BACKENDS = ["numpy", *(["compiled"] if linalg.compiled_available() else [])]
FORMS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
IDS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["", "a", "aa", "a\0", "\0", "a" * 16, "a" * 17]
)


def codes_of_a_dictionary(texts):
    seen = {}
    return [seen.setdefault(text, len(seen)) for text in texts], list(seen)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(IDS, max_size=12), min_size=1, max_size=4), st.sampled_from(FORMS))
def test_codes_and_texts_are_those_of_a_dictionary(batches, form):
    wanted = codes_of_a_dictionary([text for batch in batches for text in batch])
    for backend in BACKENDS:
        with linalg.use_backend(backend):
            known = ArrowTexts("user")
            cells = [pa.array(["not of this batch", *batch], pa.string()).cast(form)[1:] for batch in batches]
            codes = [code for each in cells for code in known.codes_of(each).tolist()]
            assert (codes, known.texts) == wanted


@pytest.mark.parametrize("length", [1, 3, 7, 8, 15, 16, 17, 24, 40])
def test_many_texts_that_differ_in_one_place_stay_apart(length):
    rng = np.random.default_rng(length)
    letters = rng.integers(0, 4, (20_000, length)) + ord("a")  # short ones repeat, long ones hardly do
    texts = ["".join(map(chr, row)) for row in letters]
    for backend in BACKENDS:
        with linalg.use_backend(backend):
            known = ArrowTexts("user")
            assert (known.codes_of(pa.array(texts)).tolist(), known.texts) == codes_of_a_dictionary(texts)


@pytest.mark.parametrize("backend", BACKENDS)
def test_text_that_is_not_in_utf8_is_refused(backend):
    bad = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))
    with linalg.use_backend(backend), pytest.raises(InputError, match="not in UTF-8"):
        ArrowTexts("user").codes_of(bad)


@pytest.mark.skipif("compiled" not in BACKENDS, reason="the compiled kernel was not built on this machine")
@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [2, 0], [0, 3, 1]])
def test_offsets_outside_the_letters_are_refused(offsets):
    with pytest.raises(InputError, match="offsets within the bytes"):
        Texts().codes_of(np.array(offsets, np.int64), np.frombuffer(b"abcd", np.uint8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("position", [-1, 3])
def test_a_row_that_stands_for_no_text_of_the_list_is_refused(backend, position):
    """Arrow does not look: -1 would be taken for another user."""
    positions = pa.array([0, position, 1], pa.int32())
    cells = pa.DictionaryArray.from_arrays(positions, pa.array(["ann", "bob", "cy"]), safe=False)
    with linalg.use_backend(backend), pytest.raises(InputError, match="stands for no entry"):
        ArrowTexts("user").codes_of(cells)

"""Ids and codes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.data import Vocabulary
from apportion.errors import InputError

integers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30, unique=True)
close_integers = st.lists(st.integers(-50, 50), min_size=1, max_size=30, unique=True)
texts = st.lists(st.text(max_size=5), min_size=1, max_size=30, unique=True)


@given(st.one_of(integers, close_integers, texts))
def test_every_id_is_found_under_its_position(ids):
    vocabulary = Vocabulary(ids)
    assert vocabulary.codes_of(ids).tolist() == list(range(len(ids)))
    assert list(vocabulary) == ids
    assert [vocabulary.id_of(code) for code in range(len(ids))] == ids
    assert vocabulary.ids_of(np.arange(len(ids))[::-1]).tolist() == ids[::-1]


@given(close_integers, close_integers)
def test_ids_that_are_not_there_are_found_nowhere(ids, wanted):
    found = Vocabulary(ids).find(wanted).tolist()
    assert found == [ids.index(id_) if id_ in ids else -1 for id_ in wanted]


@given(texts, texts)
def test_text_that_is_not_there_is_found_nowhere(ids, wanted):
    found = Vocabulary(ids).find(wanted).tolist()
    assert found == [ids.index(id_) if id_ in ids else -1 for id_ in wanted]


def test_an_unknown_id_is_named():
    with pytest.raises(InputError, match="There is no movie 'Dune' among the 2 known ones"):
        Vocabulary(["Alien", "Brazil"], name="movie").codes_of(["Brazil", "Dune"])
    with pytest.raises(InputError, match="There is no user 7 among the 2 known ones"):
        Vocabulary([3, 900_000_000_000], name="user").code_of(7)


def test_a_code_out_of_range_is_named():
    with pytest.raises(InputError, match="Expected the code of one task from 0 to 1, got -1"):
        Vocabulary([5, 6], name="task").ids_of([0, -1])


def test_an_id_given_twice_is_named():
    with pytest.raises(InputError, match="Expected distinct tasks, got 5 more than once"):
        Vocabulary([5, 6, 5], name="task")


def test_text_and_integers_are_never_mixed_up():
    with pytest.raises(InputError, match="The ids of tasks are integers here, got '5'"):
        Vocabulary([5, 6], name="task").codes_of(["5"])
    assert "5" not in Vocabulary([5, 6])
    assert 5 in Vocabulary([5, 6])
    assert Vocabulary([5, 6]) != Vocabulary(["5", "6"])


def test_whole_floats_are_integers_and_other_floats_are_refused():
    assert Vocabulary([1.0, 2.0]) == Vocabulary([1, 2])
    with pytest.raises(InputError, match=r"holds 2\.5 in row 2"):
        Vocabulary([1.0, 2.5])


def test_ids_cannot_be_changed_and_the_list_given_stays_free():
    given_ids = np.array([4, 5])
    vocabulary = Vocabulary(given_ids)
    given_ids[0] = 9
    assert vocabulary.id_of(0) == 4
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.ids[0] = 1


@pytest.mark.parametrize("ids", [[4, 2], ["b", "a"]])
def test_a_vocabulary_survives_pickling(ids):
    vocabulary = Vocabulary(ids, name="task")
    restored = pickle.loads(pickle.dumps(vocabulary))
    assert restored == vocabulary
    assert restored.name == "task"


def test_the_printed_form_shows_no_id():
    assert repr(Vocabulary(["ann", "bob"], name="user")) == "Vocabulary(2 users, text)"


def test_long_text_is_found_whatever_array_it_comes_in():
    ids = [f"item-{k:08d}-0000-4000-8000-000000000000" for k in range(300)]
    known = Vocabulary(ids)
    assert known.find([ids[k] for k in (4, 299, 17)]).tolist() == [4, 299, 17]
    assert known.find(list(reversed(ids))).tolist() == list(range(299, -1, -1))
    assert known.find([ids[0] + "x"]).tolist() == [-1]

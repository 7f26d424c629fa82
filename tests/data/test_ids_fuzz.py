"""Two ids are one user if and only if Python calls them equal: checked against a dictionary, through every way in."""

from __future__ import annotations

import csv
import itertools
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apportion.auditing import RecordingSession, audit_neighbour
from apportion.data import Interactions, Vocabulary
from apportion.data.encoding import encode_ids
from apportion.data.features import ItemFeatures
from apportion.data.grouping import group_rows
from apportion.data.tables import read_table
from apportion.data.user_keys import sampling_keys
from apportion.errors import InputError
from apportion.privacy import Budget, SeededNoise
from apportion.recommend import PrivateClickRecommender, load, save
from apportion.regression.observations import Observations
from apportion.statistics import UserMean

TEXT = np.dtypes.StringDType(coerce=False)
PIECES = ["", "\0", "a", "b", "A", "é", "e\u0301", "\u212b", "å", " ", "\t", "7", "07", "-", "x" * 40, "😀", "\ufeff"]
texts = st.builds("".join, st.lists(st.sampled_from(PIECES), min_size=0, max_size=3))
"""Ids that differ in little: a NUL, a normal form, case, whitespace, one character at the end of many."""
lists = st.lists(texts, min_size=2, max_size=12)
integers = st.sampled_from([0, 1, -1, 7, 2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, -(2**63), 1 - 2**63])
NULS = ["t\0u1", "t\0u2", "t", "t\0", "t\0\0", "", "\0", "t\0u1" + "x" * 40, "t\0u2" + "x" * 40]


def expected_codes(ids):
    """Positions in sorted order, by Python alone."""
    place = {each: code for code, each in enumerate(sorted(set(ids)))}
    return [place[each] for each in ids]


def rows_of(ids):
    """How many rows each user has, in the order of the sorted ids."""
    return [ids.count(each) for each in sorted(set(ids))]


FORMS = {
    "list": list,
    "tuple": tuple,
    "NumPy's scalars": lambda ids: [np.str_(each) for each in ids],
    "objects": lambda ids: np.array([*ids, None], dtype=object)[:-1],
    "variable-width text": lambda ids: np.array(ids, dtype=TEXT),
    "pandas": lambda ids: pd.Series(ids, dtype=object),
    "pandas categories": lambda ids: pd.Series(ids, dtype=object).astype("category"),
    "pandas text": lambda ids: pd.Series(ids, dtype="string"),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow chunks": lambda ids: pa.chunked_array([ids[:1], ids[1:]]),
    "arrow dictionary": lambda ids: pa.array(ids).dictionary_encode(),
}
FRAMES = {
    "text": lambda ids: pa.array(ids, pa.string()),
    "large text": lambda ids: pa.array(ids, pa.large_string()),
    "view": lambda ids: pa.array(ids, pa.string_view()),
    "dictionary": lambda ids: pa.array(ids).dictionary_encode(),
}


@pytest.mark.parametrize("form", FORMS)
@given(ids=lists)
@example(ids=NULS)
@settings(max_examples=60, deadline=None)
def test_text_is_encoded_as_a_dictionary_would(form, ids):
    found = encode_ids(FORMS[form](ids), "users", name="user")
    assert found.codes.tolist() == expected_codes(ids)
    assert list(found.vocabulary) == sorted(set(ids))
    assert found.vocabulary.ids_of(found.codes).tolist() == ids
    assert found.vocabulary.codes_of(FORMS[form](ids)).tolist() == found.codes.tolist()


@given(ids=st.lists(integers, min_size=2, max_size=12))
@settings(max_examples=100, deadline=None)
def test_integers_are_encoded_as_a_dictionary_would(ids):
    forms = [ids, np.array(ids), np.array(ids, object), [np.int64(each) for each in ids], pl.Series(ids), pa.array(ids)]
    for form in forms:
        found = encode_ids(form, "users", name="user")
        assert found.codes.tolist() == expected_codes(ids)
        assert list(found.vocabulary) == sorted(set(ids))


@given(ids=lists)
@example(ids=NULS)
@settings(max_examples=60, deadline=None)
def test_fixed_width_text_keeps_apart_what_it_kept_apart(ids):
    given_elements = np.array(ids, dtype=str)  # NULs at the end are gone before anybody sees them
    found = encode_ids(given_elements, "users", name="user")
    assert found.codes.tolist() == expected_codes(given_elements.tolist())


@given(ids=lists)
@example(ids=NULS)
@settings(max_examples=40, deadline=None)
def test_every_way_into_the_library_sees_the_same_users(ids):
    rows, wanted = np.arange(len(ids)), len(set(ids))
    single = {"single_user": True}
    ways = [Interactions.from_arrays(ids, rows, **single), Interactions.from_arrays(rows, ids, **single)]
    frames = [pa.table({"user": as_column(ids), "item": rows}) for as_column in FRAMES.values()]
    ways += [Interactions.from_frame(frame, **single) for frame in frames]
    assert [ways[0].n_users, ways[1].n_tasks, *(data.n_users for data in ways[2:])] == [wanted] * len(ways)
    users = Vocabulary(sorted(set(ids)), name="user")
    codes = Interactions.from_codes(users.codes_of(ids), rows, user_ids=users, task_ids=Vocabulary(rows))
    assert np.diff(codes.by_user.indptr).tolist() == rows_of(ids)
    assert group_rows(ids, len(ids), single_user=True).sizes.tolist() == rows_of(ids)
    if wanted > 1:
        seen = Observations.from_arrays(np.ones((len(ids), 1)), np.ones(len(ids)), rows, ids)
        assert seen.data.n_users == wanted


@given(ids=lists)
@example(ids=NULS)
@settings(max_examples=30, deadline=None)
def test_parquet_keeps_every_character(tmp_path_factory, ids):
    file = tmp_path_factory.mktemp("ids") / "rows.parquet"
    parquet.write_table(pa.table({"user": ids, "item": range(len(ids)), "v": [1.0] * len(ids)}), file)
    data = Interactions.read(file, single_user=True)
    assert data.user_ids.ids_of(data.users).tolist() == sorted(ids)
    table = read_table(file, user="user", columns={"v": "number"}, single_user=True)
    assert table.users.codes.tolist() == expected_codes(ids)


@given(ids=st.lists(texts.filter(bool), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_text_files_keep_every_character(tmp_path_factory, ids):
    file = tmp_path_factory.mktemp("ids") / "rows.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL)
        writer.writerows([["user", "item", "v"], *([each, k, 1] for k, each in enumerate(ids))])
    table = read_table(file, user="user", columns={"v": "number"}, single_user=True)
    whole = all(re.fullmatch("0|-?[1-9][0-9]*", each) for each in ids)  # short ones, in this test
    assert table.users.vocabulary.holds_text != whole
    assert [str(each) for each in table.users.vocabulary.ids_of(table.users.codes).tolist()] == ids
    assert table.users.codes.tolist() == expected_codes([int(each) for each in ids] if whole else ids)


def test_a_file_with_a_long_separator_does_not_take_one_character_for_it(tmp_path):
    file = tmp_path / "rows.dat"
    file.write_bytes(b'user::item\n"a::b"::1\n"a\x1fb"::2\nc::3\n')  # both would be read as the same user
    with pytest.raises(InputError, match="stands for the separator"):
        Interactions.read(file)


def test_ids_of_any_length_cost_what_they_are_long():
    long = "x" * 1_000_000
    ids = [long + "1", long + "2"] + [str(k) for k in range(50_000)]  # 200 GB as text of a fixed width
    assert len(encode_ids(ids, "users", name="user").vocabulary) == len(ids)
    assert group_rows(ids, len(ids)).sizes.max() == 1


def test_many_rows_are_encoded_piece_by_piece_like_few(monkeypatch):
    ids = [f"{k % 37}\0{k % 11}" for k in range(3000)]
    whole = encode_ids(ids, "users", name="user")
    monkeypatch.setattr("apportion.data.encoding._TEXTS_AT_ONCE", 7)
    pieces = encode_ids(ids, "users", name="user")
    assert whole.codes.tolist() == pieces.codes.tolist() == expected_codes(ids)


@pytest.mark.parametrize("form", [list, lambda ids: np.array(ids, object), np.array])
def test_half_a_surrogate_pair_is_refused_with_its_row(form):
    ids = form(["fine", "😀", "a\udcff", "a\udcfe"])
    with pytest.raises(InputError, match=r"holds 'a\\udcff' in row 3 .* UTF-8"):
        encode_ids(ids, "users", name="user")
    with pytest.raises(InputError, match=r"row 3 .* UTF-8"):
        Vocabulary(ids)
    assert "a\udcff" not in Vocabulary(["fine"])


def test_text_that_is_not_in_utf8_is_refused(tmp_path):
    offsets = np.array([0, 1, 2, 3], np.int32).tobytes()
    broken = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfea")])
    parquet.write_table(pa.table({"user": broken, "item": [1, 2, 3]}), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"rows.parquet: Column 'user' holds text that is not in UTF-8"):
        Interactions.read(tmp_path / "rows.parquet")


REFUSED = {
    "integers and text": ([7, "7"], "text|an integer"),
    "text and integers": (["7", 7], "text, as in the rows before"),
    "bytes": ([b"a", b"b"], "integers or text"),
    "bytes of a fixed width": (np.array([b"a", b"b"]), "integers or text"),
    "bytes and text": (["a", b"a"], "text, as in the rows before"),
    "truth values": ([True, False], "integers or text"),
    "truth values and integers": ([1, True], "an integer, as in the rows before"),
    "floats and integers": ([2**53 + 1, 1.0], "an integer, as in the rows before"),
    "float32 and floats": ([1.0, np.float32(2**24 + 1)], "expected"),
    "complex numbers": (np.array([1 + 2j]), "integers or text"),
    "dates": (np.array(["2020-01-01"], "datetime64[D]"), "integers or text"),
    "missing": ([None, "a"], "is empty in row 1"),
    "missing later": (["a", None], "is empty in row 2"),
    "masked": (np.ma.array([1, 2], mask=[False, True]), "is empty in row 2"),
    "missing in text": (np.array(["a", None], np.dtypes.StringDType(na_object=None)), "is empty in row 2"),
    "fractions": ([1.5, 2.0], "holds 1.5 in row 1"),
    "not a number": ([1.0, float("nan")], "holds nan in row 2"),
    "infinite": ([1.0, float("inf")], "holds inf in row 2"),
    "beyond 64 bits": ([1, 2**63], r"below 2\*\*63"),
    "beyond 64 bits, unsigned": (np.array([1, 2**63], np.uint64), r"below 2\*\*63"),
    "beyond 64 bits, signs mixed": ([np.uint64(2**63 + 1), np.int64(-1)], r"below 2\*\*63"),
    "below 64 bits": ([-(2**63) - 1, 0], r"below 2\*\*63"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_neither_integers_nor_text_is_refused_in_one_sentence(name):
    ids, words = REFUSED[name]
    with pytest.raises(InputError, match=words) as refusal:
        encode_ids(ids, "users", name="user")
    assert str(refusal.value).count(". ") == 0


@pytest.mark.parametrize(("dtype", "bits"), [(np.float16, 11), (np.float32, 24), (np.float64, 53)])
def test_floats_are_ids_only_below_the_size_at_which_integers_merge(dtype, bits):
    assert dtype(2**bits) == dtype(2**bits + 1)  # two users were one before anybody saw them
    fine = np.array([2**bits - 1, -(2**bits) + 1, 0], dtype)
    assert list(encode_ids(fine, "users", name="user").vocabulary) == [-(2**bits) + 1, 0, 2**bits - 1]
    frame = pa.table({"user": fine, "item": [1, 2, 3]})
    assert Interactions.from_frame(frame).n_users == 3
    for value in (2**bits, -(2**bits), -(2.0**63) if bits == 53 else 2**bits + 2):
        rows = np.array([1, value], dtype)
        message = rf"row 2 .*{np.dtype(dtype)} holds integers exactly only below 2\*\*{bits}"
        with pytest.raises(InputError, match=message):
            encode_ids(rows, "users", name="user")
        with pytest.raises(InputError, match=message):
            Interactions.from_frame(pa.table({"user": rows, "item": [1, 2]}))


def test_vocabularies_keep_compare_and_find_every_id():
    names = Vocabulary(NULS, name="user")
    assert list(names) == NULS
    assert list(pickle.loads(pickle.dumps(names))) == NULS
    assert [names.code_of(each) for each in NULS] == list(range(len(NULS)))
    assert all(each in names for each in NULS)
    assert "t\0u3" not in names
    assert "t\0\0\0" not in names
    assert Vocabulary(["a\0b"]) != Vocabulary(["a\0c"])
    assert True not in Vocabulary([0, 1])
    assert 2**70 not in Vocabulary([0, 1])
    with pytest.raises(InputError, match="more than once"):
        Vocabulary(["a\0b", "a\0c", "a\0b"])


def test_no_two_ids_have_the_same_sampling_key():
    ids = [*NULS, *map(str, range(-50, 50)), "07", "7 ", " 7", "+7", "é", "e\u0301", str(2**63), "a" * 100_000]
    keys = sampling_keys(Vocabulary(sorted(set(ids))))
    assert len({tuple(pair) for pair in keys.tolist()}) == len(set(ids))
    whole = keys[:, 1] == 0
    assert whole.sum() == 100  # the text of a whole number is that number, and no other text can be


def test_features_of_items_are_matched_by_the_whole_id():
    frame = pa.table({"item": [*NULS[:3], "t\0"], "size": [1.0, 2.0, 3.0, 4.0]})
    rows = ItemFeatures.from_frame(frame, item="item")
    both = rows.for_tasks(Vocabulary(["t\0u2", "t\0u1", "t\0u3"], name="task"))
    assert np.diff(both.indptr).tolist() == [both.indptr[1], both.indptr[1], 0]


def test_saved_models_keep_every_character_of_an_id(tmp_path):
    tasks = sorted(NULS)
    users, items = np.divmod(np.arange(6 * len(tasks)), len(tasks))
    data = Interactions.from_arrays(users, [tasks[k] for k in items], task_ids=tasks)
    model = PrivateClickRecommender(epsilon=5.0, dimension=2, noise=SeededNoise(0)).fit(data).model_
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert list(again.task_ids) == tasks
    assert again.task_ids == model.task_ids
    assert {each.task for each in again.similar("t\0u1", len(tasks) - 1)} == set(tasks) - {"t\0u1"}


# -- what went wrong when two users were one --


def counts_of(ids, n_users, tasks_of):
    rows = [(ids[user], task) for user in range(n_users) for task in tasks_of(user)]
    users, tasks = zip(*rows, strict=True)
    return Interactions.from_arrays(list(users), list(tasks), task_ids=np.arange(40))


def test_a_user_whose_id_shares_its_beginning_moves_a_sum_by_no_more_than_its_sensitivity():
    ids = ["t\0u1", "t\0u2", "a", "b"]

    def fit(data, session):
        model = PrivateClickRecommender(dimension=2, noise=session.noise).fit(data, session=session).model_
        return {"vectors": model.vectors}

    def tasks_of(user):
        return range(30) if user == 0 else range(30, 32) if user == 1 else range(user, 40, 3)

    data = counts_of(ids, 4, tasks_of)
    neighbour = counts_of(ids[1:], 3, lambda user: tasks_of(user + 1))
    ratios = audit_neighbour(fit, data, neighbour, {"budget": Budget(5.0, 1e-5), "noise": SeededNoise(0)})
    assert max(ratios.values()) <= 1 + 1e-9  # 1.47 when the two were one user


def test_sums_over_users_do_not_depend_on_what_users_are_called():
    values = np.linspace(0, 1, 12)
    hidden = []
    for names in (["a", "b", "c"], ["t\0", "t\0u1", "t\0u2"]):
        session = RecordingSession(Budget(1.0, 1e-6), noise=SeededNoise(0))
        groups = list(itertools.islice(itertools.cycle(names), 12))
        UserMean(value_range=(0.0, 1.0)).fit(values, users=groups, session=session)
        hidden.append([np.asarray(record.hidden) for record in session.records])
    for one, two in zip(*hidden, strict=True):
        np.testing.assert_array_equal(one, two)

"""Which rows of a study have public features, and what their units depend on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from apportion.data import ItemFeatures
from apportion.errors import InputError
from apportion.evaluation import Study, run_study
from apportion.evaluation.study.item_features import features_fingerprint, put_features, with_feature_rows
from small_studies import LIMIT, OURS, STATISTICS, Counting, figures, study, unit_files


def described(ids, words=3):
    return ItemFeatures.from_frame(pa.table({"item": ids, "word": [f"w{i % words}" for i in range(len(ids))]}))


@pytest.fixture
def features(ratings):
    return described(ratings.task_ids.ids)


def names(asked):
    return [(method.name, method.spec.get("features", False)) for method in asked.methods]


def test_methods_that_take_features_become_two_rows():
    asked = study(methods=[OURS, STATISTICS, {**OURS, "name": "mine", "grid": {"settings.clip": [0.5, 0.7]}}])
    found = with_feature_rows(asked)
    assert names(found) == [
        ("ours", False),
        ("ours, with features", True),
        ("ssp", False),
        ("mine", False),
        ("mine, with features", True),
    ]
    assert found.methods[4].grid == found.methods[3].grid


@pytest.mark.parametrize("said", [{"features": True}, {"grid": {"features": [False, True]}}])
def test_a_study_that_says_which_methods_have_features_is_left_as_it_is(said):
    asked = study(methods=[{**OURS, **said}, {**OURS, "name": "other"}])
    assert with_feature_rows(asked) == asked


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ([STATISTICS, LIMIT], "a method 'ours', or one with features = true"),
        ([{**OURS, "features": False}], "a method 'ours', or one with features = true"),
        ([OURS, {**OURS, "name": "ours, with features"}], "no method named 'ours, with features'"),
    ],
)
def test_studies_that_leave_features_nowhere_to_go_are_refused(methods, words, ratings, features, tmp_path):
    with pytest.raises(InputError, match=words):
        run_study(study(methods=methods), ratings, tmp_path / "s", features=features)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("value", ["items.csv", 1, None])
def test_whether_a_method_has_features_is_true_or_false(value):
    with pytest.raises(InputError, match="true or false"):
        study(methods=[{**OURS, "features": value}])
    with pytest.raises(InputError, match="true or false"):
        study(methods=[{**OURS, "grid": {"features": [value]}}])


def test_a_method_that_has_no_use_for_features_says_so(ratings, features, tmp_path):
    asked = study(methods=[OURS, {**STATISTICS, "features": True}])
    with pytest.raises(InputError, match=r"Method 'ssp': .*got 'features'"):
        run_study(asked, ratings, tmp_path / "s", features=features)
    with pytest.raises(InputError, match="Method 'ours': Expected public item features"):
        run_study(study(methods=[{**OURS, "features": True}]), ratings, tmp_path / "s")


def test_the_builder_gets_the_features_themselves(features):
    assert put_features({"method": "ours", "features": True}, features) == {"method": "ours", "features": features}
    assert put_features({"method": "ours", "features": False}, features) == {"method": "ours"}
    assert put_features({"method": "ours"}, None) == {"method": "ours"}


def test_only_rows_with_features_are_fitted_again_when_features_change(ratings, features, tmp_path):
    def fits(known):
        counting = Counting()
        found = run_study(study(), ratings, tmp_path / "s", build=counting, features=known)
        return len(counting.fits), figures(found)

    n_plain, plain = fits(None)
    n_added, added = fits(features)
    assert (n_plain, n_added) == (5, 4)
    assert {key: added[key] for key in plain} == plain
    assert added["ours, with features", 8.0] != added["ours", 8.0]
    assert fits(features) == (0, added)
    n_other, other = fits(described(ratings.task_ids.ids, words=4))
    assert n_other == 4
    assert other["ours, with features", 8.0] != added["ours, with features", 8.0]
    assert len(unit_files(tmp_path / "s")) == 13


def test_the_study_with_features_in_the_documentation_is_one():
    text = (Path(__file__).parents[3] / "docs" / "howto" / "features.md").read_text(encoding="utf-8")
    asked = Study.from_table(tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]))
    assert asked.reading["features"] == "movies.csv"
    assert asked.reading["feature_crosses"] == [["genres", "year"]]
    assert {each.spec["features"] for each in asked.methods[0].combinations()} == {False, True}
    assert with_feature_rows(asked) == asked


def test_the_fingerprint_is_of_what_is_known_of_each_task(ratings):
    ids = ratings.task_ids.ids
    shuffled = np.random.default_rng(0).permutation(len(ids))
    word = np.array([f"w{i % 3}" for i in range(len(ids))])
    one = ItemFeatures.from_frame(pa.table({"item": ids, "word": word}))
    again = ItemFeatures.from_frame(pa.table({"item": ids[shuffled], "word": word[shuffled]}))
    beyond = ItemFeatures.from_frame(
        pa.table({"item": np.append(ids, 10**6), "word": np.append(word, "w0")})
    )  # an item that is no task
    other = ItemFeatures.from_frame(pa.table({"item": ids, "word": word[shuffled]}))
    prints = [features_fingerprint(each, ratings.task_ids) for each in (one, again, beyond, other)]
    assert prints[0] == prints[1] == prints[2] != prints[3]

"""Study files: what is left out has a default, and what makes no sense is refused with its place and value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.evaluation import read_study
from apportion.evaluation.study import Budgets, SplitPlan, Tuning
from apportion.evaluation.study.running import refuse_bad_methods
from apportion.recommend import methods
from small_studies import OURS, study


def test_the_study_in_the_documentation_is_one(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "howto" / "compare.md").read_text(encoding="utf-8")
    (tmp_path / "study.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1], encoding="utf-8")
    found = read_study(tmp_path / "study.toml")
    assert [len(method.combinations()) for method in found.methods] == [1, 6, 3, 1]
    refuse_bad_methods(found, methods.build)


def test_what_is_left_out_has_a_default():
    found = study(data={"kind": "clicks"}, budgets={"epsilon": [1]}, tuning={"rule": "best on validation"})
    assert found.metrics == ("recall@20", "ndcg@100", "recall@100/80/60/40/20")
    assert found.budgets == Budgets((1.0,), 1e-6, (0,))
    assert found.split == SplitPlan(0, 0.1, 0.1, 0.8)
    assert found.tuning == Tuning((1,), "recall@20")  # noise that the test does not use
    four = study(data={"kind": "clicks"}, evaluation={"slices": 4})
    assert four.measures.recall_at_by_slice == (80, 60, 40, 20)
    assert study().metrics == ("rmse", "mae")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": None}, r"Expected data in the study \(a table\), got none"),
        ({"data": {}}, r'Expected kind in \[data\] \("ratings" or "clicks"\), got none'),
        ({"data": {"kind": "stars"}}, "got 'stars'"),
        ({"data": {"kind": "ratings", "pth": "x"}}, r"Expected only kind, .* in \[data\], got 'pth'"),
        ({"data": {"kind": "ratings", "test": 3}}, r"Expected test in \[data\] to be a fraction from 0 to 1, got 3"),
        ({"data": {"kind": "ratings", "test": 0.6, "validation": 0.5}}, r"below 1 together, got 0\.5 and 0\.6"),
        ({"data": {"kind": "ratings", "value_range": [5, 1]}}, r"low below high, got \[5, 1\]"),
        ({"data": {"kind": "ratings", "min_value": 3}}, "only with clicks, got 3"),
        ({"budgets": {"epsilon": []}}, r"different numbers above 0, got \[\]"),
        ({"budgets": {"epsilon": [1, -1]}}, r"got \[1, -1\]"),
        ({"budgets": {"epsilon": [1, 1]}}, r"got \[1, 1\]"),
        ({"budgets": {"epsilon": 1}}, "got 1"),
        ({"budgets": {"epsilon": [1], "delta": 1}}, "Expected delta .* between 0 and 1, got 1"),
        ({"budgets": {"epsilon": [1], "seeds": [0.5]}}, r"got \[0\.5\]"),
        ({"budgets": {"epsilon": [1], "seeds": [True]}}, r"got \[True\]"),
        ({"methods": []}, r"one or more \[\[methods\]\] tables, got \[\]"),
        ({"methods": [{"name": "x"}]}, r"Expected method in \[\[methods\]\] number 1"),
        ({"methods": [OURS, OURS]}, "got 'ours' 2 times"),
        ({"methods": [{**OURS, "grid": {"rounds": [1]}}]}, "either as a setting or in its grid, got both"),
        ({"methods": [{**OURS, "grid": {"growth": 2.0}}]}, r"to be a list of values, got 2\.0"),
        ({"methods": [{**OURS, "grid": {"rounds.a": [1]}}]}, "Expected rounds to be a table, .* got 2"),
        ({"evaluation": {"recall_at": [5]}}, "got 'recall_at'"),  # not for ratings
        ({"tuning": {"rule": "best on test"}}, "got 'best on test'"),
        ({"tuning": {"rule": "best on validation", "metric": "recall@20"}}, "one of rmse, mae, got 'recall@20'"),
        (
            {"data": {"kind": "ratings", "validation": 0}, "tuning": {"rule": "best on validation"}},
            "validation .* above 0",
        ),
        ({"inspection": {"reference": "ours"}}, r"non-private method \(non-private\), got 'ours'"),
        ({"methods": [OURS], "inspection": {}}, "there is none"),
        ({"colour": "red"}, "in the study, got 'colour'"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_with_its_place_and_value(changes, words):
    with pytest.raises(InputError, match=words):
        study(**changes)


def test_a_file_that_is_no_study_is_refused_by_name(tmp_path):
    path = tmp_path / "s.toml"
    for content, words in (
        (b"[data\n", "s.toml is not valid TOML"),
        (b"\xff", "TOML: it is not text in"),
        (b"", "s.toml: Exp"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=words):
            read_study(path)

"""Methods of a study: a grid is every combination of its lists, or some that are drawn, alike for all methods."""

from __future__ import annotations

import pytest

from apportion.errors import InputError
from apportion.evaluation import Study, read_study
from apportion.evaluation.study import Method
from small_studies import EXPONENTS, STATISTICS, study


def test_a_grid_is_every_combination_of_its_lists_under_dotted_keys():
    method = {**STATISTICS, "allocation": {"policy": "adaptive"}, "grid": {**EXPONENTS, "dimension": [4, 8]}}
    method.pop("dimension")
    (found,) = study(methods=[method]).methods
    combinations = found.combinations()
    assert len(combinations) == 6
    assert combinations[3].spec == {
        "method": "statistics",
        "rounds": 1,
        "allocation": {"policy": "adaptive", "exponent": 0.25},
        "dimension": 8,
    }
    assert combinations[3].label == "ssp: exponent 0.25, dimension 8"
    assert found.spec["allocation"] == {"policy": "adaptive"}


def test_dotted_keys_may_be_written_as_tables_in_tables(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        '[data]\nkind = "ratings"\n[budgets]\nepsilon = [1]\n[[methods]]\nmethod = "statistics"\n'
        "grid = { allocation.exponent = [0.0, 0.5] }\n"
    )
    assert [each.settings for each in read_study(path).methods[0].combinations()] == [
        {"allocation.exponent": 0.0},
        {"allocation.exponent": 0.5},
    ]


def test_methods_that_draw_from_the_same_lists_draw_the_same_settings():
    lists = {"dimension": [2, 4, 8], "rounds": [1, 2, 3], "user_ridge": [0.1, 1.0]}
    with_more = {**lists, "allocation.exponent": [0.0, 0.5]}
    some, more = (
        Method(name, {"method": "statistics"}, {k: tuple(v) for k, v in grid.items()}, draws=12)
        for name, grid in (("some", lists), ("more", with_more))
    )
    drawn = [combination.settings for combination in some.combinations()]
    assert 8 <= len(drawn) <= 12  # of 18
    assert len({repr(settings) for settings in drawn}) == len(drawn)
    assert all(settings[key] in lists[key] for settings in drawn for key in lists)
    assert {len({repr(settings[key]) for settings in drawn}) for key in lists} == {2, 3}
    common = [{key: combination.settings[key] for key in lists} for combination in more.combinations()]
    assert [settings for settings in common if settings in drawn] == common
    assert some.combinations() == some.combinations()


def test_draws_need_a_grid_to_draw_from():
    table = {"data": {"kind": "ratings"}, "budgets": {"epsilon": [1]}, "methods": [{"method": "ours", "draws": 3}]}
    with pytest.raises(InputError, match="a grid for the 3 draws of method 'ours'"):
        Study.from_table(table)

"""The MovieLens study on generated stand-ins: same grids for all rows, and curves over the exponent."""

from __future__ import annotations

import re

from benchmarks import movielens as stand_ins
from papers.skew import exponents, movielens


def test_rows_with_the_same_update_are_tuned_over_the_same_draws_but_for_their_own_setting():
    study = movielens.study("clicks", [1.0], [0], draws=40)
    for update in ("DPALS", "DPSGD"):
        rows = [method for method in study.methods if update in method.name]
        assert len(rows) == 3
        common = [
            {
                tuple((key, repr(value)) for key, value in combination.settings.items() if "allocation" not in key)
                for combination in method.combinations()
            }
            for method in rows
        ]
        assert common[0] == common[1] == common[2]
        assert len(common[0]) > 30
    assert [method.name for method in study.methods][:6] == movielens.names()
    assert study.tuning.seeds == (100,)
    assert not set(study.tuning.seeds) & set(study.budgets.seeds)


def test_curves_over_the_exponent_use_the_tuned_settings_and_compare_kinds_of_weights(tmp_path):
    data = stand_ins.generated_ratings(300)
    found = movielens.run(movielens.study("ratings", [5.0], [0], draws=2), data, tmp_path / "main", processes=1)
    by_epsilon = exponents.run(found, data, tmp_path / "exponents", [5.0], processes=1, choices=(0.0, 0.5))
    results = by_epsilon[5.0]
    assert not results.failures
    tuned = found.cell("AdaDPALS", 5.0).combination.spec
    again = next(cell for cell in results.cells if cell.combination.method == "AdaDPALS, clipped").combination.spec
    assert {k: v for k, v in again.items() if k != "allocation"} == {
        k: v for k, v in tuned.items() if k != "allocation"
    }
    text = exponents.to_markdown("ratings", by_epsilon)
    assert "| weights | 0 | 0.5 |" in text
    for row in ("AdaDPALS, normalised", "AdaDPALS, clipped", "AdaDPALS, joint", "AdaDPSGD, joint"):
        assert re.search(rf"\| {row} \| \d\.\d{{4}}±", text), row

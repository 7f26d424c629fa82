"""The internal page shows every figure of the comparison under a banner that nobody can miss."""

from __future__ import annotations

import re

import pytest

from apportion.evaluation import Comparison, Evaluation, MetricValue
from apportion.report import NewItems, Roles, internal_page
from apportion.report.internal import share_kept, summary

SLICES = ("rarest 50 %", "most popular 50 %")
ROLES = Roles("private, ε = 1", "without privacy", ("global mean", "item and user means"))


def evaluation(rmse, by_slice):
    return Evaluation(
        {
            "rmse": MetricValue(rmse, 1234, by_slice, (200, 1034)),
            "mae": MetricValue(rmse / 2, 1234, tuple(v and v / 2 for v in by_slice), (200, 1034)),
        },
        SLICES,
    )


def compare(private=0.96):
    return Comparison(
        {
            "private, ε = 1": evaluation(private, (1.2345, 0.9456)),
            "without privacy": evaluation(0.85, (None, 0.8321)),
            "global mean": evaluation(1.11, (1.3, 1.1)),
            "item and user means": evaluation(0.93, (1.25, 0.9)),
        }
    )


def test_the_banner_says_that_epsilon_does_not_cover_the_page():
    page = internal_page(compare(), ROLES)
    assert '<div class="banner orange"' in page
    assert "Computed from raw data, not covered by ε" in page


def test_every_figure_is_on_the_page():
    page = internal_page(compare(), ROLES)
    for row in compare().rows():
        assert (f"{row['value']:.4f}" if row["value"] is not None else "–") in page
    for words in ("1,234", "1,034", *SLICES, *ROLES.in_order, "RMSE", "MAE"):
        assert words in page


def test_facts_remarks_and_the_statement_are_on_the_page(model):
    page = internal_page(
        compare(), ROLES, statement=model.statement, facts={"Split": "by <rows>"}, remarks=["flattering & fine"]
    )
    for words in ("by &lt;rows&gt;", "flattering &amp; fine", "spring of 2003", "δ = 1e-6"):
        assert words in page


def test_the_page_refers_to_nothing_outside_itself(model):
    page = internal_page(compare(), ROLES, statement=model.statement)
    assert not re.search(r"https?:|url\(|@import|<script|<link|<iframe|<img|src=|href=", page)


def test_what_is_kept_is_measured_between_the_strongest_baseline_and_the_twin():
    assert share_kept(compare(0.9), ROLES, "rmse") == pytest.approx((0.93 - 0.9) / (0.93 - 0.85))
    assert "keeps 38 % of the improvement over the item and user means" in internal_page(compare(0.9), ROLES)
    assert "as well as without" in internal_page(compare(private=0.8), ROLES)
    assert "no better than the item and user means" in internal_page(compare(private=0.96), ROLES)


def test_without_a_twin_or_baselines_there_is_no_such_claim():
    alone = Roles("private, ε = 1")
    assert share_kept(compare(), alone, "rmse") is None
    assert "keeps" not in internal_page(compare(), alone)


def test_the_summary_admits_a_baseline_that_does_better():
    said = summary(compare(), ROLES)
    assert ". Baselines without privacy that learn nobody’s taste reach " in said
    assert said.endswith(". Of these, item and user means would do better than the private model.")
    assert "would do better" not in summary(compare(private=0.9), ROLES)


@pytest.mark.parametrize(("private", "behind"), [(0.93004, False), (0.93006, True)])
def test_a_figure_that_reads_the_same_is_not_called_better(private, behind):
    roles = Roles("private, ε = 1", "without privacy", ("item and user means",), simple="item and user means")
    assert ("is behind item and user means" in summary(compare(private), roles)) is behind
    assert ("would do better" in summary(compare(private), roles)) is behind


def test_higher_is_better_for_recall():
    figures = {"p": 0.3, "t": 0.4, "b": 0.2}
    recall = Comparison({name: Evaluation({"recall@20": MetricValue(value, 50)}) for name, value in figures.items()})
    roles = Roles("p", "t", ("b",))
    assert share_kept(recall, roles, "recall@20") == pytest.approx(0.5)
    assert "would do better" not in summary(recall, roles)
    page = internal_page(recall, roles)
    assert "higher is better" in page
    assert "From tail to head" not in page


def test_a_model_with_features_stands_beside_the_one_without():
    measured = compare()
    known = Comparison({"with": evaluation(0.9099, (1.01, 0.9)), **measured.evaluations})
    roles = Roles("with", ROLES.twin, ROLES.baselines, "private, ε = 1")
    assert roles.in_order[:3] == ("with", "private, ε = 1", "without privacy")
    assert "is 0.9099 with features (0.9600 without features), against 0.8500" in summary(known, roles)
    page = internal_page(known, roles)
    for row in known.rows():
        assert (f"{row['value']:.4f}" if row["value"] is not None else "–") in page
    assert "swatch s4" in page
    assert "swatch s4" not in internal_page(measured, ROLES)


def test_items_that_training_has_not_met_have_a_section_of_their_own():
    def of(rmse):
        return Evaluation({"rmse": MetricValue(rmse, 70), "mae": MetricValue(rmse / 2, 70)}, ())

    new = NewItems(Comparison({"from features": of(1.0124), "user's <own> mean": of(1.2345)}), "40 & more items")
    page = internal_page(compare(), ROLES, new_items=new)
    for words in (
        "not in training",
        "40 &amp; more items",
        "user&#39;s &lt;own&gt; mean",
        "1.0124",
        "1.2345",
        "0.5062",
    ):
        assert words in page
    assert new.summary == "RMSE on items that were not in training: 1.0124 (from features), 1.2345 (user's <own> mean)."
    assert "not in training" not in internal_page(compare(), ROLES)

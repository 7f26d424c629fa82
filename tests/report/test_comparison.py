"""The page and the tables of a study show every figure with its spread, under a banner, and draw what they say."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import pytest

from apportion.evaluation import Evaluation, MetricValue, Study
from apportion.evaluation.inspection import StudyInspection
from apportion.evaluation.study import StudyResults
from apportion.evaluation.study.study_results import Cell, Figure
from apportion.recommend.model import Neighbour
from apportion.report import comparison_csv, comparison_page, comparison_tables
from apportion.report.comparison import tables_to_print
from apportion.report.comparison_charts import Axis, Curve, curve_chart, tick_labels

SLICES = ("rarest 50 %", "most popular 50 %")
EXPONENTS = [0.0, 0.25, 0.5]
WIDTHS = (920, 340)


def study(kind="ratings", **changes):
    return Study.from_table(
        {
            "data": {"kind": kind},
            "budgets": {"epsilon": [1, 5.5], "seeds": [0, 1]},
            "methods": [
                {"method": "ours"},
                {"name": "ssp & co", "method": "statistics", "grid": {"allocation.exponent": EXPONENTS}},
                {"name": "limit", "method": "non-private"},
            ],
            "evaluation": {"slices": 2},
            **changes,
        }
    )


def evaluation(metrics, value):
    by_slice = (value + 0.2, value - 0.1)
    return Evaluation({name: MetricValue(value, 100, by_slice, (20, 80)) for name in metrics}, SLICES)


def cells(asked, values, label=lambda each: each.label):
    """A cell for each combination and ε; seeds differ by 0.02."""
    for method in asked.methods:
        for each in method.combinations():
            for epsilon in asked.budgets.epsilon if method.is_private else (None,):
                value = values(each, epsilon)
                pair = (value,) if epsilon is None else (value - 0.01, value + 0.01)
                measured = tuple(evaluation(asked.metrics, one) for one in pair)
                yield Cell(label(each), each, epsilon, measured)


def level(combination, epsilon):
    start = {"ours": 0.9, "ssp & co": 1.1, "limit": 0.8}[combination.method]
    return start - 0.01 * (epsilon or 0) + combination.settings.get("allocation.exponent", 0.0) / 8


@pytest.fixture(scope="module")
def untuned():
    asked = study()
    return StudyResults(asked, tuple(cells(asked, level)), (), (), "rows at random")


@pytest.fixture(scope="module")
def tuned():
    asked = study(tuning={"rule": "best on validation", "seeds": [5, 6]})
    explored = [cell for cell in cells(asked, level) if cell.combination.settings]
    best = {"ours": None, "limit": None, "ssp & co": 0.0}
    chosen = [
        cell
        for cell in cells(asked, level, label=lambda each: each.method)
        if cell.combination.settings.get("allocation.exponent") == best[cell.label]
    ]
    failures = (("ssp & co, epsilon = 1", "Expected <luck>, got none."),)
    return StudyResults(asked, tuple(chosen), tuple(explored), failures, "rows at random")


def parsed(drawing):
    return ElementTree.fromstring(drawing.markup())


# -- tables --


def test_a_table_has_a_row_for_each_method_and_a_column_for_each_epsilon(tuned):
    table = comparison_tables(tuned)[0]
    assert table.title == "RMSE, overall (lower is better)"
    assert table.header == ("method", "ε = 1", "ε = 5.5")
    assert table.text_rows == [
        ["ours", "0.8900 ± 0.0141", "0.8450 ± 0.0141"],  # √2 · 0.01
        ["ssp & co", "1.0900 ± 0.0141", "1.0450 ± 0.0141"],
        ["limit", "0.8000", "0.8000"],
    ]
    assert [(each.metric, each.slice) for each in comparison_tables(tuned)] == [
        (metric, place) for metric in ("rmse", "mae") for place in ("overall", *SLICES)
    ]


def test_the_terminal_gets_all_metrics_overall_and_one_by_slice():
    for kind, by_slice in (("ratings", "rmse"), ("clicks", "recall@40/20")):
        asked = study(kind)
        results = StudyResults(asked, tuple(cells(asked, level)), (), (), "")
        shown = [(each.metric, each.slice) for each in tables_to_print(results)]
        assert [metric for metric, place in shown if place == "overall"] == list(asked.metrics)
        assert [metric for metric, place in shown if place != "overall"] == [by_slice] * 2


def test_the_csv_holds_every_figure_and_its_marking(untuned):
    rows = list(csv.DictReader(io.StringIO(comparison_csv(untuned))))
    assert len(rows) == 2 * 3 * 5  # metrics, overall and slices, rows of the study
    assert all("NOT FOR RELEASE" in row["marking"] for row in rows)
    row = next(each for each in rows if (each["slice"], each["method"]) == (SLICES[0], "ssp & co: exponent 0.25"))
    assert float(row["epsilon=5.5 mean"]) == pytest.approx(1.1 - 0.055 + 0.25 / 8 + 0.2)
    assert float(row["epsilon=5.5 stddev"]) == pytest.approx(0.01 * 2**0.5)
    assert row["epsilon=1 seeds"] == "2"
    limit = next(each for each in rows if each["method"] == "limit")
    assert (limit["epsilon=1 stddev"], limit["epsilon=1 seeds"]) == ("", "1")


# -- the page --


def test_the_banner_says_that_nothing_here_is_for_release(tuned):
    page = comparison_page(tuned)
    assert '<div class="banner orange"' in page
    assert "Computed from raw data, not covered by ε" in page
    assert "NOT FOR RELEASE" in page


def test_every_figure_failure_and_fact_is_on_the_page(tuned):
    page = comparison_page(tuned, facts={"Data": "12 <rows>"})
    for table in tables_to_print(tuned):
        for _, *figures in table.text_rows:
            assert all(figure in page for figure in figures)
    for words in ("12 &lt;rows&gt;", "Expected &lt;luck&gt;", "ssp &amp; co", "rows at random", *SLICES):
        assert words in page
    assert "1 fits failed" in page


def test_the_tuning_is_declared_with_what_was_taken(tuned, untuned):
    page = comparison_page(tuned)
    assert "12 fits looked at that part" in page  # 3 settings x 2 ε x 2 seeds
    assert "not private" in page
    assert "exponent 0" in page
    assert "Nothing was tuned" in comparison_page(untuned)


def test_the_page_refers_to_nothing_outside_itself(tuned):
    assert not re.search(r"https?:|url\(|@import|<script|<link|<iframe|<img|src=|href=", comparison_page(tuned))


def test_every_drawing_says_what_it_shows(tuned):
    labels = re.findall(r'<svg[^>]*aria-label="([^"]*)"', comparison_page(tuned))
    assert len(labels) == 2 * (2 + 2 + 2)  # wide and narrow; metrics, slices at each ε, the exponent at each ε
    assert any("RMSE over ε, lower is better: ours 0.8900 ± 0.0141 at 1, 0.8450" in label for label in labels)


def test_the_headline_names_a_method_only_if_it_wins_everywhere(tuned):
    assert "By RMSE, ours does best at every ε." in comparison_page(tuned)
    asked = study()
    crossing = {("ours", 1.0): 0.9, ("ours", 5.5): 0.9, ("ssp & co", 1.0): 0.95, ("ssp & co", 5.5): 0.85}
    mixed = tuple(cells(asked, lambda each, epsilon: crossing.get((each.method, epsilon), 0.8)))
    assert "no method does best at every ε" in comparison_page(StudyResults(asked, mixed, (), (), ""))


def test_settings_are_drawn_from_validation_where_that_was_used(tuned, untuned):
    assert "Measured on the validation part" in comparison_page(tuned)
    assert "Measured on the test part" in comparison_page(untuned)
    assert "RMSE against exponent at ε = 5.5" in comparison_page(untuned)


def test_what_failed_altogether_is_a_dash_and_draws_nothing():
    asked = study()
    empty = tuple(
        Cell(cell.label, cell.combination, cell.epsilon, () if cell.epsilon == 1.0 else cell.evaluations)
        for cell in cells(asked, level)
    )
    results = StudyResults(asked, empty, (), (("x", "y"),), "")
    assert comparison_tables(results)[0].text_rows[0] == ["ours", "–", "0.8450 ± 0.0141"]
    assert "–" in comparison_page(results)
    nothing = tuple(Cell(cell.label, cell.combination, cell.epsilon, ()) for cell in empty)
    assert "INTERNAL" in comparison_page(StudyResults(asked, nothing, (), (("x", "y"),), ""))


def test_neighbours_and_overlaps_are_shown_by_title(tuned):
    found = StudyInspection(
        "limit",
        20,
        {epsilon: {"ours": MetricValue(0.4, 40, (0.125, None), (20, 20))} for epsilon in (1.0, 5.5)},
        {(7, 1.0): {"limit": [Neighbour(8, 0.9)], "ours": [Neighbour(9, 0.8)]}},
    )
    page = comparison_page(tuned, inspection=found, titles={7: "Alien", 8: "Aliens <2>"})
    for words in ("Alien: nearest neighbours at ε = 1", "Aliens &lt;2&gt;", "<td>9</td>", "0.125", "Overlap@20"):
        assert words in page
    assert "Nearest neighbours" not in comparison_page(tuned)


# -- drawings --


@pytest.mark.parametrize("width", WIDTHS)
def test_a_bar_reaches_one_standard_deviation_to_each_side(width):
    curve = Curve(
        "a", 3, "main", ((1.0, Figure(0.9, 0.1, 5)), (10.0, Figure(0.7, 0.05, 5)), (100.0, Figure(0.6, None, 1)))
    )
    root = parsed(curve_chart([curve], Axis("ε", (1.0, 10.0, 100.0), logarithmic=True), "RMSE", True, width))
    dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.iter("circle")]
    per_unit = (dots[1][1] - dots[0][1]) / 0.2
    bars = [
        abs(float(line.get("y1")) - float(line.get("y2"))) / per_unit
        for line in root.iter("line")
        if "whisker" in line.get("class") and line.get("x1") == line.get("x2")
    ]
    assert bars == pytest.approx([0.2, 0.1, 0.0], abs=2e-3)
    assert dots[1][0] - dots[0][0] == pytest.approx(dots[2][0] - dots[1][0], abs=0.05)  # equal ratios of ε
    assert all(0 <= x <= width for x, _ in dots)


@pytest.mark.parametrize("width", WIDTHS)
def test_one_epsilon_one_seed_and_a_level_line_can_be_drawn(width):
    curves = [
        Curve("a", 3, "", ((1.0, Figure(0.9, None, 1)),)),
        Curve("limit", 1, "minor", ((1.0, Figure(0.8, None, 1)),), is_level=True),
        Curve("failed", 2, "", ()),
    ]
    root = parsed(curve_chart(curves, Axis("ε", (1.0,), logarithmic=True), "RMSE", True, width))
    assert len(list(root.iter("circle"))) == 1
    assert not list(parsed(curve_chart(curves[2:], Axis("ε", (1.0,)), "RMSE", True, width)).iter("text"))


def test_names_of_many_curves_stay_apart_and_inside():
    curves = [
        Curve(f"method {n}", 1 + n % 8, "", ((1.0, Figure(0.5, None, 1)), (2.0, Figure(0.5, None, 1))))
        for n in range(30)
    ]
    drawing = curve_chart(curves, Axis("ε", (1.0, 2.0)), "Recall@20", False, 920)
    places = [float(text.get("y")) for text in parsed(drawing).iter("text") if (text.text or "").startswith("method")]
    assert len(places) == 30
    assert min(b - a for a, b in zip(sorted(places), sorted(places)[1:], strict=False)) >= 16.9
    assert min(places) > 0
    assert max(places) <= drawing.height


def test_tick_labels_differ_wherever_ticks_do():
    assert tick_labels([1.0075, 1.01, 1.0125]) == ["1.0075", "1.0100", "1.0125"]
    assert tick_labels([10.0, 20.0]) == ["10", "20"]
    assert tick_labels([0.3]) == ["0.3"]


def paths(drawing):
    return [each for each in re.findall(r"<path[^>]*>", drawing.markup()) if "curve" in each]


@pytest.mark.parametrize(("n_places", "lines"), [(1, 0), (2, 0), (3, 2)])
def test_a_line_is_drawn_from_three_points_on_and_marks_of_fewer_stand_side_by_side(n_places, lines):
    places = [float(2**k) for k in range(n_places)]
    curves = [Curve(name, 1, "", tuple((x, Figure(0.5, 0.01, 3)) for x in places)) for name in ("one", "other")]
    for width in WIDTHS:
        drawing = curve_chart(curves, Axis("ε", places, logarithmic=True), "RMSE", True, width)
        assert len(paths(drawing)) == lines
        marks = set(re.findall(r'cx="([^"]*)"', drawing.markup()))
        assert len(marks) == (n_places if lines else 2 * n_places)


def test_charts_of_many_budgets_fold_away_but_for_the_first_and_the_last():
    many = study(budgets={"epsilon": [1, 2, 4, 8, 16], "seeds": [0, 1]})
    page = comparison_page(StudyResults(many, tuple(cells(many, level)), (), (), "rows at random"))
    shown, folded = page.split("<details><summary>The same at ε = 2, ε = 4, ε = 8</summary>")
    folded = folded.split("</details>")[0]
    heading = "by popularity of the item, at ε = "
    assert [each.split("<")[0] for each in shown.split(heading)[1:]] == ["1", "16"]
    assert [each.split("<")[0] for each in folded.split(heading)[1:]] == ["2", "4", "8"]

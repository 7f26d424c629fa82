"""The page of estimates says what was released and what was promised, no more; its pictures are to scale."""

from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.privacy import ADD_REMOVE, REPLACE_LABELS, REPLACE_VALUES, Budget, Purpose, SeededNoise, Session
from apportion.privacy.statement import Statement
from apportion.report import estimates_chart as charts
from apportion.report import wording
from apportion.report.estimates import Estimate, Estimates, coefficients, columns_of, estimates_page
from apportion.report.releases import Family
from apportion.statistics import UserMean

from made_releases import a_release

WIDTHS = (920, 340)


class Text(HTMLParser):
    """What a reader sees; fails on tags that are not closed in order."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.words, self.tags = [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def __str__(self):
        return " ".join(" ".join(self.words).split())


def statement(
    epsilon=1.0, delta=0.0, *, neighbours=REPLACE_VALUES, names=(Purpose.FIRST_MOMENTS, Purpose.MEAN), **further
):
    share = 1 / len(names)
    releases = tuple(
        a_release(name, "laplace", (2,), share, 0.1, 0.25, "weights <= 1 & so on", 1.5, epsilon * share)
        for name in names
    )
    settled = {
        "epsilon": epsilon,
        "delta": delta,
        "spent_epsilon": 0.9731 * epsilon,
        "spent_mu": None if delta == 0 else 0.3,
        "releases": releases,
        "public": ("the range <0 to 5>",),
        "tuning": "nothing was tuned",
        "noise": "operating system entropy",
        "releasable": True,
        "neighbours": neighbours,
        "window": "spring of 2003",
        "version": "0.1.0",
    }
    return Statement(**settled | further)


def means(**arguments):
    rows = (
        Estimate("score", 3.5127, (3.1013, 3.9241), 0.0713, (0.0, 5.0)),
        Estimate("age", 41.0, (40.0, 42.5), 1.25, (0.0, 100.0)),
    )
    return Estimates("mean", rows, 0.95, statement(**arguments), ("Rests on <this>.",), {"Threshold": "h = 12.5"})


def quantiles(ranks=True):
    rows = tuple(
        Estimate(f"{q:g}", x, bounds=(0.0, 10.0), rank=q, ranks=(q - 0.05, q + 0.05) if ranks else None)
        for q, x in ((0.1, 1.5), (0.5, 4.0), (0.9, 9.0))
    )
    return Estimates(
        "quantile", rows, 0.9, statement(names=[Purpose.QUANTILES.at(step=step) for step in (1, 2)]), label="cost"
    )


def slopes(kind="regression", intervals=((0.5, 1.5), (-2.0, 1.0), (3.0, 5.0)), **arguments):
    rows = coefficients(["age", "ward=west"], [1.0, -0.5], 4.0, intervals)
    names = [Purpose.COEFFICIENTS] if kind == "regression" else [Purpose.GRADIENT.at(step=k) for k in range(1, 41)]
    return Estimates(kind, rows, 0.95, statement(names=names, **arguments), label="cost")


EVERY = {"mean": means(), "quantile": quantiles(), "regression": slopes(), "logistic": slopes("logistic", None)}


@pytest.mark.parametrize("found", EVERY.values(), ids=EVERY)
def test_the_page_holds_the_statement_and_every_number(found):
    page = estimates_page(found)
    text = str(Text(page))
    promised = found.statement
    for words in (
        promised.unit,
        promised.neighbours.relation,
        promised.tuning,
        promised.noise,
        promised.window,
        "0.9731",
    ):
        assert words in text
    assert "the range <0 to 5>" in text
    assert " ".join(promised.to_json().split()) in text
    for cells in columns_of(found).values():
        assert all(cell in text for cell in cells)


@pytest.mark.parametrize("found", EVERY.values(), ids=EVERY)
def test_the_page_runs_nothing_and_refers_to_nothing_outside(found):
    page = estimates_page(found)
    assert "<script" not in page
    assert not re.search(r"https?://|@import|url\(", page)
    for _, attributes in Text(page).tags:
        assert not {"src", "href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)


def test_names_cannot_smuggle_markup():
    row = Estimate("<script>alert(1)</script>", 1.0, (0.5, 1.5), 0.1, (0.0, 2.0))
    page = estimates_page(Estimates("mean", (row,), 0.95, statement(), ("<i>so</i>",), {"<b>": "<b>"}))
    assert "<script" not in page
    assert "<i>so" not in page
    assert "<script>alert(1)</script>" in str(Text(page))


def test_a_single_mean_is_the_headline():
    found = Estimates("mean", means().rows[:1], 0.95, statement())
    assert "The mean of score is 3.51, give or take 0.41" in str(Text(estimates_page(found)))


def test_noise_from_a_seed_is_marked_and_promises_nothing():
    marked = str(Text(estimates_page(means(releasable=False))))
    assert "NOT FOR RELEASE" in marked
    assert "may be shared" not in marked
    assert "learns" not in marked
    assert "this page may be shared" in str(Text(estimates_page(means())))
    assert "NOT FOR RELEASE" not in str(Text(estimates_page(means())))


@pytest.mark.parametrize(
    ("neighbours", "secret"),
    [
        (REPLACE_VALUES, "the contents of any one person’s rows"),
        (REPLACE_LABELS, "any one person’s labels"),
        (ADD_REMOVE, "whether any one person’s data was used"),
    ],
)
def test_what_is_protected_follows_from_the_neighbours(neighbours, secret):
    text = str(Text(estimates_page(means(neighbours=neighbours))))
    assert secret in text
    assert ("took part" in text) == (neighbours is ADD_REMOVE)


def test_a_pure_guarantee_has_no_exception_and_an_approximate_one_has():
    pure = str(Text(estimates_page(means())))
    assert "the bound always holds" in pure
    assert "by at most a factor of 2.8 ." in pure
    assert "except with probability" not in pure
    approximate = str(Text(estimates_page(means(delta=1e-6))))
    assert "except with probability 1e-6" in approximate
    assert "one in 1,000,000" in approximate


@given(st.floats(0.001, 30))
def test_the_best_guess_under_pure_privacy_is_what_two_worst_answers_allow(epsilon):
    meaning = wording.meaning_of(Session(Budget(epsilon, 0.0)).statement())
    chance = 1 / (1 + math.exp(epsilon))  # randomised response reaches it
    assert meaning.best_guess == pytest.approx(1 - chance, abs=1e-12)
    assert epsilon - 1e-9 <= math.log(float(meaning.odds_factor.replace(",", ""))) <= epsilon + 0.1


@given(st.floats(0.01, 10))
def test_pure_privacy_is_graded_no_better_than_a_hair_of_slack(epsilon):
    pure = wording.meaning_of(Session(Budget(epsilon, 0.0)).statement())
    implied = wording.best_guess_of(wording.gaussian.mu_of_pure(epsilon))  # what pure privacy implies in Gaussian terms
    assert pure.best_guess == pytest.approx(implied, abs=1e-9)


def test_many_steps_are_one_line_of_the_table_and_a_few_releases_one_each():
    steps = str(Text(estimates_page(slopes("logistic", None))))
    assert "gradient, 40 times" in steps
    assert "step 7: gradient 2" not in steps
    halvings = str(Text(estimates_page(quantiles())))
    assert "step 1: quantiles" in halvings
    assert "step 2: quantiles" in halvings


def test_columns_that_would_be_empty_are_left_out():
    assert list(columns_of(slopes("logistic", None))) == ["Coefficient of", "Estimate"]
    assert list(columns_of(quantiles(ranks=False))) == ["Requested rank", "Value"]
    assert list(columns_of(means())) == ["Mean of", "Estimate", "95 % interval", "Noise (standard deviation)"]


def test_coefficients_end_with_the_intercept_if_there_is_one():
    assert [row.name for row in slopes().rows] == ["age", "ward=west", "(intercept)"]
    assert [row.interval for row in slopes().rows] == [(0.5, 1.5), (-2.0, 1.0), (3.0, 5.0)]
    without = coefficients(["age"], [1.0], None, [(0.5, 1.5), (0.0, 0.0)], [0.1, 0.1])
    assert without == (Estimate("age", 1.0, (0.5, 1.5), 0.1),)


def test_the_page_of_a_real_mean_holds_no_user_and_no_count_of_rows():
    rng = np.random.default_rng(3)
    people = np.array([f"person-{k:03d}" for k in rng.integers(0, 90, 1237)])
    fitted = UserMean(1.0, value_range=(0.0, 1.0), noise=SeededNoise(1)).fit(rng.random(1237), users=people)
    row = Estimate("x", fitted.mean_, tuple(fitted.interval_), fitted.noise_stddev_, (0.0, 1.0))
    page = estimates_page(Estimates("mean", (row,), 0.95, fitted.statement_))
    assert "person-" not in page
    assert "1237" not in page.replace(",", "")


# -- pictures --


def places(drawing, tag, name, css=""):
    root = ElementTree.fromstring(drawing.markup())
    return [float(each.get(name)) for each in root.iter(tag) if css in each.get("class").split() or not css]


def words(drawing):
    return [each.text for each in ElementTree.fromstring(drawing.markup()).iter("text")]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_mean_is_drawn_to_the_scale_of_its_own_range(width):
    drawing = charts.range_chart(means().rows, width)
    assert places(drawing, "circle", "cx") == pytest.approx(
        [8 + 3.5127 / 5 * (width - 16), 8 + 0.41 * (width - 16)], abs=0.01
    )
    starts, ends = places(drawing, "line", "x1", "main"), places(drawing, "line", "x2", "main")
    assert (ends[0] - starts[0]) / (width - 16) == pytest.approx((3.9241 - 3.1013) / 5, abs=1e-3)
    assert {"0", "5", "100"} <= set(words(drawing))


@pytest.mark.parametrize("width", WIDTHS)
def test_coefficients_share_an_axis_with_zero_and_leave_the_intercept_out(width):
    drawing = charts.coefficient_chart(slopes().rows, width)
    zero, (first, second) = places(drawing, "line", "x1", "guide")[0], places(drawing, "circle", "cx")
    assert (first - zero) == pytest.approx(-2 * (second - zero), abs=0.05)
    assert "(intercept)" not in words(drawing)
    colours = [each.get("class") for each in ElementTree.fromstring(drawing.markup()).iter("circle")]
    assert colours == ["c3", "c6"]  # clear of 0, and not


def test_an_intercept_alone_is_drawn():
    assert charts.INTERCEPT in words(charts.coefficient_chart(coefficients([], [], 4.0, None), 920))


@pytest.mark.parametrize("width", WIDTHS)
def test_quantiles_rise_from_left_to_right(width):
    drawing = charts.quantile_chart(quantiles().rows, "cost", width)
    across, up = places(drawing, "circle", "cx"), places(drawing, "circle", "cy")
    assert across == sorted(across)
    assert up == sorted(up, reverse=True)
    assert (across[1] - across[0]) / (across[2] - across[1]) == pytest.approx(0.5, abs=1e-3)
    assert len(places(drawing, "line", "y1", "l3")) == 9  # a whisker and its two ends for each
    assert not places(charts.quantile_chart(quantiles(ranks=False).rows, "cost", width), "line", "y1", "l3")


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_bars_of_the_budget_are_as_long_as_their_shares(parts):
    families = [Family(f"f{k}", part / 700, "", 1 + k) for k, part in enumerate(parts)]
    left = 1 - sum(parts) / 700
    starts = places(charts.shares_chart(families, left, 920), "rect", "x")
    assert starts == pytest.approx([0.0, *(920 * s / 700 for s in itertools.accumulate(parts))], abs=0.01)


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9))
def test_any_coefficient_makes_a_picture(value, reach):
    row = Estimate("x" * 80, value, (value - reach, value + reach))
    for width in WIDTHS:
        drawing = charts.coefficient_chart((row,), width)
        assert 8 <= places(drawing, "circle", "cx")[0] <= width - 8


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_an_estimate_is_written_to_within_a_twentieth_of_its_error(value, reach):
    shown = float(wording.precise(value, reach).replace(",", ""))
    assert abs(shown - value) <= max(0.05 * reach, 0.5 if reach >= 10 else 0.0) * (1 + 1e-6)


def test_decimals_follow_the_interval():
    row = Estimate("x", 3.000142, (2.999572, 3.000712))
    assert (row.value_in_words, row.interval_in_words) == ("3.00014", "2.99957 to 3.00071")

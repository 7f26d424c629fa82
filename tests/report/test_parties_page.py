"""Pages of protected multi-task learning: the shared one says what was released; a party's says that it is its own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.evaluation.own_gain import OwnGain
from apportion.parties import InstanceGuarantee, Released
from apportion.privacy import ADD_REMOVE_TASK, REPLACE_TASK, Purpose
from apportion.privacy.statement import Statement
from apportion.report import parties_charts as charts
from apportion.report.parties import FOR_THIS_PARTY, PartyResult, SharedResult, party_pages, shared_page
from apportion.report.parties_structure import found_in

from made_releases import a_release

WIDTHS = (920, 340)
NAMES = ("age", "income", "hours", "rooms <5", "pets", "distance")


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


def statement(epsilon=1.0, *, neighbours=REPLACE_TASK, n_rounds=1, releasable=True, spent_mu=0.3):
    releases = tuple(
        a_release(
            Purpose.MODEL_COVARIANCE.at(round=k), "gaussian", (21,), 1 / n_rounds, 0.1, 1.25, "norms <= 1 & so on", 1.5
        )
        for k in range(1, n_rounds + 1)
    )
    return Statement(
        epsilon=epsilon,
        delta=1e-6,
        spent_epsilon=0.9731 * epsilon,
        spent_mu=spent_mu,
        releases=releases,
        public=("the number of tasks, 77",),
        tuning="nothing was tuned",
        noise="operating system entropy",
        releasable=releasable,
        neighbours=neighbours,
        window="spring of 2003",
        version="0.1.0",
    )


def planted(kept=2, size=6):
    """A released matrix with two strong directions, the first along two features, the second along a third."""
    first, second = np.zeros(size), np.zeros(size)
    first[[0, 1]], second[3] = (0.8, -0.6), 1.0
    matrix = 4 * np.eye(size) + 40 * np.outer(first, first) + 25 * np.outer(second, second)
    shared = matrix * size / np.trace(matrix) if kept else np.eye(size)
    return Released(matrix, 1.0, shared, np.linalg.eigvalsh(matrix), kept)


def entries(kept=2):
    values = np.array([1.0, 30.0, 2.0, 1.5, 20.0, 0.5])
    return Released(values, 1.0, np.diag(values / 30), values, kept)


def result(*rounds, structure="em", tasks=("north", "south"), features=NAMES, instance=None, **of_statement):
    rounds = rounds or (planted(),)
    promised = statement(n_rounds=len(rounds), **of_statement)
    return SharedResult(
        structure, "squared", "score", features, tasks, tuple(rounds), True, False, 1.0, promised, instance
    )


def party(task="north", gain=None, **model):
    own = {
        "label": "score",
        "loss": "squared",
        "coefficients": {"age": 1.2345, "hours": -6.0},
        "intercept": 3.25,
        "alone": {"coefficients": {"age": 2.3456, "hours": -7.0}, "intercept": 4.5},
        "lacks": [],
    }
    return PartyResult(task, own | model, gain or OwnGain(20, 5, 1.5, 2.0), 0.123, 3)


EVERY = {
    "em": result(),
    "nothing": result(planted(kept=0)),
    "rounds": result(planted(), planted(), structure="low-rank"),
    "entries": result(entries(), structure="group-sparse"),
    "private tasks": result(tasks=None, neighbours=ADD_REMOVE_TASK),
    "numerical": result(spent_mu=None, instance=InstanceGuarantee(5.0, 2)),
    "rehearsal": result(releasable=False),
}


# -- the shared page --


@pytest.mark.parametrize("found", EVERY.values(), ids=EVERY)
def test_the_page_is_well_formed_and_holds_the_statement_in_full(found):
    text = str(Text(shared_page(found)))
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
    assert " ".join(promised.to_json().split()) in text
    assert "rooms <5" in text


@pytest.mark.parametrize("found", EVERY.values(), ids=EVERY)
def test_the_page_runs_nothing_and_refers_to_nothing_outside(found):
    page = shared_page(found)
    assert "<script" not in page
    assert not re.search(r"https?://|@import|url\(", page)
    for _, attributes in Text(page).tags:
        assert not {"src", "href"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)


def test_names_cannot_smuggle_markup():
    evil = "<script>alert(1)</script>"
    page = shared_page(result(features=(evil, *NAMES[1:]), tasks=(evil,)))
    assert "<script" not in page
    assert evil in str(Text(page))
    assert "<script" not in party_pages([party(evil)], statement())[0]


def test_the_headline_counts_what_stands_out():
    assert "2 directions that tasks have in common exceed the noise" in str(Text(shared_page(result())))
    assert "1 direction that tasks have in common exceeds" in str(Text(shared_page(result(planted(kept=1)))))
    entry = str(Text(shared_page(EVERY["entries"])))
    assert "2 features that models use more, or less, than others exceed the noise" in entry
    assert "Only the diagonal was released" in entry
    nothing = str(Text(shared_page(EVERY["nothing"])))
    assert "Nothing exceeds the noise: every party learns alone" in nothing
    assert "parties received the identity matrix" in nothing


def test_directions_are_named_by_their_strongest_features():
    text = str(Text(shared_page(result())))
    assert "age +0.80, income -0.60" in text
    assert "rooms <5 +1.00" in text
    finding = found_in(planted(), NAMES, 1.0)
    assert [line[1] for line in finding.lines] == ["44", "29"]
    assert finding.zone == pytest.approx((4 - 12**0.5, 4 + 12**0.5))


def test_values_are_in_units_of_the_squared_norm():
    one = planted()
    scaled = Released(9 * one.matrix, 9 * one.stddev, one.shared, one.values, one.kept)
    assert found_in(scaled, NAMES, 9.0).lines == found_in(one, NAMES, 1.0).lines


def test_features_that_stand_out_are_listed_with_what_models_are_multiplied_by():
    finding = found_in(entries(), NAMES, 1.0)
    assert finding.lines == (("income", "30", "1"), ("pets", "20", "0.6667"))
    assert set(finding.kept) == {1, 4}


def test_tasks_are_listed_only_where_they_are_public():
    assert "north, south" in str(Text(shared_page(result())))
    private = str(Text(shared_page(EVERY["private tasks"])))
    assert "Tasks, public" not in private
    assert "whether any one party took part" in private
    assert "the contents of any one party’s rows" in str(Text(shared_page(result())))


def test_noise_from_a_seed_is_marked_and_promises_nothing():
    marked = str(Text(shared_page(EVERY["rehearsal"])))
    assert "NOT FOR RELEASE" in marked
    assert "may be shared" not in marked
    assert "learns" not in marked.partition("Results")[0]
    assert "this page may be shared" in str(Text(shared_page(result())))


def test_rounds_have_a_table_where_there_are_several():
    assert "the mean over all rounds" in str(Text(shared_page(EVERY["rounds"])))
    assert "Largest value" not in str(Text(shared_page(result())))


def test_protection_of_single_rows_is_said():
    text = str(Text(shared_page(EVERY["numerical"])))
    assert "each of its rows with ε = 5, δ = 0, 2.5 in each of 2 rounds" in text
    assert "Numerical composition" in text


def test_of_many_features_the_strongest_are_drawn():
    rng = np.random.default_rng(0)
    matrix = np.diag(rng.permutation(60) + 1.0)
    found = result(Released(matrix, 1.0, matrix, np.diag(matrix), 0), features=tuple(f"f{k}" for k in range(60)))
    page = shared_page(found)
    assert "The 40 strongest of 60 features are drawn" in str(Text(page))
    weakest = f"f{int(np.argmin(np.diag(matrix)))}"
    assert f"<title>{weakest}, {weakest}:" not in page
    assert "and 30 more, in released.json" in str(Text(page))


# -- the page of a party --


def test_a_partys_page_is_marked_as_its_own_and_holds_nobody_elses_numbers():
    north, south = party(), party("south", coefficients={"age": 9.8765, "hours": 8.7654}, lacks=["pets"])
    pages = party_pages([north, south], statement())
    assert len(pages) == 2
    first, second = (str(Text(page)) for page in pages)
    assert FOR_THIS_PARTY in first
    assert "FOR THIS PARTY ONLY" in second
    assert "lowers the error by 25.0 %" in first
    assert all(number in first for number in ("1.234", "2.346", "-6", "3.25", "12.3 %"))
    assert "9.877" not in first
    assert "south" not in first
    assert "that this party’s data lacks, as declared: pets" in second


def test_a_loss_is_called_a_loss_and_too_few_rows_are_said():
    worse, alike, few = OwnGain(20, 5, 2.2, 2.0), OwnGain(20, 5, 2.0, 2.0), OwnGain(0, 0, None, None)
    pages = [str(Text(page)) for page in party_pages([party(gain=one) for one in (worse, alike, few)], statement())]
    assert "raises the error by 10.0 %" in pages[0]
    assert "makes no difference" in pages[1]
    assert "Too few rows with a label for a comparison" in pages[2]


def test_a_logistic_model_is_said_to_predict_odds():
    text = str(Text(party_pages([party(loss="logistic")], statement())[0]))
    assert "The logarithm of the odds that score is 1" in text
    assert "log loss over 20 rows" in text


# -- pictures --


def elements(drawing, tag, css=""):
    root = ElementTree.fromstring(drawing.markup())
    return [each for each in root.iter(tag) if css in each.get("class").split() or not css]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_map_has_a_cell_for_each_pair_in_place_and_colour(width):
    matrix = planted().matrix
    drawing = charts.heat_map(matrix, NAMES, width)
    cells = [each for each in elements(drawing, "rect") if each.find("title") is not None]
    assert len(cells) == 36
    assert cells[1].find("title").text == "age, income: -19.2"
    assert "below" in cells[1].get("class")
    assert cells[0].get("class") == "above h8"  # the largest entry
    assert float(cells[1].get("x")) > float(cells[0].get("x"))
    assert cells[6].get("x") == cells[0].get("x")
    assert max(float(each.get("x")) + float(each.get("width")) for each in cells) <= width


@given(st.floats(-1e12, 1e12), st.floats(1e-12, 1e12))
def test_the_colour_of_a_cell_grows_with_its_size(value, largest):
    bounded = max(-largest, min(largest, value))
    step = int(charts.heat_class(bounded, largest)[-1])
    assert step <= charts.STEPS
    assert step >= abs(bounded) / largest * charts.STEPS - 1e-6
    assert step <= abs(bounded) / largest * charts.STEPS + 1


@pytest.mark.parametrize("width", WIDTHS)
def test_values_fall_from_left_to_right_to_the_scale_of_the_noise(width):
    one = planted()
    finding = found_in(one, NAMES, 1.0)
    drawing = charts.values_chart(one.values, finding.zone, finding.kept, finding.what, width)
    dots = elements(drawing, "circle")
    heights, places = ([float(each.get(name)) for each in dots] for name in ("cy", "cx"))
    assert places == sorted(places)
    assert heights == sorted(heights)
    assert [each.get("class") for each in dots] == ["c3", "c3", "c6", "c6", "c6", "c6"]
    zone = elements(drawing, "rect", "noise-zone")[0]
    scale = float(zone.get("height")) / (finding.zone[1] - finding.zone[0])
    assert heights[1] - heights[0] == pytest.approx(15 * scale, abs=0.05)
    assert float(zone.get("y")) < heights[2] < float(zone.get("y")) + float(zone.get("height"))


@given(st.integers(1, 50), st.floats(-6, 6))
def test_any_matrix_makes_pictures(size, exponent):
    rng = np.random.default_rng(size)
    matrix = 10**exponent * rng.standard_normal((size, size))
    matrix = matrix + matrix.T
    one = Released(matrix, 10**exponent, np.eye(size), np.linalg.eigvalsh(matrix), 0)
    finding = found_in(one, [f"f{k}" * 9 for k in range(size)], 1.0)
    for width in WIDTHS:
        assert charts.heat_map(matrix, [f"f{k}" * 9 for k in range(size)], width).height > 0
        dots = elements(charts.values_chart(one.values, finding.zone, (), "eigenvalues", width), "circle")
        assert all(0 <= float(each.get("cx")) <= width for each in dots)

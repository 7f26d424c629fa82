"""Drawings show what they were given: lengths are proportional, ticks are round, labels do not collide."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apportion.privacy import Purpose, Stage
from apportion.report.bands import popularity_bands
from apportion.report.internal_charts import Line, overall_chart, slice_chart, spread
from apportion.report.public_charts import budget_chart, guess_chart, popularity_chart, reliability_chart
from apportion.report.releases import COLOURS, ReleaseRow, explain, families_of, popularity_noise, unspent
from apportion.report.svg import Drawing, Linear, Log

from made_releases import a_release

WIDTHS = (920, 340)


def parsed(drawing):
    return ElementTree.fromstring(drawing.markup())


def places(drawing, tag, name):
    return [float(element.get(name)) for element in parsed(drawing).iter(tag)]


def words(drawing):
    return [element.text for element in parsed(drawing).iter("text")]


def test_whatever_is_drawn_is_escaped():
    drawing = Drawing(10, 10, 'a "label" <b>')
    drawing.text((0, 0), "<script>&")
    drawing.rect((0, 0), 1, 1, "c1", hint="</svg>")
    assert "<script>" not in drawing.markup()
    assert words(drawing) == ["<script>&"]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_linear_ticks_lie_inside_and_are_evenly_spaced(low, length):
    scale = Linear(low, low + length, 0, 100)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(low - 1e-6 * length <= tick <= low + length * (1 + 1e-6) for tick in ticks)
    assert np.ptp(np.diff(ticks)) <= 1e-6 * length


@given(st.floats(1e-6, 1e6), st.floats(1.2, 1e8))
def test_ratio_ticks_lie_inside_and_places_keep_their_order(low, ratio):
    scale = Log(low, low * ratio, 0, 100)
    ticks = scale.ticks()
    assert all(low * (1 - 1e-8) <= tick <= low * ratio * (1 + 1e-8) for tick in ticks)
    assert [scale(tick) for tick in ticks] == sorted(scale(tick) for tick in ticks)
    assert scale(-1.0) == 0


def test_bars_of_the_budget_are_as_long_as_their_shares(model):
    rows = explain(model.statement)
    lengths = places(budget_chart(rows, 1000), "rect", "width")
    expected = [1000 * row.release.share for row in rows] + [1000 * unspent(rows)]
    np.testing.assert_allclose(lengths, expected, atol=2)


def test_rounds_of_choices_and_releases_between_rounds_are_not_taken_for_rounds_of_ratings(model):
    about = model.statement.releases[0]
    sequence = [
        (Purpose.OVERVIEW, None),
        (Purpose.CHOICE_VECTORS, 1),
        (Purpose.CHOICE_VOTES, None),
        (Purpose.CHOICE_VECTORS, 2),
        (Purpose.ITEM_SUMS, 1),
        (Purpose.VOTES, None),
        (Purpose.ITEM_SUMS, 2),
    ]
    rows = [ReleaseRow(replace(about, purpose=purpose, stage=Stage(k), share=1 / 7)) for purpose, k in sequence]
    captions = [caption for caption in words(budget_chart(rows, 1400)) if caption and "%" not in caption]
    assert captions == ["before the rounds", "choices", "round 1", "round 2"]


def test_where_there_are_no_rounds_nothing_is_before_them(model):
    about = model.statement.releases[0]
    sequence = [(Purpose.NUMBER_OF_USERS, Stage()), (Purpose.POPULARITY, Stage(step=2))]
    rows = [ReleaseRow(replace(about, purpose=purpose, stage=stage, share=1 / 2)) for purpose, stage in sequence]
    assert [caption for caption in words(budget_chart(rows, 1400)) if caption and "%" not in caption] == ["step 2"]


def test_families_take_all_that_was_spent_and_every_release_has_a_purpose(model):
    rows = explain(model.statement)
    families = families_of(rows)
    assert [family.name for family in families] == ["overview", "popularity", "item sums", "shared moments"]
    assert sum(family.share for family in families) + unspent(rows) == pytest.approx(1)
    assert len({family.colour for family in families}) == 4
    assert all(family.purpose != Purpose.OTHER.words for family in families)
    assert rows[2].stage == "round 1"


def test_a_release_of_the_callers_own_is_a_family_for_itself_whatever_its_name(model):
    others = tuple(a_release(name, "gaussian", (1,), 0.1, 0.1, 1.0, "", 1.0) for name in ("popularity", "users"))
    rows = explain(replace(model.statement, releases=others))
    assert [family.name for family in families_of(rows)] == ["popularity", "users"]
    assert {row.purpose for row in rows} == {Purpose.OTHER.words}
    assert popularity_noise(replace(model.statement, releases=others), 1) is None


def test_every_purpose_has_words_and_a_colour_and_its_release_is_explained_by_them(model):
    """The users' matrix was once explained as the number of people, since "users" is in its name."""
    for purpose in Purpose:
        assert purpose.words.endswith(".")
        made = a_release(purpose.at(round=1), "gaussian", (6,), 0.1, 0.1, 1.0, "", 1.0)
        (row,) = explain(replace(model.statement, releases=(made,)))
        assert (row.purpose, row.colour, row.stage) == (purpose.words, COLOURS[purpose], "round 1")
    assert set(COLOURS) == set(Purpose)
    assert Purpose.USERS_MATRIX.words != Purpose.NUMBER_OF_USERS.words


def test_the_noise_of_popularity_is_that_of_its_release(model):
    assert popularity_noise(model.statement, 40) == model.statement.releases[1].stddev
    assert popularity_noise(model.statement, 41) is None


@pytest.mark.parametrize("width", WIDTHS)
def test_the_noise_level_is_drawn_into_the_popularity_curve(width):
    popularity = 1000.0 * np.arange(1, 5001) ** -1.0
    drawing = popularity_chart(popularity, 5.0, width)
    assert "noise: ± 5" in words(drawing)
    assert "99 items are clearly above it" in words(drawing)
    assert len(drawing.markup()) < 20_000


def test_bands_hold_all_items_and_go_from_popular_to_rare():
    rng = np.random.default_rng(0)
    popularity = rng.permutation(1000.0 * np.arange(1, 996) ** -1.0)
    bands = popularity_bands(popularity, popularity / (popularity + 1))
    assert sum(band.n_items for band in bands) == 995
    assert [band.typical for band in bands] == sorted((band.typical for band in bands), reverse=True)
    assert all(band.low <= band.typical <= band.high for band in bands)
    assert "0–10 %" in words(reliability_chart(bands, 920))
    assert "10" in words(reliability_chart(bands, 340))


@pytest.mark.parametrize("best_guess", [0.5, 0.55, 0.75, 0.95, 1.0])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_marker_of_the_best_guess_stays_on_the_track(best_guess, width):
    (x,) = places(guess_chart(best_guess, width), "circle", "cx")
    assert 0 <= x <= width
    assert abs(x - width * (best_guess - 0.5) * 2) < 10


@given(st.lists(st.floats(0, 300), min_size=1, max_size=8).map(sorted))
def test_labels_are_moved_apart_in_their_order(heights):
    moved = spread(heights, 17.0)
    assert len(moved) == len(heights)
    assert all(b - a >= 17.0 - 1e-6 for a, b in itertools.pairwise(moved))
    assert sum(moved) == pytest.approx(sum(heights), abs=1e-6)


def test_names_of_curves_that_end_low_stay_above_the_words_of_the_axis():
    """Five curves that all end at the bottom, where the last slice is named."""
    lines = [Line(f"model {k}", 1 + k % 3, "", 0.9, (1.1, 0.9 + 0.001 * k)) for k in range(5)]
    picture = parsed(slice_chart(lines, ("rarest 20 %", "most popular 20 %"), "RMSE", True, 920))
    heights = {element.text: float(element.get("y")) for element in picture.iter("text")}
    named = sorted(heights[line.name] for line in lines)
    assert named[-1] < heights["most popular 20 %"] - 12
    assert all(b - a >= 17.0 - 1e-6 for a, b in itertools.pairwise(named))


@pytest.mark.parametrize("width", WIDTHS)
def test_models_are_drawn_by_name_and_gaps_are_left_out(width):
    lines = [Line("private", 3, "main", 0.9, (1.1, None, 0.8)), Line("twin", 1, "", 0.8, (1.0, 0.9, 0.7))]
    drawing = slice_chart(lines, ("rarest", "middle", "popular"), "RMSE", True, width)
    assert len(places(drawing, "circle", "cx")) == 5
    assert {"private", "0.9000", "twin", "0.8000"} <= set(words(overall_chart(lines, "RMSE", True, width)))


def test_slices_without_any_measurement_leave_an_empty_picture():
    assert not words(slice_chart([Line("private", 3, "main", 0.9, (None,))], ("all",), "RMSE", True, 920))

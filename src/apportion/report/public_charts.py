"""Charts of the page that may be shared, made from released values and the statement alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.report.bands import Band
from apportion.report.releases import ReleaseRow, unspent
from apportion.report.svg import Anchor, Drawing, Linear, Log
from apportion.report.wording import compact, number, percent, percent_bound, whole

_LETTER = 6.6  # average width of a letter in chart text
_MOST_POINTS = 240


def guess_chart(best_guess: float, width: float) -> Drawing:
    """Draw how far the attacker's best guess can get from a coin toss towards certainty."""
    picture = Drawing(width, 84, f"Best possible guess {percent_bound(best_guess)}, where a coin toss is 50 %.")
    place = Linear(0.5, 1.0, 2, width - 2)
    picture.rect((2, 36), width - 4, 14, "track", radius=7)
    picture.rect((2, 36), max(14.0, place(best_guess) - 2), 14, "fill-accent", radius=7)
    picture.circle((max(9.0, place(best_guess)), 43), 10, "marker")
    words = f"best possible guess: at most {percent_bound(best_guess)} right"
    half = len(words) * _LETTER / 2
    at = place(best_guess)
    anchor: Anchor = "start" if at < half else "end" if at > width - half else "middle"
    picture.text((0.0 if anchor == "start" else width if anchor == "end" else at, 20), words, "strong", anchor=anchor)
    picture.text((0, 74), "50 % · a coin toss", "axis")
    picture.text((width, 74), "certain · 100 %", "axis", anchor="end")
    return picture


def budget_chart(rows: Sequence[ReleaseRow], width: float) -> Drawing:
    """Draw one bar as wide as the budget, divided between releases, with the rounds bracketed below."""
    left = unspent(rows)
    picture = Drawing(width, 92, f"The budget divided between {len(rows)} releases.")
    gap, start = 1.5, 0.0
    for row in rows:
        length = row.release.share * width
        hint = f"{row.release.name}: {percent(row.release.share)} of the budget"
        picture.rect((start, 8), max(0.8, length - gap), 42, f"c{row.colour}", radius=3, hint=hint)
        _label_inside(picture, (start + length / 2, 34), length, percent(row.release.share))
        start += length
    if left:
        picture.rect((start, 8), left * width, 42, "unspent", radius=3, hint=f"not spent: {percent(left)}")
        _label_inside(picture, (start + left * width / 2, 34), left * width, "not spent", css="axis")
    _bracket_parts(picture, rows, width)
    return picture


def popularity_chart(popularity: NDArray[np.floating[Any]], noise: float | None, width: float) -> Drawing:
    """Draw released popularity against rank, both on logarithmic scales, with the level of the noise."""
    ordered = np.sort(np.asarray(popularity, dtype=np.float64))[::-1]
    height = 330 if width > 500 else 290
    top = max(float(ordered[0]), 1e-9)
    floor = _floor(ordered, noise)
    picture = Drawing(width, height, f"Released popularity of {whole(len(ordered))} items by rank.")
    across = Log(1, max(2, len(ordered)), 46, width - 12)
    up = Log(floor, max(top * 1.3, floor * 10), height - 46, 16)
    if noise is not None:
        picture.rect((46, up(noise)), width - 58, height - 46 - up(noise), "noise-zone")
    _frame(picture, across, up, "rank of the item (1 is the most popular)", height)
    points = [(across(rank + 1), up(float(ordered[rank]))) for rank in _sample_ranks(len(ordered))]
    picture.path([(46, height - 46), *points, (width - 12, height - 46)], "area-accent", closed=True)
    picture.path(points, "curve-accent")
    if noise is not None:
        _draw_noise_level(picture, across, up, ordered, noise)
    picture.text((50, 12), "released popularity", "axis")
    return picture


def reliability_chart(bands: Sequence[Band], width: float) -> Drawing:
    """Draw typical reliability in bands of equally many items, from the most to the least popular."""
    height = 270
    picture = Drawing(
        width,
        height,
        "Reliability by popularity band: " + "; ".join(f"{band.name} {percent(band.typical)}" for band in bands),
    )
    most = max(max(band.high, band.typical) for band in bands)
    up = Linear(0, next((top for top in (0.1, 0.2, 0.5) if most < 0.9 * top), 1.0), height - 58, 22)
    for tick in up.ticks(4):
        picture.line((46, up(tick)), (width - 8, up(tick)), "grid" if tick else "base")
        picture.text((40, up(tick) + 4), f"{100 * tick:.0f} %", "axis", anchor="end")
    pitch = (width - 54) / len(bands)
    for position, band in enumerate(bands):
        _draw_band(picture, band, up, 46 + pitch * (position + 0.5), pitch)
    picture.text((46, height - 14), "← most popular items", "axis")
    picture.text((width - 8, height - 14), "rarest items →", "axis", anchor="end")
    return picture


def _draw_band(picture: Drawing, band: Band, up: Linear, centre: float, pitch: float) -> None:
    thick = min(46.0, pitch * 0.62)
    hint = f"{band.name}: half of the items lie between {percent(band.low)} and {percent(band.high)}"
    picture.rect(
        (centre - thick / 2, up(band.typical)),
        thick,
        up(0) - up(band.typical),
        "fill-accent",
        radius=3,
        hint=hint,
    )
    picture.line((centre, up(band.low)), (centre, up(band.high)), "whisker")
    above = min(up(band.high), up(band.typical)) - 7
    picture.text(
        (centre, above),
        f"{100 * band.typical:.0f}" + (" %" if pitch > 50 else ""),
        "strong small",
        anchor="middle",
    )
    picture.text(
        (centre, up(0) + 18),
        band.short if pitch > 60 else band.end,
        "axis",
        anchor="middle",
    )


def _label_inside(picture: Drawing, place: tuple[float, float], room: float, words: str, css: str = "inside") -> None:
    if len(words) * _LETTER + 8 < room:
        picture.text(place, words, css, anchor="middle")


def _bracket_parts(picture: Drawing, rows: Sequence[ReleaseRow], width: float) -> None:
    """Mark which part of the bar belongs to which round; everything before the first is preparation."""
    start, has_rounds = 0.0, any(row.release.stage.round is not None for row in rows)
    for place, (part, members) in enumerate(itertools.groupby(rows, key=lambda row: row.part)):
        length = sum(row.release.share for row in members) * width
        words = part or ("before the rounds" if has_rounds and not place else "")
        if length > 14 and len(rows) > 1:
            left, right = start + 1, start + length - 3
            picture.path([(left, 57), (left, 62), (right, 62), (right, 57)], "bracket")
            _label_inside(picture, (start + length / 2, 80), length, words, css="axis")
        start += length


def _frame(picture: Drawing, across: Log, up: Log, caption: str, height: float) -> None:
    for tick in up.ticks():
        picture.line((46, up(tick)), (picture.width - 12, up(tick)), "grid")
        picture.text((40, up(tick) + 4), compact(tick), "axis", anchor="end")
    picture.line((46, height - 46), (picture.width - 12, height - 46), "base")
    for tick in across.ticks():
        picture.line((across(tick), height - 46), (across(tick), height - 41), "base")
        picture.text((across(tick), height - 28), compact(tick), "axis", anchor="middle")
    picture.text(((46 + picture.width - 12) / 2, height - 8), caption, "axis", anchor="middle")


def _draw_noise_level(picture: Drawing, across: Log, up: Log, ordered: NDArray[np.float64], noise: float) -> None:
    picture.line((46, up(noise)), (picture.width - 12, up(noise)), "noise-line")
    picture.text((54, up(noise) - 7), f"noise: ± {number(noise)}", "noise-label")
    above = int((ordered > 2 * noise).sum())
    if 0 < above < len(ordered):
        x = across(above)
        picture.line((x, up(float(ordered[above - 1]))), (x, up.start), "guide")
        words = f"{whole(above)} items are clearly above it"
        to_the_left = x > picture.width * 0.6
        anchor: Anchor = "end" if to_the_left else "start"
        picture.text((x + (-7 if to_the_left else 7), up.start - 10), words, "strong small", anchor=anchor)


def _floor(ordered: NDArray[np.float64], noise: float | None) -> float:
    """Return where the vertical axis starts: a third of the noise, or the smallest popularity that can be drawn."""
    if noise is not None:
        return noise / 3
    positive = ordered[ordered > 0]
    return float(positive[-1]) if len(positive) else 1e-3


def _sample_ranks(n_items: int) -> list[int]:
    """Return ranks, from 0, evenly spaced on a logarithmic scale; all of them if there are few."""
    if n_items <= _MOST_POINTS:
        return list(range(n_items))
    ranks = np.unique(np.geomspace(1, n_items, _MOST_POINTS).round().astype(int)) - 1
    return [int(rank) for rank in ranks]

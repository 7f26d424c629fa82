"""Charts of the estimates page: dots with whiskers, and a bar that shows how the budget was spent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from apportion.report.comparison_charts import tick_labels
from apportion.report.releases import Family
from apportion.report.svg import Drawing, Linear, round_domain
from apportion.report.wording import compact, number, percent

if TYPE_CHECKING:
    from apportion.report.estimates import Estimate

INTERCEPT: Final = "(intercept)"
MOST_BARS: Final = 60  # largest number of bars on one page
_LETTER = 6.6
_ROW = 58.0
_CLEAR, _UNCLEAR = 3, 6  # colours of coefficients whose interval excludes 0, and of the others


def range_chart(rows: Sequence[Estimate], width: float) -> Drawing:
    """Draw each number on a bar that shows its public range."""
    picture = Drawing(width, (_ROW + 14) * len(rows) - 10, _in_words(rows))
    for position, row in enumerate(rows):
        assert row.bounds is not None
        y = (_ROW + 14) * position + 32
        place = Linear(*row.bounds, 8, width - 8)
        picture.rect((8, y - 6), width - 16, 12, "track", radius=6)
        _draw_dot(picture, row, place, y, _CLEAR)
        _name(picture, row, width, y - 18)
        picture.text((8, y + 24), compact(row.bounds[0]), "axis")
        picture.text((width - 8, y + 24), compact(row.bounds[1]), "axis", anchor="end")
    return picture


def bars_chart(rows: Sequence[Estimate], width: float) -> Drawing:
    """Draw a bar from 0 for each number, with its interval. If there are many numbers, draw only the largest."""
    largest = sorted(range(len(rows)), key=lambda k: -abs(rows[k].value))[:MOST_BARS]
    shown = [rows[k] for k in sorted(largest)]
    height = _ROW * len(shown) + 36
    picture = Drawing(width, height, _in_words(shown))
    low, high = round_domain([0.0, 1.0, *(end for row in shown for end in (row.value, *(row.interval or ())))])
    place = Linear(low, high, 8, width - 8)
    ticks = place.ticks(6 if width > 500 else 4)
    for tick, words in zip(ticks, tick_labels(ticks), strict=True):
        picture.line((place(tick), 6), (place(tick), height - 28), "grid")
        picture.text((place(tick), height - 10), words, "axis", anchor="middle")
    for position, row in enumerate(shown):
        y = _ROW * position + 38
        start, length = min(place(0), place(row.value)), abs(place(row.value) - place(0))
        picture.rect((start, y - 6), max(length, 0.8), 12, f"c{_CLEAR}", radius=2, hint=row.name)
        _draw_dot(picture, row, place, y, _CLEAR)
        _name(picture, row, width, y - 16)
    return picture


def coefficient_chart(rows: Sequence[Estimate], width: float) -> Drawing:
    """Draw coefficients on one axis with a line at 0. The intercept has other units and appears only in the table."""
    shown = [row for row in rows if row.name != INTERCEPT] or list(rows)
    height = _ROW * len(shown) + 36
    picture = Drawing(width, height, _in_words(rows))
    low, high = round_domain([0.0, *(end for row in shown for end in (row.value, *(row.interval or ())))])
    place = Linear(low, high, 8, width - 8)
    ticks = place.ticks(6 if width > 500 else 4)
    for tick, words in zip(ticks, tick_labels(ticks), strict=True):
        picture.line((place(tick), 6), (place(tick), height - 28), "grid")
        picture.text((place(tick), height - 10), words, "axis", anchor="middle")
    picture.line((place(0), 6), (place(0), height - 28), "guide")
    for position, row in enumerate(shown):
        y = _ROW * position + 38
        _draw_dot(picture, row, place, y, _UNCLEAR if holds_zero(row.interval) else _CLEAR)
        _name(picture, row, width, y - 16)
    return picture


def quantile_chart(rows: Sequence[Estimate], column: str, width: float) -> Drawing:
    """Draw the quantiles: value on the horizontal axis, rank on the vertical."""
    height = 300.0
    picture = Drawing(width, height, _in_words(rows))
    bounds = rows[0].bounds
    assert bounds is not None
    across, up = Linear(*bounds, 46, width - 16), Linear(0, 1, height - 50, 16)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        picture.line((46, up(tick)), (width - 16, up(tick)), "grid" if tick else "base")
        picture.text((40, up(tick) + 4), compact(tick), "axis", anchor="end")
    ticks = across.ticks(6 if width > 500 else 3)
    for tick, words in zip(ticks, tick_labels(ticks), strict=True):
        picture.text((across(tick), height - 30), words, "axis", anchor="middle")
    ordered = sorted(rows, key=lambda row: (row.value, row.rank or 0.0))
    picture.path([(across(row.value), up(row.rank or 0.0)) for row in ordered], f"curve minor l{_CLEAR}")
    for row in ordered:
        _draw_point(picture, row, across, up)
    picture.text(((46 + width - 16) / 2, height - 8), f"{column} (public range)", "axis", anchor="middle")
    picture.text((50, 12), "rank: the fraction of values below", "axis")
    return picture


def shares_chart(families: Sequence[Family], left: float, width: float) -> Drawing:
    """Draw one bar as wide as the budget, divided by purpose."""
    picture = Drawing(width, 50, "; ".join(f"{family.name} {percent(family.share)}" for family in families))
    start = 0.0
    for family in families:
        length = family.share * width
        words = percent(family.share)
        picture.rect(
            (start, 4), max(0.8, length - 1.5), 42, f"c{family.colour}", radius=3, hint=f"{family.name}: {words}"
        )
        if len(words) * _LETTER + 8 < length:
            picture.text((start + length / 2, 30), words, "inside", anchor="middle")
        start += length
    if left:
        picture.rect((start, 4), left * width, 42, "unspent", radius=3, hint=f"not spent: {percent(left)}")
    return picture


def holds_zero(interval: tuple[float, float] | None) -> bool:
    """Whether an interval contains 0, so that not even the sign is known."""
    return interval is not None and interval[0] <= 0 <= interval[1]


def _name(picture: Drawing, row: Estimate, width: float, y: float) -> None:
    words = row.value_in_words
    if row.interval is not None and width > 500:
        words += f"   ({row.interval_in_words})"
    room = int((width - len(words) * _LETTER - 30) / _LETTER)
    name = row.name if len(row.name) <= room else f"{row.name[: max(1, room - 1)]}…"
    picture.text((8, y), name, "small strong")
    picture.text((width - 8, y), words, "small", anchor="end")


def _draw_dot(picture: Drawing, row: Estimate, place: Linear, y: float, colour: int) -> None:
    if row.interval is not None:
        low, high = (place(end) for end in row.interval)
        picture.line((low, y), (high, y), f"curve main l{colour}")
        for end in (low, high):
            picture.line((end, y - 7), (end, y + 7), f"curve l{colour}")
    picture.circle((place(row.value), y), 6, f"c{colour}", hint=f"{row.name}: {row.value_in_words}")


def _draw_point(picture: Drawing, row: Estimate, across: Linear, up: Linear) -> None:
    assert row.rank is not None
    x, y = across(row.value), up(row.rank)
    if row.ranks is not None:
        low, high = (up(end) for end in row.ranks)
        picture.line((x, low), (x, high), f"curve l{_CLEAR}")
        for end in (low, high):
            picture.line((x - 6, end), (x + 6, end), f"curve l{_CLEAR}")
    picture.circle((x, y), 6, f"c{_CLEAR}", hint=f"rank {row.name}: {number(row.value)}")
    to_the_left = x > picture.width * 0.75
    picture.text(
        (x - 12 if to_the_left else x + 12, y + 4), number(row.value), "small strong",
        anchor="end" if to_the_left else "start",
    )  # fmt: skip


def _in_words(rows: Sequence[Estimate]) -> str:
    """Describe the chart, for readers who cannot see it."""
    return "; ".join(
        f"{row.name} {row.value_in_words}"
        + ("" if row.interval is None else f", interval {row.interval_in_words}")
        + ("" if row.ranks is None else f", its rank {row.ranks_in_words}")
        for row in rows
    )

"""Charts of a study: curves over ε, over slices or over a setting, with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apportion.evaluation.slices import slice_labels
from apportion.evaluation.study.study_results import Figure
from apportion.report.internal_charts import spread
from apportion.report.svg import Drawing, Linear, Log, Point, round_domain
from apportion.report.wording import compact

_LEFT = 46.0
_LETTER = 6.7
_LEAST_OF_A_LINE = 3  # least number of points of a line; a line through two would show a course that nobody measured


def figure_in_words(figure: Figure | None) -> str:
    """Format mean ± standard deviation.

    >>> figure_in_words(Figure(0.91234, 0.0021, 5)), figure_in_words(Figure(0.85, None, 1)), figure_in_words(None)
    ('0.9123 ± 0.0021', '0.8500', '–')
    """
    if figure is None:
        return "–"
    return f"{figure.mean:.4f}" if figure.stddev is None else f"{figure.mean:.4f} ± {figure.stddev:.4f}"


@dataclass(frozen=True)
class Axis:
    """A horizontal axis.

    Attributes:
        name: what it shows.
        values: the values marked on it.
        logarithmic: whether the scale is logarithmic.
        words: labels of the values, if not the numbers.
        short_words: shorter labels for narrow charts.
    """

    name: str
    values: Sequence[float]
    logarithmic: bool = False
    words: tuple[str, ...] = ()
    short_words: tuple[str, ...] = ()

    @classmethod
    def of_slices(cls, slices: Sequence[str]) -> Axis:
        """Return an axis of popularity slices, from the rarest to the most popular."""
        short = slice_labels(len(slices), "rare", "top")
        return cls("items by popularity", range(len(slices)), words=tuple(slices), short_words=short)

    def scale(self, start: float, end: float) -> Linear | Log:
        """Return the scale that maps values to positions."""
        low, high = min(self.values), max(self.values)
        if low == high:
            return Linear(low - 1, high + 1, start, end)
        return Log(low, high, start, end) if self.logarithmic else Linear(low, high, start, end)

    def word(self, value: float, *, short: bool = False) -> str:
        """Return the label of a value."""
        words = self.short_words if short else self.words
        return words[int(value)] if words else compact(value)


@dataclass(frozen=True)
class Curve:
    """One method in a chart.

    Attributes:
        name: the label at its end.
        colour: number of its colour, from 1.
        style: `main`, `minor` or an empty text.
        points: positions on the axis with their figures.
        is_level: whether it is constant, and drawn as a line across without marks.
    """

    name: str
    colour: int
    style: str
    points: tuple[tuple[float, Figure], ...]
    is_level: bool = False


def curve_chart(curves: Sequence[Curve], axis: Axis, metric: str, lower_is_better: bool, width: float) -> Drawing:
    """Draw curves with error bars of one standard deviation, each labelled at its end.

    On an axis with fewer than three values there are no lines, and marks stand side by side.
    """
    height, wide = max(320.0, 17.0 * len(curves) + 96), width > 500
    longest = max((len(curve.name) for curve in curves), default=0)
    right = width - (min(longest * _LETTER + 22, 0.42 * width) if wide else 12)
    better = f"{'lower' if lower_is_better else 'higher'} is better"
    picture = Drawing(width, height, _in_words(curves, axis, metric, better))
    measured = [value for curve in curves for _, figure in curve.points for value in _ends(figure)]
    if not measured:
        return picture
    low, high = round_domain(measured)
    up = Linear(low if lower_is_better else max(0.0, low), high, height - 52, 30)
    across = axis.scale(_LEFT + 20, right - 20)
    ticks = up.ticks()
    for tick, words in zip(ticks, tick_labels(ticks), strict=True):
        picture.line((_LEFT, up(tick)), (right, up(tick)), "grid")
        picture.text((_LEFT - 6, up(tick) + 4), words, "axis", anchor="end")
    for value in axis.values:
        picture.text((across(value), height - 30), axis.word(value, short=not wide), "axis", anchor="middle")
    shifts = _apart(curves, axis)
    ends = [_draw(picture, curve, axis, across, up, right, shifts[curve.name]) for curve in reversed(curves)][::-1]
    if wide:
        _name(picture, curves, ends, right)
    picture.text((4, 14), f"{metric} ({better})", "axis")
    picture.text(((_LEFT + right) / 2, height - 8), axis.name, "axis", anchor="middle")
    return picture


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Format evenly spaced numbers with just enough decimals to distinguish them.

    >>> tick_labels([1.0675, 1.07, 1.0725]), tick_labels([0.0, 0.2])
    (['1.0675', '1.0700', '1.0725'], ['0.0', '0.2'])
    """
    if len(ticks) < 2:
        return [compact(tick) for tick in ticks]
    step = ticks[1] - ticks[0]
    decimals = next((d for d in range(9) if abs(step * 10**d - round(step * 10**d)) < 1e-6 * 10**d * step), 9)
    return [f"{tick:.{decimals}f}" for tick in ticks]


def _apart(curves: Sequence[Curve], axis: Axis) -> dict[str, float]:
    """Return how far to the side each curve's marks go. If no lines are drawn, the marks stand beside one another."""
    marked = [curve.name for curve in curves if not curve.is_level]
    apart = 0.0 if len(axis.values) >= _LEAST_OF_A_LINE else min(14.0, 60.0 / max(1, len(marked)))
    return {curve.name: 0.0 for curve in curves} | {
        name: (k - (len(marked) - 1) / 2) * apart for k, name in enumerate(marked)
    }


def _draw(
    picture: Drawing, curve: Curve, axis: Axis, across: Linear | Log, up: Linear, right: float, shift: float
) -> Point | None:
    """Draw marks with bars. Draw a line through them only if there are enough to show a course."""
    if not curve.points:
        return None
    if curve.is_level:
        y = up(curve.points[0][1].mean)
        picture.path([(_LEFT, y), (right - 20, y)], f"curve {curve.style} l{curve.colour}")
        return right - 20, y
    places = [(across(x) + shift, up(figure.mean)) for x, figure in curve.points]
    for (x, _), (value, figure) in zip(places, curve.points, strict=True):
        low, high = (up(end) for end in (_ends(figure)[0], _ends(figure)[-1]))
        picture.line((x, low), (x, high), f"whisker l{curve.colour}")
        for end in (low, high) if low != high else ():
            picture.line((x - 4, end), (x + 4, end), f"whisker l{curve.colour}")
        hint = f"{curve.name}, {axis.name} {axis.word(value)}: {figure_in_words(figure)}"
        picture.circle((x, up(figure.mean)), 5 if curve.style == "main" else 3.5, f"c{curve.colour}", hint=hint)
    if len(axis.values) >= _LEAST_OF_A_LINE:
        picture.path(places, f"curve {curve.style} l{curve.colour}")
    return places[-1]


def _name(picture: Drawing, curves: Sequence[Curve], ends: Sequence[Point | None], right: float) -> None:
    """Label the ends of curves without overlap, inside the picture."""
    named = sorted(
        ((end[1], curve) for curve, end in zip(curves, ends, strict=True) if end is not None), key=lambda pair: pair[0]
    )
    heights = spread([y for y, _ in named], 17.0)
    inside = max(0.0, 16 - heights[0]) - max(0.0, heights[-1] - (picture.height - 8))
    for y, (_, curve) in zip(heights, named, strict=True):
        css = f"c{curve.colour} named" + (" strong" if curve.style == "main" else "")
        picture.text((right - 4, y + 4 + inside), curve.name, css)


def _ends(figure: Figure) -> tuple[float, float]:
    spread = figure.stddev or 0.0
    return figure.mean - spread, figure.mean + spread


def _in_words(curves: Sequence[Curve], axis: Axis, metric: str, better: str) -> str:
    """Describe the chart, for readers who cannot see it."""
    each = (
        f"{curve.name} {figure_in_words(curve.points[0][1])} throughout"
        if curve.is_level
        else f"{curve.name} " + ", ".join(f"{figure_in_words(figure)} at {axis.word(x)}" for x, figure in curve.points)
        for curve in curves
        if curve.points
    )
    return f"{metric} over {axis.name}, {better}: {'; '.join(each)}."

"""Charts of the internal page: models side by side, overall and by popularity slice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from apportion.evaluation.slices import slice_labels
from apportion.report.svg import Drawing, Linear, Point, round_domain
from apportion.report.wording import compact

_LETTER = 6.7
_LEFT = 46.0
_ROW = 46.0


@dataclass(frozen=True)
class Line:
    """One model in a chart.

    Attributes:
        name: the model.
        colour: number of its colour, from 1.
        style: `main`, `minor` or an empty text.
        overall: the metric over all targets.
        by_slice: the metric by slice, rarest first; `None` if nothing was measured.
    """

    name: str
    colour: int
    style: str
    overall: float
    by_slice: tuple[float | None, ...]


def overall_chart(lines: Sequence[Line], metric: str, lower_is_better: bool, width: float) -> Drawing:
    """Draw one row per model, with a dot at its figure, on one axis."""
    height = _ROW * len(lines) + 58
    figures = ", ".join(f"{line.name} {line.overall:.4f}" for line in lines)
    picture = Drawing(width, height, f"{metric}: {figures}")
    low, high = round_domain([line.overall for line in lines], share=0.12)
    place = Linear(low, high, 4, width - 58)
    for tick in place.ticks(5):
        picture.line((place(tick), 20), (place(tick), height - 40), "grid")
        picture.text((place(tick), height - 24), compact(tick), "axis", anchor="middle")
    for position, line in enumerate(lines):
        _draw_row(picture, line, place, 32 + _ROW * position)
    picture.text((4, height - 4), f"{metric}: {'lower' if lower_is_better else 'higher'} is better", "axis")
    return picture


def slice_chart(
    lines: Sequence[Line], slices: Sequence[str], metric: str, lower_is_better: bool, width: float
) -> Drawing:
    """Draw a curve per model over slices from the rarest to the most popular items, labelled at its end."""
    height, wide = 320.0, width > 500
    right = width - (max(len(line.name) for line in lines) * _LETTER + 22 if wide else 12)
    picture = Drawing(width, height, f"{metric} by popularity slice for {len(lines)} models.")
    measured = [value for line in lines for value in line.by_slice if value is not None]
    if not measured:
        return picture
    low, high = round_domain(measured)
    up = Linear(low if lower_is_better else max(0.0, low), high, height - 52, 30)
    for tick in up.ticks():
        picture.line((_LEFT, up(tick)), (right, up(tick)), "grid")
        picture.text((_LEFT - 6, up(tick) + 4), compact(tick), "axis", anchor="end")
    pitch = (right - _LEFT - 40) / max(1, len(slices) - 1)
    labels = slices if wide else slice_labels(len(slices), "rare", "top")
    for position, words in enumerate(labels):
        picture.text((_LEFT + 20 + pitch * position, height - 30), words, "axis", anchor="middle")
    ends = [_draw_curve(picture, line, up, pitch) for line in reversed(lines)][::-1]
    if wide:
        _name_curves(picture, lines, ends, right, height - 52)
    picture.text((4, 14), f"{metric} ({'lower' if lower_is_better else 'higher'} is better)", "axis")
    picture.text(((_LEFT + right) / 2, height - 8), "items by popularity", "axis", anchor="middle")
    return picture


def _draw_row(picture: Drawing, line: Line, place: Linear, y: float) -> None:
    css = "strong" if line.style == "main" else ""
    picture.text((place.start, y - 12), line.name, f"{css} small")
    picture.line((place.start, y), (place.end, y), "grid")
    picture.circle((place(line.overall), y), 8 if line.style == "main" else 6, f"c{line.colour}")
    picture.text((place(line.overall) + 14, y + 4), f"{line.overall:.4f}", css)


def _draw_curve(picture: Drawing, line: Line, up: Linear, pitch: float) -> Point | None:
    points = [(_LEFT + 20 + pitch * k, up(value)) for k, value in enumerate(line.by_slice) if value is not None]
    picture.path(points, f"curve {line.style} l{line.colour}")
    for x, y in points:
        picture.circle((x, y), 5 if line.style == "main" else 3.5, f"c{line.colour}")
    return points[-1] if points else None


def _name_curves(
    picture: Drawing, lines: Sequence[Line], ends: Sequence[Point | None], right: float, lowest: float
) -> None:
    named = sorted(
        ((end[1], line) for line, end in zip(lines, ends, strict=True) if end is not None),
        key=lambda pair: pair[0],
    )
    heights = spread([y for y, _ in named], 17.0, lowest)
    for y, (_, line) in zip(heights, named, strict=True):
        css = f"c{line.colour} named" + (" strong" if line.style == "main" else "")
        picture.text((right - 4, y + 4), line.name, css)


def spread(heights: Sequence[float], least: float, lowest: float = math.inf) -> list[float]:
    """Move labels apart, given from top to bottom, until none is closer than `least` to the next.

    None goes below `lowest`, where the words of an axis are.
    """
    groups = [([y], y) for y in heights]
    k = 0
    while k < len(groups) - 1:
        (upper, above), (lower, below) = groups[k], groups[k + 1]
        if below - above < least * (len(upper) + len(lower)) / 2:
            merged = [*upper, *lower]
            groups[k : k + 2] = [(merged, sum(merged) / len(merged))]
            k = max(0, k - 1)
        else:
            k += 1
    moved = [centre + least * (n - (len(members) - 1) / 2) for members, centre in groups for n in range(len(members))]
    return [min(y, lowest - least * (len(moved) - 1 - k)) for k, y in enumerate(moved)]

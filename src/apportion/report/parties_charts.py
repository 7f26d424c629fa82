"""Charts of the shared page of protected multi-task learning: a matrix as a map, and its eigenvalues.

All are made from released numbers. The cells of a map have shades of two colours (heat.css).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from apportion.report.comparison_charts import tick_labels
from apportion.report.svg import Drawing, Linear, round_domain
from apportion.report.wording import number

Floats = NDArray[np.float64]

STEPS: Final = 8
"""Number of shades of a colour, from faint to full."""
_LETTER = 6.6
_NAMED = 24  # maps with at most this many features show their names
_LARGEST_CELL, _WRITTEN_CELL = 52.0, 44.0  # pixels; a cell of the second size has room for its number
_OUT, _IN = 3, 6  # colours of values that exceed the noise, and of the others


def heat_map(matrix: Floats, names: Sequence[str], width: float) -> Drawing:
    """Draw a symmetric matrix, one cell for each pair of features; the largest entry has the full colour."""
    size, largest = len(matrix), float(np.abs(matrix).max(initial=0.0))
    room = 18 + _LETTER * max(len(name) for name in names) if size <= _NAMED else 8.0
    left = min(room, width * 0.3)
    cell = min((width - left - 8) / size, _LARGEST_CELL)
    strongest = max(range(size), key=lambda k: float(matrix[k, k]))
    words = f"{size} by {size} matrix; largest entry {number(largest)}, strongest feature {names[strongest]}"
    picture = Drawing(width, cell * size + 40, words)
    for i in range(size):
        if size <= _NAMED:
            picture.text((left - 6, cell * (i + 0.5) + 4), _cut(names[i], left - 10), "small", anchor="end")
        for j in range(size):
            value = float(matrix[i, j])
            hint = f"{names[i]}, {names[j]}: {number(value)}"
            css = heat_class(value, largest)
            picture.rect((left + cell * j, cell * i), cell - 0.6, cell - 0.6, css, hint=hint)
            if cell >= _WRITTEN_CELL and value:
                ink = "small inside" if css[-1] in "5678" else "small"
                place = (left + cell * (j + 0.5), cell * (i + 0.5) + 4)
                picture.text(place, _written(value, largest), ink, anchor="middle")
    _draw_scale(picture, largest, left, cell * size + 14)
    return picture


def heat_class(value: float, largest: float) -> str:
    """Return the class of a cell: its sign and a shade for its size.

    >>> heat_class(2.0, 2.0), heat_class(-0.1, 2.0), heat_class(0.0, 2.0)
    ('above h8', 'below h1', 'track h0')
    """
    step = 0 if largest == 0 or value == 0 else max(1, math.ceil(STEPS * abs(value) / largest - 1e-9))
    return f"{'track' if not step else 'above' if value > 0 else 'below'} h{min(step, STEPS)}"


def values_chart(values: Floats, zone: tuple[float, float], kept: Sequence[int], what: str, width: float) -> Drawing:
    """Draw eigenvalues or entries from the largest down, over the zone that noise alone reaches.

    Args:
        values: the values, in any order.
        zone: (low, high) of noise.
        kept: positions in `values` of those that exceed the noise.
        what: what the values are called.
        width: width of the chart.
    """
    height, left = 280.0, 58.0
    order = np.argsort(-values, kind="stable")
    words = f"{len(values)} {what}, {len(kept)} of them beyond the noise, which reaches from {number(zone[0])} to "
    picture = Drawing(width, height, words + number(zone[1]))
    up = Linear(*round_domain([*values.tolist(), *zone, 0.0]), height - 34, 12)
    across = Linear(0, max(len(values) - 1, 1), left + 14, width - 20)
    picture.rect((left, up(zone[1])), width - left - 6, up(zone[0]) - up(zone[1]), "noise-zone")
    picture.text((width - 12, up(zone[1]) - 6), "noise alone reaches this far", "noise-label small", anchor="end")
    ticks = up.ticks(5)
    for tick, shown in zip(ticks, tick_labels(ticks), strict=True):
        picture.line((left, up(tick)), (width - 6, up(tick)), "base" if tick == 0 else "grid")
        picture.text((left - 6, up(tick) + 4), shown, "axis", anchor="end")
    for place, at in enumerate(order):
        colour = _OUT if int(at) in kept else _IN
        picture.circle((across(place), up(float(values[at]))), 4.5, f"c{colour}", hint=number(float(values[at])))
    picture.text(((left + width) / 2, height - 8), f"{what}, from the largest down", "axis", anchor="middle")
    return picture


def _draw_scale(picture: Drawing, largest: float, left: float, y: float) -> None:
    """Draw the colour scale, from the most negative to the most positive."""
    shown = number(largest)
    part = min(11.0, (picture.width - left - _LETTER * (2 * len(shown) + 4)) / (2 * STEPS + 1))
    start = left + _LETTER * (len(shown) + 2)
    picture.text((start - 6, y + 11), f"-{shown}", "axis", anchor="end")
    for k in range(-STEPS, STEPS + 1):
        css = heat_class(k / STEPS, 1.0)
        picture.rect((start + part * (k + STEPS), y), part - 0.6, 13, css)
    picture.text((start + part * (2 * STEPS + 1) + 6, y + 11), shown, "axis")


def _written(value: float, largest: float) -> str:
    """Format an entry with enough decimals to show two digits of the largest.

    >>> _written(-0.0043, 0.95), _written(17.3, 83.0), _written(0.04, 3.97)
    ('0.00', '17', '0.0')
    """
    decimals = min(max(0, 1 - math.floor(math.log10(largest))), 6)
    return f"{round(value, decimals) + 0.0:.{decimals}f}"  # no minus sign before a zero


def _cut(name: str, room: float) -> str:
    most = max(2, int(room / _LETTER))
    return name if len(name) <= most else f"{name[: most - 1]}…"

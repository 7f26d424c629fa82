"""Lines with error bars in panels beside each other, as SVG that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from apportion.report.svg import Drawing, Linear, Log, round_domain

_COLOURS = ("#0f6e78", "#b65a2b", "#5d7f2f", "#7a5ca8", "#a8324a", "#4a6fa5", "#8a7a2b", "#777777", "#c07fb0")
_STYLE = (
    "text{font:11px sans-serif;fill:#333} .title{font-weight:600} path,.bar{fill:none;stroke-width:1.6} "
    ".grid{stroke:#ddd} .dashed{stroke-dasharray:4 3} "
    + " ".join(
        f".c{k}{{stroke:{colour}}} text.c{k},circle.c{k}{{fill:{colour};stroke:none}}"
        for k, colour in enumerate(_COLOURS)
    )
)
_LEFT, _TOP, _BOTTOM, _RIGHT = 52.0, 40.0, 44.0, 14.0
_LEGEND_LINE, _LEGEND_COLUMN = 16.0, 200.0
_DOTS = 12  # lines of more points have none
Axis = Linear | Log


@dataclass(frozen=True)
class Line:
    """Points through which a line goes, with standard deviations where there are any."""

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    dashed: bool = False
    plain: bool = False  # without dots


@dataclass(frozen=True)
class Panel:
    """Lines by name over one pair of axes.

    Attributes:
        title: what is shown.
        lines: by the name that the legend gives them.
        across: what x is.
        log_x: whether x is in equal ratios.
        log_y: whether y is.
        ticks: x values that are marked, with their names; round numbers if empty.
    """

    title: str
    lines: dict[str, Line]
    across: str
    log_x: bool = False
    log_y: bool = False
    ticks: dict[float, str] = field(default_factory=dict)


def figure(
    title: str,
    panels: Sequence[Panel],
    *,
    width: float = 260.0,
    height: float = 230.0,
    same_y: bool = False,
    order: Sequence[str] = (),
) -> str:
    """Panels in a row over one legend.

    Args:
        title: what the figure shows.
        panels: from left to right.
        width: of a panel.
        height: of a panel.
        same_y: whether all panels have the same scale of y.
        order: names that have the first colours, so that figures agree on them.
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = list(dict.fromkeys([*order, *names]))
    per_row = max(1, int((width * len(panels) - 24) // _LEGEND_COLUMN))
    rows = -(-len(names) // per_row)
    picture = Drawing(width * len(panels), height + _LEGEND_LINE * rows + 12, title)
    picture.text((10, 15), title, "title")
    for column, panel in enumerate(panels):
        across, up = _axes(panel, panels if same_y else [panel], width * column, width, height)
        _draw(picture, panel, colours, across, up)
    for k, name in enumerate(names):
        place = (24 + _LEGEND_COLUMN * (k % per_row), height + _LEGEND_LINE * (k // per_row + 1) - 2)
        picture.text(place, f"● {name}", f"c{colours.index(name) % len(_COLOURS)}")
    return picture.as_file(_STYLE)


def _draw(picture: Drawing, panel: Panel, colours: Sequence[str], across: Axis, up: Axis) -> None:
    picture.text((across.start, _TOP - 7), panel.title)
    for tick in up.ticks():
        picture.line((across.start, up(tick)), (across.end, up(tick)), "grid")
        picture.text((across.start - 5, up(tick) + 4), _number(tick), anchor="end")
    for tick, words in (panel.ticks or {tick: _number(tick) for tick in across.ticks()}).items():
        picture.text((across(tick), up.start + 15), words, anchor="middle")
    picture.text(((across.start + across.end) / 2, up.start + 31), panel.across, anchor="middle")
    for name, line in panel.lines.items():
        css = f"c{colours.index(name) % len(_COLOURS)}"
        places = [(across(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
        picture.path(places, f"{css} dashed" if line.dashed else css)
        for place in places if len(places) <= _DOTS and not line.plain else ():
            picture.circle(place, 2.2, css, hint=name)
        for x, y, spread in zip(line.x, line.y, line.spread, strict=False):
            picture.line((across(x), up(y - spread)), (across(x), up(y + spread)), f"bar {css}")


def _axes(panel: Panel, judged: Sequence[Panel], left: float, width: float, height: float) -> tuple[Axis, Axis]:
    """The scales of x and y: a little wider than the points and error bars, of the judged panels for y."""
    xs = [float(x) for line in panel.lines.values() for x in line.x]
    ys = [
        value
        for each in judged
        for line in each.lines.values()
        for k, y in enumerate(line.y)
        for value in ((y - line.spread[k], y + line.spread[k]) if line.spread else (y,))
    ]
    ends = (left + _LEFT, left + width - _RIGHT)
    across: Axis = Log(min(xs) / 1.15, max(xs) * 1.15, *ends) if panel.log_x else Linear(*round_domain(xs), *ends)
    sides = (height - _BOTTOM, _TOP)
    up: Axis = Log(min(ys) / 1.2, max(ys) * 1.2, *sides) if panel.log_y else Linear(*round_domain(ys), *sides)
    return across, up


def _number(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:g}"

"""Figure 1: cosines of the gradients of pairs of rows, in the order of their classes, the largest class first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from apportion.report.svg import Drawing
from papers.heavy_tail.gradients import Look, Looks

_CELLS, _SIDE, _GAP = 65, 195.0, 12.0
_LEVELS = 9  # shades from -0.125 to 1 in steps of an eighth; what is nearest to 0 is left white
_STYLE = "text{font:11px sans-serif;fill:#333} .title{font-weight:600} .frame{fill:none;stroke:#999} " + " ".join(
    f".s{k}{{fill:rgb({round(255 - 240 * k / 8)},{round(255 - 145 * k / 8)},{round(255 - 135 * k / 8)})}}"
    for k in range(1, _LEVELS)
) + " .s-1{fill:#e8c7b4}"  # fmt: skip


def picture(looks: Looks, optimizer: str = "DP-AdamBC") -> str:
    """One square for each number of steps; a cell is a mean over a few neighbouring rows."""
    shown = [look for look in looks.each if look.optimizer == optimizer]
    title = f"Cosines of the gradients of pairs of rows by class, {optimizer}, largest class first"
    drawing = Drawing(_GAP + (_SIDE + _GAP) * len(shown), _SIDE + 70, title)
    drawing.text((_GAP, 16), title, "title")
    for column, look in enumerate(shown):
        _square(drawing, look, _GAP + (_SIDE + _GAP) * column)
    for level in (-1, *range(1, _LEVELS)):
        left = _GAP + 46.0 * (level + 1 if level < 0 else level)
        drawing.rect((left, _SIDE + 50), 12, 12, f"s{level}")
        drawing.text((left + 15, _SIDE + 60), f"{level / 8:.2g}")
    return drawing.as_file(_STYLE)


def _square(drawing: Drawing, look: Look, left: float) -> None:
    cosines = look.alignment.cosines
    cells = min(_CELLS, len(cosines))
    drawing.text((left, 32), f"after {look.taken} steps")
    side = _SIDE / cells
    for row, levels in enumerate(shades(cosines, cells)):
        ends = np.flatnonzero(np.diff(levels, append=levels[-1] + 1)) + 1  # neighbours of one shade are one rectangle
        for first, last in zip(np.concatenate([[0], ends[:-1]]), ends, strict=True):
            if levels[first]:
                corner = (left + side * float(first), 38 + side * row)
                drawing.rect(corner, side * float(last - first), side, f"s{levels[first]}")
    drawing.rect((left, 38), _SIDE, _SIDE, "frame")


def shades(cosines: NDArray[np.float64], cells: int) -> NDArray[np.int64]:
    """Means over cells of neighbouring rows and columns, without the rows' own cosines of 1, in eighths."""
    kept = ~np.eye(len(cosines), dtype=bool)
    edges = np.linspace(0, len(cosines), cells + 1).round().astype(np.int64)[:-1]

    def added(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(np.add.reduceat(values, edges, axis=0), edges, axis=1))

    means = added(np.where(kept, cosines, 0.0)) / np.maximum(added(kept.astype(np.float64)), 1.0)
    return np.clip(np.round(8 * means), -1, _LEVELS - 1).astype(np.int64)

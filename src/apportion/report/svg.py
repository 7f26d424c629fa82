"""Small charts: SVG elements that escape their content, and the scales of axes.

Colours are never written here. Every element has a CSS class, and the page's style sheet colours it for light screens,
dark screens and paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]


class Drawing:
    """An SVG picture of a fixed size in user units. The page scales it to the available width.

    Args:
        width: width in user units.
        height: height in user units.
        label: what the picture shows, for readers who cannot see it.
    """

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width = width
        self.height = height
        self._root = ElementTree.Element(
            "svg",
            {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": label},
        )

    def line(self, start: Point, end: Point, css: str) -> None:
        """Draw a straight line."""
        self._add("line", css, x1=start[0], y1=start[1], x2=end[0], y2=end[1])

    def rect(
        self, corner: Point, width: float, height: float, css: str, *, radius: float = 0.0, hint: str = ""
    ) -> None:
        """Draw a rectangle from its top left corner; `hint` is shown when a pointer rests on it."""
        x, y = corner
        self._add("rect", css, hint=hint, x=x, y=y, width=max(0.0, width), height=max(0.0, height), rx=radius)

    def circle(self, centre: Point, radius: float, css: str, *, hint: str = "") -> None:
        """Draw a filled dot."""
        self._add("circle", css, hint=hint, cx=centre[0], cy=centre[1], r=radius)

    def path(self, points: Iterable[Point], css: str, *, closed: bool = False) -> None:
        """Draw straight lines through the points."""
        steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if steps:
            ElementTree.SubElement(self._root, "path", {"class": css, "d": f"M{steps}{'Z' if closed else ''}"})

    def text(self, place: Point, words: str, css: str = "", *, anchor: Anchor = "start") -> None:
        """Write words whose baseline starts, is centred or ends at a place."""
        element = self._add("text", css, x=place[0], y=place[1])
        element.set("text-anchor", anchor)
        element.text = words

    def markup(self) -> str:
        """Return the whole picture, escaped, ready for an HTML page."""
        return ElementTree.tostring(self._root, encoding="unicode", short_empty_elements=False)

    def as_file(self, style: str) -> str:
        """Return the picture as a separate file, on white, with the style sheet that a page would provide."""
        markup = self.markup().replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        inside = markup.index(">") + 1
        ground = '<rect width="100%" height="100%" fill="#fff"/>'
        return f"{markup[:inside]}<style>{style}</style>{ground}{markup[inside:]}\n"

    def _add(self, tag: str, css: str, *, hint: str = "", **numbers: float) -> ElementTree.Element:
        attributes = {name: f"{number:.2f}".rstrip("0").rstrip(".") for name, number in numbers.items()}
        element = ElementTree.SubElement(self._root, tag, {"class": css, **attributes})
        if hint:
            ElementTree.SubElement(element, "title").text = hint
        return element


@dataclass(frozen=True)
class Linear:
    """Maps [low, high] linearly to [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return round numbers inside the domain, about as many as asked for."""
        step = _round_step((self.high - self.low) / max(1, count))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


@dataclass(frozen=True)
class Log:
    """Maps [low, high], both positive, logarithmically to [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value; values below the domain are drawn at its edge."""
        inside = min(max(value, self.low), self.high)
        part = math.log(inside / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return powers of ten inside the domain and, if there are fewer than three, also 2 and 5 times them."""
        exponents = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
        for digits in ((1,), (1, 3), (1, 2, 5)):
            result = [d * 10.0**e for e in exponents for d in digits if _inside(d * 10.0**e, self.low, self.high)]
            if len(result) >= 3:
                break
        return result


def round_domain(values: Sequence[float], *, share: float = 0.08) -> tuple[float, float]:
    """Return a domain slightly wider than the values, so that nothing is drawn on the frame."""
    low, high = min(values), max(values)
    margin = share * (high - low) or max(abs(high) * share, 1e-3)
    return low - margin, high + margin


def _round_step(step: float) -> float:
    """Return the next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1.0, 2.0, 2.5, 5.0, 10.0) if step <= digit * power * (1 + 1e-9))


def _inside(value: float, low: float, high: float) -> bool:
    return low * (1 - 1e-9) <= value <= high * (1 + 1e-9)

"""Drawings of the concepts, as SVG files that `docs/generate.py` writes before the site is built."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

from apportion.privacy import Budget
from apportion.report.svg import Drawing
from papers.public_features.drawing import Line, Panel, figure

STYLE = (
    "text{font:13px sans-serif;fill:#333} .small{font-size:11px;fill:#666} .title{font-weight:600} "
    ".box{fill:#eef5f6;stroke:#0f6e78} .hidden{fill:#f6efe8;stroke:#b65a2b} .open{fill:#eff5e8;stroke:#5d7f2f} "
    ".row{fill:#0f6e78} .other{fill:#c9d6d8} .gone{fill:none;stroke:#b65a2b;stroke-dasharray:3 2} "
    ".line{stroke:#777;stroke-width:1.4;fill:none} .cap{stroke:#a8324a;stroke-width:1.4;stroke-dasharray:5 3} "
    ".step{stroke:#0f6e78;stroke-width:1.8;fill:none} .tick{stroke:#999}"
)


def arrow(picture: Drawing, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a line with a head at its end."""
    picture.line(start, end, "line")
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    for turn in (2.6, -2.6):
        tip = (end[0] + 8 * math.cos(angle + turn), end[1] + 8 * math.sin(angle + turn))
        picture.line(end, tip, "line")


def box(picture: Drawing, corner: tuple[float, float], size: tuple[float, float], lines: list[str], css: str) -> None:
    """Draw a box with a title and smaller lines under it, all centred."""
    picture.rect(corner, *size, css, radius=6)
    x, y = corner[0] + size[0] / 2, corner[1] + size[1] / 2 - 8 * (len(lines) - 1) + 4
    for k, words in enumerate(lines):
        picture.text((x, y + 16 * k), words, "title" if k == 0 else "small", anchor="middle")


def neighbours() -> Drawing:
    """Two data sets, one of which lacks a user with all rows."""
    picture = Drawing(640, 190, "Two data sets: in the second, one user is missing with all rows")
    sizes = (3, 7, 2, 5, 4)
    for left, title, missing in ((20, "data set", None), (340, "its neighbour", 1)):
        picture.text((left, 22), title, "title")
        for user, rows in enumerate(sizes):
            picture.text((left, 54 + 28 * user), f"user {user + 1}", "small")
            for row in range(rows):
                css = "gone" if user == missing else "row" if user == 1 else "other"
                picture.rect((left + 56 + 26 * row, 40 + 28 * user), 20, 18, css, radius=3)
    picture.text((290, 100), "≈", "title")
    return picture


def flow() -> Drawing:
    """The one way data flows."""
    picture = Drawing(860, 130, "Users, contribution, engine, hidden sum, release, post-processing, model")
    steps = [
        (["users", "with all rows"], "hidden"),
        (["contribution", "clipped per user"], "hidden"),
        (["engine", "adds whole numbers"], "hidden"),
        (["BoundedSum", "hidden, bounded"], "hidden"),
        (["release", "charge, then noise"], "box"),
        (["post-processing", "costs nothing"], "open"),
    ]
    for k, (words, css) in enumerate(steps):
        box(picture, (10 + 143 * k, 30), (124, 56), words, css)
        if k:
            arrow(picture, (10 + 143 * k - 18, 58), (10 + 143 * k - 2, 58))
    picture.text((290, 112), "private", "small", anchor="middle")
    picture.text((787, 112), "may be published", "small", anchor="middle")
    return picture


def public() -> Drawing:
    """Three kinds of values."""
    picture = Drawing(640, 170, "Public values and released values may leave; raw rows and hidden sums may not")
    box(picture, (20, 40), (170, 90), ["public", "item list, features,", "scales, settings"], "open")
    box(picture, (235, 40), (170, 90), ["released", "sums with noise,", "paid for"], "box")
    box(picture, (450, 40), (170, 90), ["never leaves", "rows, hidden sums,", "exact counts"], "hidden")
    picture.text((212, 152), "the model, the statement, every shared page", "small", anchor="middle")
    arrow(picture, (448, 85), (408, 85))
    picture.text((428, 32), "through release", "small", anchor="middle")
    return picture


def trust() -> Drawing:
    """Who sees raw rows in three settings."""
    picture = Drawing(720, 210, "Who sees raw rows: the curator, nobody else, or each party its own")
    places = (
        ("central", "curator sees rows,", "adds noise"),
        ("federated", "server sees the sum", "of masked parts"),
        ("parties", "curator sees clipped", "models, adds noise"),
    )
    for k, (title, *words) in enumerate(places):
        left = 20 + 240 * k
        picture.text((left + 100, 20), title, "title", anchor="middle")
        for user in range(4):
            css = "other" if title == "central" else "row"
            picture.rect((left + 8 + 50 * user, 36), 34, 24, css, radius=4)
            arrow(picture, (left + 25 + 50 * user, 64), (left + 60 + 26 * user, 96))
        box(picture, (left + 20, 98), (160, 46), [words[0], words[1]], "hidden" if title == "central" else "box")
        arrow(picture, (left + 100, 146), (left + 100, 172))
        picture.text((left + 100, 190), "published: sums with noise", "small", anchor="middle")
    return picture


def lattice() -> Drawing:
    """A user's number, cut off to a step, and noise on a grid."""
    picture = Drawing(640, 150, "A number is cut off to a whole number of steps; sums of whole numbers have no order")
    for k in range(25):
        x = 30 + 24 * k
        picture.line((x, 70), (x, 84 if k % 4 else 92), "tick")
    picture.line((30, 70), (606, 70), "line")
    picture.circle((213, 50), 5, "row", hint="a user's number")
    arrow(picture, (213, 54), (200, 68))
    picture.text((213, 38), "a user's number", "small", anchor="middle")
    picture.text((198, 112), "cut off to a step", "small", anchor="middle")
    picture.text((420, 38), "sum of whole numbers + noise on the grid", "small", anchor="middle")
    picture.rect((404, 56), 32, 14, "row", radius=3)
    picture.text((320, 138), "the same bits in any order, on any engine", "small", anchor="middle")
    return picture


def ledger() -> Drawing:
    """μ² charged over a year, up to what the account has."""
    picture = Drawing(640, 230, "Charged μ² over a year rises in steps until the account refuses")
    total, cost, height = Budget(3.0, 1e-6).mu ** 2, Budget(1.0, 1e-6).mu ** 2, 150.0
    points, spent = [(60.0, 190.0)], 0.0
    for month in range(12):
        x = 60 + 46.0 * month
        points.append((x, 190 - height * spent / total))
        if spent + cost <= total:
            spent += cost
            points.append((x, 190 - height * spent / total))
        else:
            picture.text((x, 32), "×", "title", anchor="middle")
    points.append((612.0, 190 - height * spent / total))
    picture.path(points, "step")
    picture.line((60, 190 - height), (612, 190 - height), "cap")
    picture.line((60, 190), (612, 190), "line")
    picture.text((64, 34), "budget of the account: ε = 3", "small")
    picture.text((336, 214), "a fit at ε = 1 each month; × is refused", "small", anchor="middle")
    picture.text((30, 120), "μ²", "title", anchor="middle")
    return picture


def statement() -> Drawing:
    """The lines of a statement, and what each answers."""
    lines = (
        ("Guarantee: (1.0, 1e-06)-differential privacy.", "how much can be learned"),
        ("Spent: epsilon = 1 … (Gaussian-DP mu = 0.2368), over 22 releases.", "what it really cost"),
        ("Unit: user: all rows of one user.", "whom it protects"),
        ("Neighbours: add or remove one user.", "against which question"),
        ("Assumed public: the list of 3000 items, as given; …", "what it does not cover"),
        ("Tuning: library defaults: …", "was the choice of settings paid for"),
        ("Noise: operating system entropy: …", "can it be subtracted"),
        ("  popularity: Gaussian, 3000, 10 % of the budget, …", "one line for each release"),
    )
    picture = Drawing(820, 40 + 26 * len(lines), "The lines of a statement, each with the question that it answers")
    for k, (line, answers) in enumerate(lines):
        picture.rect((16, 14 + 26 * k), 500, 22, "box", radius=3)
        picture.text((26, 30 + 26 * k), line)
        picture.line((518, 25 + 26 * k), (545, 25 + 26 * k), "line")
        picture.text((552, 30 + 26 * k), answers, "small")
    return picture


def tradeoff() -> str:
    """What an attacker detects, against false alarms, at several ε."""
    normal = NormalDist()
    alarms = [k / 200 for k in range(1, 200)]
    curves = {
        f"ε = {epsilon:g}": Line(
            alarms, [normal.cdf(normal.inv_cdf(at) + Budget(epsilon, 1e-6).mu) for at in alarms], plain=True
        )
        for epsilon in (0.5, 1.0, 3.0, 8.0, 20.0)
    }
    curves["a coin"] = Line([0.0, 1.0], [0.0, 1.0], dashed=True, plain=True)
    panel = Panel("detections, at most", curves, "false alarms")
    return figure("Is this person in the data? (δ = 1e-6)", [panel], width=460, height=320)


def write_drawings(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for make in (neighbours, flow, public, trust, lattice, ledger, statement):
        (folder / f"{make.__name__}.svg").write_text(make().as_file(STYLE), encoding="utf-8")
    (folder / "tradeoff.svg").write_text(tradeoff(), encoding="utf-8")

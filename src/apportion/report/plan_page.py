"""The page of a plan: what error to expect at which ε, and the assumptions behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from apportion.report.comparison_charts import tick_labels
from apportion.report.rendering import render
from apportion.report.svg import Drawing, Linear, Log, round_domain
from apportion.report.wording import compact

if TYPE_CHECKING:
    from apportion.evaluation.planning import Forecast

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 16.0, 50.0


def remarks(found: Forecast) -> list[str]:
    """Return the assumptions behind the forecast, in sentences."""
    said = [
        f"{found.metric} without privacy: {found.without_privacy:g} (assumed). delta = {found.delta:g}.",
        "A forecast from sizes alone: no data were read and nothing was spent.",
    ]
    if found.clicks:
        said.append(
            "Click data of the same size differ a lot, so the interval is wide: it can rule out an epsilon but not "
            "choose one. Evaluate on data of your own."
        )
    if found.outside:
        said.append(f"Outside the sizes of the study ({', '.join(found.outside)}): the law is extrapolated.")
    return said


def plan_page(found: Forecast) -> str:
    """Return the page as self-contained HTML. It contains nobody's data."""
    return render("plan.html", found=found, remarks=remarks(found), draw=partial(error_chart, found))


def error_chart(found: Forecast, width: float) -> Drawing:
    """Draw the expected error against ε, with its interval and the error without privacy."""
    height, rows = 320.0, found.expected
    picture = Drawing(width, height, f"{found.metric} against epsilon")
    ends = [end for one in rows for end in one.interval]
    up = Linear(*round_domain([found.without_privacy, *ends]), height - _BOTTOM, _TOP)
    across = Log(rows[0].epsilon / 1.1, rows[-1].epsilon * 1.1, _LEFT, width - _RIGHT)
    _axes(picture, up, across, width)
    level = up(found.without_privacy)
    picture.line((_LEFT, level), (width - _RIGHT, level), "guide")
    lower = [(across(one.epsilon), up(one.interval[0])) for one in rows]
    upper = [(across(one.epsilon), up(one.interval[1])) for one in rows]
    picture.path([*lower, *reversed(upper)], "area-accent", closed=True)
    picture.text((width - _RIGHT, level - 6), "without privacy", "axis", anchor="end")  # on the band, not under it
    picture.path([(across(one.epsilon), up(one.error)) for one in rows], "curve-accent")
    for one in rows:
        hint = f"ε = {compact(one.epsilon)}: {one.error:.3f}"
        picture.circle((across(one.epsilon), up(one.error)), 4, "c3", hint=hint)
    return picture


def _axes(picture: Drawing, up: Linear, across: Log, width: float) -> None:
    ticks = up.ticks(5)
    for tick, words in zip(ticks, tick_labels(ticks), strict=True):
        picture.line((_LEFT, up(tick)), (width - _RIGHT, up(tick)), "grid")
        picture.text((_LEFT - 6, up(tick) + 4), words, "axis", anchor="end")
    for tick in across.ticks():
        picture.text((across(tick), picture.height - 28), compact(tick), "axis", anchor="middle")
    picture.text(((_LEFT + width - _RIGHT) / 2, picture.height - 8), "ε", "axis", anchor="middle")

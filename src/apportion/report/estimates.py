"""The page of estimates that may be shared: released numbers, what follows from them, and the statement.

Means, quantiles and coefficients of users' rows, each with its interval where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from apportion.privacy.statement import SEEDED, Statement
from apportion.report import estimates_chart as charts
from apportion.report.estimates_releases import groups_of
from apportion.report.public_charts import guess_chart
from apportion.report.releases import explain, families_of, mechanisms_of, unspent
from apportion.report.rendering import render
from apportion.report.svg import Drawing
from apportion.report.wording import alike_without, attack_on, meaning_of, number, precise, whole

Kind = Literal["mean", "quantile", "regression", "logistic"]


@dataclass(frozen=True)
class Estimate:
    """One number that was released.

    Attributes:
        name: the column, the coefficient, or the rank that a quantile has.
        value: the number.
        interval: (low, high) that holds the truth with the level's probability; None where there is none.
        noise: standard deviation of what privacy added; None where that is not known.
        bounds: the public range that it lies in, if it has one.
        rank: of a quantile, as asked for.
        ranks: (low, high) between which its true rank lies with the level's probability.
    """

    name: str
    value: float
    interval: tuple[float, float] | None = None
    noise: float | None = None
    bounds: tuple[float, float] | None = None
    rank: float | None = None
    ranks: tuple[float, float] | None = None

    @property
    def value_in_words(self) -> str:
        """The number, with as many digits as its interval leaves meaning."""
        return precise(self.value, _reach(self.interval))

    @property
    def interval_in_words(self) -> str:
        """Both ends of the interval, or a dash."""
        return _ends(self.interval)

    @property
    def ranks_in_words(self) -> str:
        """Both ends of the rank, or a dash."""
        return _ends(self.ranks)


@dataclass(frozen=True)
class Estimates:
    """What a command found, as it may be shared.

    Attributes:
        kind: what was estimated.
        rows: the numbers.
        level: of the intervals.
        statement: the privacy statement.
        caveats: what the intervals rest on, in full sentences.
        facts: settings by name, for the page.
        label: what the coefficients predict.
    """

    kind: Kind
    rows: tuple[Estimate, ...]
    level: float
    statement: Statement
    caveats: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def has_intervals(self) -> bool:
        """Whether every number has an interval, or for a quantile an interval of its rank."""
        return all(row.interval is not None or row.ranks is not None for row in self.rows)


_NONE: Final = "–"


def estimates_page(found: Estimates) -> str:
    """Return the page that may be shared, as self-contained HTML."""
    statement = found.statement
    rows = explain(statement)
    meaning = meaning_of(statement, seen="these numbers")
    columns = columns_of(found)
    return render(
        "estimates.html",
        found=found,
        statement=statement,
        meaning=meaning,
        headline=_headline(found),
        about=_about(found),
        header=list(columns),
        lines=list(zip(*columns.values(), strict=True)),
        draw_estimates=_drawing(found),
        mixed=any(charts.holds_zero(row.interval) for row in found.rows) and found.kind in ("regression", "logistic"),
        attack=attack_on(statement),
        alike=alike_without(statement),
        not_releasable=SEEDED,
        unit=statement.neighbours.one.capitalize(),
        one_in="" if statement.delta == 0 else f"one in {whole(1 / statement.delta)}",
        groups=groups_of(rows),
        families=families_of(rows),
        unspent=unspent(rows),
        mechanisms=mechanisms_of(rows),
        draw_guess=partial(guess_chart, meaning.best_guess),
        draw_budget=partial(charts.shares_chart, families_of(rows), unspent(rows)),
    )


def coefficients(
    names: Sequence[str],
    values: Sequence[float],
    intercept: float | None,
    intervals: Sequence[Sequence[float]] | None,
    noise: Sequence[float] | None = None,
) -> tuple[Estimate, ...]:
    """Coefficients by name, the intercept last.

    Args:
        names: of the features.
        values: the coefficients.
        intercept: the constant, if there is one.
        intervals: (low, high) of every coefficient and then of the intercept, if there are any.
        noise: standard deviation of what privacy added to each, likewise.
    """
    every = [*values] if intercept is None else [*values, intercept]
    named = [*names, charts.INTERCEPT][: len(every)]
    return tuple(
        Estimate(
            name,
            float(value),
            None if intervals is None else (float(intervals[k][0]), float(intervals[k][1])),
            None if noise is None else float(noise[k]),
        )
        for k, (name, value) in enumerate(zip(named, every, strict=True))
    )


def level_in_words(level: float) -> str:
    """A level as it was given.

    >>> level_in_words(0.95), level_in_words(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:g} %"


def _headline(found: Estimates) -> str:
    if not found.statement.releasable:
        return "A rehearsal: its noise came from a seed, so it protects nobody."
    first, several = found.rows[0], len(found.rows)
    with_intervals = f", with {level_in_words(found.level)} intervals" if found.has_intervals else ""
    if found.kind == "mean":
        if several > 1:
            return f"Means of {several} columns{with_intervals}"
        return f"The mean of {first.name} is {first.value_in_words}" + _give_or_take(first)
    if found.kind == "quantile":
        if several > 1:
            return f"{several} quantiles of {found.label}"
        return f"The {first.name} quantile of {found.label} is {number(first.value)}"
    how = "How" if found.kind == "regression" else "How the odds of"
    return f"{how} {found.label} go{'es' if found.kind == 'regression' else ''} with {_features(found)}{with_intervals}"


def _reach(ends: tuple[float, float] | None) -> float | None:
    return None if ends is None else (ends[1] - ends[0]) / 2


def _ends(ends: tuple[float, float] | None) -> str:
    """Both ends, or a dash.

    >>> _ends((3.40181, 3.62)), _ends(None)
    ('3.40 to 3.62', '–')
    """
    return _NONE if ends is None else f"{precise(ends[0], _reach(ends))} to {precise(ends[1], _reach(ends))}"


def _give_or_take(row: Estimate) -> str:
    if row.interval is None:
        return ""
    reach = max(row.value - row.interval[0], row.interval[1] - row.value)
    return f", give or take {precise(reach, reach)}"


def _features(found: Estimates) -> str:
    n_features = sum(row.name != charts.INTERCEPT for row in found.rows)
    return f"{n_features} feature{'s' * (n_features != 1)}"


def _about(found: Estimates) -> str:
    likely = level_in_words(found.level)
    if found.kind == "mean":
        return (
            f"Dots are estimates. The line through a dot is an interval that holds the true mean with a probability of "
            f"{likely}, each by itself. The grey bar is the public range: values beyond it were counted as its ends."
        )
    if found.kind == "quantile":
        ranks = (
            f" The upright line through a dot shows between which ranks it really lies with a probability of {likely}."
            if found.has_intervals
            else ""
        )
        return (
            "The height of a dot is the rank that was asked for, the fraction of values below; its place from left to "
            f"right is the point that was found, within the public range.{ranks}"
        )
    what = (
        f"A dot says by how much {found.label} rises on average where a feature rises by one and the others stay."
        if found.kind == "regression"
        else f"A dot says by how much the logarithm of the odds of {found.label} rises where a feature rises by one "
        "and the others stay."
    )
    if not found.has_intervals:
        return what
    return f"{what} The line through it holds the true coefficient with a probability of {likely}, each by itself."


def columns_of(found: Estimates) -> dict[str, list[str]]:
    """A table of the estimates by columns; a column of which every cell would be empty is left out."""
    likely = level_in_words(found.level)
    columns = {
        {"mean": "Mean of", "quantile": "Rank asked for"}.get(found.kind, "Coefficient of"): [
            r.name for r in found.rows
        ],
        "Value" if found.kind == "quantile" else "Estimate": [row.value_in_words for row in found.rows],
        f"{likely} interval": [row.interval_in_words for row in found.rows],
        f"Its rank, with {likely}": [row.ranks_in_words for row in found.rows],
        "Noise (standard deviation)": [_NONE if row.noise is None else number(row.noise) for row in found.rows],
    }
    return {name: cells for name, cells in columns.items() if set(cells) != {_NONE}}


def _drawing(found: Estimates) -> partial[Drawing]:
    if found.kind == "mean":
        return partial(charts.range_chart, found.rows)
    if found.kind == "quantile":
        return partial(charts.quantile_chart, found.rows, found.label)
    return partial(charts.coefficient_chart, found.rows)

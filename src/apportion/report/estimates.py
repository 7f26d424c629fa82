"""The page of estimates that may be shared: released numbers, what follows from them, and the statement.

The estimates are means, quantiles, coefficients or statistics by group, each with its interval if it has one.
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

Kind = Literal["mean", "quantile", "regression", "logistic", "group"]


@dataclass(frozen=True)
class Estimate:
    """One released number.

    Attributes:
        name: the column, the coefficient, or the rank of a quantile.
        value: the number.
        interval: (low, high), a confidence interval at the given level; None if there is none.
        noise: standard deviation of the privacy noise; None if it is not known.
        bounds: the public range of the number, if it has one.
        rank: the requested rank of a quantile.
        ranks: (low, high), a confidence interval of its true rank.
        together: (low, high), an interval that holds together with all others.
        group: the cells of its group's columns.
        part: which of its group's numbers it is, for example a bin or a rank.
    """

    name: str
    value: float
    interval: tuple[float, float] | None = None
    noise: float | None = None
    bounds: tuple[float, float] | None = None
    rank: float | None = None
    ranks: tuple[float, float] | None = None
    together: tuple[float, float] | None = None
    group: tuple[str, ...] | None = None
    part: str | None = None

    @property
    def value_in_words(self) -> str:
        """The number, with as many digits as its interval warrants."""
        return precise(self.value, _reach(self.interval))

    @property
    def interval_in_words(self) -> str:
        """Both ends of the interval, or a dash."""
        return _ends(self.interval)

    @property
    def together_in_words(self) -> str:
        """Both ends of the interval that holds together with others, or a dash."""
        return _ends(self.together)

    @property
    def of_any_rank(self) -> bool:
        """Whether the interval of its rank is all there is, so that nothing is known of the quantile."""
        return self.ranks is not None and self.ranks[0] <= 0 and self.ranks[1] >= 1

    @property
    def ranks_in_words(self) -> str:
        """Both ends of the rank, or a dash."""
        return _ends(self.ranks)


@dataclass(frozen=True)
class Estimates:
    """The estimates of a command, as they may be shared.

    Attributes:
        kind: what was estimated.
        rows: the numbers.
        level: the level of the intervals.
        statement: the privacy statement.
        caveats: what the intervals assume, in full sentences.
        facts: settings by name, for the page.
        label: what the coefficients predict.
        warnings: what the numbers may miss, in full sentences, which the terminal shows, too.
        headline: what the page says first, if its usual headline would mislead.
    """

    kind: Kind
    rows: tuple[Estimate, ...]
    level: float
    statement: Statement
    caveats: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    label: str = ""
    warnings: tuple[str, ...] = ()
    headline: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that the numbers assume or may miss."""
        return (*self.warnings, *self.caveats)

    @property
    def has_intervals(self) -> bool:
        """Whether every number has an interval, or every quantile an interval of its rank."""
        return all(row.interval is not None or row.ranks is not None for row in self.rows)


_NONE: Final = "–"


def estimates_page(result: Estimates) -> str:
    """Return the page that may be shared, as self-contained HTML."""
    statement = result.statement
    rows = explain(statement)
    meaning = meaning_of(statement, seen="these numbers")
    columns = columns_of(result)
    return render(
        "estimates.html",
        result=result,
        statement=statement,
        meaning=meaning,
        headline=_headline(result),
        explanation=_explanation(result),
        header=list(columns),
        lines=list(zip(*columns.values(), strict=True)),
        draw_estimates=_drawing(result),
        mixed=any(charts.holds_zero(row.interval) for row in result.rows) and result.kind in ("regression", "logistic"),
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
    """Return coefficients by name, with the intercept last.

    Args:
        names: the names of the features.
        values: the coefficients.
        intercept: the constant, if there is one.
        intervals: (low, high) of every coefficient and then of the intercept, if there are any.
        noise: standard deviation of the privacy noise on each, in the same order.
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
    """Format a level as a percentage.

    >>> level_in_words(0.95), level_in_words(0.999)
    ('95 %', '99.9 %')
    """
    return f"{100 * level:g} %"


def _headline(result: Estimates) -> str:
    if not result.statement.releasable:
        return "A rehearsal: its noise came from a seed, so it protects nobody."
    if result.headline:
        return result.headline
    several = len(result.rows)
    with_intervals = f", with {level_in_words(result.level)} intervals" if result.has_intervals else ""
    if result.kind == "group":
        return f"{result.label[0].upper()}{result.label[1:]}{with_intervals if several else ': no group is listed'}"
    first = result.rows[0]
    if result.kind == "mean":
        if several > 1:
            return f"Means of {several} columns{with_intervals}"
        return f"The mean of {first.name} is {first.value_in_words}" + _give_or_take(first)
    if result.kind == "quantile":
        if several > 1:
            return f"{several} quantiles of {result.label}"
        if first.of_any_rank:
            return f"The {first.name} quantile of {result.label} is not known"
        return f"The {first.name} quantile of {result.label} is {number(first.value)}"
    how = "How" if result.kind == "regression" else "How the odds of"
    return (
        f"{how} {result.label} go{'es' if result.kind == 'regression' else ''} with {_features(result)}{with_intervals}"
    )


def _reach(ends: tuple[float, float] | None) -> float | None:
    return None if ends is None else (ends[1] - ends[0]) / 2


def _ends(ends: tuple[float, float] | None) -> str:
    """Format both ends, or a dash.

    >>> _ends((3.40181, 3.62)), _ends(None)
    ('3.40 to 3.62', '–')
    """
    return _NONE if ends is None else f"{precise(ends[0], _reach(ends))} to {precise(ends[1], _reach(ends))}"


def _give_or_take(row: Estimate) -> str:
    if row.interval is None:
        return ""
    reach = max(row.value - row.interval[0], row.interval[1] - row.value)
    return f", give or take {precise(reach, reach)}"


def _features(result: Estimates) -> str:
    n_features = sum(row.name != charts.INTERCEPT for row in result.rows)
    return f"{n_features} feature{'s' * (n_features != 1)}"


def _explanation(result: Estimates) -> str:
    likely = level_in_words(result.level)
    if result.kind == "group":
        return f"Bars are estimates, the line at the end of a bar is its {likely} interval." + (
            f" The largest {charts.MOST_BARS} are drawn." if len(result.rows) > charts.MOST_BARS else ""
        )
    if result.kind == "mean":
        together = ", for all means together" if len(result.rows) > 1 else ""
        return (
            "Dots are estimates. The line through a dot is an interval that contains the true mean "
            f"with a probability of {likely}{together}. The grey bar is the public "
            "range; values outside it were clipped to it."
        )
    if result.kind == "quantile":
        ranks = (
            " The vertical line through a dot shows the range that contains its true rank with a "
            f"probability of {likely}."
            if result.has_intervals
            else ""
        )
        return (
            "The height of a dot is the requested rank, the fraction of values below it. Its "
            f"horizontal position is the estimate, within the public range.{ranks}"
        )
    what = (
        f"A dot shows by how much {result.label} rises on average when a feature rises by one and the others stay the "
        "same."
        if result.kind == "regression"
        else f"A dot shows by how much the logarithm of the odds of {result.label} rises when a feature "
        "rises by one and the others stay the same."
    )
    if not result.has_intervals:
        return what
    return (
        f"{what} The line through it contains the true coefficient with a probability of {likely}, "
        "for each coefficient separately."
    )


def columns_of(result: Estimates) -> dict[str, list[str]]:
    """Return a table of the estimates by columns. A column with only empty cells is left out.

    So are the intervals that hold together where there is one number.
    """
    likely = level_in_words(result.level)
    columns = {
        {"mean": "Mean of", "quantile": "Requested rank", "group": "Group"}.get(result.kind, "Coefficient of"): [
            r.name for r in result.rows
        ],
        "Value" if result.kind == "quantile" else "Estimate": [row.value_in_words for row in result.rows],
        f"{likely} interval": [row.interval_in_words for row in result.rows],
        "All together": [row.together_in_words if len(result.rows) > 1 else _NONE for row in result.rows],
        f"Its rank, with {likely}": [row.ranks_in_words for row in result.rows],
        "Noise (standard deviation)": [_NONE if row.noise is None else number(row.noise) for row in result.rows],
    }
    return {name: cells for name, cells in columns.items() if set(cells) != {_NONE}}


def _drawing(result: Estimates) -> partial[Drawing]:
    if result.kind == "group":
        return partial(charts.bars_chart, result.rows)
    if result.kind == "mean":
        return partial(charts.range_chart, result.rows)
    if result.kind == "quantile":
        return partial(charts.quantile_chart, result.rows, result.label)
    return partial(charts.coefficient_chart, result.rows)

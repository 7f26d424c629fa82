"""A study's results for people: tables with mean ± standard deviation over seeds, and an internal page with curves.

Everything here was computed from raw data with seeded noise; the page and the tables say so.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from apportion.evaluation.inspection import StudyInspection
from apportion.evaluation.study import StudyResults
from apportion.evaluation.study.description import LOWER_IS_BETTER
from apportion.evaluation.study.methods import settings_in_words
from apportion.evaluation.study.study_results import Cell, Figure
from apportion.evaluation.study.units import MARKING
from apportion.report.comparison_charts import Axis, Curve, curve_chart, figure_in_words
from apportion.report.internal import display_name
from apportion.report.rendering import render
from apportion.report.svg import Drawing
from apportion.report.wording import exact

_COLOURS = (3, 4, 1, 2, 5, 7, 8, 6)
_MAIN = "ours"
_RATIO_FOR_LOG = 10.0


# -- tables --


@dataclass(frozen=True)
class StudyTable:
    """One metric in one slice: a row per method and a column per ε.

    Attributes:
        metric: the metric's name in the results.
        slice: the name of the slice, or `overall`.
        header: names of the columns.
        rows: the method's name, then a figure per ε (None if nothing was measured).
    """

    metric: str
    slice: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Figure | None, ...]], ...]

    @property
    def title(self) -> str:
        """The title of the table."""
        better = "lower" if self.metric in LOWER_IS_BETTER else "higher"
        return f"{display_name(self.metric)}, {self.slice} ({better} is better)"

    @property
    def text_rows(self) -> list[list[str]]:
        """The rows as text."""
        return [[label, *map(figure_in_words, figures)] for label, figures in self.rows]


def comparison_tables(results: StudyResults) -> list[StudyTable]:
    """Return a table of every metric, overall and in every slice."""
    places: list[tuple[str, int | None]] = [("overall", None)]
    places += [(name, position) for position, name in enumerate(results.slices)]
    epsilons = results.study.budgets.epsilon
    header = ("method", *(f"ε = {exact(epsilon)}" for epsilon in epsilons))
    return [
        StudyTable(
            metric,
            name,
            header,
            tuple(
                (label, tuple(_figure(results, label, epsilon, metric, position) for epsilon in epsilons))
                for label in results.labels
            ),
        )
        for metric in results.study.metrics
        for name, position in places
    ]


def tables_to_print(results: StudyResults) -> list[StudyTable]:
    """Return every metric overall, and the main metric for slices by slice."""
    by_slice = metric_by_slice(results)
    return [table for table in comparison_tables(results) if table.slice == "overall" or table.metric == by_slice]


def metric_by_slice(results: StudyResults) -> str:
    """Return the metric with its own cut-off for each slice if there is one, otherwise the main one."""
    metrics = results.study.metrics
    return metrics[-1] if results.study.measures.recall_at_by_slice else metrics[0]


def comparison_csv(results: StudyResults) -> str:
    """Return all tables as one: a line per metric, slice and method; mean, standard deviation and seeds for each ε."""
    names = [f"epsilon={exact(epsilon)}" for epsilon in results.study.budgets.epsilon]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = [f"{name} {what}" for name in names for what in ("mean", "stddev", "seeds")]
    writer.writerow(["metric", "slice", "method", *columns, "marking"])
    for table in comparison_tables(results):
        for label, figures in table.rows:
            cells = [cell for figure in figures for cell in _csv_cells(figure)]
            writer.writerow([table.metric, table.slice, label, *cells, MARKING])
    return stream.getvalue()


def _figure(results: StudyResults, label: str, epsilon: float, metric: str, position: int | None) -> Figure | None:
    cell = results.cell(label, epsilon)
    return None if cell is None else cell.figure(metric, position)


def _csv_cells(figure: Figure | None) -> tuple[Any, Any, Any]:
    if figure is None:
        return "", "", 0
    return figure.mean, "" if figure.stddev is None else figure.stddev, figure.n


# -- the page --


def comparison_page(
    results: StudyResults,
    *,
    facts: Mapping[str, str] | None = None,
    inspection: StudyInspection | None = None,
    titles: Mapping[int | str, str] | None = None,
) -> str:
    """Return the internal page of a study as self-contained HTML.

    Args:
        results: the results of the study.
        facts: how it was measured, by name.
        inspection: neighbours and overlaps of saved models.
        titles: titles of items, for neighbours.
    """
    study = results.study
    epsilons = study.budgets.epsilon
    return render(
        "comparison.html",
        headline=_headline(results),
        lead=_lead(results),
        budgets=", ".join(exact(epsilon) for epsilon in epsilons),
        delta=study.budgets.delta,
        seeds=", ".join(map(str, study.budgets.seeds)),
        n_seeds=len(study.budgets.seeds),
        parts=[_part(results, metric) for metric in study.metrics],
        slices=results.slices,
        slice_parts=[_slice_part(results, epsilon) for epsilon in epsilons if results.slices],
        settings=list(_setting_parts(results)),
        measured_on="validation" if results.explored else "test",
        tuning=results.tuning_in_words,
        chosen=_chosen_rows(results),
        inspection=None if inspection is None else _inspection_part(results, inspection, titles or {}),
        facts={**(facts or {}), "Split": results.split},
        failures=results.failures,
    )


def _headline(results: StudyResults) -> str:
    metric = results.study.metrics[0]
    ranked = [_ranked(results, metric, epsilon) for epsilon in results.study.budgets.epsilon]
    winners = {rows[0][0] for rows in ranked if rows}
    if len(winners) == 1 and any(len(rows) > 1 for rows in ranked):
        return f"By {display_name(metric)}, {winners.pop()} does best at every ε."
    if len(winners) > 1:
        return f"By {display_name(metric)}, no method does best at every ε."
    return f"{display_name(metric)} at every ε"


def _lead(results: StudyResults) -> str:
    """Name the best two private methods at each ε, and the best result without privacy."""
    metric = results.study.metrics[0]
    words = []
    for epsilon in results.study.budgets.epsilon:
        best = [f"{label} {figure_in_words(figure)}" for label, figure in _ranked(results, metric, epsilon)[:2]]
        if best:
            words.append(f"At ε = {exact(epsilon)}: {', then '.join(best)}.")
    for cell in results.cells:
        if cell.epsilon is None and (figure := cell.figure(metric)) is not None:
            words.append(f"Without privacy, {cell.label} reaches {figure_in_words(figure)}.")
    return " ".join(words)


def _ranked(results: StudyResults, metric: str, epsilon: float) -> list[tuple[str, Figure]]:
    """Return private methods with their results at an ε, best first."""
    result = [
        (cell.label, figure)
        for cell in results.cells
        if cell.epsilon == epsilon and (figure := cell.figure(metric)) is not None
    ]
    return sorted(result, key=lambda row: row[1].mean, reverse=metric not in LOWER_IS_BETTER)


def _part(results: StudyResults, metric: str) -> dict[str, Any]:
    """Return what the page shows for one metric over all tasks."""
    table = next(each for each in comparison_tables(results) if (each.metric, each.slice) == (metric, "overall"))
    curves = [_curve_over_epsilon(results, label, metric) for label in results.labels]
    axis = Axis("ε", results.study.budgets.epsilon, logarithmic=True)
    return {
        "metric": display_name(metric),
        "header": table.header,
        "rows": [
            {"name": curve.name, "colour": curve.colour, "main": curve.style == "main", "figures": row[1:]}
            for curve, row in zip(curves, table.text_rows, strict=True)
        ],
        "draw": partial(curve_chart, curves, axis, display_name(metric), metric in LOWER_IS_BETTER),
    }


def _slice_part(results: StudyResults, epsilon: float) -> dict[str, Any]:
    """Return what the page shows by slice at one ε."""
    metric = metric_by_slice(results)
    places = range(len(results.slices))
    by_label = {label: [_figure(results, label, epsilon, metric, k) for k in places] for label in results.labels}
    curves = [_curve_over_slices(results, label, epsilon, figures) for label, figures in by_label.items()]
    shown, lower = display_name(metric), metric in LOWER_IS_BETTER
    return {
        "epsilon": exact(epsilon),
        "metric": shown,
        "rows": [
            {
                "name": curve.name,
                "colour": curve.colour,
                "main": curve.style == "main",
                "figures": [figure_in_words(figure) for figure in by_label[curve.name]],
            }
            for curve in curves
        ],
        "draw": partial(curve_chart, curves, Axis.of_slices(results.slices), shown, lower),
    }


def _curve_over_slices(results: StudyResults, label: str, epsilon: float, figures: Sequence[Figure | None]) -> Curve:
    points = tuple((float(position), figure) for position, figure in enumerate(figures) if figure is not None)
    return Curve(label, _colour(results, label), _style(results.cell(label, epsilon)), points)


def _curve_over_epsilon(results: StudyResults, label: str, metric: str) -> Curve:
    cells = [cell for cell in results.cells if cell.label == label]
    points = tuple(
        (epsilon, figure)
        for epsilon in sorted(results.study.budgets.epsilon)
        if (figure := _figure(results, label, epsilon, metric, None)) is not None
    )
    return Curve(label, _colour(results, label), _style(cells[0]), points, is_level=cells[0].epsilon is None)


def _colour(results: StudyResults, label: str) -> int:
    return _COLOURS[results.labels.index(label) % len(_COLOURS)]


def _style(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.epsilon is None:
        return "minor"
    return "main" if cell.combination.spec["method"] == _MAIN else ""


def _chosen_rows(results: StudyResults) -> list[dict[str, str]]:
    """Return what tuning chose: a row per method and ε."""
    metric = "" if results.study.tuning is None else results.study.tuning.metric
    return [
        {
            "method": cell.label,
            "epsilon": "none" if cell.epsilon is None else exact(cell.epsilon),
            "settings": settings_in_words(cell.combination.settings),
            "figure": figure_in_words(explored.figure(metric)),
        }
        for cell in results.cells
        for explored in results.explored
        if (explored.combination, explored.epsilon) == (cell.combination, cell.epsilon)
    ]


# -- curves over a setting --


def _setting_parts(results: StudyResults) -> Iterator[dict[str, Any]]:
    """Return a chart for each numeric setting in a grid and each ε: the main metric, best over all other settings."""
    metric = results.study.metrics[0] if results.study.tuning is None else results.study.tuning.metric
    cells = results.explored or results.cells
    lower = metric in LOWER_IS_BETTER
    for key in _numeric_settings(cells):
        values = sorted({cell.combination.settings[key] for cell in cells if key in cell.combination.settings})
        axis = Axis(
            key.rsplit(".", 1)[-1], values, logarithmic=values[0] > 0 and values[-1] / values[0] >= _RATIO_FOR_LOG
        )
        for epsilon in results.study.budgets.epsilon:
            curves = list(_curves_over_setting(cells, key, epsilon, metric, lower))
            if curves:
                title = f"{display_name(metric)} against {axis.name} at ε = {exact(epsilon)}"
                yield {"title": title, "draw": partial(curve_chart, curves, axis, display_name(metric), lower)}


def _numeric_settings(cells: Sequence[Cell]) -> list[str]:
    """Return the keys of grids with at least two numeric values."""
    values: dict[str, list[Any]] = {}
    for cell in cells:
        for key, value in cell.combination.settings.items():
            values.setdefault(key, []).append(value)
    return [
        key
        for key, result in values.items()
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in result)
        and len(set(result)) > 1
    ]


def _curves_over_setting(cells: Sequence[Cell], key: str, epsilon: float, metric: str, lower: bool) -> Iterator[Curve]:
    methods = list(dict.fromkeys(cell.combination.method for cell in cells))
    for number, method in enumerate(methods):
        best: dict[float, Figure] = {}
        for cell in cells:
            settings, figure = cell.combination.settings, cell.figure(metric)
            if (cell.combination.method, cell.epsilon) != (method, epsilon) or key not in settings or figure is None:
                continue
            before = best.get(settings[key])
            if before is None or (figure.mean < before.mean) == lower:
                best[settings[key]] = figure
        if best:
            yield Curve(method, _COLOURS[number % len(_COLOURS)], "", tuple(sorted(best.items())))


# -- neighbours --


def _inspection_part(
    results: StudyResults, inspection: StudyInspection, titles: Mapping[int | str, str]
) -> dict[str, Any]:
    def draw(epsilon: float) -> Callable[[float], Drawing]:
        curves = [
            _curve_over_slices(
                results, label, epsilon, [None if x is None else Figure(x, None, 1) for x in value.by_slice]
            )
            for label, value in inspection.overlaps[epsilon].items()
        ]
        return partial(curve_chart, curves, Axis.of_slices(results.slices), f"Overlap@{inspection.k}", False)

    return {
        "reference": inspection.reference,
        "k": inspection.k,
        "overlaps": [
            {
                "epsilon": exact(epsilon),
                "draw": draw(epsilon),
                "rows": [
                    {
                        "name": label,
                        "colour": _colour(results, label),
                        "figures": [
                            "–" if share is None else f"{share:.3f}" for share in (value.overall, *value.by_slice)
                        ],
                    }
                    for label, value in by_label.items()
                ],
            }
            for epsilon, by_label in inspection.overlaps.items()
            if by_label
        ],
        "tables": [
            {
                "title": titles.get(task, str(task)),
                "epsilon": exact(epsilon),
                "labels": list(result),
                "rows": list(
                    zip(
                        *([titles.get(each.task, str(each.task)) for each in near] for near in result.values()),
                        strict=True,
                    )
                ),
            }
            for (task, epsilon), result in inspection.neighbours.items()
        ],
    }

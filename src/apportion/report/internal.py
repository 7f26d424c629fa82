"""The internal page: quality on raw data, overall and by popularity slice. It is not covered by ε."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from apportion.evaluation import Comparison, MetricValue
from apportion.privacy.statement import Statement
from apportion.report import internal_charts as charts
from apportion.report.internal_charts import Line
from apportion.report.rendering import render

_LOWER_IS_BETTER = ("rmse", "mae")
_BASELINE_COLOURS = (6, 2, 5, 7)


@dataclass(frozen=True)
class Roles:
    """The role of each model in a comparison.

    Attributes:
        private: the model that the page presents.
        twin: the same kind of model without privacy, if there is one.
        baselines: predictions that learn nothing about tastes, weakest first.
        plain: the private model without features, if the page's model has features.
        published: a private model by a published method, if there is one.
        simple: a private model with the same budget that learns nothing about tastes, if there is one.
    """

    private: str
    twin: str | None = None
    baselines: tuple[str, ...] = field(default=())
    plain: str | None = None
    published: str | None = None
    simple: str | None = None

    @property
    def in_order(self) -> tuple[str, ...]:
        """All models, in the order of tables and charts."""
        models = (self.private, self.plain, self.published, self.simple, self.twin)
        return (*(name for name in models if name), *reversed(self.baselines))


@dataclass(frozen=True)
class NewItems:
    """Results for items that were not in training. The model knows only their features.

    Attributes:
        comparison: the model first, then what it is compared with.
        words: which items these are, and how it was measured.
    """

    comparison: Comparison
    words: str

    @property
    def summary(self) -> str:
        """Compare the main figure with the others, in a sentence."""
        models = self.comparison.evaluations
        metric = next(iter(next(iter(models.values())).metrics))
        figures = [f"{evaluation[metric].overall:.4f} ({name})" for name, evaluation in models.items()]
        return f"{display_name(metric)} on items that were not in training: {', '.join(figures)}."


def internal_page(
    comparison: Comparison,
    roles: Roles,
    *,
    statement: Statement | None = None,
    facts: Mapping[str, str] | None = None,
    remarks: Sequence[str] = (),
    new_items: NewItems | None = None,
) -> str:
    """Return the internal page as self-contained HTML, marked as not covered by ε.

    Args:
        comparison: evaluations of all models on the same targets.
        roles: which of them is which.
        statement: the privacy statement of the private model.
        facts: how it was measured, by name.
        remarks: warnings to show beside the figures.
        new_items: results for items that were not in training.
    """
    metrics = list(comparison[roles.private].metrics)
    slices = comparison[roles.private].slices
    return render(
        "internal.html",
        roles=roles,
        statement=statement,
        facts=facts or {},
        remarks=remarks,
        headline=_headline(comparison, roles, metrics[0]),
        lead=summary(comparison, roles),
        slices=slices,
        names=[display_name(metric) for metric in metrics],
        overall=[_overall_row(comparison, roles, name, metrics) for name in roles.in_order],
        parts=[metric_part(comparison, roles, metric, slices) for metric in metrics],
        new_items=new_items and _new_items(new_items),
    )


def summary(comparison: Comparison, roles: Roles) -> str:
    """Compare the main figure with the twin and the baselines, in a sentence or two."""
    metric = next(iter(comparison[roles.private].metrics))
    mine = comparison[roles.private][metric].overall
    words = f"{display_name(metric)} of the private model is {mine:.4f}"
    if roles.plain:
        words += f" with features ({comparison[roles.plain][metric].overall:.4f} without features)"
    others = {
        roles.published: "by a published method",
        roles.simple: f"({roles.simple})",
        roles.twin: "without privacy",
    }
    found = [f"{comparison[name][metric].overall:.4f} {what}" for name, what in others.items() if name]
    if found:
        words += f", against {_joined(found)}"
    words += "."
    if roles.simple and _is_better(comparison[roles.simple][metric].overall, mine, metric):
        words += f" At the same budget, the private model is behind {roles.simple}."
    if roles.baselines:
        each = [f"{comparison[name][metric].overall:.4f} ({name})" for name in roles.baselines]
        words += f" Baselines without privacy that learn nobody’s taste reach {_joined(each)}."
    ahead = [name for name in roles.baselines if _is_better(comparison[name][metric].overall, mine, metric)]
    if ahead:
        words += f" Of these, {_joined(ahead)} would do better than the private model."
    return words


def display_name(metric: str) -> str:
    """Return a metric's name as people write it.

    >>> display_name("rmse"), display_name("recall@20"), display_name("ndcg@100")
    ('RMSE', 'Recall@20', 'NDCG@100')
    """
    return metric.capitalize() if metric.startswith("recall") else metric.upper()


def share_kept(comparison: Comparison, roles: Roles, metric: str) -> float | None:
    """Return how far the private model gets from the strongest baseline (0) to the twin (1); None without both."""
    if roles.twin is None or not roles.baselines:
        return None
    strongest = comparison[_strongest(comparison, roles, metric)]
    floor, limit = strongest[metric].overall, comparison[roles.twin][metric].overall
    if not _is_better(limit, floor, metric):
        return None
    return (comparison[roles.private][metric].overall - floor) / (limit - floor)


def _strongest(comparison: Comparison, roles: Roles, metric: str) -> str:
    """Return the baseline that does best."""
    best = min if metric in _LOWER_IS_BETTER else max
    return best(roles.baselines, key=lambda name: comparison[name][metric].overall)


def _headline(comparison: Comparison, roles: Roles, metric: str) -> str:
    kept = share_kept(comparison, roles, metric)
    if kept is None:
        return "How good the model is, from head to tail"
    floor = _strongest(comparison, roles, metric)
    if kept <= 0:
        return f"At this budget the private model does no better than the {floor}."
    if kept >= 1:
        return "With privacy, the model does as well as without."
    return f"With privacy, the model keeps {100 * kept:.0f} % of the improvement over the {floor}."


def _overall_row(comparison: Comparison, roles: Roles, name: str, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name,
        "main": name == roles.private,
        "colour": _colour(roles, name),
        "figures": [_with_error(comparison[name][metric]) for metric in metrics],
    }


def _with_error(value: MetricValue) -> str:
    return f"{value.overall:.4f}" + ("" if value.error is None else f" ± {value.error:.4f}")


def metric_part(comparison: Comparison, roles: Roles, metric: str, slices: Sequence[str]) -> dict[str, Any]:
    """Return what a page shows about one metric: figures, and charts overall and by slice."""
    lines = [_line(comparison[name][metric], roles, name) for name in roles.in_order]
    lower, shown = metric in _LOWER_IS_BETTER, display_name(metric)
    return {
        "metric": shown,
        "n": comparison[roles.private][metric].n,
        "n_by_slice": comparison[roles.private][metric].n_by_slice,
        "unit": "ratings" if lower else "users",
        "rows": [
            {
                "name": line.name,
                "main": line.style == "main",
                "colour": line.colour,
                "figures": _figures(line),
            }
            for line in lines
        ],
        "draw_overall": partial(charts.overall_chart, lines, shown, lower),
        "draw_slices": partial(charts.slice_chart, lines, slices, shown, lower),
    }


def _new_items(result: NewItems) -> dict[str, Any]:
    """Return what the page shows about items that were not in training."""
    models = result.comparison.evaluations
    metrics = list(next(iter(models.values())).metrics)
    return {
        "words": result.words,
        "names": [display_name(metric) for metric in metrics],
        "rows": [(name, [f"{each[metric].overall:.4f}" for metric in metrics]) for name, each in models.items()],
    }


def _line(value: MetricValue, roles: Roles, name: str) -> Line:
    style = (
        "main"
        if name == roles.private
        else ""
        if name in (roles.twin, roles.plain, roles.published, roles.simple)
        else "minor"
    )
    return Line(name, _colour(roles, name), style, value.overall, value.by_slice)


def _colour(roles: Roles, name: str) -> int:
    if name == roles.private:
        return 3
    special = {roles.twin: 1, roles.plain: 4, roles.published: 4, roles.simple: 2}
    if name in special:
        return special[name]
    return _BASELINE_COLOURS[roles.baselines.index(name) % len(_BASELINE_COLOURS)]


def _figures(line: Line) -> list[str]:
    return [f"{line.overall:.4f}", *("–" if value is None else f"{value:.4f}" for value in line.by_slice)]


def _is_better(one: float, other: float, metric: str) -> bool:
    """Whether a figure is better than another as they are shown, with four decimals."""
    one, other = round(one, 4), round(other, 4)
    return one < other if metric in _LOWER_IS_BETTER else one > other


def _joined(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

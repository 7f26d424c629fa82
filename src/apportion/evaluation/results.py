"""Results of an evaluation: plain numbers, overall and by slice, with a JSON form.

A slice in which nothing could be measured has the value `None`; NaN is never a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class MetricValue:
    """One metric: overall and by slice, each with the number of targets (or users) in the average.

    Attributes:
        overall: the value over all targets.
        n: the number of targets; if several runs were averaged, the total of all runs.
        by_slice: the value in each slice; None if nothing could be measured there.
        n_by_slice: the number of targets in each slice.
        error: standard error of `overall` over several runs; None for a single run.
    """

    overall: float
    n: int
    by_slice: tuple[float | None, ...] = ()
    n_by_slice: tuple[int, ...] = ()
    error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return numbers and lists, ready for JSON."""
        return {
            "overall": self.overall,
            "n": self.n,
            "by_slice": list(self.by_slice),
            "n_by_slice": list(self.n_by_slice),
            "error": self.error,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> MetricValue:
        """Read back what `to_dict` wrote."""
        slices = tuple(stored["by_slice"]), tuple(stored["n_by_slice"])
        return cls(stored["overall"], stored["n"], *slices, stored.get("error"))

    @classmethod
    def averaged(cls, values: Sequence[MetricValue]) -> MetricValue:
        """Return the mean over runs, with its standard error; a slice is averaged over the runs that measured it.

        >>> MetricValue.averaged([MetricValue(1.0, 10), MetricValue(3.0, 10)])
        MetricValue(overall=2.0, n=20, by_slice=(), n_by_slice=(), error=1.0)
        """
        if len(values) == 1:
            return values[0]
        found = [each.overall for each in values]
        slices = zip(*(each.by_slice for each in values), strict=True)
        known = [[value for value in column if value is not None] for column in slices]
        sizes = zip(*(each.n_by_slice for each in values), strict=True)
        return cls(
            float(np.mean(found)),
            sum(each.n for each in values),
            tuple(float(np.mean(column)) if column else None for column in known),
            tuple(map(sum, sizes)),
            float(np.std(found, ddof=1) / np.sqrt(len(found))),
        )


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one model by name, such as `rmse` or `recall@20`, and the names of the slices."""

    metrics: Mapping[str, MetricValue]
    slices: tuple[str, ...] = ()

    def __getitem__(self, metric: str) -> MetricValue:
        if metric not in self.metrics:
            raise InputError(
                f"There is no metric {metric!r}; the metrics are {', '.join(self.metrics)}.", argument="metric"
            )
        return self.metrics[metric]

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, text, lists and dictionaries, ready for JSON."""
        return {
            "metrics": {name: value.to_dict() for name, value in self.metrics.items()},
            "slices": list(self.slices),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Evaluation:
        """Read back what `to_dict` wrote."""
        metrics = {name: MetricValue.from_dict(value) for name, value in stored["metrics"].items()}
        return cls(metrics, tuple(stored["slices"]))


@dataclass(frozen=True)
class Comparison:
    """Evaluations of several models on the same targets, as a table."""

    evaluations: Mapping[str, Evaluation]

    def __getitem__(self, model: str) -> Evaluation:
        if model not in self.evaluations:
            raise InputError(
                f"There is no model {model!r}; the models are {', '.join(self.evaluations)}.", argument="model"
            )
        return self.evaluations[model]

    def __iter__(self) -> Iterator[str]:
        return iter(self.evaluations)

    @classmethod
    def averaged(cls, runs: Sequence[Comparison]) -> Comparison:
        """Return the means over several runs of the same models, with their standard errors."""
        first = runs[0]
        return cls(
            {
                model: Evaluation(
                    {name: MetricValue.averaged([run[model][name] for run in runs]) for name in evaluation.metrics},
                    evaluation.slices,
                )
                for model, evaluation in first.evaluations.items()
            }
        )

    def rows(self) -> list[dict[str, str | float | int | None]]:
        """Yield one row per model, metric and slice (`overall` first): model, metric, slice, value, n."""
        return [
            {"model": model, "metric": metric, "slice": label, "value": value, "n": n}
            for model, evaluation in self.evaluations.items()
            for metric, measured in evaluation.metrics.items()
            for label, value, n in zip(
                ("overall", *evaluation.slices),
                (measured.overall, *measured.by_slice),
                (measured.n, *measured.n_by_slice),
                strict=True,
            )
        ]

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        import pyarrow as pa

        text, number = pa.string(), pa.float64()
        columns = [("model", text), ("metric", text), ("slice", text), ("value", number), ("n", pa.int64())]
        return pa.Table.from_pylist(self.rows(), schema=pa.schema(columns))

    def to_text(self) -> str:
        """Return a table for people: a line per model and metric, a column overall and for each slice."""
        lines = [["model", "metric", "overall", *next(iter(self.evaluations.values())).slices]]
        for model, evaluation in self.evaluations.items():
            for metric, measured in evaluation.metrics.items():
                overall = _shown(measured.overall) + ("" if measured.error is None else f" ± {measured.error:.4f}")
                lines.append([model, metric, overall, *map(_shown, measured.by_slice)])
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, text, lists and dictionaries, ready for JSON."""
        return {model: evaluation.to_dict() for model, evaluation in self.evaluations.items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Comparison:
        """Read back what `to_dict` wrote."""
        return cls({model: Evaluation.from_dict(value) for model, value in stored.items()})


def slice_means(totals: NDArray[np.float64], ns: NDArray[np.int64]) -> tuple[float | None, ...]:
    """Return the mean in each slice from totals and counts; `None` where the count is 0."""
    return tuple(total / n if n else None for total, n in zip(totals.tolist(), ns.tolist(), strict=True))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"

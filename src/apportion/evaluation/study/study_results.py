"""The results of a study: for every method at every ε, means and standard deviations over all seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from apportion import __version__
from apportion.evaluation.results import Evaluation, MetricValue
from apportion.evaluation.study.description import Study
from apportion.evaluation.study.methods import Combination
from apportion.evaluation.study.units import MARKING


@dataclass(frozen=True)
class Figure:
    """A mean over seeds, its standard deviation (None for a single seed), and the number of seeds."""

    mean: float
    stddev: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure | None:
        """Return the figure of some values; None if there are none."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    def to_dict(self) -> dict[str, Any]:
        """Return the figure, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Cell:
    """One method at one ε: the results of each seed that succeeded.

    Attributes:
        label: its row.
        combination: the method and its settings.
        epsilon: ε, or None for a method without privacy.
        evaluations: one per seed.
        model: folder of the saved model of the first seed, if models are saved.
    """

    label: str
    combination: Combination
    epsilon: float | None
    evaluations: tuple[Evaluation, ...]
    model: Path | None = None

    def figure(self, metric: str, position: int | None = None) -> Figure | None:
        """Return mean and standard deviation of a metric, overall or in the slice at a position."""
        measured = [_measured_at(evaluation[metric], position) for evaluation in self.evaluations]
        return Figure.of([value for value in measured if value is not None])


def _measured_at(value: MetricValue, position: int | None) -> float | None:
    return value.overall if position is None else value.by_slice[position]


@dataclass(frozen=True)
class StudyResults:
    """The results of a study.

    Attributes:
        study: the study.
        cells: every row at every ε, measured on the test part.
        explored: with tuning, every combination at every ε, measured on the validation part.
        failures: what could not be fitted or measured, and why.
        split: how the data were divided, in words.
        features: the public features that some rows have, in words.
    """

    study: Study
    cells: tuple[Cell, ...]
    explored: tuple[Cell, ...]
    failures: tuple[tuple[str, str], ...]
    split: str
    features: str | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows, in the order of the study."""
        return tuple(dict.fromkeys(cell.label for cell in self.cells))

    @property
    def slices(self) -> tuple[str, ...]:
        """Names of the popularity slices, rarest first."""
        return next((cell.evaluations[0].slices for cell in self.cells if cell.evaluations), ())

    def cell(self, label: str, epsilon: float) -> Cell | None:
        """Return a row at an ε; a method without privacy has the same row at each."""
        return next((cell for cell in self.cells if cell.label == label and cell.epsilon in (None, epsilon)), None)

    @property
    def tuning_in_words(self) -> str:
        """Say how settings were chosen, and how many fits looked at the data for that."""
        tuning = self.study.tuning
        if tuning is None:
            return "Nothing was tuned: every combination of settings is a separate row."
        if not self.explored:
            return "Nothing was tuned: no method has more than one combination of settings."
        tuned = dict.fromkeys(cell.combination.method for cell in self.explored)
        n_fits = sum(1 if cell.epsilon is None else len(tuning.seeds) for cell in self.explored)
        return (
            f"Each method was tuned over its own grid, separately for each ε: {'; '.join(tuned)}. The "
            f"settings with the best mean {tuning.metric} on the validation part were chosen; "
            f"{n_fits:,} fits looked at that part (noise seeds {', '.join(map(str, tuning.seeds))}). "
            "This choice is not private: no ε covers it."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "marking": MARKING,
            "version": __version__,
            "kind": self.study.kind,
            "split": self.split,
            "features": self.features,
            "delta": self.study.budgets.delta,
            "seeds": list(self.study.budgets.seeds),
            "tuning": self.tuning_in_words,
            "slices": list(self.slices),
            "rows": [self._row(cell) for cell in self.cells],
            "validation": [self._row(cell) for cell in self.explored],
            "failures": [{"fit": words, "reason": reason} for words, reason in self.failures],
        }

    def _row(self, cell: Cell) -> dict[str, Any]:
        def figures(metric: str) -> dict[str, Any]:
            by_slice = [cell.figure(metric, position) for position in range(len(self.slices))]
            overall = cell.figure(metric)
            return {
                "overall": None if overall is None else overall.to_dict(),
                "by_slice": [None if figure is None else figure.to_dict() for figure in by_slice],
            }

        return {
            "method": cell.label,
            "epsilon": cell.epsilon,
            "settings": dict(cell.combination.settings),
            "spec": dict(cell.combination.spec),
            "model": None if cell.model is None else f"{cell.model.parent.name}/{cell.model.name}",
            "metrics": {metric: figures(metric) for metric in self.study.metrics},
        }

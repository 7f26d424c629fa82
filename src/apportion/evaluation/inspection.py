"""What models have learned: nearest neighbours side by side, and how many of them are shared.

Neighbours are the most similar tasks, as in `ItemModel.similar`. The overlap of a model with
a reference (usually one without privacy) is, per task, the fraction of its k nearest neighbours in the reference that
are also among its k nearest in the model, averaged over tasks. Slices by exact counts make it an internal figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError
from apportion.evaluation.results import MetricValue, slice_means
from apportion.evaluation.slices import PopularitySlices
from apportion.evaluation.study import StudyResults
from apportion.linalg.fixed_order import row_products, top_columns
from apportion.recommend import load
from apportion.recommend.model import ItemModel, Neighbour

_CELLS_AT_ONCE: Final = 1 << 22


def neighbours(models: Mapping[str, ItemModel], task: int | str, k: int = 10) -> dict[str, list[Neighbour]]:
    """Return the k nearest neighbours of one task in each of several models, in the given order.

    Args:
        models: models by name; each must know the task.
        task: the task's id.
        k: how many neighbours.
    """
    if not models:
        raise InputError("Expected at least one model to inspect, got 0.", argument="models")
    return {name: model.similar(task, k) for name, model in models.items()}


def overlap(
    model: ItemModel, reference: ItemModel, k: int = 20, *, slices: PopularitySlices | None = None
) -> MetricValue:
    """Return the mean fraction of nearest neighbours shared with a reference, overall and by popularity slice.

    A task without a vector in the reference (all zeros) has no neighbours and is left out. A task without a vector in
    the model shares none.

    Args:
        model: the model to judge.
        reference: the model to compare with, for the same list of tasks.
        k: how many neighbours.
        slices: popularity slices to report as well.
    """
    _check(model, reference, k, slices)
    ours, theirs = model.directions, reference.directions
    counted = np.flatnonzero(theirs.any(axis=1))
    if not len(counted):
        raise InputError(
            f"Expected a reference with item vectors; all {reference.n_tasks} vectors are zero.", argument="reference"
        )
    shared = np.empty(len(counted))
    for rows in _blocks(len(counted), model.n_tasks):
        tasks = counted[rows]
        shared[rows] = _shared(_nearest(ours, tasks, k), _nearest(theirs, tasks, k), model.n_tasks) / k
    shared[~ours[counted].any(axis=1)] = 0.0
    if slices is None:
        return MetricValue(float(shared.mean()), len(counted))
    sliced = slices.of_task[counted]
    ns = np.bincount(sliced, minlength=slices.n_slices)
    totals = np.bincount(sliced, weights=shared, minlength=slices.n_slices).astype(np.float64)
    return MetricValue(float(shared.mean()), len(counted), slice_means(totals, ns), tuple(ns.tolist()))


def nearest(model: ItemModel, k: int = 20) -> NDArray[np.int32]:
    """Return codes of the k nearest neighbours of every task, nearest first; n_tasks x k, computed in blocks."""
    _check_k(k, model.n_tasks)
    directions = model.directions
    result = np.empty((model.n_tasks, k), np.int32)
    for rows in _blocks(model.n_tasks, model.n_tasks):
        result[rows] = _nearest(directions, np.arange(model.n_tasks)[rows], k)
    return result


@dataclass(frozen=True)
class StudyInspection:
    """The saved models of a study compared with its reference, at each ε.

    Attributes:
        reference: the method that the others are compared with.
        k: how many neighbours count in an overlap.
        overlaps: by ε, the overlap of each method with the reference.
        neighbours: by task and ε, the nearest neighbours in each method, the reference first.
    """

    reference: str
    k: int
    overlaps: Mapping[float, Mapping[str, MetricValue]]
    neighbours: Mapping[tuple[int | str, float], Mapping[str, list[Neighbour]]]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, text, lists and dictionaries, ready for JSON."""
        return {
            "reference": self.reference,
            "k": self.k,
            "overlaps": [
                {"epsilon": epsilon, "method": label, **value.to_dict()}
                for epsilon, by_label in self.overlaps.items()
                for label, value in by_label.items()
            ],
            "neighbours": [
                {"item": task, "epsilon": epsilon, "method": label, "nearest": [asdict(each) for each in near]}
                for (task, epsilon), by_label in self.neighbours.items()
                for label, near in by_label.items()
            ],
        }


def inspect_study(
    results: StudyResults, slices: PopularitySlices, tasks: Sequence[int | str] = (), n_neighbours: int = 10
) -> StudyInspection:
    """Compare the models that a study with `[inspection]` saved.

    Args:
        results: the results that `run_study` returned.
        slices: popularity slices, from `study_slices`.
        tasks: ids of tasks whose neighbours are listed.
        n_neighbours: how many neighbours to list.
    """
    wanted = results.study.inspection
    if wanted is None:
        raise InputError("Expected a study with a table [inspection], got one without.", argument=None)
    overlaps: dict[float, dict[str, MetricValue]] = {}
    listed: dict[tuple[int | str, float], dict[str, list[Neighbour]]] = {}
    row = next((cell.label for cell in results.cells if cell.combination.method == wanted.reference), "")
    for epsilon in results.study.budgets.epsilon:
        models = _kept_models(results, epsilon)
        if row not in models:
            raise InputError(
                f"Expected a model of the reference {wanted.reference!r}, got none: it was not fitted.", argument=None
            )
        reference = models.pop(row)
        k = min(wanted.k, reference.n_tasks - 1)
        overlaps[epsilon] = {label: overlap(model, reference, k, slices=slices) for label, model in models.items()}
        for task in tasks:
            shown = min(n_neighbours, reference.n_tasks - 1)
            listed[task, epsilon] = neighbours({row: reference, **models}, task, shown)
    return StudyInspection(wanted.reference, wanted.k, overlaps, listed)


def _kept_models(results: StudyResults, epsilon: float) -> dict[str, ItemModel]:
    cells = (results.cell(label, epsilon) for label in results.labels)
    return {cell.label: load(cell.model) for cell in cells if cell is not None and cell.model is not None}


def _nearest(directions: NDArray[np.float32], tasks: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    similarities = row_products(directions[tasks], directions)
    similarities[np.arange(len(tasks)), tasks] = -np.inf
    return top_columns(similarities, k)


def _shared(ours: NDArray[np.int64], theirs: NDArray[np.int64], n_tasks: int) -> NDArray[np.int64]:
    """Return how many codes each row of one table shares with the same row of the other."""
    row = np.arange(len(ours))[:, None] * n_tasks
    is_shared = np.isin(ours + row, theirs + row, assume_unique=True)
    counts: NDArray[np.int64] = is_shared.sum(axis=1)
    return counts


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    size = max(1, _CELLS_AT_ONCE // n_columns)
    return (slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size))


def _check(model: ItemModel, reference: ItemModel, k: int, slices: PopularitySlices | None) -> None:
    if model.task_ids is not reference.task_ids and model.task_ids != reference.task_ids:
        raise InputError(
            f"Expected models of the same list of tasks, got {model.n_tasks} and {reference.n_tasks} others.",
            argument="reference",
        )
    _check_k(k, model.n_tasks)
    if slices is not None and len(slices.of_task) != model.n_tasks:
        raise InputError(f"Expected slices of {model.n_tasks} tasks, got {len(slices.of_task)}.", argument="slices")


def _check_k(k: int, n_tasks: int) -> None:
    if not 1 <= k < n_tasks:
        raise InputError(f"Expected k from 1 to {n_tasks - 1}, got {k}.", argument="k")

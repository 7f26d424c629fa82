"""How well ratings are predicted: RMSE = √mean (r - r̂)² and MAE = mean abs(r - r̂), overall and by slice.

A slice's figures are over the targets whose task is in the slice.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.evaluation.results import Evaluation, MetricValue, slice_means
from apportion.evaluation.slices import PopularitySlices


class RatingModel(Protocol):
    """What an evaluation of ratings needs from a model."""

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.floating]:
        """Return a rating for every target, in the targets' user-major order, from the users' histories."""
        ...


def rmse(predicted: ArrayLike, targets: Interactions, *, slices: PopularitySlices | None = None) -> MetricValue:
    """Return the root mean squared error of predictions in the targets' order."""
    squares = _errors(predicted, targets) ** 2
    return _rooted(_averaged(squares, targets, slices))


def mae(predicted: ArrayLike, targets: Interactions, *, slices: PopularitySlices | None = None) -> MetricValue:
    """Return the mean absolute error of predictions in the targets' order."""
    return _averaged(np.abs(_errors(predicted, targets)), targets, slices)


def evaluate_ratings(
    model: RatingModel,
    history: Interactions,
    targets: Interactions,
    *,
    slices: PopularitySlices | None = None,
) -> Evaluation:
    """Return RMSE and MAE of a model on targets, given the users' histories.

    Args:
        model: predicts ratings.
        history: the users' known ratings; for a split by rows, the training part.
        targets: the ratings to predict.
        slices: popularity slices to report as well.
    """
    predicted = model.predict(history, targets)
    metrics = {"rmse": rmse(predicted, targets, slices=slices), "mae": mae(predicted, targets, slices=slices)}
    return Evaluation(metrics, slices.labels if slices is not None else ())


def _errors(predicted: ArrayLike, targets: Interactions) -> NDArray[np.float64]:
    predictions = np.asarray(predicted, np.float64)
    if targets.n_observations == 0:
        raise InputError("Expected at least one target to evaluate on, got 0.", argument="targets")
    if predictions.shape != (targets.n_observations,):
        raise InputError(
            f"Expected {targets.n_observations} predictions, got shape {predictions.shape}.", argument="predicted"
        )
    if not np.isfinite(predictions).all():
        position = int(np.argmax(~np.isfinite(predictions)))
        raise InputError(
            f"The model predicts {predictions[position]} for target {position}; expected finite numbers.", argument=None
        )
    return predictions - targets.values


def _averaged(errors: NDArray[np.float64], targets: Interactions, slices: PopularitySlices | None) -> MetricValue:
    if slices is None:
        return MetricValue(float(errors.mean()), len(errors))
    if len(slices.of_task) != targets.n_tasks:
        raise InputError(f"Expected slices of {targets.n_tasks} tasks, got {len(slices.of_task)}.", argument="slices")
    slice_of_target = slices.of_task[targets.tasks]
    counts = np.bincount(slice_of_target, minlength=slices.n_slices)
    totals = np.bincount(slice_of_target, weights=errors, minlength=slices.n_slices).astype(np.float64)
    return MetricValue(float(errors.mean()), len(errors), slice_means(totals, counts), tuple(counts.tolist()))


def _rooted(mean_square: MetricValue) -> MetricValue:
    roots = tuple(None if mean is None else mean**0.5 for mean in mean_square.by_slice)
    return MetricValue(mean_square.overall**0.5, mean_square.n, roots, mean_square.n_by_slice)

"""Several models on the same targets, side by side: a model, its non-private twin and the baselines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from apportion.data import Interactions
from apportion.errors import InputError
from apportion.evaluation.rankings import RankingModel, evaluate_rankings
from apportion.evaluation.ratings import RatingModel, evaluate_ratings
from apportion.evaluation.results import Comparison, Evaluation
from apportion.evaluation.slices import PopularitySlices

Model = TypeVar("Model")


def compare(models: Mapping[str, Model], evaluate: Callable[[Model], Evaluation]) -> Comparison:
    """Apply one evaluation to every model, in the order given.

    Args:
        models: models by name.
        evaluate: the evaluation of one model.
    """
    if not models:
        raise InputError("Expected at least one model to compare, got 0.", argument="models")
    return Comparison({name: evaluate(model) for name, model in models.items()})


def compare_ratings(
    models: Mapping[str, RatingModel],
    history: Interactions,
    targets: Interactions,
    *,
    slices: PopularitySlices | None = None,
) -> Comparison:
    """Return RMSE and MAE of every model; see `evaluate_ratings`."""
    return compare(models, lambda model: evaluate_ratings(model, history, targets, slices=slices))


def compare_rankings(
    models: Mapping[str, RankingModel],
    history: Interactions,
    targets: Interactions,
    *,
    recall_at: Sequence[int] = (20,),
    ndcg_at: Sequence[int] = (100,),
    slices: PopularitySlices | None = None,
) -> Comparison:
    """Return Recall and NDCG of every model; see `evaluate_rankings`."""

    def evaluate(model: RankingModel) -> Evaluation:
        return evaluate_rankings(model, history, targets, recall_at=recall_at, ndcg_at=ndcg_at, slices=slices)

    return compare(models, evaluate)

"""Evaluation: metrics overall and by popularity slice, baselines, and comparisons of models.

All of it is computed from raw data and not covered by ε: what it yields belongs to the internal page.
"""

from __future__ import annotations

from apportion.evaluation.baselines import BiasModel, GlobalMean, Popularity
from apportion.evaluation.compare import compare, compare_rankings, compare_ratings
from apportion.evaluation.rankings import RankingModel, evaluate_rankings, ndcg_at_k, recall_at_k
from apportion.evaluation.ratings import RatingModel, evaluate_ratings, mae, rmse
from apportion.evaluation.results import Comparison, Evaluation, MetricValue
from apportion.evaluation.slices import PopularitySlices, popularity_slices

__all__ = [
    "BiasModel",
    "Comparison",
    "Evaluation",
    "GlobalMean",
    "MetricValue",
    "Popularity",
    "PopularitySlices",
    "RankingModel",
    "RatingModel",
    "compare",
    "compare_rankings",
    "compare_ratings",
    "evaluate_rankings",
    "evaluate_ratings",
    "mae",
    "ndcg_at_k",
    "popularity_slices",
    "recall_at_k",
    "rmse",
]

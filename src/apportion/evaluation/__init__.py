"""Evaluation: metrics overall and by popularity slice, baselines, comparisons of models, and studies.

Everything except `tuning` is computed from raw data and not covered by ε: its results belong on an internal page.
`tuning` chooses settings within ε.
"""

from __future__ import annotations

from apportion.evaluation.baselines import BiasModel, GlobalMean, Popularity, PrivatePopularity
from apportion.evaluation.compare import compare, compare_rankings, compare_ratings
from apportion.evaluation.inspection import nearest, neighbours, overlap
from apportion.evaluation.new_items import HeldOutItems, compare_on_new_items, hold_out_items
from apportion.evaluation.rankings import (
    RECALL_AT_BY_SLICE,
    RankingModel,
    evaluate_rankings,
    ndcg_at_k,
    recall_at_k,
)
from apportion.evaluation.ratings import RatingModel, evaluate_ratings, mae, rmse
from apportion.evaluation.results import Comparison, Evaluation, MetricValue
from apportion.evaluation.slices import PopularitySlices, popularity_slices
from apportion.evaluation.study import Study, StudyResults, read_study, run_study
from apportion.evaluation.unlisted import OnLongerList
from apportion.evaluation.within_slices import recall_within_slices

__all__ = [
    "RECALL_AT_BY_SLICE",
    "BiasModel",
    "Comparison",
    "Evaluation",
    "GlobalMean",
    "HeldOutItems",
    "MetricValue",
    "OnLongerList",
    "Popularity",
    "PopularitySlices",
    "PrivatePopularity",
    "RankingModel",
    "RatingModel",
    "Study",
    "StudyResults",
    "compare",
    "compare_on_new_items",
    "compare_rankings",
    "compare_ratings",
    "evaluate_rankings",
    "evaluate_ratings",
    "hold_out_items",
    "mae",
    "ndcg_at_k",
    "nearest",
    "neighbours",
    "overlap",
    "popularity_slices",
    "read_study",
    "recall_at_k",
    "recall_within_slices",
    "rmse",
    "run_study",
]

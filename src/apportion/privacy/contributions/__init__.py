"""What one user adds to a sum, as values that any engine can evaluate: see `base`."""

from apportion.privacy.contributions.base import Contribution, Kernels, LabelsOf, RowsOf, UserRun, Weighting
from apportion.privacy.contributions.clipped import ClippedParts, Output, step_of
from apportion.privacy.contributions.key_counts import KeyCounts, KeyShares
from apportion.privacy.contributions.partial_sums import Channel, PartialSums
from apportion.privacy.contributions.rating_round import RatingParts
from apportion.privacy.contributions.row_sums import (
    BoxedColumns,
    BoxedValues,
    GradientTotal,
    LabelTotal,
    LabelVectors,
    PrivateRowWeights,
    PublicRowWeights,
    RowTotal,
    RowWeighting,
    SizeHistogram,
    Values,
)
from apportion.privacy.contributions.task_sums import TaskCounts, TaskGrams, TaskMoments, UserGram, UserTotal

__all__ = [
    "BoxedColumns",
    "BoxedValues",
    "Channel",
    "ClippedParts",
    "Contribution",
    "GradientTotal",
    "Kernels",
    "KeyCounts",
    "KeyShares",
    "LabelTotal",
    "LabelVectors",
    "LabelsOf",
    "Output",
    "PartialSums",
    "PrivateRowWeights",
    "PublicRowWeights",
    "RatingParts",
    "RowTotal",
    "RowWeighting",
    "RowsOf",
    "SizeHistogram",
    "TaskCounts",
    "TaskGrams",
    "TaskMoments",
    "UserGram",
    "UserRun",
    "UserTotal",
    "Values",
    "Weighting",
    "step_of",
]

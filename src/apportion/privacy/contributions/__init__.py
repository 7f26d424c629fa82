"""Contributions: what one user adds to a sum, as values that any engine can evaluate (see `base`)."""

from apportion.privacy.contributions.base import Contribution, Kernels, LabelsOf, RowsOf, UserRun, Weighting
from apportion.privacy.contributions.cell_weights import CellWeights
from apportion.privacy.contributions.clipped import ClippedParts, Output, step_of
from apportion.privacy.contributions.group_boxes import GroupBoxes
from apportion.privacy.contributions.group_sums import Cells, GroupMoments, GroupSums, MomentsOf, NormClasses
from apportion.privacy.contributions.key_counts import KeyCounts, KeyShares
from apportion.privacy.contributions.middle_rows import MiddleRows
from apportion.privacy.contributions.partial_sums import Channel, PartialSums
from apportion.privacy.contributions.rating_round import RatingParts
from apportion.privacy.contributions.row_sums import (
    BoxedColumns,
    BoxedValues,
    GradientTotal,
    LabelTotal,
    LabelVectors,
    RowTotal,
    SizeHistogram,
    Values,
)
from apportion.privacy.contributions.row_weights import PrivateRowWeights, PublicRowWeights, RowWeighting
from apportion.privacy.contributions.second_counts import SecondKeyCounts
from apportion.privacy.contributions.task_sums import TaskCounts, TaskGrams, TaskMoments, UserGram, UserTotal
from apportion.privacy.contributions.votes import HeldOut, Losses, Votes, WithoutHeldOut, without_held_out

__all__ = [
    "BoxedColumns",
    "BoxedValues",
    "CellWeights",
    "Cells",
    "Channel",
    "ClippedParts",
    "Contribution",
    "GradientTotal",
    "GroupBoxes",
    "GroupMoments",
    "GroupSums",
    "HeldOut",
    "Kernels",
    "KeyCounts",
    "KeyShares",
    "LabelTotal",
    "LabelVectors",
    "LabelsOf",
    "Losses",
    "MiddleRows",
    "MomentsOf",
    "NormClasses",
    "Output",
    "PartialSums",
    "PrivateRowWeights",
    "PublicRowWeights",
    "RatingParts",
    "RowTotal",
    "RowWeighting",
    "RowsOf",
    "SecondKeyCounts",
    "SizeHistogram",
    "TaskCounts",
    "TaskGrams",
    "TaskMoments",
    "UserGram",
    "UserRun",
    "UserTotal",
    "Values",
    "Votes",
    "Weighting",
    "WithoutHeldOut",
    "step_of",
    "without_held_out",
]

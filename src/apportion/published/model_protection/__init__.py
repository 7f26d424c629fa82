"""Baselines for model protection: learning alone, joint learning without privacy, and other private methods."""

from apportion.published.model_protection.alone import alone_common, alone_l1, alone_l2
from apportion.published.model_protection.private import (
    NO_GUARANTEE,
    BaselineModels,
    aggregated,
    aggregated_by_group,
    related_by_group,
)
from apportion.published.model_protection.rows import TaskLists
from apportion.published.model_protection.together import STRUCTURES, chosen_penalty, joint, relations_of
from apportion.published.model_protection.wishart import Wishart
from apportion.published.model_protection.wishart_release import WishartRelease

__all__ = [
    "NO_GUARANTEE",
    "STRUCTURES",
    "BaselineModels",
    "TaskLists",
    "Wishart",
    "WishartRelease",
    "aggregated",
    "aggregated_by_group",
    "alone_common",
    "alone_l1",
    "alone_l2",
    "chosen_penalty",
    "joint",
    "related_by_group",
    "relations_of",
]

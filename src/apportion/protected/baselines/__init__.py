"""What model protection is compared with: learning alone, joint learning without privacy, and other private methods."""

from apportion.protected.baselines.alone import alone_common, alone_l1, alone_l2
from apportion.protected.baselines.private import (
    NO_GUARANTEE,
    BaselineModels,
    aggregated,
    aggregated_by_group,
    related_by_group,
)
from apportion.protected.baselines.rows import TaskLists
from apportion.protected.baselines.together import STRUCTURES, chosen_penalty, joint, relations_of

__all__ = [
    "NO_GUARANTEE",
    "STRUCTURES",
    "BaselineModels",
    "TaskLists",
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

"""Data: `Interactions` and the ways into it, splits, and synthetic long-tailed data with a known truth.

Everything here is the analyst's own view of private data. Nothing is released or charged.
"""

from __future__ import annotations

from apportion.data.columns import IGNORE
from apportion.data.features import ItemFeatures
from apportion.data.interactions import Interactions
from apportion.data.segments import Segments
from apportion.data.splits import HeldOut, UserSplit
from apportion.data.vocabulary import Vocabulary

__all__ = ["IGNORE", "HeldOut", "Interactions", "ItemFeatures", "Segments", "UserSplit", "Vocabulary"]

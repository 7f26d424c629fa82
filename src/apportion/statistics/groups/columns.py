"""The columns that make a group, from what a caller gives: arrays, series of a frame, or a whole frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from apportion.data.encoding import EncodedIds


def columns_of_groups(by: Any) -> list[Any]:
    """One column, or several in a list, tuple, mapping or frame.

    >>> len(columns_of_groups(["east", "west"])), len(columns_of_groups([["east", "west"], [1, 2]]))
    (1, 2)
    """
    if isinstance(by, Mapping):
        return list(by.values())
    if hasattr(by, "columns"):  # a frame
        return [by[name] for name in by.columns]
    if isinstance(by, list | tuple) and (not by or all(map(_is_column, by))):
        return list(by)
    return [by]


def _is_column(each: Any) -> bool:
    """Whether it holds a value for every row; a text, or a value of one row, does not."""
    return isinstance(each, EncodedIds | list | tuple | np.ndarray) or hasattr(each, "to_numpy")

"""Training on the head only: which items to train on, chosen by released popularity.

Statistics of rare items are mostly noise. An encoder may be trained on popular items alone and still be asked about all
of them, through their features (Krichene et al., "Private Learning with Public Features", appendix E.1.1). The paper
chooses the head by exact counts, which costs privacy; here it is chosen by counts that were released.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InputError


def head_by_popularity(released: NDArray[np.floating[Any]], fraction: float = 0.1) -> NDArray[np.bool_]:
    """The most popular fraction of items by released popularity, at least one; ties go to the lower code.

    Args:
        released: one released (or estimated from released) popularity per item. Exact counts are private: do not give
            them.
        fraction: how much of the items to take, above 0 and at most 1.

    Example:
        >>> head_by_popularity(np.array([3.0, 9.5, -0.2, 4.1]), 0.5)
        array([False,  True, False,  True])
    """
    if not 0 < fraction <= 1:
        raise InputError(f"Expected a fraction of items above 0 and at most 1, got {fraction}.")
    if not len(released):
        raise InputError("Expected the popularity of at least one item, got none.")
    count = max(1, round(fraction * len(released)))
    head = np.zeros(len(released), bool)
    head[np.argsort(-np.asarray(released), kind="stable")[:count]] = True
    return head

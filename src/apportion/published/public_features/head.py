"""Training on the head only: which items to train on, chosen by released popularity.

Statistics of rare items are mostly noise. An encoder may be trained only on popular items and still be applied to all,
through their features (Krichene et al., "Private Learning with Public Features", appendix E.1.1). The weight that a
user would have spent on rare items then goes to popular ones. The paper chooses the head by exact counts, which costs
privacy; here it is chosen by released counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.allocation import Expected
from apportion.allocation.weightings import OnTasks
from apportion.errors import InputError
from apportion.published.skew.updates import Round


def head_by_popularity(released: NDArray[np.floating[Any]], fraction: float = 0.1) -> NDArray[np.bool_]:
    """Return the most popular fraction of items by released popularity, at least one; ties go to the lower code.

    Args:
        released: one popularity per item, released or estimated from releases. Do not pass exact counts: they are
            private.
        fraction: fraction of the items, above 0 and at most 1.

    Example:
        >>> head_by_popularity(np.array([3.0, 9.5, -0.2, 4.1]), 0.5)
        array([False,  True, False,  True])
    """
    check_head(fraction)
    if not len(released):
        raise InputError("Expected the popularity of at least one item, got none.", argument="released")
    count = max(1, round(fraction * len(released)))
    head = np.zeros(len(released), bool)
    head[np.argsort(-np.asarray(released), kind="stable")[:count]] = True
    return head


def check_head(fraction: float) -> None:
    """Refuse a fraction outside (0, 1]."""
    if not 0 < fraction <= 1:
        raise InputError(
            f"Expected a fraction of items above 0 and at most 1 for the head, got {fraction}.", argument="head"
        )


def on_head(this_round: Round, fraction: float) -> tuple[Round, NDArray[np.bool_]]:
    """Return the round with all weight on the head, and a mask of the head; the same round if all items are in it."""
    kept = head_by_popularity(this_round.expected.total, fraction)
    if kept.all():
        return this_round, kept
    weights = OnTasks(this_round.weights, kept, "the head of the items")
    return replace(this_round, weights=weights, expected=_expected_on_head(this_round.expected, kept)), kept


def _expected_on_head(expected: Expected, head: NDArray[np.bool_]) -> Expected:
    """Return the expected sums of those weights, for users with the same part of their squares on the head."""
    squares = expected.total * expected.typical
    factor = np.sqrt(squares.sum() / max(float(squares[head].sum()), 1e-300))
    return Expected(np.where(head, factor * expected.total, 0.0), np.where(head, factor * expected.typical, 0.0))


def of_head(expected: Expected, head: NDArray[np.bool_]) -> Expected:
    """Return what is expected for the items of the head, in order."""
    return Expected(expected.total[head], expected.typical[head])

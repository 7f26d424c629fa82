"""Scores of predictions whose `predict` takes more than X, so that scikit-learn's scorers cannot call it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apportion.data.numbers import finite_column
from apportion.errors import InputError


def score_of(predicted: NDArray[np.float64], y: ArrayLike, *, classes: bool) -> float:
    """Return the coefficient of determination R², or for classes the fraction that is right. It is not private.

    Args:
        predicted: predictions; for classes 0 or 1.
        y: labels; for classes, positive numbers are class 1.
        classes: whether labels are classes.
    """
    labels = finite_column(y, "y", len(predicted))
    if classes:
        return float(np.mean((labels > 0) == (predicted > 0)))
    spread = float(np.sum((labels - labels.mean()) ** 2))
    return 1.0 - float(np.sum((labels - predicted) ** 2)) / spread if spread > 0 else float("nan")


def unnamed(what: str, of: str) -> InputError:
    """Return the error for rows of X without the tasks or parties that they belong to.

    Args:
        what: the name of the missing argument.
        of: what one of its values is.
    """
    return InputError(
        f"Expected {what}, the {of} of each row of X, got none. A search or cross_val_score of scikit-learn passes "
        "them on after sklearn.set_config(enable_metadata_routing=True), without scoring=.",
        argument=what,
    )

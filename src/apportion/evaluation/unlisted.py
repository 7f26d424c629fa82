"""A model on data whose list of items is longer than its own, for example because its list was private.

A rating of an item that the model does not know is predicted by the user's own mean. Such an item is ranked last. The
user's vector is computed from the rows that the model can use, and the mean from all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.recommend.model import ItemModel, RatingModel


class OnLongerList:
    """Predicts and ranks for the list of whatever data it is given.

    Args:
        model: a model that knows some of the items.
    """

    def __init__(self, model: ItemModel) -> None:
        self.model = model

    def covered(self, data: Interactions) -> NDArray[np.bool_]:
        """Return which rows are of items that the model knows."""
        return np.asarray(self._codes(data)[data.tasks] >= 0)

    def predict(self, history: Interactions, targets: Interactions) -> NDArray[np.float32]:
        """Return a rating for every target: the model's prediction, or the user's own mean."""
        assert isinstance(self.model, RatingModel)
        predicted = self._own_means(history)[targets.users]
        codes, known = self._codes(targets)[targets.tasks], self.covered(targets)
        order = np.flatnonzero(known)[np.lexsort((codes[known], targets.users[known]))]
        predicted[order] = self.model.predict(self._onto(history), self._onto(targets))
        return predicted

    def score(self, history: Interactions, users: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return a score for every item of the history's list.

        Items that the model does not know come below all others.
        """
        scores = self.model.score(self._onto(history), users)
        codes = self._codes(history)
        last = scores.min(axis=1, keepdims=True) - 1
        return np.where(codes >= 0, scores[:, np.maximum(codes, 0)], last)

    def _codes(self, data: Interactions) -> NDArray[np.int32]:
        """Return the model's code of every item of the data's list, -1 for unknown ones. Ids are compared as text."""
        known = {str(each): code for code, each in enumerate(self.model.task_ids)}
        return np.array([known.get(str(each), -1) for each in data.task_ids], np.int32)

    def _onto(self, data: Interactions) -> Interactions:
        codes = self._codes(data)[data.tasks]
        kept = codes >= 0
        return Interactions.from_codes(
            data.users[kept], codes[kept], data.values[kept], user_ids=data.user_ids, task_ids=self.model.task_ids
        )

    def _own_means(self, history: Interactions) -> NDArray[np.float32]:
        """Return each user's mean, with the model's offset as one more rating."""
        low, high = self.model.value_range
        sums = np.bincount(history.users, np.clip(history.values, low, high), minlength=history.n_users)
        counts = np.bincount(history.users, minlength=history.n_users)
        return np.asarray((sums + self.model.offset) / (counts + 1), np.float32)

"""Recommendations for many users on a cluster: a column of histories in, a column of the best items out.

Each user's vector is computed from that user's history on a worker, so this costs no privacy. Only the model, which was
released, is sent to the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.data import Interactions
from apportion.data.arrow_columns import refuse_nulls
from apportion.data.vocabulary import Vocabulary
from apportion.errors import InputError
from apportion.recommend.model import ItemModel, RatingModel

if TYPE_CHECKING:
    import pyarrow as pa

RECOMMENDED, SCORES = "recommended", "scores"


def recommend_on_spark(model: ItemModel, frame: Any, k: int = 10, *, items: str, values: str | None = None) -> Any:
    """Return the frame with the k best items of each row's history, which is one user's, and their scores.

    Items that the model does not know are skipped. A row without a known item gets empty lists.

    Args:
        model: a fitted model.
        frame: a DataFrame of PySpark, classic or Connect.
        k: how many items for each row.
        items: name of a column of lists of item ids.
        values: name of a column of lists of ratings, as long as those of items; needed by a model of ratings.

    Example:
        >>> recommend_on_spark(model, histories, 20, items="watched", values="stars")  # doctest: +SKIP
    """
    from pyspark.sql.types import ArrayType, FloatType, LongType, StringType, StructField, StructType

    if isinstance(model, RatingModel) != (values is not None):
        needs = "needs values=, the column of ratings" if values is None else "has clicks and takes no values="
        raise InputError(f"This model {needs}.", argument="values")
    for name in (name for name in (items, values) if name is not None and name not in frame.columns):
        raise InputError(f"There is no column {name!r}; the columns are {frame.columns}.", argument=None)
    for name in (name for name in (RECOMMENDED, SCORES) if name in frame.columns):
        raise InputError(f"The frame has a column {name!r} already; rename it first.", argument="frame")
    ids = StringType() if model.task_ids.holds_text else LongType()
    further = [StructField(RECOMMENDED, ArrayType(ids)), StructField(SCORES, ArrayType(FloatType()))]
    work = _Recommending(model, min(k, model.n_tasks), items, values)

    def run(batches: Any) -> Any:
        return work(batches)

    return frame.mapInArrow(run, StructType([*frame.schema.fields, *further]))


@dataclass(frozen=True, eq=False)
class _Recommending:
    """What a worker does with the batches of a partition."""

    model: ItemModel
    k: int
    items: str
    values: str | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            tasks, scores, lengths = self._best(batch)
            ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
            kind = pa.string() if self.model.task_ids.holds_text else pa.int64()
            named = pa.array(self.model.task_ids.ids_of(tasks).tolist(), kind)
            lists = [pa.ListArray.from_arrays(ends, each) for each in (named, pa.array(scores, pa.float32()))]
            names = [*batch.schema.names, RECOMMENDED, SCORES]
            yield pa.RecordBatch.from_arrays([*batch.columns, *lists], names)

    def _best(self, batch: pa.RecordBatch) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
        """Items and scores, row after row, and how many each row has: none where no item of its history is known."""
        history = self._history(batch)
        lengths = np.zeros(batch.num_rows, np.int64)
        best = self.model.recommend(history, self.k)
        left = best.tasks >= 0
        lengths[best.users] = left.sum(axis=1)
        return best.tasks[left], best.scores[left], lengths

    def _history(self, batch: pa.RecordBatch) -> Interactions:
        lists = batch.column(self.items)
        ids = refuse_nulls(lists.flatten(), self.items, 1, "an id").dictionary_encode()
        owners, tasks = lists.value_parent_indices().to_numpy(), np.zeros(0, np.int32)
        if len(ids):
            tasks = self.model.task_ids.match(Vocabulary(ids.dictionary.to_pylist()))[ids.indices.to_numpy()]
        values = np.ones(len(tasks), np.float32) if self.values is None else self._given_values(batch, owners)
        known = tasks >= 0
        rows = Vocabulary.of_range(batch.num_rows, name="row")
        on_list = self.model.task_ids
        return Interactions.from_codes(owners[known], tasks[known], values[known], user_ids=rows, task_ids=on_list)

    def _given_values(self, batch: pa.RecordBatch, owners: NDArray[np.int64]) -> NDArray[Any]:
        lists = batch.column(self.values)
        values = lists.flatten().to_numpy(zero_copy_only=False)
        if not np.array_equal(owners, lists.value_parent_indices().to_numpy()):
            raise InputError(
                "Expected as many values as items in every row; at least one row has other lists.", argument=None
            )
        return np.asarray(values, np.float32)

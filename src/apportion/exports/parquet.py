"""Item vectors as one Parquet file that DuckDB, LanceDB, polars or Spark read.

A row has the item's id as text, its feature row f as a list of fixed length, and a bias: an item's score for a user
with coefficients u is bias + vector · u. With `weight`, and `base` and `right_side` in the file's metadata, anybody can
compute a user's u: it solves (base + Σ weight f fᵀ) u = right_side + Σ weight y f.

A model that ranks by choice has three more columns. `choice_vector` and `choice_weight` are those of a second
regression, with `choice` in the metadata: its solution v is for y = (rating − low) / (high − low). Items are ranked by
`rank_vector` · (v, u). The file says nothing about exploring places.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.exports.needed import statement_of
from apportion.recommend.model import FoldIn, ItemModel

if TYPE_CHECKING:
    import pyarrow as pa


def items_table(model: ItemModel) -> pa.Table:
    """Return the items as an Arrow table, with the statement and the regression in its metadata."""
    import pyarrow as pa

    columns = {
        "id": pa.array([str(each) for each in model.task_ids], pa.string()),
        "vector": _vectors(model.fold_in.features),
        "bias": pa.array(np.full(model.n_tasks, model.offset, np.float32)),
        "weight": pa.array(np.asarray(model.fold_in.observation_weights, np.float32)),
        "popularity": pa.array(np.asarray(model.popularity, np.float32)),
        "reliability": pa.array(np.asarray(model.reliability, np.float32)),
    }
    choice = model.choice
    if choice is not None:
        columns["choice_vector"] = _vectors(choice.features)
        columns["choice_weight"] = pa.array(np.asarray(choice.observation_weights, np.float32))
        columns["rank_vector"] = _vectors(model.ranking_features)
    return pa.table(columns).replace_schema_metadata({"apportion": json.dumps(_description(model), ensure_ascii=False)})


def write_parquet(model: ItemModel, path: Path) -> None:
    """Write the items to one file."""
    import pyarrow.parquet as parquet

    parquet.write_table(items_table(model), path)


def _vectors(rows: NDArray[np.floating[Any]]) -> pa.Array:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(rows, np.float32).ravel()), rows.shape[1])


def _description(model: ItemModel) -> dict[str, Any]:
    choice = model.choice
    return {
        "kind": model.kind,
        "value_range": list(model.value_range),
        **_regression(model.fold_in),
        **({} if choice is None else {"choice": _regression(choice)}),
        "statement": json.loads(statement_of(model).to_json()),
    }


def _regression(fold_in: FoldIn) -> dict[str, Any]:
    return {
        "base": np.asarray(fold_in.base, np.float64).tolist(),
        "right_side": np.asarray(fold_in.base_rhs, np.float64).tolist(),
    }

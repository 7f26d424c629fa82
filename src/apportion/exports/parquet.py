"""Item vectors as one Parquet file that DuckDB, LanceDB, polars or Spark read.

A row has the item's id as text, its feature row f as a list of fixed length, and a bias: an item's score for a user
with coefficients u is bias + vector · u. With `weight`, and `base` and `right_side` in the file's metadata, anybody can
compute a user's u: it solves (base + Σ weight f fᵀ) u = right_side + Σ weight y f.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from apportion.exports.needed import statement_of
from apportion.recommend.model import ItemModel

if TYPE_CHECKING:
    import pyarrow as pa


def items_table(model: ItemModel) -> pa.Table:
    """Return the items as an Arrow table, with the statement and the regression in its metadata."""
    import pyarrow as pa

    features = np.asarray(model.fold_in.features, np.float32)
    flat = pa.array(features.ravel(), pa.float32())
    columns = {
        "id": pa.array([str(each) for each in model.task_ids], pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(flat, features.shape[1]),
        "bias": pa.array(np.full(model.n_tasks, model.offset, np.float32)),
        "weight": pa.array(np.asarray(model.fold_in.observation_weights, np.float32)),
        "popularity": pa.array(np.asarray(model.popularity, np.float32)),
        "reliability": pa.array(np.asarray(model.reliability, np.float32)),
    }
    return pa.table(columns).replace_schema_metadata({"apportion": json.dumps(_description(model), ensure_ascii=False)})


def write_parquet(model: ItemModel, path: Path) -> None:
    """Write the items to one file."""
    import pyarrow.parquet as parquet

    parquet.write_table(items_table(model), path)


def _description(model: ItemModel) -> dict[str, Any]:
    return {
        "kind": model.kind,
        "value_range": list(model.value_range),
        "base": np.asarray(model.fold_in.base, np.float64).tolist(),
        "right_side": np.asarray(model.fold_in.base_rhs, np.float64).tolist(),
        "statement": json.loads(statement_of(model).to_json()),
    }

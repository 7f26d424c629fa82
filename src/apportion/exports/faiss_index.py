"""Item vectors as a FAISS inner-product index, with a Parquet file of the ids.

The vectors are those by which the model ranks: `rank_vector` in the Parquet file if it ranks by choice, else `vector`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from apportion.exports.needed import library, statement_of
from apportion.exports.parquet import write_parquet
from apportion.recommend.model import ItemModel

INDEX: Final = "items.faiss"
ITEMS: Final = "items.parquet"


def write_faiss(model: ItemModel, folder: Path) -> None:
    """Write the index and the items. Entry k of the index is row k of the items."""
    statement_of(model)
    faiss = library("faiss", "faiss")
    folder.mkdir(parents=True, exist_ok=True)
    features = np.ascontiguousarray(model.ranking_features, np.float32)
    index = faiss.IndexFlatIP(features.shape[1])
    index.add(features)
    faiss.write_index(index, str(folder / INDEX))
    write_parquet(model, folder / ITEMS)

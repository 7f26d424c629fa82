"""Models in formats for production: Parquet, FAISS, ONNX, a Hugging Face folder, MLflow.

Each format is read by its own library, without apportion. It contains the same as the saved model: released values and
the statement. The libraries that write the formats come with extras and are imported where they are used.
"""

from __future__ import annotations

from apportion.exports.faiss_index import write_faiss
from apportion.exports.huggingface import write_huggingface
from apportion.exports.mlflow_model import write_mlflow
from apportion.exports.onnx_model import write_onnx
from apportion.exports.parquet import write_parquet

__all__ = ["write_faiss", "write_huggingface", "write_mlflow", "write_onnx", "write_parquet"]
